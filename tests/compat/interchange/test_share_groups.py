"""A directory with a share group moves from Apache Kafka 4.3.0 to kwire and back; both are killed while records are
locked.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from kwire.api import ApiKey

from ...support.polling import wait_until
from ...support.wire_shares import ACCEPT, REJECT, RELEASE, Acquired, Unanswered, WireShareMember
from .asking import ask
from .content import create
from .test_from_kraft import GROUP, KAFKA, KWIRE, KraftHome, check_log, configure_all, import_from

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.slow]

TOPIC = NAME = "shared"
PARTITIONS = 2
BATCHES, RECORDS = 4, 10
#: Locks and sessions last longer than the test, so that nothing but the member changes a state.
LONG = {
    "group.share.max.record.lock.duration.ms": "3600000",
    "group.share.record.lock.duration.ms": "1800000",
    "group.share.max.session.timeout.ms": "3600000",
    "group.share.session.timeout.ms": "1800000",
    "share.coordinator.state.topic.num.partitions": "3",
}
FROM_THE_BEGINNING = ((GROUP, NAME, "share.auto.offset.reset", "earliest"),)

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
#: The acknowledgement for a record with its delivery count; None: it stays locked.
Decide = Callable[[Acquired], int | None]


class Stored(NamedTuple):
    """The share coordinator's state of a partition; state and delivery count by offset, from the start offset on."""

    start_offset: int
    state_epoch: int
    complete: int
    states: dict[int, tuple[int, int]]


def stored(address: str, topic_id: bytes) -> list[Stored]:
    """The states of all partitions."""
    found = []
    for number in range(PARTITIONS):

        def row(api: ApiKey, version: int, epoch: int, number: int = number) -> dict[str, Any]:
            rows = [{"partition": number, "leader_epoch": epoch}]
            topics = [{"topic_id": topic_id, "partitions": rows}]
            answer = ask(address, api, version, {"group_id": NAME, "topics": topics})
            return dict(answer["results"][0]["partitions"][0])

        summed = row(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1, -1)
        read = row(ApiKey.READ_SHARE_GROUP_STATE, 0, summed["leader_epoch"])  # no one is fenced
        assert summed["start_offset"] == read["start_offset"]
        states = {
            offset: (batch["delivery_state"], batch["delivery_count"])
            for batch in read["state_batches"]
            for offset in range(batch["first_offset"], batch["last_offset"] + 1)
        }
        complete = summed["delivery_complete_count"]
        found.append(Stored(read["start_offset"], read["state_epoch"], complete, states))
    return found


def described(address: str) -> dict[str, Any]:
    """A row of ShareGroupDescribe."""
    asked = {"group_ids": [NAME], "include_authorized_operations": False}
    (row,) = ask(address, ApiKey.SHARE_GROUP_DESCRIBE, 1, asked)["groups"]
    for member in row["members"]:
        for topic in member["assignment"]["topic_partitions"]:
            topic["partitions"].sort()
    return dict(row)


