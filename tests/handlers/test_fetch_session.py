"""Incremental fetch sessions (KIP-227) from request to answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.messages.fetch import FetchResponse, ForgottenTopic
from server.handlers.fetch import fetch
from server.replication.fetch_session import FetchSessionCache
from tests.support.replicas import Replicas, finish, topic_id, topic_image, values
from tests.support.services import with_rooms
from tests.support.steps import finished

from .fetches import BY_NAME, LATEST, fetch_request, partitions_at_once, rows  # noqa: F401 - a fixture


class Client:
    """One client's session, which counts its epochs and remembers its id."""

    def __init__(self, room: Replicas, *asked: Any, version: int = BY_NAME) -> None:
        self.room = room
        self.version = version
        self.epoch = 0
        self.id = 0
        self.first = self.fetch(*asked)

    def fetch(self, *asked: Any, **options: Any) -> dict[tuple[str, int], Any]:
        """The partitions in the next answer; the request is answered immediately."""
        answer = self.room.call(fetch, self.request(*asked, **options), self.version)
        return self.take(answer)

    def request(self, *asked: Any, **options: Any) -> Any:
        options = {"session_id": self.id, "session_epoch": self.epoch, **options}
        request = fetch_request(*asked, **options)
        if self.version >= 13:
            for topic in request.topics:
                topic.topic_id, topic.topic = topic_id(topic.topic), ""
        self.epoch += 1
        return request

    def take(self, answer: FetchResponse) -> dict[tuple[str, int], Any]:
        assert answer.error_code == 0
        self.id = answer.session_id
        return rows(answer)


def refused(room: Replicas, version: int = BY_NAME, **options: Any) -> FetchResponse:
    answer = room.call(fetch, fetch_request(**options), version)
    assert isinstance(answer, FetchResponse)
    assert answer.responses == [] and answer.session_id == 0
    return answer


@pytest.mark.parametrize("version", range(7, LATEST + 1))
def test_every_version_with_sessions_names_only_what_is_new(room: Replicas, version: int) -> None:
    room.create("a", 2)
    room.create("b")
    client = Client(room, ("a", 0, 0), ("a", 1, 0), ("b", 0, 0), version=version)
    assert client.id > 0 and len(client.first) == 3
    assert client.fetch() == {}
    room.produce("a", b"1", number=1)
    for _ in range(2):  # its fetch offset has not changed, so it is returned again
        ((key, row),) = client.fetch().items()
        assert key[1] == 1 and values(row.records) == [b"1"]
    assert client.fetch(("a", 1, 1)) == {}


def test_new_high_watermark_and_start_are_news(room: Replicas) -> None:
    partition = room.create("a")
    room.produce("a")
    client = Client(room, ("a", 0, 1))
    assert client.fetch() == {}
    partition.log.increment_log_start_offset(1)
    assert client.fetch()["a", 0].log_start_offset == 1
    assert client.fetch() == {}


