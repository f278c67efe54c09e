"""Requests that no client library offers: stored batches and sizes of logs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kwire.records.batch import RecordBatch, iter_batches
from kwire.server.client.answers import leaders_of
from kwire.server.client.brokers import Brokers
from kwire.server.client.errors import ClientError
from kwire.server.client.errors import Unavailable as Unavailable
from kwire.server.client.requests import (
    MAX_FETCH_VERSION,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Limits,
    fetch_request,
    metadata_of,
)
from kwire.server.client.visibility import aborted_in, judged

from .problems import Problem

#: How long a broker may be silent.
TIMEOUT_S = 30.0
#: Seconds to wait for a quota, and at least before another request.
QUOTA_S, AGAIN_S = 120.0, 0.2


class StoredBatches(NamedTuple):
    """What a broker has from an offset on: whole batches, and perhaps part of one more at the end.

    Shape: `aborted` is (producer id, first offset) of each aborted transaction that overlaps them.
    """

    records: bytes
    aborted: list[tuple[int, int]]

    def judged(self) -> Iterator[tuple[RecordBatch, bool]]:
        """Each whole batch, and whether an aborted transaction wrote it. Errors: CorruptRecord."""
        found: Iterator[tuple[RecordBatch, bool]] = judged(iter_batches(self.records), self.aborted)
        return found


class FetchRefused(Problem):
    """A broker answers a Fetch with an error, also when it is asked again; None: no broker leads the partition."""

    def __init__(self, text: str, error: ErrorCode | None) -> None:
        super().__init__(text)
        self.error = error


class StoredClient:
    """Connections to the brokers of a cluster, made when they are needed; a context manager.

    Shape: `arguments` are those of `client_settings.for_kwire`. Errors of all requests: Unavailable if a broker does not
    answer, Problem if it refuses the login.
    """

    def __init__(self, bootstrap: str, arguments: Mapping[str, Any]) -> None:
        self._bootstrap = bootstrap
        self._arguments = {"client_id": "kwire-pipeline", **arguments}
        self._brokers: Brokers | None = None
        self._leaders: dict[tuple[str, int], int] = {}

    def __enter__(self) -> StoredClient:
        return self

    def __exit__(self, *_: object) -> None:
        if self._brokers is not None:
            self._brokers.close()

    def fetch(
        self, topic: str, partition: int, offset: int, max_bytes: int, *, committed: bool = True
    ) -> StoredBatches:
        """The batches beginning with the one that contains an offset; up to the last stable offset if `committed`.

        Waits while a quota is used up. Errors: FetchRefused for a partition that cannot be read.
        """
        request = fetch_request(
            {(topic, partition): offset},
            Limits(0, 0, max_bytes, max_bytes),
            READ_COMMITTED if committed else READ_UNCOMMITTED,
        )
        for last_try in (False, True):
            leader = self._leader(topic, partition)
            answer = self._ask(request, leader)
            waited = 0.0
            while not answer.responses and not answer.error_code:
                seconds = max(answer.throttle_time_ms / 1000, AGAIN_S)
                if waited + seconds > QUOTA_S:
                    raise FetchRefused(
                        f"cannot read {topic}-{partition}: the quota is used up", None
                    )
                time.sleep(seconds)
                waited += seconds
                answer = self._ask(request, leader)
            part = answer.responses[0].partitions[0] if answer.responses else answer
            if part.error_code == ErrorCode.NONE:
                # A copy, which costs as much as what the decoder would lose on the single bytes of a view.
                return StoredBatches(bytes(part.records or b""), aborted_in(part))
            self._leaders.clear()
            if last_try:
                error = ErrorCode(part.error_code)
                raise FetchRefused(
                    f"cannot read {topic}-{partition} at offset {offset}: {error.name}", error
                )
        raise AssertionError

    def log_sizes(self, topics: Mapping[str, int]) -> dict[tuple[str, int], int]:
        """(topic, partition) -> bytes of its largest replica."""
        request = DescribeLogDirsRequest(
            topics=[
                DescribableLogDirTopic(topic=name, partitions=list(range(count)))
                for name, count in topics.items()
            ]
        )
        sizes: dict[tuple[str, int], int] = {}
        for node in [row.node_id for row in self._metadata(topics).brokers]:
            answer = self._ask(request, node)
            for directory in answer.results:
                for topic in directory.topics:
                    for part in topic.partitions:
                        place = topic.name, part.partition_index
                        if not part.is_future_key:
                            sizes[place] = max(sizes.get(place, 0), part.partition_size)
        return sizes

    def _leader(self, topic: str, partition: int) -> int:
        place = topic, partition
        if place in self._leaders:
            return self._leaders[place]
        (row,) = self._metadata([topic]).topics
        if self._leaders.get(place, -1) < 0:
            is_unknown = row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise FetchRefused(
                f"{topic}-{partition} has no leader",
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_unknown else None,
            )
        return self._leaders[place]

    def _metadata(self, topics: Iterable[str]) -> Any:
        answer = self._ask(metadata_of(topics), None)
        self._opened().take_nodes(answer)
        self._leaders |= {
            (topic.name, partition): leader
            for topic in answer.topics
            for partition, leader in leaders_of(topic).items()
            if leader >= 0
        }
        return answer

    def _ask(self, request: object, node: int | None) -> Any:
        try:
            brokers = self._opened()
            brokers.wire(node).sock.settimeout(TIMEOUT_S)
            return brokers.ask(request, node, MAX_FETCH_VERSION)
        except Unavailable:
            # Another broker may lead by now, also when this one no longer accepts connections.
            self._leaders.clear()
            raise
        except ClientError as error:
            raise Problem(str(error)) from error

    def _opened(self) -> Brokers:
        if self._brokers is None:
            self._brokers = Brokers(self._bootstrap, self._arguments, patience_s=0)
        return self._brokers
