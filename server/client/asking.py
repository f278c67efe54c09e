"""Questions to brokers that several callers have, as generators: pure, since the caller has the connections.

Each function yields an `Ask`, receives the response, and returns facts. The caller that runs it throws `Unavailable`
into it for a request that could not be made.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, NamedTuple, TypeVar

from kwire.errors import ErrorCode

from ..metadata.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from .answers import Placed, offsets_in, partitions_of
from .errors import Unavailable, words_of
from .requests import (
    CONSUMER,
    GROUP,
    LATEST,
    MAX_FETCH_VERSION,
    MAX_FIND_VERSION,
    READ_UNCOMMITTED,
    TRANSACTION,
    Limits,
    Partition,
    coordinator_request,
    fetch_request,
    metadata_of,
    offsets_request,
)

#: The size of one Fetch. Unit: bytes.
FETCH_BYTES = 1024 * 1024
#: By kind: the topic of its coordinators.
TOPIC_OF = {GROUP: GROUP_METADATA_TOPIC, TRANSACTION: TRANSACTION_STATE_TOPIC}


class Ask(NamedTuple):
    """A request to make.

    Shape: `to` is the id of a broker, None for any; the version is the highest that both know, at most
    `max_version`.
    """

    request: Any
    to: int | None = None
    max_version: int = 100


T = TypeVar("T")
Asking = Generator[Ask, Any, T]


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
    tps: Iterable[Partition],
    replica_id: int = CONSUMER,
    isolation: int = READ_UNCOMMITTED,
    at: int = LATEST,
) -> Asking[dict[Partition, int]]:
    """An end of several logs of a broker; logs that the broker refuses are omitted."""
    request = offsets_request(tps, at, replica_id=replica_id, isolation=isolation)
    found, _ = offsets_in((yield Ask(request, broker)))
    return found


def fetch(
    broker: int,
    topic: str,
    partition: int,
    offset: int,
    isolation: int = READ_UNCOMMITTED,
    max_bytes: int = FETCH_BYTES,
) -> Asking[Any]:
    """The partition's row of a Fetch, with whole batches from the one that contains the offset on."""
    limits = Limits(0, 0, max_bytes, max_bytes)
    request = fetch_request({(topic, partition): offset}, limits, isolation)
    response = yield Ask(request, broker, MAX_FETCH_VERSION)
    return response.responses[0].partitions[0]


def coordinator_of(kind: int, name: str) -> Asking[int]:
    """The broker that coordinates a group or transactional id. Errors: Unavailable."""
    response = yield Ask(coordinator_request(kind, name), None, MAX_FIND_VERSION)
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


def placed_of(topics: Iterable[str]) -> Asking[dict[str, dict[int, Placed]]]:
    """Partitions by topic, without topics that do not exist or may not be seen."""
    names = sorted(topics)
    if not names:
        return {}
    response = yield Ask(metadata_of(names))
    return {topic.name: partitions_of(topic) for topic in response.topics if not topic.error_code}
