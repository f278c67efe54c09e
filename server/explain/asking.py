"""Requests for facts, in Apache Kafka's protocol, including those that several kinds of facts need.

Each function is a generator: it yields an `Ask`, receives the response, and returns facts. The caller that runs it has
the connections, and throws `Unavailable` into it for a request that could not be made.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, NamedTuple, TypeVar

from kwire.errors import ErrorCode
from kwire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.messages.find_coordinator import FindCoordinatorRequest
from kwire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire.records.batch import RecordBatch, iter_batches

from ..metadata.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

CONSUMER, DEBUGGING = -1, -2
EARLIEST, LATEST = -2, -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
GROUP, TRANSACTION = 0, 1
#: The type of a topic among resources with configs. Source: ConfigResource.Type.
TOPIC_CONFIG = 2
#: The size of one Fetch, and the maximum size of a search for a marker, a key or a group's records. Unit: bytes.
FETCH_BYTES = 1024 * 1024
SCAN_BYTES = 64 * 1024 * 1024
#: By kind: the topic of its coordinators.
TOPIC_OF = {GROUP: GROUP_METADATA_TOPIC, TRANSACTION: TRANSACTION_STATE_TOPIC}
#: By error code: texts that are the same for every command and API, whatever a broker's message is.
WORDS: dict[int, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not authorized to access this topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not authorized to access this group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not authorized to do this in the cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not authorized to use this transactional id",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "not authorized to use this delegation token",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic, or not authorized to see it",
    ErrorCode.UNKNOWN_TOPIC_ID: "no such topic, or not authorized to see it",
    ErrorCode.GROUP_ID_NOT_FOUND: "no such group",
}


class Ask(NamedTuple):
    """A request to make.

    Shape: `to` is the id of a broker, None for any; the version is the highest that both know, at most
    `max_version`.
    """

    request: Any
    to: int | None = None
    max_version: int = 100


class Unavailable(Exception):
    """A request cannot be made: no broker answers, or the broker does not serve it. The text is for the user."""


T = TypeVar("T")
Asking = Generator[Ask, Any, T]


class Placed(NamedTuple):
    """A partition in Metadata."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


def metadata_of(topics: Iterable[str]) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=topic) for topic in topics],
        allow_auto_topic_creation=False,
    )


def partitions_of(topic: Any) -> dict[int, Placed]:
    """Partitions by number, of a topic of Metadata's response."""
    return {
        row.partition_index: Placed(row.leader_id, tuple(row.replica_nodes), tuple(row.isr_nodes))
        for row in topic.partitions
    }


def end_of(
    broker: int,
    topic: str,
    partition: int,
    replica_id: int,
    isolation: int = READ_UNCOMMITTED,
    at: int = LATEST,
) -> Asking[int | None]:
    """An end of a log at a broker; None if the broker refuses. Errors: Unavailable."""
    asked = yield from ends_of(broker, [(topic, partition)], replica_id, isolation, at)
    return asked.get((topic, partition))


def ends_of(
    broker: int,
    tps: Iterable[tuple[str, int]],
    replica_id: int = CONSUMER,
    isolation: int = READ_UNCOMMITTED,
    at: int = LATEST,
) -> Asking[dict[tuple[str, int], int]]:
    """An end of several logs of a broker; logs that the broker refuses are omitted."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for topic, partition in tps:
        topics.setdefault(topic, []).append(
            ListOffsetsPartition(partition_index=partition, timestamp=at)
        )
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=rows) for topic, rows in topics.items()],
    )
    response = yield Ask(request, broker)
    return {
        (topic.name, row.partition_index): row.offset
        for topic in response.topics
        for row in topic.partitions
        if not row.error_code
    }


def fetch(
    broker: int,
    topic: str,
    partition: int,
    offset: int,
    isolation: int = READ_UNCOMMITTED,
    max_bytes: int = FETCH_BYTES,
) -> Asking[Any]:
    """The partition's row of a Fetch, with whole batches from the one that contains the offset on."""
    row = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=[FetchTopic(topic=topic, partitions=[row])],
    )
    # Up to version 12, topics are identified by name.
    response = yield Ask(request, broker, 12)
    return response.responses[0].partitions[0]


def batches_of(row: Any) -> list[RecordBatch]:
    return [] if row.records is None else list(iter_batches(row.records))


def scan(
    leader: int,
    topic: str,
    partition: int,
    begin: int,
    end: int,
    feed: Callable[[RecordBatch], bool],
) -> Asking[int | None]:
    """Feed batches until the search is over; returns the offset at which it was given up, None if it was not."""
    at, read = begin, 0
    while at < end:
        if read > SCAN_BYTES:
            return at
        row = yield from fetch(leader, topic, partition, at)
        batches = batches_of(row)
        if row.error_code or not batches:
            return at
        for batch in batches:
            read += batch.header.size
            at = batch.header.next_offset
            if feed(batch):
                return None
    return None


def coordinator_of(kind: int, name: str) -> Asking[int]:
    """The broker that coordinates a group or transactional id. Errors: Unavailable."""
    response = yield Ask(FindCoordinatorRequest(key=name, key_type=kind), None, 3)
    if response.error_code:
        raise Unavailable(words_of(response.error_code))
    node: int = response.node_id
    return node


def coordinator_if_any(kind: int, name: str) -> Asking[int | None]:
    """The coordinator; None if the cluster has never had a group or transactional id. Errors: Unavailable.

    A request for the coordinator makes brokers create the topic of all coordinators, and a question must not do that.
    """
    response = yield Ask(metadata_of([TOPIC_OF[kind]]))
    if response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    return (yield from coordinator_of(kind, name))


def words_of(error_code: int, message: str | None = None) -> str:
    """An error code in words. Shape: `message` is that of the response, which says more than the name of a code."""
    if error_code in WORDS:
        return WORDS[error_code]
    if message:
        return message
    try:
        return ErrorCode(error_code).name.replace("_", " ").lower()
    except ValueError:
        return f"error {error_code}"


def placed_of(topics: Iterable[str]) -> Asking[dict[str, dict[int, Placed]]]:
    """Partitions by topic, without topics that do not exist or may not be seen."""
    names = sorted(topics)
    if not names:
        return {}
    response = yield Ask(metadata_of(names))
    return {topic.name: partitions_of(topic) for topic in response.topics if not topic.error_code}
