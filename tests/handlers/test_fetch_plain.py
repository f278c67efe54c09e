"""The plain answer to a Fetch compared with the compiled codec's; and one answer for all equal waiting fetches."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest

from kwire.codec import decode, encode, encode_parts
from kwire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from server import native
from server.handlers.context import Later
from server.handlers.fetch import fetch
from server.handlers.fetch_plain import NEWEST, SharedAnswer
from server.net.dispatcher import Plain
from server.replication.fetch_session import FetchedPartition
from tests.fuzz import fuzz_native_fetch
from tests.support.forms import NATIVE, form
from tests.support.replicas import Replicas, batch, topic_id
from tests.support.transactions import abort, commit, transactional
from tests.support.versions import versions

REQUESTS = 20_000 if os.environ.get("KWIRE_LONG") else 600
TOPICS = ("a", "b", "é" * 60)


def room_of(folder: Path) -> Replicas:
    room = Replicas(folder).start()
    for name in TOPICS:
        room.create(name, 3, configs={"segment.bytes": "60000"})
    return room


def bytes_of(answer: Any, version: int) -> bytes:
    parts = answer.parts if type(answer) is Plain else encode_parts(answer, version)
    data = b""
    for part in parts:
        if hasattr(part, "fileno"):
            data += part.read()
            part.close()
        else:
            data += part
    return data


async def settled(answer: Any) -> Any:
    if isinstance(answer, Later):
        assert answer.finish is not None
        return answer.finish(await answer.awaitable)
    return answer


def count_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> list[None]:
    """Grows with each call of a native function that did its work."""
    calls: list[None] = []
    function = NATIVE[name]

    def counted(*args: Any) -> Any:
        found = function(*args)
        if found is not None:
            calls.append(None)
        return found

    if function is not None:
        monkeypatch.setitem(NATIVE, name, counted)
    return calls


class Client:
    """The next request of a client, according to its last answer."""

    def __init__(self, version: int, *, session: bool) -> None:
        self.version = version
        self.session = session
        self.session_id = 0
        self.epoch = 0 if session else -1
        self.offsets: dict[tuple[str, int], int] = {}

    def request(self, draw: random.Random) -> FetchRequest:
        topics: dict[str, FetchTopic] = {}
        forgotten = []
        full = self.epoch <= 0
        hostile = draw.random() < 0.15
        if full and not self.offsets:
            self.offsets = {(name, n): 0 for name in TOPICS for n in range(3)}
        for (name, number), offset in self.offsets.items():
            if not full and draw.random() < 0.5:
                continue
            topic = topics.setdefault(
                name, FetchTopic(topic=name, topic_id=topic_id(name), partitions=[])
            )
            topic.partitions.append(
                FetchPartition(
                    partition=9 if hostile and draw.random() < 0.2 else number,
                    fetch_offset=10**6 if hostile and draw.random() < 0.2 else offset,
                    current_leader_epoch=draw.choice(
                        (-1, 0, int(hostile)) if self.version > 8 else (-1,)
                    ),
                    last_fetched_epoch=draw.choice(
                        (-1, 0, int(hostile)) if self.version > 11 else (-1,)
                    ),
                    partition_max_bytes=draw.choice((1 << 20, 1 << 20, 100)),
                )
            )
        if not full and draw.random() < 0.05:
            name, number = draw.choice(list(self.offsets))
            forgotten.append(
                ForgottenTopic(topic=name, topic_id=topic_id(name), partitions=[number])
            )
        return FetchRequest(
            max_wait_ms=draw.choice((0, 0, 1)),
            min_bytes=draw.choice((0, 1, 1, 30_000)),
            max_bytes=draw.choice((1 << 20, 40_000, 300)),
            isolation_level=draw.choice((0, 1)),
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=forgotten,
        )

    def take(self, response: FetchResponse) -> None:
        if response.error_code:
            self.session_id, self.epoch = 0, 0 if self.session else -1
            return
        if self.session:
            self.session_id = response.session_id
            self.epoch = self.epoch + 1 if response.session_id else 0
        for topic in response.responses:
            name = topic.topic or next(n for n in TOPICS if topic_id(n) == topic.topic_id)
            for row in topic.partitions:
                if row.records and (name, row.partition_index) in self.offsets:
                    base = int.from_bytes(row.records[:8], "big")
                    last = int.from_bytes(row.records[23:27], "big")
                    self.offsets[name, row.partition_index] = base + last + 1


def change(draw: random.Random, rooms: list[Replicas]) -> None:
    """Do the same to both: append, with or without a transaction, end one, delete records."""
    name, number = draw.choice(TOPICS), draw.randrange(3)
    what = draw.random()
    producer = draw.randrange(3) + 100 * TOPICS.index(name)
    values = b"v" * draw.choice((10, 300, 20_000))
    for room in rooms:
        log = room.partition(name, number).log
        if what < 0.7:
            room.append(name, batch(values), number=number)
        elif number == 0 and what < 0.8:
            state = log.producers.producers.get(producer)
            sequence = 0 if state is None or state.last_sequence < 0 else state.last_sequence + 1
            room.append(name, transactional(producer, sequence, values))
        elif number == 0 and what < 0.95:
            if producer in log.producers.producers:
                (abort if what < 0.87 else commit)(room, name, producer)
        elif what > 0.97:
            log.delete_records_before(max(log.log_start_offset, log.high_watermark - 2))


@pytest.mark.parametrize("name", ["pure", "native"])
def test_plain_and_other_form_answer_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The plain form in pure Python or natively, compared with the other form in pure Python."""
    taken = count_calls(monkeypatch, "take_fetch")
    draw = random.Random(18)
    numbers = [random.Random(1), random.Random(1)]
    at = 0
    # Both rooms have to assign the same ids to their sessions.
    monkeypatch.setattr(
        "server.replication.fetch_session.unpredictable",
        type("Drawn", (), {"randint": lambda _, low, high: numbers[at].randint(low, high)})(),
    )

    async def main() -> None:
        nonlocal at
        rooms = [room_of(tmp_path / "plain"), room_of(tmp_path / "other")]
        clients = [
            Client(version, session=session)
            for version in versions(fetch, first=6)
            for session in (False, True)
            if version >= 7 or not session
        ]
        plain = 0
        try:
            for _ in range(REQUESTS):
                if draw.random() < 0.4:
                    change(draw, rooms)
                client = draw.choice(clients)
                version = client.version
                body = encode(client.request(draw), version)
                assert fetch.plain is not None
                at = 0
                with form(name):
                    mine = rooms[0].context(version, handler=fetch)
                    first = fetch.plain(mine, memoryview(body), 0)
                at = 1
                message = decode(FetchRequest, body, version)
                with form("pure"):
                    second = fetch.function(rooms[1].context(version, handler=fetch), message)
                assert isinstance(first, Later) == isinstance(second, Later)
                if isinstance(first, Later) and draw.random() < 0.5:
                    change(draw, rooms)
                at = 0
                with form(name):
                    first = await settled(first)
                at = 1
                with form("pure"):
                    second = await settled(second)
                plain += type(first) is Plain
                data = bytes_of(first, version)
                assert data == bytes_of(second, version)
                client.take(decode(FetchResponse, data, version))
            for mine, other in zip(
                rooms[0].services.fetch_sessions.sessions.values(),
                rooms[1].services.fetch_sessions.sessions.values(),
                strict=True,
            ):
                assert list(mine.partitions) == list(other.partitions)
                for key, asked in mine.partitions.items():
                    told = other.partitions[key]
                    assert asked.high_watermark == told.high_watermark
                    assert asked.log_start_offset == told.log_start_offset
        finally:
            for room in rooms:
                room.stop()
        assert REQUESTS // 8 < plain < REQUESTS
        assert (len(taken) > REQUESTS // 5) == (name == "native")

    asyncio.run(main())


@pytest.mark.parametrize("version", versions(fetch, first=11, last=NEWEST))
def test_topics_without_partitions_are_not_plain_if_they_are_many(version: int) -> None:
    """Each takes time, and there is room for 30 million of them in a request."""
    with form("native"):
        assert native.take_fetch is not None
        for count, natively in ((255, True), (256, False)):
            topic = FetchTopic(topic="a", topic_id=bytes(16), partitions=[])
            request = FetchRequest(replica_id=-1, session_epoch=-1, topics=[topic] * count)
            taken = native.take_fetch(encode(request, version), 0, version, {}, FetchedPartition)
            assert (taken is not None) is natively


def test_damaged_requests_are_taken_as_in_python() -> None:
    with form("native"):
        plain = sum(fuzz_native_fetch.compare(*each) for each in fuzz_native_fetch.inputs(5000, 1))
    assert plain > 1000


async def wait_at_the_end(
    room: Replicas, version: int, *, session: bool
) -> tuple[Client, Later[Any]]:
    """A consumer that has read `a` to the end, and waits for more."""
    client = Client(version, session=session)
    client.offsets = {("a", n): room.partition("a", n).log.log_end_offset for n in range(3)}
    draw = random.Random(0)
    draw.choice = lambda options: options[0] if -1 not in options else -1  # type: ignore[method-assign, assignment]
    draw.random = lambda: 0.6  # type: ignore[method-assign]
    assert fetch.plain is not None
    if session:
        body = encode(client.request(draw), version)
        begun = fetch.plain(room.context(version, handler=fetch), memoryview(body), 0)
        client.take(decode(FetchResponse, bytes_of(begun, version), version))
        wait = FetchRequest(
            max_wait_ms=5_000,
            min_bytes=1,
            session_id=client.session_id,
            session_epoch=client.epoch,
        )
    else:
        wait = client.request(draw)
        wait.max_wait_ms, wait.min_bytes = 5_000, 1
    later = fetch.plain(room.context(version, handler=fetch), memoryview(encode(wait, version)), 0)
    assert isinstance(later, Later)
    return client, later


@pytest.mark.usefixtures("both_forms")
@pytest.mark.parametrize("size", [100, 20_000, 50_000])
@pytest.mark.parametrize("session", [False, True])
@pytest.mark.parametrize("version", [11, 12, NEWEST])
def test_fetches_that_wait_for_the_same_get_one_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, session: bool, size: int
) -> None:
    made: list[SharedAnswer] = []
    init = SharedAnswer.__init__

    def counted(self: SharedAnswer, *args: Any) -> None:
        made.append(self)
        init(self, *args)

    monkeypatch.setattr(SharedAnswer, "__init__", counted)

    async def main() -> None:
        room = room_of(tmp_path)
        try:
            waiting = [await wait_at_the_end(room, version, session=session) for _ in range(3)]
            room.append("a", batch(b"v" * size), number=1)
            answers = [await settled(later) for _, later in waiting]
            for (client, _), answer in zip(waiting, answers, strict=True):
                response = decode(FetchResponse, bytes_of(answer, version), version)
                assert response.session_id == client.session_id
                found = {
                    row.partition_index: (row.high_watermark, len(row.records or b""))
                    for topic in response.responses
                    for row in topic.partitions
                }
                assert found[1][0] == 1 and found[1][1] > size
                if session:  # unchanged partitions are omitted, now and next time
                    assert len(found) == 1
                    told = room.services.fetch_sessions.sessions[client.session_id].partitions
                    assert [key[2] for key in told] == [0, 2, 1]
                    assert [asked.high_watermark for asked in told.values()] == [0, 0, 1]
            assert len(made) == 1
            await asyncio.sleep(0)
            assert room.services.fetch_sessions.last_answer is None
        finally:
            room.stop()

    asyncio.run(main())


