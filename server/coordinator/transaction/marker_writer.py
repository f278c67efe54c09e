"""Writes the markers that end transactions into partitions that this broker leads.

Source: KafkaApis.handleWriteTxnMarkersRequest, TransactionMarkerChannelManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kwire.errors import ErrorCode
from kwire.records.control import ControlType, EndTransactionMarker, end_transaction_batch

from ...clock import Clock
from ...log.log import AppendError, AppendOrigin
from ...metadata.image import MetadataImage
from ...metadata.internal_topics import GROUP_METADATA_TOPIC
from ...metadata.topic_partition import TopicPartition
from ...replication.append import AppendResult, Granted
from ...replication.replica_manager import ReplicaManager
from ...turns import Steps
from ..common.internal_topic import error_of
from ..group.coordinator import GroupCoordinator
from .markers import Markers, Outcomes
from .state import BUMPS_EPOCHS

if TYPE_CHECKING:
    from kwire.types import RecordsBytes

    from ...replication.partition import Partition

logger = logging.getLogger(__name__)

#: The number of partitions whose outcomes are reported together.
OUTCOMES_AT_ONCE = 64

Outcome = tuple[TopicPartition, ErrorCode]


class StaleMarkers(NamedTuple):
    """Refuses markers of a transaction that has ended, since the epoch has increased (KIP-890)."""

    markers: Markers

    def verify(
        self, partition: Partition, records: RecordsBytes, granted: Granted | None = None
    ) -> AppendError | None:
        """See AppendVerifier. Errors: INVALID_PRODUCER_EPOCH."""
        markers = self.markers
        producers = partition.log.producers
        if partition.is_leader and producers.is_stale_marker(
            markers.producer_id, markers.producer_epoch
        ):
            return AppendError(ErrorCode.INVALID_PRODUCER_EPOCH)
        return None


class TransactionMarkerWriter:
    """A MarkerSender for partitions of this broker, and the writer behind WriteTxnMarkers.

    Shape: `metadata` returns the current image. `write_timeout_ms` (`request.timeout.ms`) is how long a marker waits
    for the in-sync replicas; after that its sender gets an error and sends it again. A group's offsets are settled when
    the marker in its partition of __consumer_offsets is committed.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        metadata: Callable[[], MetadataImage],
        clock: Clock,
        *,
        write_timeout_ms: int = 30_000,
    ) -> None:
        self._replicas = replicas
        self._write_timeout_ms = write_timeout_ms
        self._groups = groups
        self._metadata = metadata
        self._clock = clock

    # -- MarkerSender ------------------------------------------------------------------------------

    def send(self, markers: Markers, written: Callable[[Outcomes], None]) -> Steps[None]:
        """Write markers; see MarkerSender.send."""
        done: list[Outcome] = []
        outcome: ErrorCode | asyncio.Future[ErrorCode]
        for number, tp in enumerate(markers.partitions):
            if number:
                yield
            try:
                outcome = self._send_one(tp, markers)
            except (
                Exception
            ):  # a bug of ours must not keep the transaction open in other partitions
                logger.exception(
                    "the marker of %r is not written to %s", markers.transactional_id, tp
                )
                outcome = ErrorCode.UNKNOWN_SERVER_ERROR
            if isinstance(outcome, int):
                done.append((tp, outcome))
                if len(done) == OUTCOMES_AT_ONCE:
                    written(done)
                    done = []
            else:
                outcome.add_done_callback(partial(_tell, tp, written))
        if done:
            written(done)

    def _send_one(
        self, tp: TopicPartition, markers: Markers
    ) -> ErrorCode | asyncio.Future[ErrorCode]:
        known = self._metadata().partition(tp.topic, tp.partition)
        if known is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        outcome = self.write(tp, markers)
        # The topic exists, so its replica is on another broker, or not created yet.
        if outcome is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return outcome

    # -- writing -----------------------------------------------------------------------------------

    def write(self, tp: TopicPartition, markers: Markers) -> ErrorCode | asyncio.Future[ErrorCode]:
        """Append the marker to one partition; `markers.partitions` is ignored.

        Shape: an ErrorCode if there is nothing to wait for; NONE means committed. A group processes its marker even if
        the caller stops waiting. Errors: UNKNOWN_TOPIC_OR_PARTITION without a replica here, INVALID_REQUEST without a
        producer, and those of the append.
        """
        replica = self._replicas.get(tp.topic, tp.partition)
        if replica is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if markers.producer_id < 0 or markers.producer_epoch < 0:
            return ErrorCode.INVALID_REQUEST
        now_ms = self._clock.now_ms()
        kind = ControlType.COMMIT if markers.committed else ControlType.ABORT
        batch = end_transaction_batch(
            EndTransactionMarker(kind, markers.coordinator_epoch),
            producer_id=markers.producer_id,
            producer_epoch=markers.producer_epoch,
            timestamp=now_ms,
        )
        appended = self._replicas.appends.append_records(
            [(replica, memoryview(bytearray(batch)))],
            acks=-1,
            timeout_ms=self._write_timeout_ms,
            now_ms=now_ms,
            origin=AppendOrigin.COORDINATOR,
            verifier=StaleMarkers(markers) if markers.transaction_version >= BUMPS_EPOCHS else None,
        )
        if isinstance(appended, list):
            return self._written(tp, markers, appended[0])
        outcome: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        appended.add_done_callback(partial(self._settle_later, tp, markers, outcome))
        return outcome

    def _settle_later(
        self,
        tp: TopicPartition,
        markers: Markers,
        outcome: asyncio.Future[ErrorCode],
        appended: asyncio.Future[list[AppendResult]],
    ) -> None:
        if appended.cancelled():  # the broker is stopping
            outcome.cancel()
            return
        try:
            error = self._written(tp, markers, appended.result()[0])
        except Exception:  # a bug of ours must not keep the transaction open
            logger.exception("the marker of producer %d in %s failed", markers.producer_id, tp)
            error = ErrorCode.UNKNOWN_SERVER_ERROR
        if not outcome.done():
            outcome.set_result(error)

    def _written(self, tp: TopicPartition, markers: Markers, result: AppendResult) -> ErrorCode:
        error = error_of(result)
        if error is ErrorCode.NONE:
            self._settle(tp, markers)
        return error

    def _settle(self, tp: TopicPartition, markers: Markers) -> None:
        if tp.topic == GROUP_METADATA_TOPIC:
            self._groups.end_transaction(tp.partition, markers.producer_id, markers.committed)


def _tell(
    tp: TopicPartition, written: Callable[[Outcomes], None], outcome: asyncio.Future[ErrorCode]
) -> None:
    """Report the outcome of a marker that has waited for the in-sync replicas."""
    if not outcome.cancelled():
        written([(tp, outcome.result())])
