"""Writes the markers that end transactions, into partitions that this broker leads.

Source: KafkaApis.handleWriteTxnMarkersRequest, TransactionMarkerChannelManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from kwire.errors import ErrorCode
from kwire.records.control import ControlType, EndTransactionMarker, end_transaction_batch

from ..clock import Clock
from ..log.log import AppendError, AppendOrigin
from ..metadata.image import MetadataImage
from ..metadata.topic_partition import TopicPartition
from ..replication.partition import Partition
from ..replication.purgatory import CommitWaiter
from ..replication.replica_manager import ReplicaManager
from .group_coordinator import CONSUMER_OFFSETS, GroupCoordinator
from .transaction.markers import Markers, Outcomes
from .transaction.state import BUMPS_EPOCHS

#: How many partitions get their marker before others have a turn of the loop.
MARKERS_PER_TURN = 64

#: How long a marker may wait for the in-sync replicas before it is sent anew.
COMMIT_TIMEOUT_MS = 30_000

Outcome = tuple[TopicPartition, ErrorCode]


class LocalMarkers:
    """A MarkerSender for partitions of this broker, and the writer behind WriteTxnMarkers.

    Shape: `metadata` gives the present image. A group's offsets are settled when the marker in
    its partition of __consumer_offsets is committed.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        metadata: Callable[[], MetadataImage],
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._metadata = metadata
        self._clock = clock
        self._tasks: set[asyncio.Future[ErrorCode]] = set()

    # -- MarkerSender ------------------------------------------------------------------------------

    def send(self, markers: Markers, written: Callable[[Outcomes], None]) -> None:
        """Write markers; see MarkerSender.send."""
        self._send_from(0, markers, written)

    def _send_from(self, begin: int, markers: Markers, written: Callable[[Outcomes], None]) -> None:
        end = begin + MARKERS_PER_TURN
        done: list[Outcome] = []
        waiting: list[tuple[TopicPartition, Awaitable[ErrorCode]]] = []
        for tp in markers.partitions[begin:end]:
            outcome = self._send_one(tp, markers)
            if isinstance(outcome, int):
                done.append((tp, outcome))
            else:
                waiting.append((tp, outcome))
        if end < len(markers.partitions):
            asyncio.get_running_loop().call_soon(self._send_from, end, markers, written)
        for tp, later in waiting:
            self._tell_later(tp, later, written)
        if done:
            written(done)

    def _tell_later(
        self, tp: TopicPartition, later: Awaitable[ErrorCode], written: Callable[[Outcomes], None]
    ) -> None:
        task = asyncio.ensure_future(later)
        self._tasks.add(task)  # the loop itself keeps only a weak reference

        def tell(task: asyncio.Future[ErrorCode]) -> None:
            self._tasks.discard(task)
            if not task.cancelled():
                failed = task.exception() is not None
                written([(tp, ErrorCode.UNKNOWN_SERVER_ERROR if failed else task.result())])

        task.add_done_callback(tell)

    def _send_one(self, tp: TopicPartition, markers: Markers) -> ErrorCode | Awaitable[ErrorCode]:
        known = self._metadata().partition(tp.topic, tp.partition)
        if known is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        outcome = self.write(tp, markers)
        # The topic exists, so a replica that is not here is somewhere else, or not made yet.
        if outcome is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return outcome

    # -- writing -----------------------------------------------------------------------------------

    def write(self, tp: TopicPartition, markers: Markers) -> ErrorCode | Awaitable[ErrorCode]:
        """Append the marker to one partition; `markers.partitions` are not looked at.

        Shape: an ErrorCode at once where nothing has to be waited for; NONE means committed.
        Errors: UNKNOWN_TOPIC_OR_PARTITION without a replica here, INVALID_REQUEST without a
        producer, and those of the append.
        """
        replica = self._replicas.get(tp.topic, tp.partition)
        if replica is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if markers.producer_id < 0 or markers.producer_epoch < 0:
            return ErrorCode.INVALID_REQUEST
        if (
            markers.transaction_version >= BUMPS_EPOCHS
            and replica.is_leader
            and replica.log.producers.is_stale_marker(markers.producer_id, markers.producer_epoch)
        ):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        now_ms = self._clock.now_ms()
        kind = ControlType.COMMIT if markers.committed else ControlType.ABORT
        batch = end_transaction_batch(
            EndTransactionMarker(kind, markers.coordinator_epoch),
            producer_id=markers.producer_id,
            producer_epoch=markers.producer_epoch,
            timestamp=now_ms,
        )
        appended = replica.append_as_leader(
            memoryview(bytearray(batch)), acks=-1, now_ms=now_ms, origin=AppendOrigin.COORDINATOR
        )
        if isinstance(appended, AppendError):
            return appended.error
        if replica.is_committed(appended.last_offset + 1):
            self._settle(tp, markers)
            return ErrorCode.NONE
        # Begun now, since what is returned may be awaited only after it was committed.
        waiter = CommitWaiter(
            asyncio.get_running_loop(),
            [(0, replica, appended.last_offset + 1)],
            timeout_ms=COMMIT_TIMEOUT_MS,
        )
        # A task, for the group is to hear of its marker whoever else is waited for beside.
        return asyncio.ensure_future(self._wait(replica, waiter, markers))

    async def _wait(self, replica: Partition, waiter: CommitWaiter, markers: Markers) -> ErrorCode:
        error = (await waiter.future).get(0, ErrorCode.NONE)
        if error is ErrorCode.NONE:
            self._settle(replica.tp, markers)
        return error

    def _settle(self, tp: TopicPartition, markers: Markers) -> None:
        if tp.topic == CONSUMER_OFFSETS:
            self._groups.end_transaction(tp.partition, markers.producer_id, markers.committed)

    async def write_all(self, markers: Markers, tps: Sequence[TopicPartition]) -> list[ErrorCode]:
        """Write one transaction's markers to partitions, for WriteTxnMarkers; in their order."""
        begun = [self.write(tp, markers) for tp in tps]
        return [each if isinstance(each, int) else await each for each in begun]