@pytest.mark.usefixtures("both_forms")
@pytest.mark.parametrize("change", ["append", "start", "role"])
def test_answer_does_not_hold_for_partitions_that_have_changed(tmp_path: Path, change: str) -> None:
    async def main() -> None:
        room = room_of(tmp_path)
        try:
            waiting = [await wait_at_the_end(room, 10, session=False) for _ in range(2)]
            room.append("a", batch(b"v"), number=1)
            first = waiting[0][1]
            await first.awaitable
            assert first.finish is not None
            one = decode(FetchResponse, bytes_of(first.finish(None), 10), 10)
            partition = room.partition("a", 1)
            if change == "append":
                room.append("a", batch(b"more"), number=1)
            elif change == "start":
                partition.log.delete_records_before(1)
            else:
                partition.close()
            second = waiting[1][1]
            assert second.finish is not None
            other = decode(FetchResponse, bytes_of(second.finish(None), 10), 10)
            assert one != other
        finally:
            room.stop()

    asyncio.run(main())


@pytest.mark.usefixtures("both_forms")
def test_fetch_that_waited_alone_keeps_no_answer_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("server.handlers.fetch_plain.SharedAnswer")

    async def main() -> None:
        room = room_of(tmp_path)
        try:
            _, later = await wait_at_the_end(room, 11, session=False)
            room.append("a", batch(b"v"), number=1)
            response = decode(FetchResponse, bytes_of(await settled(later), 11), 11)
            assert [len(row.records or b"") > 0 for row in response.responses[0].partitions] == [
                False,
                True,
                False,
            ]
        finally:
            room.stop()

    asyncio.run(main())
