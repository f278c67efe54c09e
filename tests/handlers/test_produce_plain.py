"""The plain Produce compared with the other, and the native form with Python's: for all requests, the same bytes reach
the client and the log.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kwire.codec import decode_at_once, encode, encode_parts
from kwire.connection import RequestReceived
from kwire.errors import EncodeError
from kwire.header import decode_request_header
from kwire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.records.crc import crc32c
from kwire.varint import uvarint
from server.handlers import produce_plain
from server.handlers.ceilings import CEILING_4_3
from server.handlers.context import Later, NoReply
from server.handlers.dispatch import RequestDispatcher
from server.handlers.produce import produce
from server.handlers.produce_plain import plain_produce_frame
from server.handlers.registry import HandlerTable
from server.log.log_config import INT64_MAX
from server.metrics.requests import RequestMetrics
from server.net.connection_info import ConnectionInfo
from server.net.dispatcher import Close, Plain
from server.quotas.clients import ClientQuotas
from server.quotas.entities import Entity
from tests.support.forms import form
from tests.support.replicas import NOW, Replicas, batch, topic_id
from tests.support.requests import produce_request
from tests.support.versions import versions

REQUESTS = 20_000 if os.environ.get("KWIRE_LONG") else 2_500

CONFIGS = {
    "a": {},
    "b": {"message.timestamp.type": "LogAppendTime"},
    "c": {"cleanup.policy": "compact"},
    "d": {"compression.type": "lz4"},
    "e": {"max.message.bytes": "200"},
    "f": {"segment.bytes": "1000"},
    "g": {"flush.messages": "3"},
    "h": {"min.insync.replicas": "2"},
    "i": {"index.interval.bytes": "100"},
    "j": {},
}


class WorkerHere:
    """Runs a worker process's functions in the loop, because a process takes long to start on a busy machine."""

    async def in_worker(self, owner: object, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)


def room_of(folder: Path, **config: str) -> Replicas:
    room = Replicas(folder, config).start()
    room.replicas.appends.executor = WorkerHere()  # type: ignore[assignment]
    for name, configs in CONFIGS.items():
        replicas = (0, 1) if name in ("h", "j") else (0,)
        room.create(name, 2, configs=configs, replicas=replicas)
    return room


def drawn_batch(draw: random.Random, sequences: dict[int, int]) -> bytes | None:
    values = [b"v" * draw.choice((0, 1, 60, 127, 300)) for _ in range(draw.randint(1, 4))]
    options: dict[str, Any] = {}
    magic = draw.choice((2,) * 12 + (1,))
    producer = draw.choice((-1, -1, 7, 8))
    if producer >= 0:
        sequence = sequences.get(producer, 0)
        if draw.random() < 0.1:
            sequence = draw.randint(0, 5)
        sequences[producer] = sequence + len(values)
        magic = 2
        options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
    made = bytearray(
        batch(
            *values,
            timestamp=NOW + draw.choice((0, 0, 0, -5000, 90_000_000_000)),
            key=draw.choice((b"k", b"k", None)),
            codec=draw.choice((0, 0, 0, 1, 3, 4 if magic == 2 else 0)),
            magic=magic,
            **options,
        )
    )
    if draw.random() < 0.15:
        for _ in range(draw.randint(1, 2)):
            made[draw.randrange(min(len(made), draw.choice((70, 90))))] = draw.randrange(256)
        if draw.random() < 0.7 and len(made) >= 61 and made[16] == 2:
            made[17:21] = crc32c(bytes(made[21:])).to_bytes(4, "big")
    if draw.random() < 0.05:
        made = made + made
    if draw.random() < 0.03:
        made = made[: draw.randrange(len(made))]
    return None if draw.random() < 0.02 else bytes(made)


def drawn_request(draw: random.Random, sequences: dict[int, int]) -> tuple[int, bytes]:
    """A version and a body, damaged now and then."""
    version = draw.choice(versions(produce, first=8))
    topics = []
    for _ in range(draw.choice((0, 1, 1, 1, 1, 2, 3))):
        name = draw.choice((*CONFIGS, "a", "a", "a", "unknown", "__consumer_offsets", "é" * 70))
        rows = [
            PartitionProduceData(
                index=draw.choice((0, 0, 0, 1, 1, 2)), records=drawn_batch(draw, sequences)
            )
            for _ in range(draw.choice((0, 1, 1, 1, 2, 3)))
        ]
        topics.append(TopicProduceData(name=name, topic_id=topic_id(name), partition_data=rows))
    request = ProduceRequest(
        transactional_id=draw.choice((None,) * 20 + ("t",)),
        acks=draw.choice((-1, -1, -1, 1, 1, 0, 5)),
        timeout_ms=draw.choice((0, 1)),
        topic_data=topics,
    )
    body = bytearray(encode(request, version))
    if draw.random() < 0.15:
        place = draw.randrange(min(len(body), 40))
        body[place] = draw.randrange(256) if not 3 <= place <= 6 else 0  # its timeout
    if draw.random() < 0.05:
        del body[draw.randrange(len(body)) :]
    if draw.random() < 0.05:
        body += bytes(draw.randrange(20))
    return version, bytes(body)


