"""Creating and deleting topics over the quota of changes (KIP-599)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kwire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from server.handlers.charge import Charge
from server.handlers.topics import create_partitions, create_topics, delete_topics
from server.quotas.entities import Entity
from tests.support.replicas import Replicas, finish
from tests.support.services import with_rooms

EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class Controller:
    """Records the requested changes, and reports that they are done."""

    is_active = True

    def __init__(self) -> None:
        self.done: list[str] = []

    async def create_topics(self, topics: Any) -> list[Any]:
        self.done += [topic.name for topic in topics]
        return [SimpleNamespace(topic_id=bytes(16)) for _ in topics]

    async def delete_topics(self, names: Any) -> list[None]:
        self.done += names
        return [None for _ in names]

    async def create_partitions(self, name: str, partitions: Any) -> None:
        self.done.append(name)


def ask(room: Replicas, handler: Any, request: Any, version: int) -> tuple[Any, Any, int]:
    """The answer, the controller's changes, and the time for which the client is throttled."""
    controller = Controller()
    room.services = with_rooms(room.services, controller=controller)
    ctx = room.context(version, "test", handler)
    ctx.charge = Charge(0, 0)
    answer = asyncio.run(finish(handler(ctx, request)))
    return (
        answer,
        controller.done,
        max(0, ctx.charge.throttled_until_ms - room.clock.monotonic_ms()),
    )


@pytest.fixture
def limited(room: Replicas) -> Replicas:
    """A quota of 1 a second, in a window of 11 s."""
    room.services.quotas.set(Entity(None, "test"), {"controller_mutation_rate": 1.0})
    return room


def creation(*names: str, **options: Any) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=6, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=1000, **options)


def test_strict_version_refuses_topics_while_the_quota_is_used_up(limited: Replicas) -> None:
    answer, done, throttle_ms = ask(limited, create_topics, creation("a", "b", "c", "d"), 6)
    assert done == ["a", "b"]
    assert [row.error_code for row in answer.topics] == [0, 0, EXCEEDED, EXCEEDED]
    assert throttle_ms == 1000
    limited.clock.advance(1000)
    answer, done, throttle_ms = ask(limited, create_topics, creation("c"), 6)
    assert (done, throttle_ms) == (["c"], 0)


def test_older_version_creates_topics_and_throttles(limited: Replicas) -> None:
    _, done, throttle_ms = ask(limited, create_topics, creation("a", "b", "c"), 5)
    assert (done, throttle_ms) == (["a", "b", "c"], 7000)


def test_topics_that_are_only_validated_do_not_count(limited: Replicas) -> None:
    for _ in range(5):
        answer, _, throttle_ms = ask(
            limited, create_topics, creation("a", "b", validate_only=True), 6
        )
        assert [row.error_code for row in answer.topics] == [0, 0]
        assert throttle_ms == 0


def test_partitions_of_deleted_topics_count(limited: Replicas) -> None:
    for name in ("a", "b", "c"):
        limited.create(name, 6)
    topics = [DeleteTopicState(name=name, topic_id=bytes(16)) for name in ("a", "b", "c")]
    answer, done, throttle_ms = ask(limited, delete_topics, DeleteTopicsRequest(topics=topics), 6)
    assert done == ["a", "b"]
    assert [row.error_code for row in answer.responses] == [0, 0, EXCEEDED]
    assert throttle_ms == 1000


def test_added_partitions_count(limited: Replicas) -> None:
    for name in ("a", "b"):
        limited.create(name, 1)
    topics = [CreatePartitionsTopic(name=name, count=14, assignments=None) for name in ("a", "b")]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=1000)
    answer, done, throttle_ms = ask(limited, create_partitions, request, 3)
    assert done == ["a"]
    assert [row.error_code for row in answer.results] == [0, EXCEEDED]
    assert throttle_ms == 2000
