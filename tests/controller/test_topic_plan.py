"""Plans for new topics and partitions, with the messages of Apache Kafka 3.9.2."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsTopic
from kwire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
)
from server.config import BrokerConfig
from server.controller.refusal import ControllerRefusal
from server.controller.topic_plan import (
    MAX_PARTITIONS_PER_REQUEST,
    TOO_MANY_PARTITIONS,
    asks_for_too_many,
    plan_partitions,
    plan_topic,
)
from server.coordination.paths import NewTopic
from server.metadata.image import MetadataImage, PartitionImage
from tests.support.replicas import registration, topic_image

CONFIG = BrokerConfig({"broker.id": "0", "num.partitions": "3"})
TOPIC_ID = bytes(16)


def image(brokers: int = 1, **topics: int) -> MetadataImage:
    """A cluster with this number of brokers, and topics with their numbers of partitions."""
    edit = MetadataImage().edit().put_brokers({n: registration(n) for n in range(brokers)})
    return edit.put_topics(topic_image(name, count) for name, count in topics.items()).build()


def asked(
    name: str = "new",
    partitions: int = 1,
    factor: int = 1,
    assignment: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions if assignment is None else -1,
        replication_factor=factor if assignment is None else -1,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
            for number, brokers in (assignment or {}).items()
        ],
        configs=[CreatableTopicConfig(name=n, value=v) for n, v in (configs or {}).items()],
    )


def planned(topic: CreatableTopic, cluster: MetadataImage | None = None) -> NewTopic:
    plan = plan_topic(topic, cluster or image(), CONFIG, topic_id=TOPIC_ID)
    assert isinstance(plan, NewTopic), plan
    return plan


def refused(topic: CreatableTopic, cluster: MetadataImage | None = None) -> ControllerRefusal:
    plan = plan_topic(topic, cluster or image(), CONFIG, topic_id=TOPIC_ID)
    assert isinstance(plan, ControllerRefusal), plan
    return plan


# New topics


def test_topic_gets_an_id_partitions_and_configs() -> None:
    plan = planned(asked(partitions=2, configs={"retention.ms": "5"}))
    assert (plan.name, plan.configs) == ("new", {"retention.ms": "5"})
    assert {number: row.replicas for number, row in plan.partitions.items()} == {0: (0,), 1: (0,)}
    assert plan.topic_id == TOPIC_ID


def test_defaults_are_the_brokers() -> None:
    plan = planned(asked(partitions=-1, factor=-1))
    assert len(plan.partitions) == 3
    assert {row.replicas for row in plan.partitions.values()} == {(0,)}


def test_replicas_are_spread_over_the_brokers() -> None:
    plan = planned(asked(partitions=4, factor=2), image(4))
    assert sorted(row.replicas[0] for row in plan.partitions.values()) == [0, 1, 2, 3]
    assert all(len(set(row.replicas)) == 2 for row in plan.partitions.values())


def test_manual_assignment_is_taken_as_it_is() -> None:
    plan = planned(asked(assignment={1: [2, 0], 0: [1, 2]}), image(3))
    assert [(n, row.replicas) for n, row in plan.partitions.items()] == [(0, (1, 2)), (1, (2, 0))]


@pytest.mark.parametrize(
    ("topic", "error", "message"),
    [
        (
            asked(partitions=0),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions must be larger than 0.",
        ),
        (
            asked(partitions=-2),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions must be larger than 0.",
        ),
        (
            asked(factor=0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0.",
        ),
        (
            asked(factor=2),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor: 2 larger than available brokers: 1.",
        ),
        (
            asked("a b"),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: 'a b' contains one or more characters other than"
            " ASCII alphanumerics, '.', '_' and '-'",
        ),
        (asked("old"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'old' already exists."),
        (
            asked("o.ld"),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic 'o.ld' collides with existing topics: o_ld",
        ),
        (
            asked("__cluster_metadata"),
            ErrorCode.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
        (
            asked(configs={"retention.ms": None, "segment.ms": None}),
            ErrorCode.INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms,segment.ms",
        ),
        (
            asked(configs={"nope": "1"}),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: nope",
        ),
        (
            asked(configs={"retention.ms": "x"}),
            ErrorCode.INVALID_CONFIG,
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            asked(assignment={0: [0], 2: [0]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            asked(assignment={0: [9]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Unknown broker(s) in replica assignment: 9.",
        ),
        (
            asked(assignment={0: [0], 1: [0, 0]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "All partitions should have the same number of replicas",
        ),
        (
            asked(assignment={0: []}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Cannot have replication factor of 0 for partition id 0.",
        ),
    ],
)
def test_topic_that_cannot_be_is_refused_in_kafkas_words(
    topic: CreatableTopic, error: ErrorCode, message: str
) -> None:
    assert refused(topic, image(old=1, o_ld=1)) == ControllerRefusal(error, message)


def test_dead_broker_may_be_named_where_it_can_come_back() -> None:
    plan = plan_topic(
        asked(assignment={0: [9], 1: [-1]}), image(), CONFIG, topic_id=TOPIC_ID, any_broker=True
    )
    assert isinstance(plan, NewTopic)
    assert [row.replicas for row in plan.partitions.values()] == [(9,), (-1,)]


@pytest.mark.parametrize("assignment", [{0: [9]}, {0: []}, {-1: [0]}])
def test_bad_config_is_told_before_what_kafka_does_not_look_at(
    assignment: dict[int, list[int]],
) -> None:
    topic = asked(assignment=assignment, configs={"unclean.leader.election.enable": "maybe"})
    assert refused(topic).error is ErrorCode.INVALID_CONFIG


def test_partition_below_0_is_refused() -> None:
    assert refused(asked(assignment={-1: [0]})).error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_number_and_assignment_exclude_each_other() -> None:
    topic = asked(assignment={0: [0]})
    topic.num_partitions = 1
    assert refused(topic).error is ErrorCode.INVALID_REQUEST


def test_names_that_are_taken_meanwhile_collide_too() -> None:
    plan = plan_topic(asked("a.b"), image(), CONFIG, {"a_b"}, topic_id=TOPIC_ID)
    assert isinstance(plan, ControllerRefusal) and plan.error is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("topics", "too_many"),
    [
        ([asked(partitions=MAX_PARTITIONS_PER_REQUEST)], False),
        ([asked(partitions=MAX_PARTITIONS_PER_REQUEST + 1)], True),
        ([asked(partitions=MAX_PARTITIONS_PER_REQUEST), asked("b")], True),
        ([asked(partitions=MAX_PARTITIONS_PER_REQUEST - 2), asked("b", -1)], True),
        ([asked(partitions=-5), asked("b")], False),
    ],
)
def test_request_has_a_bound(topics: list[CreatableTopic], too_many: bool) -> None:
    assert asks_for_too_many(topics, 3) == too_many


# Growth


def grown(
    count: int, assignments: list[list[int]] | None = None, name: str = "old"
) -> CreatePartitionsTopic:
    rows = None
    if assignments is not None:
        rows = [CreatePartitionsAssignment(broker_ids=row) for row in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=rows)


def test_new_partitions_go_on_with_the_numbers() -> None:
    assert plan_partitions(grown(4), image(old=2)) == {2: (0,), 3: (0,)}
    assert plan_partitions(grown(4, [[1], [0]]), image(2, old=2)) == {2: (1,), 3: (0,)}


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        (
            grown(3, name="nope"),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'nope' does not exist.",
        ),
        (grown(2), ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partitions."),
        (
            grown(1),
            ErrorCode.INVALID_PARTITIONS,
            "Topic currently has 2 partitions, which is higher than the requested 1.",
        ),
        (
            grown(4, [[0]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Increasing the number of partitions by 2 but 1 assignments provided.",
        ),
        (
            grown(3, [[9]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Unknown broker(s) in replica assignment: 9.",
        ),
        (
            grown(3, [[0, 0]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Duplicate brokers not allowed in replica assignment: 0, 0 for partition id 2.",
        ),
        (
            grown(3, [[]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Cannot have replication factor of 0 for partition id 2.",
        ),
    ],
)
def test_growth_that_cannot_be_is_refused_in_kafkas_words(
    request_: CreatePartitionsTopic, error: ErrorCode, message: str
) -> None:
    assert plan_partitions(request_, image(old=2)) == ControllerRefusal(error, message)


def test_growth_has_a_bound() -> None:
    assert plan_partitions(grown(4), image(old=2), 1) == TOO_MANY_PARTITIONS


def test_topic_that_is_being_moved_does_not_grow() -> None:
    moving = PartitionImage(0, 0, 0, (0, 1), (0,), adding=(1,))
    cluster = image(old=1)
    topic = cluster.topics["old"]._replace(partitions={0: moving})
    plan = plan_partitions(grown(2), cluster.with_topics([topic]))
    assert isinstance(plan, ControllerRefusal) and plan.error is ErrorCode.REASSIGNMENT_IN_PROGRESS


@pytest.mark.parametrize(("leader", "first"), [(0, 1), (1, 1), (2, 3), (4, 1)])
def test_growth_begins_where_the_topic_began_or_behind_it(leader: int, first: int) -> None:
    """Brokers 1 and 3 are alive. Source: AdminZkClient.createPartitions, startIndex."""
    cluster = MetadataImage().with_brokers({n: registration(n) for n in (1, 3)})
    topic = topic_image("old", 2, leader=leader, replicas=(leader,))
    added: Any = plan_partitions(grown(4), cluster.with_topics([topic]))
    assert added == {2: (first,), 3: (4 - first,)}
