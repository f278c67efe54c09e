"""Requests in Kafka's protocol, for cases in which a client library must not choose the requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kwire.api import ApiKey
from kwire.errors import ErrorCode

from ...support.polling import wait_until
from ...support.wire_client import WireClient

#: Answers that mean "try again": a coordinator or leader has just started.
ASK_AGAIN = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


def call(address: str, api: ApiKey, version: int, values: dict[str, Any]) -> dict[str, Any]:
    """Send one request on its own connection."""
    host, port = address.rsplit(":", 1)
    client = WireClient(host, int(port))
    try:
        answer = client.call(api, version, values)
    finally:
        client.close()
    assert answer is not None
    return answer


def ask(address: str, api: ApiKey, version: int, values: dict[str, Any]) -> dict[str, Any]:
    """Send a request that must succeed, if necessary after retries."""
    answer: dict[str, Any] = {}

    def answered() -> bool:
        answer.clear()
        answer.update(call(address, api, version, values))
        codes = set(error_codes(answer)) - {ErrorCode.NONE}
        assert codes <= ASK_AGAIN, (api, answer)
        return not codes

    wait_until(answered, f"{api.name}: {answer}")
    return answer


def error_codes(answer: object) -> Iterator[int]:
    """All error codes in an answer, however deep."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name.endswith("error_code"):
                yield value
            else:
                yield from error_codes(value)
    elif isinstance(answer, list):
        for row in answer:
            yield from error_codes(row)


def describe_transaction(address: str, name: str) -> dict[str, Any]:
    """A row of DescribeTransactions."""
    rows: list[dict[str, Any]] = []

    def described() -> bool:
        answer = call(address, ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [name]})
        rows[:] = answer["transaction_states"]
        return int(rows[0]["error_code"]) == 0

    wait_until(described, f"{name} is not described")
    rows[0]["topics"].sort(key=lambda row: row["topic"])  # Apache Kafka has them in a hash map
    return rows[0]


def committed_offsets(address: str, group: str) -> dict[tuple[str, int], tuple[int, str]]:
    """A group's committed offsets, with their metadata."""
    answer = ask(address, ApiKey.OFFSET_FETCH, 7, {"group_id": group, "topics": None})
    return {
        (topic["name"], row["partition_index"]): (row["committed_offset"], row["metadata"])
        for topic in answer["topics"]
        for row in topic["partitions"]
    }


def describe_consumer_group(address: str, group: str) -> dict[str, Any]:
    """A row of ConsumerGroupDescribe, with members and topics in order."""
    asked = {"group_ids": [group], "include_authorized_operations": False}
    (row,) = ask(address, ApiKey.CONSUMER_GROUP_DESCRIBE, 1, asked)["groups"]
    row["members"].sort(key=lambda member: str(member["member_id"]))
    for member in row["members"]:
        for kind in ("assignment", "target_assignment"):
            member[kind]["topic_partitions"].sort(key=lambda topic: str(topic["topic_name"]))
            for topic in member[kind]["topic_partitions"]:
                topic["partitions"].sort()
    return dict(row)
