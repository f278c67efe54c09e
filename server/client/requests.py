"""Builds the requests that most clients make: for metadata, offsets, records and coordinators. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from kwire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.messages.find_coordinator import FindCoordinatorRequest
from kwire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire.messages.metadata import MetadataRequest, MetadataRequestTopic

T = TypeVar("T")
Partition = tuple[str, int]

#: The replica ids of a consumer, and of a client that is answered by followers too. Source: ListOffsetsRequest.
CONSUMER, DEBUGGING = -1, -2
EARLIEST, LATEST = -2, -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
GROUP, TRANSACTION = 0, 1
#: The type of a topic among resources with configs. Source: ConfigResource.Type.
TOPIC_CONFIG = 2
#: The last version of Fetch in which topics are identified by name; version 13 uses ids.
MAX_FETCH_VERSION = 12
#: The last version of FindCoordinator that finds a single coordinator.
MAX_FIND_VERSION = 3


class Limits(NamedTuple):
    """The limits of a Fetch. Unit: bytes and ms. Source: the defaults of Apache Kafka's consumer."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    partition_bytes: int = 1024 * 1024


def metadata_of(
    topics: Iterable[str] | None, *, allow_auto_topic_creation: bool = False
) -> MetadataRequest:
    """Shape: without topics, the brokers alone are requested; with None, all topics."""
    named = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
    # Versions below 4 have no such field; without names, it has no meaning.
    create = allow_auto_topic_creation or not named
    return MetadataRequest(topics=named, allow_auto_topic_creation=create)


def coordinator_request(kind: int, name: str) -> FindCoordinatorRequest:
    """Shape: `kind` is GROUP or TRANSACTION; up to MAX_FIND_VERSION."""
    return FindCoordinatorRequest(key=name, key_type=kind)


def offsets_request(
    tps: Iterable[Partition],
    at: int,
    *,
    replica_id: int = CONSUMER,
    isolation: int = READ_UNCOMMITTED,
    timeout_ms: int = 0,
) -> ListOffsetsRequest:
    """Shape: `at` is a Unix time in ms, EARLIEST or LATEST."""

    def row(tp: Partition) -> ListOffsetsPartition:
        return ListOffsetsPartition(partition_index=tp[1], timestamp=at)

    return ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation,
        timeout_ms=timeout_ms,
        topics=[
            ListOffsetsTopic(name=topic, partitions=rows)
            for topic, rows in by_topic(tps, row).items()
        ],
    )


def fetch_request(
    positions: Mapping[Partition, int], limits: Limits, isolation: int, rack: str = ""
) -> FetchRequest:
    """A Fetch without a session. Shape: the order of partitions is kept, except that partitions are grouped by topic."""

    def row(tp: Partition) -> FetchPartition:
        return FetchPartition(
            partition=tp[1],
            fetch_offset=positions[tp],
            partition_max_bytes=limits.partition_bytes,
        )

    return FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=isolation,
        topics=[
            FetchTopic(topic=topic, partitions=rows)
            for topic, rows in by_topic(positions, row).items()
        ],
        forgotten_topics_data=[],
        rack_id=rack,
    )


def by_topic(tps: Iterable[Partition], row: Callable[[Partition], T]) -> dict[str, list[T]]:
    """A row for each partition, by topic."""
    topics: dict[str, list[T]] = {}
    for tp in tps:
        topics.setdefault(tp[0], []).append(row(tp))
    return topics
