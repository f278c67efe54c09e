"""Followers that copy from leaders, with the leader's own handler answering."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kwire.codec import decode, encode
from kwire.errors import ErrorCode
from kwire.messages.fetch import EpochEndOffset, FetchRequest, FetchResponse, PartitionData
from kwire.messages.list_offsets import ListOffsetsRequest
from server.handlers.fetch import fetch
from server.handlers.list_offsets import list_offsets
from server.replication.fetcher import EARLIEST, LATEST, Fetcher, FetchLimits, common_end
from server.replication.fetcher_task import FETCH_VERSION, LIST_OFFSETS_VERSION
from server.replication.partition import Partition
from server.replication.replication_quota import ReplicationQuota
from tests.support.replicas import Replicas, registration, stored, topic_id, topic_image
from tests.support.transactions import abort, commit, transactional

LIMITS = FetchLimits(max_bytes=2000, response_max_bytes=5000, wait_max_ms=0)
EVERYBODY = (0, 1, 2)


class Room(Replicas):
    """One of three brokers; tests call its fetcher step by step."""

    def __init__(self, folder: Path, broker_id: int) -> None:
        super().__init__(folder, {"log.segment.bytes": "1200"}, broker_id)
        self.fetchers: dict[int, Fetcher] = {}
        self.quota = ReplicationQuota()  # as follower
        self.replicas.fetchers = self
        self.replicas.membership.live_brokers = lambda: EVERYBODY

    def follow(self, partition: Partition) -> None:
        self.stop(partition.tp)  # type: ignore[call-arg, arg-type]
        leader = partition.state.leader
        if leader >= 0:
            fetcher = self.fetchers.setdefault(
                leader, Fetcher(self.broker_id, leader, LIMITS, self.quota)
            )
            fetcher.follow(partition, self.clock.now_ms())

    def stop(self, tp: Any = None) -> None:
        if tp is None:
            super().stop()
        for fetcher in self.fetchers.values():
            fetcher.stop(tp)


class Trio:
    """Three brokers, whose roles the test sets in the controller's place."""

    def __init__(self, folder: Path) -> None:
        self.rooms = [Room(folder / str(number), number) for number in EVERYBODY]
        for room in self.rooms:
            room.start()
            brokers = {each: registration(each) for each in EVERYBODY}
            room.publisher.publish(room.publisher.image.with_brokers(brokers))
        self.epoch = -1
        self.leader = -1

    def lead(self, leader: int, names: tuple[str, ...] = ("a",), **options: Any) -> Room:
        """Begin an epoch with this leader; by default, all three replicas are in sync."""
        self.epoch += 1
        self.leader = leader
        told = options.pop("told", EVERYBODY)
        for number in told:
            room = self.rooms[number]
            topics = [
                topic_image(name, leader=leader, epoch=self.epoch, replicas=EVERYBODY, **options)
                for name in names
            ]
            room.publisher.publish(room.publisher.image.with_topics(topics))
        return self.rooms[leader]

    def fetch(self, follower: int, leader: int | None = None) -> FetchResponse:
        """One request of a follower, over the wire format and back."""
        room = self.rooms[follower]
        at = self.leader if leader is None else leader
        fetcher = room.fetchers[at]
        request = fetcher.next_request(room.clock.now_ms(), broker_epoch=1)
        assert request is not None
        wire = encode(request, FETCH_VERSION)
        leading = self.rooms[at]
        answer = leading.call(fetch, decode(FetchRequest, wire, FETCH_VERSION), FETCH_VERSION)
        for topic in answer.responses:
            for row in topic.partitions:
                row.records = stored(row.records)
        response = decode(FetchResponse, encode(answer, FETCH_VERSION), FETCH_VERSION)
        for followed in fetcher.on_response(response, room.clock.now_ms()):
            offsets = []
            for timestamp in (LATEST, EARLIEST):
                asked = encode(fetcher.offsets_request(followed, timestamp), LIST_OFFSETS_VERSION)
                found = leading.call(
                    list_offsets,
                    decode(ListOffsetsRequest, asked, LIST_OFFSETS_VERSION),
                    LIST_OFFSETS_VERSION,
                )
                row = found.topics[0].partitions[0]
                assert not row.error_code
                offsets.append(row.offset)
            fetcher.on_offsets(followed, offsets[0], offsets[1], room.clock.now_ms())
        return response

    def catch_up(self, *followers: int, rounds: int = 30) -> None:
        """Fetch until there is nothing new."""
        for _ in range(rounds):
            for number in followers:
                self.fetch(number)

    def log(self, number: int, name: str = "a") -> bytes:
        """All stored bytes of a replica."""
        log = self.rooms[number].partition(name).log
        data = b""
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            found = log.read(offset, 1 << 30, log.log_end_offset)
            assert not isinstance(found, ErrorCode), found
            data += stored(found.data)
            offset = found.next_offset
        return data

    def close(self) -> None:
        for room in self.rooms:
            room.stop()


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Trio]:
    """Three brokers without topics."""
    made = Trio(tmp_path)
    yield made
    made.close()