#: Where nearly all that is sent is plain, in one of the forms at least.
USUAL = ("a", "e", "f", "g", "h", "i", "j")


def usual_request(
    draw: random.Random, room: Replicas, topics: Sequence[str] = USUAL
) -> tuple[int, bytes]:
    """A version and a body as clients send them, with the sequences that the broker expects."""
    data = []
    for name in draw.sample(topics, draw.choice((1, 1, 1, 2))):
        rows = []
        for index in draw.sample((0, 1), draw.choice((1, 1, 1, 2))):
            values = [b"v" * draw.choice((0, 1, 60, 127)) for _ in range(draw.randint(1, 3))]
            options: dict[str, Any] = {}
            producer = draw.choice((-1, 7, 8))
            if producer >= 0:
                known = room.partition(name, index).log.producers.producers.get(producer)
                sequence = 0 if known is None else known.last_sequence + 1
                sequence += draw.choice((0,) * 30 + (1, -1, -len(values)))
                options = {"producer_id": producer, "producer_epoch": 0}
                options["base_sequence"] = max(sequence, 0)
            if draw.random() < 0.05:
                options["codec"] = draw.choice((1, 3))
            timestamp = NOW + draw.choice((0, 0, 0, 1, -5, 700_000_000))
            records = bytearray(batch(*values, timestamp=timestamp, **options))
            if draw.random() < 0.03:
                records[draw.randrange(len(records))] ^= 1 << draw.randrange(8)
            rows.append(PartitionProduceData(index=index, records=bytes(records)))
        data.append(TopicProduceData(name=name, topic_id=topic_id(name), partition_data=rows))
    version = draw.choice(versions(produce, first=9))
    request = ProduceRequest(acks=draw.choice((-1, 1, 0)), timeout_ms=0, topic_data=data)
    return version, encode(request, version)


async def settled(answer: Any) -> Any:
    if isinstance(answer, Later):
        assert answer.finish is not None
        return answer.finish(await answer.awaitable)
    return answer


def as_sent(answer: Any, version: int) -> bytes | str | None:
    if isinstance(answer, NoReply):
        return answer.close_reason
    parts = answer.parts if isinstance(answer, Plain) else encode_parts(answer, version)
    return b"".join(parts)


def state(room: Replicas) -> list[Any]:
    found = []
    for partition in room.replicas.partitions.values():
        log = partition.log
        found.append(
            (
                partition.tp,
                log.log_end_offset,
                log.high_watermark,
                partition.appends,
                partition.bytes_in,
                partition.messages_in,
                (log.flush_state.awaited, log.flush_state.wanted),
                partition.held_bytes,
                {
                    offset: (found[0].base_offset, found[1])
                    for offset, found in log.reader.hints.items()
                },
                [
                    (
                        segment.max_timestamp,
                        segment.max_timestamp_offset,
                        segment.bytes_since_index_entry,
                        segment.index_room,
                        segment.roll_timestamp,
                    )
                    for segment in log.segments
                ],
                log.producers.snapshot(),
                (log.producers.last_map_offset, log.producers.ongoing, log.producers.unreplicated),
                [segment.base_offset for segment in log.segments],
                [segment.log.read_at(segment.size, 0) for segment in log.segments],
                [segment.offset_index.content() for segment in log.segments],
                [segment.time_index.content() for segment in log.segments],
                {
                    number: (entry.producer_epoch, entry.last_sequence, list(entry.batches))
                    for number, entry in log.producers.producers.items()
                },
            )
        )
    return found


class CountingPath:
    """The native path, and how many requests it has answered."""

    def __init__(self) -> None:
        self.path: Any = produce_plain._NATIVE_PATH
        self.answered = 0

    def answer(self, *args: Any) -> Any:
        answered = self.path.answer(*args)
        self.answered += answered is not None
        return answered


class ForgetfulPath(CountingPath):
    """A native path that has never heard of flush.messages."""

    def answer(self, frame: Any, at: int, version: int, partitions: Any, *args: Any) -> Any:
        logs = [each.log for each in partitions.values()]
        configs = [log.config for log in logs]
        for log in logs:
            log.config = replace(log.config, flush_messages=INT64_MAX)
        try:
            return super().answer(frame, at, version, partitions, *args)
        finally:
            for log, config in zip(logs, configs, strict=True):
                log.config = config


