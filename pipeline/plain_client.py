"""Requests that no client library offers, over a plain socket: stored batches and sizes of logs.

Only for brokers reached without TLS and SASL; kwire has no other listeners.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kwire.connection import ClientConnection
from kwire.errors import ErrorCode, WireError
from kwire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kwire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire.records.batch import RecordBatch, iter_batches
from kwire.records.control import ControlType, control_type

from .problems import Problem

_METADATA, _FETCH, _LOG_DIRS = 5, 11, 1
_READ_COMMITTED = 1

TIMEOUT_S = 30.0
#: Seconds for a connection; another broker may be there.
CONNECT_S = 5.0
#: Seconds to wait for a quota, and at least before another request.
QUOTA_S, AGAIN_S = 120.0, 0.2


class StoredBatches(NamedTuple):
    """What a broker has from an offset on: whole batches, and perhaps part of one more at the end.

    Shape: `aborted` is (producer id, first offset) of each aborted transaction that overlaps them.
    """

    records: bytes
    aborted: list[tuple[int, int]]

    def judged(self) -> Iterator[tuple[RecordBatch, bool]]:
        """Each whole batch, and whether an aborted transaction wrote it. Errors: CorruptRecord.

        Source: CompletedFetch.nextFetchedRecord.
        """
        pending = sorted(self.aborted, key=lambda one: one[1], reverse=True)
        aborting: set[int] = set()
        for batch in iter_batches(self.records):
            header = batch.header
            while pending and pending[-1][1] <= header.last_offset:
                aborting.add(pending.pop()[0])
            if header.is_control and header.producer_id in aborting and _is_abort(batch):
                aborting.discard(header.producer_id)
            yield batch, header.is_transactional and header.producer_id in aborting


def _is_abort(batch: RecordBatch) -> bool:
    record = next(batch.records(), None)
    return record is not None and control_type(record.key) is ControlType.ABORT


class Refused(Problem):
    """A broker answers a Fetch with an error, also when it is asked again; None: no broker leads the partition."""

    def __init__(self, text: str, error: ErrorCode | None) -> None:
        super().__init__(text)
        self.error = error


class PlainClient:
    """Connections to the brokers of a cluster; a context manager."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = [_address(word) for word in bootstrap.split(",") if word.strip()]
        self._connections: dict[tuple[str, int], _Connection] = {}
        self._leaders: dict[tuple[str, int], tuple[str, int]] = {}
        self._unknown: set[str] = set()
        self._known: list[tuple[str, int]] = []

    def __enter__(self) -> PlainClient:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()

    def fetch(
        self, topic: str, partition: int, offset: int, max_bytes: int, *, committed: bool = True
    ) -> StoredBatches:
        """The batches beginning with the one that contains an offset; up to the last stable offset if `committed`.

        Waits while a quota is used up. Errors: Refused for a partition that cannot be read, OSError, WireError.
        """
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=max_bytes,
            isolation_level=_READ_COMMITTED if committed else 0,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes
                        )
                    ],
                )
            ],
            forgotten_topics_data=[],
        )
        for last_try in (False, True):
            leader = self._leader(topic, partition)
            answer = self._call(leader, _FETCH, request)
            waited = 0.0
            while not answer.responses and not answer.error_code:
                seconds = max(answer.throttle_time_ms / 1000, AGAIN_S)
                if waited + seconds > QUOTA_S:
                    raise Refused(f"cannot read {topic}-{partition}: the quota is used up", None)
                time.sleep(seconds)
                waited += seconds
                answer = self._call(leader, _FETCH, request)
            part = answer.responses[0].partitions[0] if answer.responses else answer
            if part.error_code == ErrorCode.NONE:
                return StoredBatches(
                    bytes(part.records or b""),
                    [
                        (one.producer_id, one.first_offset)
                        for one in part.aborted_transactions or ()
                    ],
                )
            self._leaders.clear()
            if last_try:
                error = ErrorCode(part.error_code)
                raise Refused(
                    f"cannot read {topic}-{partition} at offset {offset}: {error.name}", error
                )
        raise AssertionError

    def log_sizes(self, topics: Mapping[str, int]) -> dict[tuple[str, int], int]:
        """(topic, partition) -> bytes of its largest replica. Errors: OSError, WireError."""
        request = DescribeLogDirsRequest(
            topics=[
                DescribableLogDirTopic(topic=name, partitions=list(range(count)))
                for name, count in topics.items()
            ]
        )
        sizes: dict[tuple[str, int], int] = {}
        for address in self._brokers(topics):
            answer = self._call(address, _LOG_DIRS, request)
            for directory in answer.results:
                for topic in directory.topics:
                    for part in topic.partitions:
                        place = topic.name, part.partition_index
                        if not part.is_future_key:
                            sizes[place] = max(sizes.get(place, 0), part.partition_size)
        return sizes

    def _leader(self, topic: str, partition: int) -> tuple[str, int]:
        if (topic, partition) not in self._leaders:
            self._brokers([topic])
        try:
            return self._leaders[topic, partition]
        except KeyError:
            known = topic not in self._unknown
            raise Refused(
                f"{topic}-{partition} has no leader",
                None if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ) from None

    def _brokers(self, topics: Iterable[str]) -> list[tuple[str, int]]:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=False,
        )
        refused: OSError | WireError | None = None
        for address in dict.fromkeys([*self._bootstrap, *self._known]):
            try:
                answer = self._call(address, _METADATA, request)
                break
            except (OSError, WireError) as error:
                refused = error
        else:
            assert refused is not None
            raise refused
        addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        self._known = list(addresses.values())
        self._unknown = {
            topic.name
            for topic in answer.topics
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        for topic in answer.topics:
            for part in topic.partitions:
                if part.leader_id in addresses:
                    place = topic.name, part.partition_index
                    self._leaders[place] = addresses[part.leader_id]
        return self._known

    def _call(self, address: tuple[str, int], version: int, request: object) -> Any:
        try:
            connection = self._connections.get(address)
            if connection is None:
                connection = self._connections[address] = _Connection(address)
            return connection.call(request, version)
        except (OSError, WireError):
            # Another broker may lead by now, also when this one no longer accepts connections.
            self._leaders.clear()
            if (broken := self._connections.pop(address, None)) is not None:
                broken.close()
            raise


class _Connection:
    """A connection to one broker that waits for each response."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=CONNECT_S)
        self._socket.settimeout(TIMEOUT_S)
        self._connection = ClientConnection("kwire-pipeline")

    def call(self, request: object, version: int) -> Any:
        """Send a request and return the response message. Errors: OSError, WireError."""
        connection = self._connection
        connection.request(request, version)
        self._socket.sendall(b"".join(connection.take_output()))
        while (response := connection.next_response()) is None:
            count = self._socket.recv_into(connection.get_buffer())
            if not count:
                raise ConnectionError("the broker closed the connection")
            connection.received(count)
        return response.message()

    def close(self) -> None:
        self._socket.close()


def _address(text: str) -> tuple[str, int]:
    # Kafka's clients allow the protocol before it.
    host, _, port = text.strip().rpartition("://")[2].rpartition(":")
    if not port.isdigit():
        raise Problem(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)