def test_follower_has_the_leaders_bytes_and_the_watermark_follows(trio: Trio) -> None:
    leader = trio.lead(0)
    for number in range(40):
        leader.produce("a", b"%d" % number * 30)
    leader.append("a", transactional(7, 0, b"x"))
    abort(leader, "a", 7)
    leader.append("a", transactional(8, 0, b"y"))
    commit(leader, "a", 8)
    trio.catch_up(1, 2)
    assert trio.log(1) == trio.log(2) == trio.log(0)
    for room in trio.rooms:
        log = room.partition("a").log
        assert log.high_watermark == log.last_stable_offset == log.log_end_offset == 44
        assert log.aborted_transactions(0, 44) == [(7, 40)]
        assert log.leader_epoch_cache.entries() == [(0, 0)]


def test_unchanged_partitions_are_not_named_again(trio: Trio) -> None:
    names = tuple(f"t{number}" for number in range(20))
    leader = trio.lead(0, names)
    trio.catch_up(1, rounds=3)
    fetcher = trio.rooms[1].fetchers[0]
    idle = fetcher.next_request(leader.clock.now_ms(), 1)
    assert idle is not None and idle.session_id and not idle.topics
    fetcher.on_failure(leader.clock.now_ms())
    assert fetcher.next_request(leader.clock.now_ms(), 1) is None  # not immediately
    trio.rooms[1].clock.advance(LIMITS.backoff_ms)
    leader.produce("t3", b"1")
    assert len(trio.fetch(1).responses) == 20  # a new session names all
    answer = trio.fetch(1)
    assert [row.topic_id for row in answer.responses] == []
    leader.produce("t5", b"1")
    assert len(trio.fetch(1).responses) == 1


def test_follower_cuts_what_the_new_leader_does_not_have(trio: Trio) -> None:
    leader = trio.lead(0)
    leader.produce("a", b"1")
    trio.catch_up(1, 2)
    for number in range(5):
        leader.produce("a", b"only here %d" % number)
    leader = trio.lead(1, isr=(1, 2))
    leader.produce("a", b"2")
    trio.catch_up(0, 2)
    assert trio.log(0) == trio.log(1) == trio.log(2)
    assert trio.rooms[0].partition("a").log.leader_epoch_cache.entries() == [(0, 0), (1, 1)]


def test_several_changes_of_the_leader_are_put_right_step_by_step(trio: Trio) -> None:
    """A case in which truncation to the high watermark would be wrong. Source: KIP-279."""
    trio.lead(0).produce("a", b"m1")
    trio.catch_up(1, 2)
    trio.lead(1, isr=(1,), told=(1,)).produce("a", b"m2 of 1")
    trio.lead(2, isr=(2,), told=(2,)).produce("a", b"m2 of 2")
    trio.lead(1, isr=(1,), told=(1,)).produce("a", b"m3 of 1")
    trio.lead(2)
    trio.catch_up(0, 1)
    assert trio.log(0) == trio.log(1) == trio.log(2)


def test_follower_begins_anew_where_the_leader_begins(trio: Trio) -> None:
    leader = trio.lead(0)
    trio.catch_up(1, rounds=2)
    for number in range(40):
        leader.produce("a", b"%d" % number * 30)
    log = leader.partition("a").log
    log.high_watermark = log.log_end_offset  # as if follower 1 had been down
    log.delete_records_before(25)
    log.delete_old_segments(leader.clock.now_ms())
    trio.fetch(1)
    trio.rooms[1].clock.advance(LIMITS.backoff_ms)
    trio.catch_up(1)
    assert trio.rooms[1].partition("a").log.log_start_offset == 25
    assert trio.log(1) == trio.log(0)


def test_longer_log_of_a_follower_is_cut_to_an_unclean_leaders_end(trio: Trio) -> None:
    leader = trio.lead(0)
    for number in range(10):
        leader.produce("a", b"%d" % number)
    trio.catch_up(1)
    trio.lead(2, isr=(2,))  # it has no records
    trio.fetch(1)
    trio.rooms[1].clock.advance(LIMITS.backoff_ms)
    trio.catch_up(1)
    assert trio.rooms[1].partition("a").log.log_end_offset == 0
    trio.rooms[2].produce("a", b"new")
    trio.catch_up(1, 0)
    assert trio.log(1) == trio.log(2)