class Sharing:
    """The group's only member, and all that became of the topic's records."""

    def __init__(self, home: KraftHome) -> None:
        self.home = home
        self.member = WireShareMember(home.address, NAME, TOPIC, 30.0)
        self.written = 0
        self.settled: dict[tuple[int, int], int] = {}
        self.last: list[Stored] = []

    def write(self) -> None:
        """Batches of some records to each partition."""
        settings = {"bootstrap.servers": self.home.address, "log_level": 0}
        producer = Producer(settings | {"enable.idempotence": True})
        for _ in range(BATCHES):
            for number in range(PARTITIONS):
                for _ in range(RECORDS):
                    producer.produce(TOPIC, b"v", partition=number)
            assert producer.flush(30) == 0
        self.written += BATCHES * RECORDS

    def consume(self, decide: Decide) -> dict[tuple[int, int], list[int]]:
        """Acknowledge records until no more arrive; return the delivery counts of each."""
        counts: dict[tuple[int, int], list[int]] = defaultdict(list)
        member, quiet = self.member, 0

        def step() -> bool:
            nonlocal quiet
            try:
                member.heartbeat(at_once=not member.assigned)
                if len(member.assigned) < PARTITIONS:
                    return False
                if not member.leaders:
                    member.look()
                (node,) = member.nodes()
                got = member.fetch(node, 500)
                types: dict[int, list[tuple[int, int]]] = defaultdict(list)
                for each in got:
                    counts[each.partition, each.offset].append(each.count)
                    kind = decide(each)
                    if kind is not None:
                        types[each.partition].append((each.offset, kind))
                        if kind != RELEASE:
                            assert (each.partition, each.offset) not in self.settled
                            self.settled[each.partition, each.offset] = kind
                if types:
                    assert set(member.acknowledge(node, types).values()) == {0}
            except Unanswered:
                assert not counts  # the broker has just started
                return False
            quiet = quiet + 1 if not got else 0
            return quiet >= 3

        wait_until(step, "quiet")
        self.last = stored(self.home.address, member.topic_id)
        self._check_states(counts)
        return dict(counts)

    def _check_states(self, counts: dict[tuple[int, int], list[int]]) -> None:
        """The stored state matches the member's acknowledgements."""
        for number, found in enumerate(self.last):
            for offset in range(self.written):
                kind = self.settled.get((number, offset))
                if offset < found.start_offset:
                    assert kind is not None
                elif kind is not None:
                    wanted = ACKNOWLEDGED if kind == ACCEPT else ARCHIVED
                    assert found.states[offset][0] == wanted, (number, offset)
                else:
                    assert found.states.get(offset, (AVAILABLE, 0))[0] == AVAILABLE
            settled = sum(key[0] == number and key[1] >= found.start_offset for key in self.settled)
            assert found.complete == settled

    def expected(self) -> dict[tuple[int, int], int]:
        """The expected records, with the number of their delivery: one more than stored, since a kill drops locks."""
        return {
            (number, offset): found.states.get(offset, (AVAILABLE, 0))[1] + 1
            for number, found in enumerate(self.last)
            for offset in range(self.written)
            if (number, offset) not in self.settled
        }

    def arrive(self, group: dict[str, Any]) -> None:
        """Everything is unchanged before the first fetch."""
        assert described(self.home.address) == group
        assert stored(self.home.address, self.member.topic_id) == self.last


def first_round(record: Acquired) -> int | None:
    """All kinds, in patterns that differ by partition; released ones are delivered three times, then stay locked."""
    kind = (record.offset * 7 + record.partition) % 6
    if kind == 2:
        return RELEASE if record.count < 3 else None
    return (ACCEPT, ACCEPT, None, REJECT, None, ACCEPT)[kind]


def second_round(record: Acquired) -> int | None:
    """Half of the remaining records are settled."""
    if record.offset % 4 == 1:
        return RELEASE if record.count < 4 else None
    return (ACCEPT, None, None, REJECT)[record.offset % 4]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[KraftHome]:
    home = KraftHome(tmp_path)
    yield home
    home.close()
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_share_group_goes_to_kwire_and_back(home: KraftHome) -> None:
    """Start offsets, states, delivery counts, gaps of locked records, members and epochs are equal after each move.

    Settled records are not delivered again, and all others are, with the next delivery count.
    """
    with ExitStack() as stack:
        home.start(KAFKA, **LONG)
        create(home.address, [NewTopic(TOPIC, PARTITIONS, 1)])
        configure_all(home.address, FROM_THE_BEGINNING)
        sharing = Sharing(home)
        stack.callback(sharing.member.close)
        sharing.write()
        counts = sharing.consume(first_round)
        assert set(counts) == {(p, o) for p in range(PARTITIONS) for o in range(sharing.written)}
        assert {tuple(each) for each in counts.values()} == {(1,), (1, 2, 3)}
        for place in (KWIRE, KAFKA):
            group = described(home.address)
            assert group["group_state"] == "Stable"
            said = home.leave(killed=True)
            if place == KWIRE:
                home.copy()
                import_from(home.data, "--in-place")
            else:
                check_log(said)
            home.start(place, **LONG)
            sharing.arrive(group)
            expected = sharing.expected()
            assert len(set(expected.values())) > 1
            counts = sharing.consume(second_round if place == KWIRE else lambda _: ACCEPT)
            assert {key: each[0] for key, each in counts.items()} == expected
            for each in counts.values():
                assert each == list(range(each[0], each[0] + len(each)))
            if place == KWIRE:
                sharing.write()
                counts = sharing.consume(first_round)
                assert set(counts) == {
                    (p, o)
                    for p in range(PARTITIONS)
                    for o in range(sharing.written - BATCHES * RECORDS, sharing.written)
                }
        everything = {(p, o) for p in range(PARTITIONS) for o in range(sharing.written)}
        assert set(sharing.settled) == everything
        assert sharing.member.lags() == dict.fromkeys(range(PARTITIONS), 0)
