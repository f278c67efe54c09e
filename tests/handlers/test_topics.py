"""CreateTopics, DeleteTopics and CreatePartitions, compared with answers of Apache Kafka 3.9.2.

tests/controller/test_topic_plan.py tests which topics are valid; this file, rows, versions and order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kwire.codec import encode
from kwire.errors import ErrorCode
from kwire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kwire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kwire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire.types import ZERO_UUID
from server.controller.controller import NOT_CONTROLLER
from server.controller.refusal import ControllerRefusal
from server.controller.topic_plan import MAX_PARTITIONS_PER_REQUEST
from server.coordination.paths import NewTopic
from server.handlers.context import Later
from server.handlers.topics import create_partitions, create_topics, delete_topics
from server.metadata.image import TopicImage
from tests.support.replicas import Replicas, finished, topic_id, topic_image
from tests.support.services import with_rooms
from tests.support.versions import versions

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Controller:
    """Applies requests to the image of a room, and counts them."""

    def __init__(self, room: Replicas) -> None:
        self.room = room
        self.is_active = True
        self.asked = 0
        self.refusals: dict[str, ControllerRefusal] = {}

    async def create_topics(
        self, topics: Sequence[NewTopic]
    ) -> list[TopicImage | ControllerRefusal]:
        self.asked += 1
        return [
            self.refusals.get(topic.name)
            or self._put(topic.name, len(topic.partitions), topic.topic_id)
            for topic in topics
        ]

    async def create_partitions(
        self, name: str, partitions: Mapping[int, Sequence[int]]
    ) -> TopicImage | ControllerRefusal:
        self.asked += 1
        topic = self.room.publisher.image.topics[name]
        count = len(topic.partitions) + len(partitions)
        return self.refusals.get(name) or self._put(name, count, topic.topic_id)

    async def delete_topics(self, names: Sequence[str]) -> list[ControllerRefusal | None]:
        self.asked += 1
        assert len(set(names)) == len(names)
        for name in names:
            if name not in self.refusals:
                self.room.delete(name)
        return [self.refusals.get(name) for name in names]

    def _put(self, name: str, count: int, id: bytes) -> TopicImage:
        made = topic_image(name, count, id=id)
        self.room.publisher.publish(self.room.publisher.image.with_topics([made]))
        return made


@pytest.fixture
def controller(room: Replicas) -> Controller:
    room.services = with_rooms(room.services, controller=Controller(room))
    return room.services.controller


def ask(room: Replicas, handler: Any, request: Any, version: int) -> Any:
    answer = asyncio.run(room.ask(handler, request, version))
    encode(answer, version)
    return answer


def errors(rows: Any) -> list[tuple[str | None, int]]:
    return [(row.name, row.error_code) for row in rows]


# CreateTopics


def create(
    room: Replicas, *names: str, version: int = 7, partitions: int = 1, **options: Any
) -> Any:
    configs = options.pop("configs", {})
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=n, value=v) for n, v in configs.items()],
        )
        for name in names
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=1000, **options)
    return ask(room, create_topics, request, version).topics


@pytest.mark.parametrize("version", versions(create_topics))
def test_topic_can_be_used_when_it_is_answered(
    room: Replicas, controller: Controller, version: int
) -> None:
    (row,) = create(room, "a", version=version, partitions=2)
    assert (row.name, row.error_code, row.error_message) == ("a", 0, None)
    assert (row.num_partitions, row.replication_factor) == (2, 1)
    assert row.topic_id == room.publisher.image.topics["a"].topic_id != ZERO_UUID
    assert room.replicas.get("a", 1) is not None


def test_configs_are_told_from_version_5_on(room: Replicas, controller: Controller) -> None:
    assert create(room, "old", version=4)[0].configs is None
    (row,) = create(room, "new", version=5, configs={"retention.ms": "5"})
    told = {config.name: (config.value, config.config_source) for config in row.configs}
    assert told["retention.ms"] == ("5", 1)
    assert told["cleanup.policy"] == ("delete", 5)


def test_names_that_collide_with_each_other_are_refused_unless_only_validated(
    room: Replicas, controller: Controller
) -> None:
    """With validate_only, names are compared only with existing topics, since none is created."""
    assert errors(create(room, "a.b", "a_b", validate_only=True)) == [("a.b", 0), ("a_b", 0)]
    collides = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert errors(create(room, "a.b", "a_b")) == [("a.b", 0), ("a_b", collides)]


def test_rows_do_not_mind_each_other(room: Replicas, controller: Controller) -> None:
    controller.refusals["late"] = ControllerRefusal(
        ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'late' exists."
    )
    rows = create(room, "a", "a b", "late", "b")
    assert errors(rows) == [
        ("a", 0),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("late", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("b", 0),
    ]
    for row in rows[1:3]:
        assert row.error_message
        assert (row.num_partitions, row.replication_factor, row.configs) == (-1, -1, [])
        assert row.topic_id == ZERO_UUID
    assert controller.asked == 1


def test_topic_named_twice_is_refused_twice(room: Replicas, controller: Controller) -> None:
    rows = create(room, "a", "b", "a")
    twice = ErrorCode.INVALID_REQUEST
    assert errors(rows) == [("a", twice), ("b", 0), ("a", twice)]
    assert rows[0].error_message == "Found multiple entries for this topic."


def test_topics_of_one_request_collide_too(room: Replicas, controller: Controller) -> None:
    rows = create(room, "a.b", "a_b")
    assert errors(rows) == [("a.b", 0), ("a_b", ErrorCode.INVALID_TOPIC_EXCEPTION)]


def test_validation_makes_nothing(room: Replicas, controller: Controller) -> None:
    rows = create(room, "a", "a b", validate_only=True)
    assert errors(rows) == [("a", 0), ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION)]
    assert (rows[0].num_partitions, rows[0].topic_id) == (1, ZERO_UUID)
    assert rows[0].configs
    assert controller.asked == 0 and not room.publisher.image.topics


def test_broker_that_is_not_the_controller_says_so(room: Replicas, controller: Controller) -> None:
    controller.is_active = False
    assert errors(create(room, "a", "b")) == [
        ("a", ErrorCode.NOT_CONTROLLER),
        ("b", ErrorCode.NOT_CONTROLLER),
    ]


def test_controller_that_is_no_longer_says_so(room: Replicas, controller: Controller) -> None:
    controller.refusals["a"] = NOT_CONTROLLER
    assert errors(create(room, "a")) == [("a", ErrorCode.NOT_CONTROLLER)]


def test_too_many_partitions_are_refused_before_any_is_planned(
    room: Replicas, controller: Controller
) -> None:
    rows = create(room, "a", "b", partitions=MAX_PARTITIONS_PER_REQUEST // 2 + 1)
    assert errors(rows) == [
        ("a", ErrorCode.POLICY_VIOLATION),
        ("b", ErrorCode.POLICY_VIOLATION),
    ]
    assert controller.asked == 0


def test_nothing_asked_for_is_answered_with_nothing(room: Replicas, controller: Controller) -> None:
    answer = finished(create_topics(room.context(7), CreateTopicsRequest(timeout_ms=1)))
    assert not isinstance(answer, Later) and answer.topics == []


# DeleteTopics


def delete(room: Replicas, *names: str, version: int = 5) -> Any:
    request = (
        DeleteTopicsRequest(topic_names=list(names), timeout_ms=1000)
        if version < 6
        else DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in names], timeout_ms=1000
        )
    )
    return ask(room, delete_topics, request, version).responses


def delete_states(room: Replicas, *states: DeleteTopicState) -> Any:
    request = DeleteTopicsRequest(topics=list(states), timeout_ms=1000)
    return ask(room, delete_topics, request, 6).responses


@pytest.mark.parametrize("version", versions(delete_topics))
def test_deleted_topic_is_gone_when_it_is_answered(
    room: Replicas, controller: Controller, version: int
) -> None:
    room.create("a")
    rows = delete(room, "a", "nope", version=version)
    assert errors(rows) == [("a", 0), ("nope", UNKNOWN)]
    # As a ZooKeeper broker of Apache Kafka: the id as requested, and no messages.
    assert [(row.topic_id, row.error_message) for row in rows] == [(ZERO_UUID, None)] * 2
    assert "a" not in room.publisher.image.topics
    assert room.replicas.get("a", 0) is None


def test_topic_may_be_deleted_by_its_id(room: Replicas, controller: Controller) -> None:
    room.create("a")
    rows = delete_states(
        room,
        DeleteTopicState(name=None, topic_id=topic_id("a")),
        DeleteTopicState(name=None, topic_id=b"?" * 16),
        DeleteTopicState(name=None, topic_id=ZERO_UUID),
    )
    assert errors(rows) == [
        ("a", 0),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    assert [row.topic_id for row in rows] == [topic_id("a"), b"?" * 16, ZERO_UUID]
    assert "a" not in room.publisher.image.topics


def test_deletion_by_name_and_id_together_is_refused_as_a_whole(
    room: Replicas, controller: Controller
) -> None:
    room.create("a")
    rows = delete_states(
        room,
        DeleteTopicState(name="a", topic_id=ZERO_UUID),
        DeleteTopicState(name="a", topic_id=topic_id("a")),
    )
    assert errors(rows) == [("a", ErrorCode.INVALID_REQUEST)] * 2
    assert "a" in room.publisher.image.topics


@pytest.mark.parametrize("version", [5, 6])
def test_topic_named_twice_is_deleted_once(
    room: Replicas, controller: Controller, version: int
) -> None:
    room.create("a")
    assert errors(delete(room, "a", "a", version=version)) == [("a", 0), ("a", 0)]


def test_deletion_that_fails_says_why(room: Replicas, controller: Controller) -> None:
    room.create("a")
    room.create("b")
    controller.refusals["a"] = NOT_CONTROLLER
    assert errors(delete(room, "a", "b")) == [("a", ErrorCode.NOT_CONTROLLER), ("b", 0)]
    controller.is_active = False
    assert errors(delete(room, "a")) == [("a", ErrorCode.NOT_CONTROLLER)]


@pytest.mark.parametrize(
    ("version", "error"),
    [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)],
)
def test_deletion_may_be_forbidden(
    room: Replicas, controller: Controller, version: int, error: ErrorCode
) -> None:
    room.create("a")
    room.config.values["delete.topic.enable"] = False
    assert errors(delete(room, "a", version=version)) == [("a", error)]
    assert "a" in room.publisher.image.topics


# CreatePartitions


def grow(room: Replicas, *asked: tuple[str, int], version: int = 3, **options: Any) -> Any:
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in asked
        ],
        timeout_ms=1000,
        **options,
    )
    return ask(room, create_partitions, request, version).results


@pytest.mark.parametrize("version", versions(create_partitions))
def test_new_partitions_can_be_used_when_they_are_answered(
    room: Replicas, controller: Controller, version: int
) -> None:
    room.create("a")
    rows = grow(room, ("a", 3), ("nope", 2), version=version)
    assert errors(rows) == [("a", 0), ("nope", UNKNOWN)]
    assert room.replicas.get("a", 2) is not None
    assert rows[1].error_message == "The topic 'nope' does not exist."


def test_growth_may_be_validated_only(room: Replicas, controller: Controller) -> None:
    room.create("a")
    rows = grow(room, ("a", 3), ("nope", 2), validate_only=True)
    assert errors(rows) == [("a", 0), ("nope", UNKNOWN)]
    assert controller.asked == 0


def test_growth_named_twice_is_refused(room: Replicas, controller: Controller) -> None:
    room.create("a")
    (row,) = grow(room, ("a", 3), ("a", 4))
    assert (row.error_code, row.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Duplicate topic in request.",
    )


def test_growth_has_a_bound_over_all_topics(room: Replicas, controller: Controller) -> None:
    room.create("a")
    room.create("b")
    half = MAX_PARTITIONS_PER_REQUEST // 2 + 2
    rows = grow(room, ("a", half), ("b", half), validate_only=True)
    assert errors(rows) == [("a", 0), ("b", ErrorCode.POLICY_VIOLATION)]


def test_growth_elsewhere_or_too_late_says_so(room: Replicas, controller: Controller) -> None:
    room.create("a")
    controller.refusals["a"] = ControllerRefusal(
        ErrorCode.INVALID_PARTITIONS, "Topic already has 3."
    )
    assert errors(grow(room, ("a", 3))) == [("a", ErrorCode.INVALID_PARTITIONS)]
    controller.is_active = False
    assert errors(grow(room, ("a", 3))) == [("a", ErrorCode.NOT_CONTROLLER)]