def test_refusal_delays_one_partition_and_not_the_others(trio: Trio) -> None:
    leader = trio.lead(0, ("a", "b"))
    leader.partition("b").state = leader.partition("b").state._replace(leader_epoch=9)
    leader.produce("a", b"1")
    trio.catch_up(1, rounds=3)
    assert trio.log(1) == trio.log(0)
    fetcher = trio.rooms[1].fetchers[0]
    assert fetcher.next_due_ms() == leader.clock.now_ms() + LIMITS.backoff_ms


def test_answer_to_an_earlier_epoch_is_passed_over(trio: Trio) -> None:
    leader = trio.lead(0)
    trio.catch_up(1, rounds=2)
    leader.produce("a", b"1")
    room = trio.rooms[1]
    fetcher = room.fetchers[0]
    request = fetcher.next_request(room.clock.now_ms(), 1)
    assert request is not None
    answer = leader.call(fetch, request, FETCH_VERSION)
    room.follow(room.partition("a"))  # started again while the request was in flight
    fetcher.on_response(answer, room.clock.now_ms())
    assert room.partition("a").log.log_end_offset == 0
    trio.catch_up(1, rounds=3)
    assert trio.log(1) == trio.log(0)


def test_epoch_that_nobody_knows_cuts_to_the_one_before(trio: Trio) -> None:
    trio.lead(0).produce("a", b"1")
    trio.epoch = 4
    trio.lead(0).produce("a", b"2")
    partition = trio.rooms[0].partition("a")
    assert common_end(partition, 3, 2) == 1  # epochs 0 and 5 are known here
    assert common_end(partition, 5, 1) == 1
    assert common_end(partition, 0, 9) == 1
    assert common_end(partition, 9, -1) == 2


