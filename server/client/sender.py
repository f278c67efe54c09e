"""Sends records to a topic with kwire's own codec.

Batches are encoded in bulk, and one request to each leader is in flight while the next batch is read and encoded.
Batches carry a producer id and sequence numbers if the broker assigns an id, so that a repeated batch is stored once.
Source: KIP-98; Sender (Java).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from kwire.errors import ErrorCode, WireError
from kwire.messages.init_producer_id import InitProducerIdRequest
from kwire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.records.compression import Codec

from ..controller.topics import invalid_topic_name
from .answers import leaders_of, version_for
from .batches import BATCH_BYTES, Accumulator, Outgoing, UnacknowledgedBatch, encode_batch
from .brokers import Brokers
from .contact import RETRY_S
from .errors import ClientError, Unavailable, no_partition
from .produce_errors import RETRIABLE, TOO_LARGE, said_of
from .requests import metadata_of
from .wire import Wire
from .words import reason

#: Below version 13, which identifies topics by id.
MAX_VERSION = 9
#: How long a topic that a broker does not know may be in creation (auto.create.topics.enable).
UNKNOWN_S = 5.0


class Sender:
    """Sends records to one topic. Errors: ClientError when a batch is permanently refused."""

    def __init__(
        self,
        brokers: Brokers,
        topic: str,
        *,
        acks: int = -1,
        codec: Codec = Codec.NONE,
        plain: bool = False,
        batch_bytes: int = BATCH_BYTES,
        request_timeout_ms: int = 15_000,
        delivery_timeout_ms: int = 30_000,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """Shape: with `plain`, records are only values, as bytes; otherwise they are `Outgoing`."""
        self.acknowledged = 0
        """The number of stored records; with acks=0, of sent records."""
        self._brokers = brokers
        self._topic = topic
        self._acks = acks
        self._codec = codec
        self._plain = plain
        self._request_timeout_ms = request_timeout_ms
        self._patience_s = delivery_timeout_ms / 1000
        self._now_ms = now_ms
        self._batches = Accumulator(self._send, batch_bytes)
        self._waiting: dict[int, UnacknowledgedBatch] = {}
        self._leaders: dict[int, int] = {}
        self._producer = (-1, -1)
        problem = invalid_topic_name(topic)
        if problem is not None:
            raise ClientError(f"{topic}: {problem}")
        self._learn(time.monotonic() + self._patience_s)
        self._batches.sticky = random.randrange(self.partitions)
        if acks == -1:
            self._get_producer_id()

    @property
    def partitions(self) -> int:
        """The number of the topic's partitions."""
        return len(self._leaders)

    def _learn(self, deadline: float) -> None:
        """Find the leaders of the topic's partitions. Errors: ClientError after the deadline."""
        begun = time.monotonic()
        while True:
            request = metadata_of([self._topic], allow_auto_topic_creation=True)
            try:
                row = self._brokers.ask(request).topics[0]
                error = row.error_code
                if not error:
                    self._leaders = leaders_of(row)
                    self._batches.partitions = len(self._leaders)
                    if self._leaders and all(leader >= 0 for leader in self._leaders.values()):
                        self._brokers.learn_nodes()
                        return
                    error = ErrorCode.LEADER_NOT_AVAILABLE
            except Unavailable as failure:
                if time.monotonic() > deadline:
                    raise ClientError(f"{self._topic}: {failure}") from None
                error = ErrorCode.NETWORK_EXCEPTION
            now = time.monotonic()
            unknown = error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and now - begun > UNKNOWN_S
            if error not in RETRIABLE or unknown or now > deadline:
                raise ClientError(f"{self._topic}: {said_of(error)}")
            if self._leaders and now - begun > RETRY_S:
                return  # partitions without a leader do not delay the others
            time.sleep(RETRY_S)

    def _get_producer_id(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        try:
            for _ in range(50):
                response = self._brokers.ask(request)
                if not response.error_code:
                    self._producer = (response.producer_id, response.producer_epoch)
                if response.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    return
                time.sleep(RETRY_S)
        except Unavailable:
            pass  # a broker without producer ids; a repeated batch is then stored twice

    # -- taking records

    def check_partition(self, partition: int) -> None:
        """Errors: ClientError if the topic has no such partition."""
        if partition not in self._leaders:
            raise no_partition(self._topic, partition, self.partitions)

    def add(self, record: Outgoing, partition: int | None) -> None:
        """Add a record; without a partition, its key chooses one. Errors: ClientError."""
        if partition is not None and partition not in self._leaders:
            self.check_partition(partition)
        self._batches.add(record, partition)

    def add_values(self, values: list[bytes], size: int, partition: int | None) -> None:
        """Add values without keys or headers. Unit: `size` of all, in bytes."""
        self._batches.add_values(values, size, partition)

    def flush(self) -> None:
        """Send everything, and wait until it is acknowledged. Errors: ClientError."""
        self._batches.close_all()
        for leader in list(self._waiting):
            self._settle(leader)

    def settle_quietly(self) -> None:
        """Receive the outstanding answers after an error."""
        for leader in list(self._waiting):
            try:
                self._settle(leader, again=False)
            except ClientError:
                pass

    # -- sending batches

    def _send(self, batch: UnacknowledgedBatch) -> None:
        """Send a batch after the batch in flight to the same leader."""
        if not batch.data:
            batch.data = encode_batch(
                batch, self._now_ms(), self._producer, self._codec, plain=self._plain
            )
        leader = self._free_leader(batch)
        try:
            self._write(batch, leader)
        except (Unavailable, OSError):
            self._send_again(batch, ErrorCode.NETWORK_EXCEPTION)
            return
        if self._acks:
            self._waiting[leader] = batch
        else:
            self.acknowledged += batch.count

    def _free_leader(self, batch: UnacknowledgedBatch) -> int:
        """The leader of a batch's partition, once no other batch to it is in flight."""
        leader = self._leaders[batch.partition]
        if leader in self._waiting:
            self._settle(leader)
            leader = self._leaders[batch.partition]
        return leader

    def _write(self, batch: UnacknowledgedBatch, leader: int) -> None:
        """Write the request for a batch. Errors: Unavailable, OSError."""
        wire = self._wire(leader)
        version = version_for(wire.versions, EMPTY, MAX_VERSION)
        wire.send(self._request(batch), version, answered=self._acks != 0)

    def _request(self, batch: UnacknowledgedBatch) -> ProduceRequest:
        row = PartitionProduceData(index=batch.partition, records=memoryview(batch.data))
        return ProduceRequest(
            acks=self._acks,
            timeout_ms=self._request_timeout_ms,
            topic_data=[TopicProduceData(name=self._topic, partition_data=[row])],
        )

    def _wire(self, leader: int) -> Wire:
        wire = self._brokers.wire(leader)
        wire.sock.settimeout(self._request_timeout_ms / 1000 + 5)
        return wire

    def _settle(self, leader: int, *, again: bool = True) -> None:
        """Process the answer to the batch in flight to a leader."""
        batch = self._waiting.pop(leader)
        error, message = self._answer(leader)
        if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self.acknowledged += batch.count
        elif error in RETRIABLE and again:
            self._send_again(batch, error)
        elif error in TOO_LARGE and batch.count > 1 and again:
            self._send_halves(batch)
        else:
            raise ClientError(f"{self._topic}: {said_of(error, message)}")

    def _answer(self, leader: int) -> tuple[int, str | None]:
        """Error code and message of the answer."""
        try:
            response = self._wire(leader).receive()
        except (Unavailable, OSError, WireError):
            self._brokers.forget(leader)
            return ErrorCode.NETWORK_EXCEPTION, None
        row = response.responses[0].partition_responses[0]
        return row.error_code, row.error_message

    def _send_again(self, batch: UnacknowledgedBatch, error: int) -> None:
        """Send a batch until it is acknowledged. Errors: ClientError when that takes too long."""
        deadline = time.monotonic() + self._patience_s
        message: str | None = None
        while error in RETRIABLE and time.monotonic() < deadline:
            time.sleep(RETRY_S)
            self._learn(deadline)
            leader = self._free_leader(batch)
            try:
                self._write(batch, leader)
            except (Unavailable, OSError) as failure:
                self._brokers.forget(leader)
                error, message = ErrorCode.NETWORK_EXCEPTION, reason(failure)
                continue
            error, message = self._answer(leader) if self._acks else (ErrorCode.NONE, None)
        if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self.acknowledged += batch.count
        elif error in TOO_LARGE and batch.count > 1:
            self._send_halves(batch)
        else:
            raise ClientError(f"{self._topic}: {said_of(error, message)}")

    def _send_halves(self, batch: UnacknowledgedBatch) -> None:
        """Send the halves of a batch that is too large for the topic."""
        half = batch.count // 2
        for records, sequence in (
            (batch.records[:half], batch.sequence),
            (batch.records[half:], batch.sequence + half & 0x7FFFFFFF),
        ):
            self._send(UnacknowledgedBatch(batch.partition, records, sequence))
            self._settle_partition(batch.partition)

    def _settle_partition(self, partition: int) -> None:
        leader = self._leaders[partition]
        if leader in self._waiting:
            self._settle(leader)


EMPTY = ProduceRequest(acks=0, timeout_ms=0, topic_data=[])
