"""DescribeTopicPartitions page by page, compared with answers of Apache Kafka 4.3.0."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.codec import encode
from kwire.errors import ErrorCode
from kwire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from server.handlers.topic_partitions import describe_topic_partitions
from server.security.acl import AclEntry, AclOperation, Permission, ResourcePattern, ResourceType
from server.security.acl_authorizer import AclAuthorizer
from tests.support.replicas import Replicas, topic_id
from tests.support.services import with_rooms

Pages = list[tuple[str, list[int]]]


@pytest.fixture
def filled(room: Replicas) -> Replicas:
    """Topics a, b and c with 3, 2 and 5 partitions."""
    for name, count in (("c", 5), ("a", 3), ("b", 2)):
        room.create(name, count)
    return room


def ask(
    room: Replicas, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> Any:
    answer = room.call(
        describe_topic_partitions,
        DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=None
            if cursor is None
            else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        ),
        0,
    )
    encode(answer, 0)
    return answer


def pages(answer: Any) -> tuple[Pages, tuple[str, int] | None]:
    """(topics with their partitions, cursor) of an answer without errors."""
    assert {topic.error_code for topic in answer.topics} <= {0}
    cursor = answer.next_cursor
    return [
        (topic.name, [row.partition_index for row in topic.partitions]) for topic in answer.topics
    ], None if cursor is None else (cursor.topic_name, cursor.partition_index)


def errors(answer: Any) -> dict[str, int]:
    return {topic.name: topic.error_code for topic in answer.topics}


def test_topics_come_sorted_and_once(filled: Replicas) -> None:
    expected = [("a", [0, 1, 2]), ("b", [0, 1])]
    assert pages(ask(filled, "b", "a", "b")) == (expected, None)


def test_no_names_are_all_topics(filled: Replicas) -> None:
    topics, cursor = pages(ask(filled))
    assert [name for name, _ in topics] == ["a", "b", "c"] and cursor is None


@pytest.mark.parametrize(
    ("limit", "expected", "cursor"),
    [
        (2, [("a", [0, 1])], ("a", 2)),
        (3, [("a", [0, 1, 2])], ("b", 0)),
        (4, [("a", [0, 1, 2]), ("b", [0])], ("b", 1)),
        (5, [("a", [0, 1, 2]), ("b", [0, 1])], ("c", 0)),
        (10, [("a", [0, 1, 2]), ("b", [0, 1]), ("c", [0, 1, 2, 3, 4])], None),
        (0, [("a", [0])], ("a", 1)),
        (-5, [("a", [0])], ("a", 1)),
    ],
)
def test_page_ends_at_its_limit(
    filled: Replicas, limit: int, expected: Pages, cursor: tuple[str, int] | None
) -> None:
    assert pages(ask(filled, "a", "b", "c", limit=limit)) == (expected, cursor)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7])
def test_pages_together_name_every_partition_once(filled: Replicas, limit: int) -> None:
    found: list[tuple[str, int]] = []
    cursor = None
    while True:
        topics, cursor = pages(ask(filled, limit=limit, cursor=cursor))
        found += [(name, number) for name, numbers in topics for number in numbers]
        if cursor is None:
            break
    assert found == [(n, i) for n, count in (("a", 3), ("b", 2), ("c", 5)) for i in range(count)]


def test_broker_has_a_limit_of_its_own(filled: Replicas) -> None:
    filled.config.values["max.request.partition.size.limit"] = 2
    assert pages(ask(filled, "a"))[1] == ("a", 2)


@pytest.mark.parametrize(
    ("cursor", "expected"),
    [
        (("b", 1), [("b", [1]), ("c", [0, 1, 2, 3, 4])]),
        (("b", 2), [("b", []), ("c", [0, 1, 2, 3, 4])]),
        (("b", 9), [("b", []), ("c", [0, 1, 2, 3, 4])]),
    ],
)
def test_cursor_says_where_to_begin(
    filled: Replicas, cursor: tuple[str, int], expected: Pages
) -> None:
    assert pages(ask(filled, "a", "b", "c", cursor=cursor)) == (expected, None)


def test_cursor_may_name_a_topic_that_is_gone_when_all_were_asked_for(filled: Replicas) -> None:
    assert [name for name, _ in pages(ask(filled, cursor=("aa", 3)))[0]] == ["b", "c"]


@pytest.mark.parametrize(("names", "cursor"), [("ab", ("b", -1)), ("a", ("b", 0))])
def test_cursor_that_cannot_be_is_refused(
    filled: Replicas, names: str, cursor: tuple[str, int]
) -> None:
    answer = ask(filled, *names, cursor=cursor)
    assert errors(answer) == dict.fromkeys(names, ErrorCode.INVALID_REQUEST)
    assert answer.next_cursor is None


def test_topics_that_do_not_exist_are_rows_of_their_own(filled: Replicas) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors(ask(filled, "nope", "a")) == {"a": 0, "nope": unknown}
    assert errors(ask(filled, "a b")) == {"a b": ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert errors(ask(filled, "nope", "b", cursor=("nope", 3))) == {"nope": unknown}


def test_partition_is_described(filled: Replicas) -> None:
    filled.create("d", epoch=4, replicas=(0, 5), isr=(0,))
    (topic,) = ask(filled, "d").topics
    assert (topic.topic_id, topic.is_internal) == (topic_id("d"), False)
    assert topic.topic_authorized_operations == 3576
    (row,) = topic.partitions
    assert (row.error_code, row.leader_id, row.leader_epoch) == (0, 0, 4)
    assert (row.replica_nodes, row.isr_nodes, row.offline_replicas) == ([0, 5], [0], [5])
    assert (row.eligible_leader_replicas, row.last_known_elr) == ([], [])


def test_leader_that_is_not_alive_is_none(filled: Replicas) -> None:
    filled.create("d", leader=5, replicas=(5, 0), isr=(5,))
    assert ask(filled, "d").topics[0].partitions[0].leader_id == -1


def test_topics_that_may_not_be_described_are_hidden_or_refused_in_the_same_way_as_unknown_ones(
    filled: Replicas,
) -> None:
    authorizer = AclAuthorizer()
    may_read = AclEntry("User:*", "*", AclOperation.READ, Permission.ALLOW)
    authorizer.replace_all({ResourcePattern(ResourceType.TOPIC, "b"): [may_read]})
    filled.services = with_rooms(filled.services, authorizer=authorizer)
    assert pages(ask(filled)) == ([("b", [0, 1])], None)
    answer = ask(filled, "a", "b", "none")
    assert errors(answer) == {
        "b": 0,
        "a": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "none": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    a, none = answer.topics[1:]
    assert (a.topic_id, a.partitions, a.topic_authorized_operations) == (
        (none.topic_id, none.partitions, none.topic_authorized_operations)
    )
    assert pages(ask(filled, limit=2)) == ([("b", [0, 1])], None)  # no cursor names hidden topics