def test_partitions_with_nothing_new_are_not_read_again(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = tuple(f"t{number}" for number in range(20))
    leader = trio.lead(0, names)
    trio.catch_up(1, 2, rounds=3)
    read: list[str] = []
    plain = Partition.read

    def counted(partition: Partition, *args: Any, **options: Any) -> Any:
        read.append(partition.tp.topic)
        return plain(partition, *args, **options)

    monkeypatch.setattr(Partition, "read", counted)
    trio.fetch(1)
    assert read == []
    leader.produce("t3", b"1")
    trio.fetch(1)
    assert read == ["t3"]
    read.clear()
    trio.fetch(2)
    trio.fetch(2)
    trio.fetch(
        1
    )  # has it; with the second answer of broker 2 it is committed, which is new to followers
    assert set(read) == {"t3"}
    read.clear()
    leader.partition("t5").on_isr_confirmed((0, 2), 7, leader.clock.now_ms())
    trio.fetch(1)  # may be proposed for the ISR again
    assert "t5" in read
    read.clear()
    trio.lead(0, ("t7",), told=(0,))
    trio.fetch(1)
    assert "t7" in read  # in an epoch that is over


def test_follower_that_finds_nothing_new_stays_in_sync(trio: Trio) -> None:
    leader = trio.lead(0)
    leader.replicas.membership.max_lag_ms = 1000
    trio.catch_up(1, rounds=3)
    partition = leader.partition("a")
    for _ in range(10):
        leader.clock.advance(500)
        trio.fetch(1)
    leader.produce("a", b"1")
    partition.drop_laggards(leader.clock.now_ms())
    assert partition.isr.dropping == (2,)  # which has never fetched
    request = trio.rooms[1].fetchers[0].next_request(leader.clock.now_ms(), broker_epoch=9)
    assert request is not None
    leader.call(fetch, request, FETCH_VERSION)
    assert partition.followers[1].broker_epoch == 9


def tampered(trio: Trio, change: Callable[[PartitionData], None]) -> None:
    """Fetch as broker 1, with the leader's row for topic a modified on the way."""
    room = trio.rooms[1]
    fetcher = room.fetchers[trio.leader]
    request = fetcher.next_request(room.clock.now_ms(), 1)
    assert request is not None
    answer = trio.rooms[trio.leader].call(fetch, request, FETCH_VERSION)
    for topic in answer.responses:
        for row in topic.partitions:
            row.records = stored(row.records)
            if topic.topic_id == topic_id("a"):
                change(row)
    fetcher.on_response(answer, room.clock.now_ms())


@pytest.mark.parametrize("nonsense", [b"x", bytes(70), b"\xff" * 70, bytes(11) + b"\x40" * 60])
def test_nonsense_for_one_partition_delays_it_and_not_the_others(
    trio: Trio, nonsense: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    leader = trio.lead(0, ("a", "b"))
    leader.produce("a", b"1")
    leader.produce("b", b"1")

    def spoil(row: PartitionData) -> None:
        row.records = nonsense

    for _ in range(3):
        tampered(trio, spoil)
        trio.rooms[1].clock.advance(LIMITS.backoff_ms)
    assert trio.log(1, "b") == trio.log(0, "b")
    assert len([each for each in caplog.records if each.levelname == "ERROR"]) <= 1
    trio.catch_up(1, rounds=3)
    assert trio.log(1) == trio.log(0)


def test_divergence_that_changes_nothing_is_not_asked_for_without_a_pause(trio: Trio) -> None:
    leader = trio.lead(0)
    leader.produce("a", b"1")
    trio.catch_up(1, rounds=2)

    def diverge(row: PartitionData) -> None:
        row.diverging_epoch = EpochEndOffset(epoch=0, end_offset=99)

    leader.produce("a", b"2")
    tampered(trio, diverge)
    room = trio.rooms[1]
    assert room.fetchers[0].next_due_ms() == room.clock.now_ms() + LIMITS.backoff_ms
    assert room.partition("a").log.log_end_offset == 1


def test_offset_that_the_leader_has_after_all_is_asked_for_after_the_delay(trio: Trio) -> None:
    leader = trio.lead(0)
    leader.produce("a", b"1")
    trio.catch_up(1, rounds=2)

    def out_of_range(row: PartitionData) -> None:
        row.error_code = ErrorCode.OFFSET_OUT_OF_RANGE

    leader.produce("a", b"2")
    tampered(trio, out_of_range)
    room = trio.rooms[1]
    fetcher = room.fetchers[0]
    (followed,) = fetcher._delayed.values()
    fetcher.on_offsets(followed, 2, 0, room.clock.now_ms())
    assert fetcher.next_due_ms() == room.clock.now_ms() + LIMITS.backoff_ms


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_replicas_agree_in_the_end_and_committed_stays(
    trio: Trio, seed: int
) -> None:
    rng = random.Random(seed)
    isr = set(EVERYBODY)
    committed: dict[int, bytes] = {}
    leader = trio.lead(0)
    for step in range(150):
        match rng.choice(("produce", "produce", "fetch", "fetch", "fetch", "lead", "restore")):
            case "produce":
                leader.produce("a", b"%d-%d" % (seed, step) * rng.randint(1, 20))
            case "fetch":
                follower = rng.choice([each for each in EVERYBODY if each != trio.leader])
                if len(trio.rooms[follower].fetchers.get(trio.leader, ())):
                    trio.rooms[follower].clock.advance(LIMITS.backoff_ms)
                    trio.fetch(follower)
            case "lead":
                chosen = rng.choice(sorted(isr))
                isr = {each for each in isr if each == chosen or rng.random() < 0.8}
                # Some learn of it late, and follow the previous leader for a while.
                told = tuple(e for e in EVERYBODY if e == chosen or e in isr or rng.random() < 0.5)
                leader = trio.lead(chosen, isr=tuple(sorted(isr)), told=told)
            case "restore":
                for each in set(EVERYBODY) - isr:
                    follower_log = trio.rooms[each].partition("a").log
                    state = leader.partition("a").followers[each]
                    if state.log_end_offset >= leader.partition("a").log.high_watermark >= 0:
                        assert follower_log.log_end_offset >= state.log_end_offset
                        isr.add(each)
                leader.partition("a").on_isr_confirmed(
                    tuple(sorted(isr)), step + 1, leader.clock.now_ms()
                )
        log = leader.partition("a").log
        for base, batch in batches(trio.log(trio.leader)):
            if base < log.high_watermark:
                assert committed.setdefault(base, batch) == batch, (seed, step, base)
        known = dict(batches(trio.log(trio.leader)))
        assert all(known.get(base) == batch for base, batch in committed.items()), (seed, step)
    leader = trio.lead(trio.leader, isr=tuple(sorted(isr)))
    for room in trio.rooms:
        room.clock.advance(LIMITS.backoff_ms)
    for _ in range(60):
        for follower in EVERYBODY:
            if follower != trio.leader:
                trio.rooms[follower].clock.advance(LIMITS.backoff_ms)
                trio.fetch(follower)
    assert trio.log(0) == trio.log(1) == trio.log(2), seed


def batches(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        yield int.from_bytes(data[position : position + 8], "big"), data[position : position + size]
        position += size
