"""Errors in the rows of one partition, in every version: clients in Java use some that have topic ids instead of names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from kwire.api import ApiKey
from kwire.records.batch import BatchBuilder
from kwire.testing import Broker

from ..support.wire_client import WireClient

#: The partitions in the requests, by topic.
ASKED = {"orders": (0, 1), "payments": (1,)}
ERROR = 29  # TOPIC_AUTHORIZATION_FAILED
KEYS = {
    "Produce": ApiKey.PRODUCE,
    "Fetch": ApiKey.FETCH,
    "ListOffsets": ApiKey.LIST_OFFSETS,
    "OffsetCommit": ApiKey.OFFSET_COMMIT,
    "OffsetFetch": ApiKey.OFFSET_FETCH,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        for topic in ASKED:
            running.topic(topic, partitions=2)
        running.group("rows")  # makes its coordinator
        yield running


@pytest.fixture(scope="module")
def ids(broker: Broker) -> dict[str, bytes]:
    """The ids of the topics."""
    with closing(client_of(broker)) as client:
        names = [{"name": name} for name in ASKED]
        answer = client.call(ApiKey.METADATA, 12, {"topics": names})
    assert answer is not None
    return {each["name"]: each["topic_id"] for each in answer["topics"]}


def client_of(broker: Broker) -> WireClient:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return WireClient(host, int(port))


def versions(client: WireClient, key: ApiKey) -> range:
    """Those that the broker serves."""
    answer = client.call(ApiKey.API_VERSIONS, 0, {})
    assert answer is not None
    [row] = [each for each in answer["api_keys"] if each["api_key"] == key]
    return range(row["min_version"], row["max_version"] + 1)


def request(api: str, ids: dict[str, bytes]) -> dict[str, Any]:
    """A request for both topics, with their names and their ids."""
    builder = BatchBuilder()
    builder.append(0, None, b"v", ())
    batch = bytes(builder.build())
    rows: dict[str, Any] = {
        "Produce": lambda each: {"index": each, "records": batch},
        "Fetch": lambda each: {"partition": each, "fetch_offset": 0, "partition_max_bytes": 1000},
        "ListOffsets": lambda each: {"partition_index": each, "timestamp": -1},
        "OffsetCommit": lambda each: {
            "partition_index": each,
            "committed_offset": 1,
            "committed_metadata": "",
        },
        "OffsetFetch": int,
    }
    name = "topic" if api == "Fetch" else "name"
    field = {"Produce": "partition_data", "OffsetFetch": "partition_indexes"}.get(api, "partitions")
    topics = [
        {name: topic, field: [rows[api](each) for each in partitions]}
        for topic, partitions in ASKED.items()
    ]
    with_ids = [each | {"topic_id": ids[each[name]]} for each in topics]
    bodies: dict[str, dict[str, Any]] = {
        "Produce": {"acks": -1, "timeout_ms": 1000, "topic_data": with_ids},
        "Fetch": {"max_wait_ms": 0, "min_bytes": 0, "topics": with_ids},
        "ListOffsets": {"replica_id": -1, "topics": topics},
        "OffsetCommit": {"group_id": "rows", "topics": with_ids},
        "OffsetFetch": {
            "group_id": "rows",
            "topics": topics,
            "groups": [{"group_id": "rows", "topics": with_ids}],
        },
    }
    return bodies[api]


def errors(answer: Any, ids: dict[str, bytes], topic: str = "") -> dict[tuple[str, int], int]:
    """The errors in an answer by topic and partition."""
    names = {topic_id: name for name, topic_id in ids.items()}
    found: dict[tuple[str, int], int] = {}
    if isinstance(answer, list):
        for each in answer:
            found |= errors(each, ids, topic)
    elif isinstance(answer, dict):
        name = answer.get("name") or answer.get("topic") or names.get(answer.get("topic_id", b""))
        index = answer.get("partition_index", answer.get("index"))
        if index is not None and "error_code" in answer:
            found[topic, index] = answer["error_code"]
        for value in answer.values():
            found |= errors(value, ids, name or topic)
    return found


@pytest.mark.parametrize("api", KEYS)
@pytest.mark.parametrize("after_apply", [False, True])
def test_error_is_in_the_row_that_matches_in_every_version(
    broker: Broker, ids: dict[str, bytes], api: str, after_apply: bool
) -> None:
    rule = broker.fault(api, topic="orders", partition=1, error=ERROR, after_apply=after_apply)
    wrong = {}
    expected = {("orders", 0): 0, ("orders", 1): ERROR, ("payments", 1): 0}
    with rule, closing(client_of(broker)) as client:
        for version in versions(client, KEYS[api]):
            answer = client.call(KEYS[api], version, request(api, ids))
            if (found := errors(answer, ids)) != expected:
                wrong[version] = found
    assert wrong == {}
    assert rule.hits >= 9
