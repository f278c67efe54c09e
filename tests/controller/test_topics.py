"""Topic names and assignments. Cases of TopicTest and AdminZkClientTest."""

from __future__ import annotations

import pytest

from kwire.errors import ErrorCode
from server.controller.refusal import ControllerRefusal
from server.controller.topics import (
    colliding_topics,
    invalid_topic_name,
    validate_assignment,
    validate_partition_growth,
    validate_topic_name,
)


@pytest.mark.parametrize(
    "name", ["valid", "TOPIC", "nAmEs", "ar6", "VaL1d", "_0-9_.", "...", "a" * 249]
)
def test_valid_name_is_accepted(name: str) -> None:
    assert invalid_topic_name(name) is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a" * 250, f"the length of '{'a' * 250}' is longer than the max allowed length 249"),
        *(
            (
                name,
                f"'{name}' contains one or more characters other than ASCII alphanumerics,"
                " '.', '_' and '-'",
            )
            for name in ("foo bar", "foo,bar", "föö", "a\n", "a/b", "tópico", "\x00", "\u0661")
        ),
    ],
)
def test_invalid_name_is_refused_in_kafkas_words(name: str, message: str) -> None:
    assert invalid_topic_name(name) == f"Topic name is invalid: {message}"
    refusal = validate_topic_name(name)
    assert refusal is not None
    assert refusal.error is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_existing_and_colliding_names_are_refused() -> None:
    topics = {"a.b", "c", "x_y"}
    assert validate_topic_name("new", topics) is None
    assert validate_topic_name("c", topics) == ControllerRefusal(
        ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'c' already exists."
    )
    assert validate_topic_name("a.b", topics) == ControllerRefusal(
        ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'a.b' already exists."
    )
    assert validate_topic_name("x.y", topics) == ControllerRefusal(
        ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic 'x.y' collides with existing topics: x_y"
    )
    assert colliding_topics("plain", ["plain"]) == []
    assert colliding_topics("a_b", ["a.b", "a-b", "a_b"]) == ["a.b", "a_b"]


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ({0: [1, 2], 1: [2]}, "All partitions should have the same number of replicas"),
        ({}, "All partitions should have the same number of replicas"),
        ({0: [1, 1]}, "Duplicate replica assignment found: {0: [1, 1]}"),
        ({0: [1], 2: [2]}, "partitions should be a consecutive 0-based integer sequence"),
        ({1: [1]}, "partitions should be a consecutive 0-based integer sequence"),
        ({-1: [1], 0: [2]}, "partitions should be a consecutive 0-based integer sequence"),
    ],
)
def test_manual_assignment_that_cannot_be_is_refused(
    assignment: dict[int, list[int]], message: str
) -> None:
    assert validate_assignment(assignment) == ControllerRefusal(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
    )


def test_manual_assignment_is_accepted() -> None:
    assert validate_assignment({1: [2, 1], 0: [1, 3]}) is None


@pytest.mark.parametrize(
    ("count", "assignments", "error", "message"),
    [
        (
            2,
            None,
            ErrorCode.INVALID_PARTITIONS,
            "Topic currently has 3 partitions, which is higher than the requested 2.",
        ),
        (3, None, ErrorCode.INVALID_PARTITIONS, "Topic already has 3 partitions."),
        (
            5,
            [[1, 2]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Increasing the number of partitions by 2 but 1 assignments provided.",
        ),
        (
            4,
            [[1, 9]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Unknown broker(s) in replica assignment: 9.",
        ),
        (
            4,
            [[1, 1]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Duplicate brokers not allowed in replica assignment: 1, 1 for partition id 3.",
        ),
        (
            4,
            [[]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Cannot have replication factor of 0 for partition id 3.",
        ),
        (
            5,
            [[1], [1, 2]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Inconsistent replication factor between partitions, partition 0 has 2 while"
            " partitions [3] have replication factors [1], respectively.",
        ),
    ],
)
def test_growth_that_cannot_be_is_refused(
    count: int, assignments: list[list[int]] | None, error: ErrorCode, message: str
) -> None:
    assert validate_partition_growth(3, count, 2, assignments, {1, 2}) == ControllerRefusal(
        error, message
    )


def test_growth_is_accepted() -> None:
    assert validate_partition_growth(3, 4, 2, None, {1, 2}) is None
    assert validate_partition_growth(3, 5, 2, [[1, 2], [2, 1]], {1, 2}) is None