@pytest.mark.parametrize(
    ("forms", "validation"),
    [
        (("pure", "pure"), "standard"),
        (("native", "pure"), "deep"),
        (("native", "pure"), "standard"),
    ],
)
def test_plain_and_other_form_answer_and_append_alike(
    tmp_path: Path, forms: tuple[str, str], validation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = CountingPath()
    monkeypatch.setattr(produce_plain, "_NATIVE_PATH", path)
    compare(tmp_path, forms, validation)
    if "native" in forms:
        assert path.answered > REQUESTS // 4


def test_native_path_that_ignores_flush_messages_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison above finds such differences."""
    with form("native"):
        monkeypatch.setattr(produce_plain, "_NATIVE_PATH", ForgetfulPath())
    with pytest.raises(AssertionError):
        compare(tmp_path, ("native", "pure"), "standard")


def compare(tmp_path: Path, forms: tuple[str, str], validation: str) -> None:
    """Pass drawn requests to two brokers, one in each form. Errors: AssertionError if they differ."""
    draw = random.Random(18)
    sequences: dict[int, int] = {}

    async def main() -> None:
        rooms = []
        for name in forms:
            with form(name):
                folder = tmp_path / str(len(rooms))
                rooms.append(room_of(folder, **{"kwire.produce.validation": validation}))
        plain, waited = 0, 0
        try:
            for number in range(REQUESTS):
                if "native" in forms and draw.random() < 0.7:
                    version, body = usual_request(draw, rooms[0])
                else:
                    version, body = drawn_request(draw, sequences)
                message = decode_at_once(
                    produce.request_class, memoryview(bytearray(body)), version
                )
                context = rooms[0].context(version)
                assert produce.plain is not None
                with form(forms[0]):
                    first = produce.plain(context, memoryview(bytearray(body)), 0)
                if message is None:
                    assert first is None, (number, version, body)
                    continue
                was_plain = first is not None
                if first is None:
                    own = decode_at_once(
                        produce.request_class, memoryview(bytearray(body)), version
                    )
                    with form(forms[0]):
                        first = produce.function(context, own)
                with form(forms[1]):
                    second = produce.function(rooms[1].context(version), message)
                waits = isinstance(first, Later)
                assert waits == isinstance(second, Later), (number, version, body)
                answers = [await settled(first), await settled(second)]
                try:
                    sent = [as_sent(each, version) for each in answers]
                except EncodeError:
                    continue
                assert sent[0] == sent[1], (number, version, body)
                plain += was_plain
                waited += was_plain and waits
                if draw.random() < 0.2:
                    for room in rooms:
                        held = room.partition("g")
                        held.log.flush(NOW)
                        held.on_flushed(NOW)
                if number % 50 == 0:
                    assert state(rooms[0]) == state(rooms[1]), (number, version, body)
            assert state(rooms[0]) == state(rooms[1])
        finally:
            for room in rooms:
                room.stop()
        # Both forms occur, and some plain requests wait: for a flush, and for a replica.
        assert REQUESTS // 10 < plain < REQUESTS * 9 // 10
        assert waited > REQUESTS // 150

    asyncio.run(main())


def test_plain_request_waits_for_the_flush_that_flush_messages_asks_for(tmp_path: Path) -> None:
    async def main() -> None:
        room = Replicas(tmp_path).start()
        try:
            partition = room.create("a", configs={"flush.messages": "1"})
            body = encode(produce_request(("a", 0, batch()), acks=1), 11)
            assert produce.plain is not None
            answer = produce.plain(room.context(11), memoryview(bytearray(body)), 0)
            assert isinstance(answer, Later)
            assert (partition.log.log_end_offset, partition.log.high_watermark) == (1, 0)
            partition.log.flush(NOW)
            partition.on_flushed(NOW)
            settled_answer = await settled(answer)
            assert isinstance(settled_answer, Plain)
            assert partition.log.high_watermark == 1
        finally:
            room.stop()

    asyncio.run(main())


def test_request_that_takes_more_than_a_turn_is_left_to_python(tmp_path: Path) -> None:
    with form("native"):
        room = room_of(tmp_path, **{"message.max.bytes": str(10 << 20)})
        partition = room.partition("a")
        # The first batch of a segment is not plain.
        partition.append_as_leader(memoryview(bytearray(batch())), acks=1, now_ms=NOW)
        for size, natively in ((7 << 20, True), (8 << 20, False)):
            data = batch(bytes(size))
            body = b"\0\xff\xff\0\0\0\1\2\2a\2\0\0\0\0" + uvarint(len(data) + 1) + data + b"\0\0\0"
            frame = (11).to_bytes(4, "big") + bytes(4) + b"\0\1c\0" + body
            done = plain_produce_frame(room.services, memoryview(bytearray(frame)), 11, NOW)
            assert (done is not None) is natively
        room.stop()


def test_endless_length_is_not_plain_and_costs_nothing(tmp_path: Path) -> None:
    room = Replicas(tmp_path).start()
    room.create("a")
    body = b"\0\xff\xff\0\0\0\1\2\2a\2\0\0\0\0" + b"\xff" * 1_000_000
    assert produce.plain is not None
    assert produce.plain(room.context(11), memoryview(bytearray(body)), 0) is None
    room.stop()


class Broker:
    """A dispatcher of Produce requests over the partitions of a room, with an observer and quotas."""

    def __init__(self, folder: Path, validation: str) -> None:
        self.room = room_of(folder, **{"kwire.produce.validation": validation})
        self.quotas = ClientQuotas()
        self.metrics = RequestMetrics(self.room.clock.monotonic_us)
        self.metrics.adapt(0, 1000)  # most are not timed
        self.connection = ConnectionInfo("id")
        self.dispatcher = RequestDispatcher(
            HandlerTable([produce], CEILING_4_3),
            self.room.services,
            self.room.clock,
            observer=self.metrics,
            quotas=self.quotas,
        )
        self.at_once = 0

    async def answer(self, frame: bytes) -> bytes | str:
        """The data that a session would send, or the reason that it would close."""
        view = memoryview(bytearray(frame))
        result: Any = None
        if self.dispatcher.at_once is not None:
            result = self.dispatcher.at_once(view, self.connection)
        self.at_once += result is not None
        if result is None:
            result = self.dispatcher.dispatch(request_of(view), self.connection)
        if isinstance(result, Later):
            await asyncio.wait([future := asyncio.ensure_future(result.awaitable)])
            result = self.dispatcher.complete(result, future)
        return result.reason if isinstance(result, Close) else b"".join(result)


def request_of(frame: memoryview) -> RequestReceived:
    header, body_offset = decode_request_header(frame)
    return RequestReceived(*header, frame, body_offset)


def drawn_frame(draw: random.Random, room: Replicas, sequences: dict[int, int]) -> bytes:
    """A frame without its length, whose header is unusual now and then."""
    if draw.random() < 0.7:
        version, body = usual_request(draw, room)
    else:
        version, body = drawn_request(draw, sequences)
    client = draw.choice((b"\0\1c",) * 20 + (b"\xff\xff", b"\0\0", b"\0\2\xff\xfe", b"\0\4caf\xc3"))
    tags = b"" if version < 9 else draw.choice((b"\0",) * 20 + (b"\1\7\2ab",))
    start = version.to_bytes(2, "big") + draw.randbytes(4)
    return b"\0\0" + start + client + tags + body


@pytest.mark.parametrize(
    ("form_of_first", "validation"),
    [("native", "deep"), ("native", "standard"), ("pure", "standard")],
)
def test_frames_are_answered_counted_and_throttled_alike(
    tmp_path: Path, form_of_first: str, validation: str
) -> None:
    draw = random.Random(19)
    sequences: dict[int, int] = {}

    async def main() -> None:
        with form(form_of_first):
            first = Broker(tmp_path / "first", validation)
        with form("pure"):
            second = Broker(tmp_path / "second", validation)
        try:
            for number in range(REQUESTS):
                if number % 500 == 400:
                    rate = {"producer_byte_rate": 1e4} if number % 1000 == 400 else {}
                    for each in (first, second):
                        each.quotas.set(Entity(None, "c"), rate)
                frame = drawn_frame(draw, first.room, sequences)
                with form(form_of_first):
                    told = await first.answer(frame)
                with form("pure"):
                    expected = await second.answer(frame)
                assert told == expected, (number, frame)
                if draw.random() < 0.2:
                    for each in (first, second):
                        held = each.room.partition("g")
                        held.log.flush(NOW)
                        held.on_flushed(NOW)
            assert state(first.room) == state(second.room)
            for name in ("versions", "errors"):
                ours, theirs = (
                    getattr(first.metrics.produce, name),
                    getattr(second.metrics.produce, name),
                )
                assert ours == theirs, name
            counted = [
                {
                    name: (topic.refused_produce, topic.failed_produce)
                    for name, topic in each.metrics.topics.items()
                }
                for each in (first, second)
            ]
            assert counted[0] == counted[1]
        finally:
            first.room.stop()
            second.room.stop()
        assert (first.at_once > REQUESTS // 8) == (form_of_first == "native")
        assert second.at_once == 0

    asyncio.run(main())