def test_error_is_told_until_it_is_over(room: Replicas) -> None:
    room.create("a")
    client = Client(room, ("a", 0, 99), ("nope", 0, 0))
    for _ in range(2):
        found = client.fetch()
        assert found["a", 0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert found["nope", 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    room.create("nope")
    found = client.fetch(("a", 0, 0))
    assert [row.error_code for row in found.values()] == [0, 0]
    assert client.fetch() == {}


def test_partitions_are_added_changed_and_forgotten(room: Replicas) -> None:
    room.create("a", 2)
    room.produce("a", b"1")
    room.produce("a", b"2", number=1)
    client = Client(room, ("a", 0, 0))
    assert set(client.fetch(("a", 1, 0))) == {("a", 0), ("a", 1)}
    gone = [ForgottenTopic(topic="a", partitions=[0])]
    assert set(client.fetch(forgotten_topics_data=gone)) == {("a", 1)}
    assert set(client.fetch(("a", 0, 1))) == {("a", 1), ("a", 0)}
    assert set(client.fetch()) == {("a", 1)}


def test_partition_that_gave_records_goes_behind_the_others(room: Replicas) -> None:
    """A limit that is too small for all of them must not starve any."""
    room.create("a", 3)
    for number in range(3):
        room.produce("a", b"%d" % number, number=number)
    client = Client(room, ("a", 0, 0), ("a", 1, 0), ("a", 2, 0))
    served = []
    for _ in range(6):
        found = client.fetch(max_bytes=1)
        served += [key[1] for key, row in found.items() if row.records]
    assert served == [0, 1, 2, 0, 1, 2]


def test_session_begins_in_the_order_of_its_first_answer(room: Replicas) -> None:
    """Unknown partitions stay at the end; those with records move there only from the second answer on."""
    room.create("a", 3)
    room.produce("a", b"1", number=1)
    client = Client(room, ("gone", 0, 0), ("a", 1, 0), ("a", 2, 0))
    assert list(client.first) == [("a", 1), ("a", 2), ("gone", 0)]
    session = room.services.fetch_sessions.sessions[client.id]
    assert [key[2] for key in session.partitions] == [1, 2, 0]
    client.fetch()
    assert [(key[0], key[2]) for key in session.partitions] == [("a", 2), ("gone", 0), ("a", 1)]


def test_request_that_forgets_all_is_answered_without_a_session(room: Replicas) -> None:
    """As in Apache Kafka 3.9.2, also if it names other partitions."""
    room.create("a", 2)
    client = Client(room, ("a", 0, 0))
    forgotten = [ForgottenTopic(topic="a", partitions=[0])]
    assert list(client.fetch(("a", 0, 0), forgotten_topics_data=forgotten)) == [("a", 0)]
    assert client.id == 0 and not room.services.fetch_sessions.sessions


def test_session_that_went_on_in_a_version_without_diverging_epochs_is_refused(
    room: Replicas,
) -> None:
    """As in Apache Kafka 3.9.2, whose older answers have no field for one."""
    room.create("a")
    client = Client(room)
    client.epoch = 0
    client.fetch(("a", 0, 7), last_fetched_epoch=0)
    answer = room.call(fetch, client.request(("b", 0, 0)), 8)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.session_id == client.id
    (row,) = rows(answer).values()  # the partition that the request itself names
    assert row.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (row.records, row.aborted_transactions) == (None, [])


def test_topic_that_was_deleted_and_made_again(room: Replicas) -> None:
    room.create("a")
    room.produce("a", b"old")
    client = Client(room, ("a", 0, 1))
    by_id = Client(room, ("a", 0, 1), version=13)
    room.delete("a")
    for each in (client, by_id):
        (row,) = each.fetch().values()
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert row.aborted_transactions == []
    never_found = Client(room, ("a", 0, 1), version=13)
    room.publisher.publish(
        room.publisher.image.with_topics([topic_image("a", id=b"another-id------")])
    )
    (row,) = client.fetch().values()
    assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    (row,) = by_id.fetch(("a", 0, 0)).values()  # the session still knows the name
    assert row.error_code == ErrorCode.INCONSISTENT_TOPIC_ID
    assert row.aborted_transactions is None
    (row,) = never_found.fetch().values()
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert client.fetch(("a", 0, 0))["a", 0].high_watermark == 0
    room.produce("a", b"new")
    assert values(client.fetch()["a", 0].records) == [b"new"]


def test_session_waits_and_tells_only_what_came(room: Replicas) -> None:
    async def run() -> None:
        room.create("a", 3)
        client = Client(room, ("a", 0, 0), ("a", 1, 0), ("a", 2, 0))
        answer = fetch(room.context(BY_NAME), client.request(max_wait_ms=60_000))
        room.produce("a", b"1", number=2)
        assert set(client.take(await finish(answer))) == {("a", 2)}

    asyncio.run(run())


def test_session_that_waited_in_vain_is_told_nothing(room: Replicas) -> None:
    async def run() -> None:
        room.create("a")
        client = Client(room, ("a", 0, 0))
        request = client.request(max_wait_ms=1)
        assert client.take(await room.ask(fetch, request, BY_NAME)) == {}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("session", "epoch", "version", "error"),
    [
        (12345, 1, BY_NAME, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (None, 5, BY_NAME, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (None, 1, 13, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_request_that_does_not_fit_its_session_gets_one_error(
    room: Replicas, session: int | None, epoch: int, version: int, error: ErrorCode
) -> None:
    room.create("a")
    client = Client(room, ("a", 0, 0))
    answer = refused(room, version, session_id=session or client.id, session_epoch=epoch)
    assert answer.error_code == error


def test_session_is_closed_by_its_final_epoch(room: Replicas) -> None:
    room.create("a")
    client = Client(room, ("a", 0, 0))
    answer = room.call(fetch, fetch_request(session_id=client.id, session_epoch=-1), BY_NAME)
    assert (answer.error_code, answer.session_id) == (0, 0)
    closed = refused(room, session_id=client.id, session_epoch=1)
    assert closed.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_fetch_without_a_free_slot_goes_without_a_session(room: Replicas) -> None:
    room.services = with_rooms(room.services, fetch_sessions=FetchSessionCache(0))
    room.create("a")
    client = Client(room, ("a", 0, 0))
    assert client.id == 0 and set(client.first) == {("a", 0)}


def test_request_that_was_overtaken_is_refused_when_it_is_answered(room: Replicas) -> None:
    async def run() -> None:
        room.create("a")
        client = Client(room, ("a", 0, 0))
        first = finished(fetch(room.context(BY_NAME), client.request(max_wait_ms=60_000)))
        client.fetch()
        room.produce("a")
        answer = await finish(first)
        assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert answer.responses == []

    asyncio.run(run())
