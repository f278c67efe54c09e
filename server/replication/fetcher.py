"""The requests of a follower to its leader, and the processing of the answers. The only I/O is the log's.

One `Fetcher` copies all partitions that this broker follows from one leader. A partition is fetched from its log end,
with the epoch of its last record. If the histories differ, the leader names the offset (diverging epoch); the follower
truncates its log there and continues. Unchanged partitions are not named again (fetch sessions, KIP-227).
Source: AbstractFetcherThread, ReplicaFetcherThread, FetchSessionHandler; KIP-101, KIP-279, KIP-595.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from kwire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kwire.records.batch import read_header

from ..log.log import AppendError
from ..metadata.topic_partition import TopicPartition
from ..security.identity import told_by_a_broker
from .partition import Partition
from .replication_quota import ReplicationQuota

logger = logging.getLogger(__name__)

LATEST = -1
EARLIEST = -2
NO_SESSION = 0
FIRST_EPOCH = 0
#: How often the session reports log starts that moved although nothing was fetched.
SWEEP_MS = 1000

#: The leader is not, or not yet, the one this broker knows; the controller will tell it.
EXPECTED_ERRORS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)


class FetchLimits(NamedTuple):
    """The settings of fetching. Unit: bytes and milliseconds; names as replica.fetch.*."""

    max_bytes: int = 1024 * 1024
    response_max_bytes: int = 10 * 1024 * 1024
    min_bytes: int = 1
    wait_max_ms: int = 500
    backoff_ms: int = 1000


class Followed:
    """One partition that is copied, in one leader epoch."""

    __slots__ = (
        "delayed_until_ms",
        "in_sync",
        "leader_epoch",
        "partition",
        "refused",
        "sent",
        "topic_id",
    )

    def __init__(self, partition: Partition) -> None:
        assert partition.log.topic_id is not None
        self.partition = partition
        self.topic_id = partition.log.topic_id
        self.leader_epoch = partition.state.leader_epoch
        self.delayed_until_ms = 0
        #: Whether the last fetch returned everything that is committed.
        self.in_sync = False
        #: The error already logged; NONE again after a successful fetch.
        self.refused = ErrorCode.NONE
        #: (fetch offset, last fetched epoch, log start, leader epoch) as the session has them.
        self.sent: tuple[int, int, int, int] | None = None

    @property
    def key(self) -> tuple[bytes, int]:
        """The key of this partition in a response."""
        return self.topic_id, self.partition.tp.partition

    def wanted(self) -> tuple[int, int, int, int]:
        """The state to request now."""
        log = self.partition.log
        return (
            log.log_end_offset,
            log.leader_epoch_cache.latest,
            log.log_start_offset,
            self.leader_epoch,
        )


class Fetcher:
    """Copies from one leader. No call awaits; `fetcher_task` sends the requests."""

    def __init__(
        self,
        broker_id: int,
        leader_id: int,
        limits: FetchLimits,
        quota: ReplicationQuota | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.leader_id = leader_id
        self.limits = limits
        self._quota = quota or ReplicationQuota()
        self._followed: dict[tuple[bytes, int], Followed] = {}
        self._by_tp: dict[TopicPartition, Followed] = {}
        #: Partitions that may have to be named in the next request.
        self._dirty: dict[tuple[bytes, int], Followed] = {}
        self._delayed: dict[tuple[bytes, int], Followed] = {}
        #: Partitions in the leader's session that should no longer be fetched.
        self._forgotten: set[tuple[bytes, int]] = set()
        self._session_id = NO_SESSION
        self._session_epoch = FIRST_EPOCH
        self._next_sweep_ms = 0

    def __len__(self) -> int:
        return len(self._followed)

    def __contains__(self, tp: object) -> bool:
        return tp in self._by_tp

    # -- what is followed ------------------------------------------------------------------------

    def follow(self, partition: Partition, now_ms: int) -> None:
        """Copy a partition from its log end on, in its current leader epoch.

        A log without leader epochs (of the old formats) is first truncated to its high watermark.
        """
        self.stop(partition.tp)
        log = partition.log
        if log.leader_epoch_cache.latest < 0 and log.log_end_offset > log.high_watermark:
            self._truncate(partition, log.high_watermark, now_ms)
        followed = Followed(partition)
        self._followed[followed.key] = self._by_tp[partition.tp] = followed
        self._dirty[followed.key] = followed

    def stop(self, tp: TopicPartition) -> None:
        """Stop copying a partition."""
        followed = self._by_tp.pop(tp, None)
        if followed is not None:
            key = followed.key
            del self._followed[key]
            self._dirty.pop(key, None)
            self._delayed.pop(key, None)
            if followed.sent is not None:
                self._forgotten.add(key)

    # -- requests --------------------------------------------------------------------------------

    def next_request(self, now_ms: int, broker_epoch: int) -> FetchRequest | None:
        """The next request to the leader; None if there is no partition or all are delayed."""
        for key, followed in list(self._delayed.items()):
            if followed.delayed_until_ms <= now_ms:
                del self._delayed[key]
                self._dirty[key] = followed
        if self._quota.throttled:
            self._throttle(now_ms)
        if len(self._followed) == len(self._delayed):
            return None
        if now_ms >= self._next_sweep_ms:
            self._next_sweep_ms = now_ms + SWEEP_MS
            for key, followed in self._followed.items():
                if followed.sent is not None and followed.wanted() != followed.sent:
                    self._dirty.setdefault(key, followed)
        full = self._session_epoch == FIRST_EPOCH
        asked = self._followed if full else self._dirty
        topics: dict[bytes, FetchTopic] = {}
        for key, followed in asked.items():
            if key in self._delayed:
                continue
            wanted = followed.wanted()
            if not full and wanted == followed.sent:
                continue
            followed.sent = wanted
            self._forgotten.discard(key)
            topic = topics.get(followed.topic_id)
            if topic is None:
                topic = topics[followed.topic_id] = FetchTopic(
                    topic=followed.partition.tp.topic, topic_id=followed.topic_id, partitions=[]
                )
            offset, last_epoch, log_start, leader_epoch = wanted
            topic.partitions.append(
                FetchPartition(
                    partition=followed.partition.tp.partition,
                    current_leader_epoch=leader_epoch,
                    fetch_offset=offset,
                    last_fetched_epoch=last_epoch,
                    log_start_offset=log_start,
                    partition_max_bytes=self.limits.max_bytes,
                )
            )
        forgotten: dict[bytes, ForgottenTopic] = {}
        for topic_id, number in () if full else self._forgotten:
            gone = forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[]))
            gone.partitions.append(number)
        self._dirty.clear()
        self._forgotten.clear()
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self.broker_id, replica_epoch=broker_epoch),
            max_wait_ms=self.limits.wait_max_ms,
            min_bytes=self.limits.min_bytes,
            max_bytes=self.limits.response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )

    def _throttle(self, now_ms: int) -> None:
        """Pause throttled partitions that are not in sync while the quota is used up.

        Source: RemoteLeaderEndPoint.shouldFollowerThrottle.
        """
        pause_ms = self._quota.pause_ms(now_ms)
        if not pause_ms:
            return
        for key, followed in self._followed.items():
            tp = followed.partition.tp
            if (
                not followed.in_sync
                and key not in self._delayed
                and self._quota.is_throttled(tp.topic, tp.partition)
            ):
                self._delay(followed, now_ms, pause_ms)

    def next_due_ms(self) -> int | None:
        """When the next delayed partition may be asked for again; None if none is delayed."""
        return min((each.delayed_until_ms for each in self._delayed.values()), default=None)

    # -- answers ---------------------------------------------------------------------------------

    def on_failure(self, now_ms: int) -> None:
        """The request was not answered: begin a new session after the backoff."""
        self._new_session()
        for key, followed in self._followed.items():
            followed.delayed_until_ms = now_ms + self.limits.backoff_ms
            self._delayed[key] = followed

    def _new_session(self) -> None:
        self._session_id = NO_SESSION
        self._session_epoch = FIRST_EPOCH
        self._forgotten.clear()
        for key, followed in self._followed.items():
            followed.sent = None
            self._dirty[key] = followed

    def on_response(self, response: FetchResponse, now_ms: int) -> list[Followed]:
        """Append the records, truncate diverging logs, and delay failed partitions.

        Shape: returns the partitions whose offset the leader does not have; `offsets_request` asks where the leader's
        log begins and ends.
        """
        if response.error_code:
            # A session that the leader has dropped is not worth a log line.
            self._new_session()
            if response.error_code not in (
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
            ):
                logger.warning(
                    "fetching from broker %d failed: %s",
                    self.leader_id,
                    told_by_a_broker(ErrorCode(response.error_code)),
                )
                self.on_failure(now_ms)
            return []
        if response.session_id == NO_SESSION:
            self._session_id, self._session_epoch = NO_SESSION, FIRST_EPOCH
        elif self._session_epoch == FIRST_EPOCH:
            self._session_id, self._session_epoch = response.session_id, 1
        else:
            self._session_epoch = self._session_epoch % 0x7FFFFFFF + 1
        out_of_range: list[Followed] = []
        for topic in response.responses:
            for row in topic.partitions:
                key = (topic.topic_id, row.partition_index)
                followed = self._followed.get(key)
                if followed is None or followed.sent is None:
                    continue  # stopped, or followed again, since the request was made
                self._dirty[key] = followed
                if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    out_of_range.append(followed)
                    self._delay(followed, now_ms)
                elif row.error_code:
                    self._on_error(followed, ErrorCode(row.error_code), now_ms)
                elif followed.sent[0] == followed.partition.log.log_end_offset:
                    try:
                        self._take(followed, row, now_ms)
                    except Exception as error:  # noqa: BLE001 - it must not keep the others waiting
                        self._on_nonsense(followed, error, now_ms)
        return out_of_range

    def _on_nonsense(self, followed: Followed, error: Exception, now_ms: int) -> None:
        self._delay(followed, now_ms)
        if isinstance(error, OSError):
            followed.partition.log.on_io_error(error)
        elif followed.refused != ErrorCode.UNKNOWN_SERVER_ERROR:
            followed.refused = ErrorCode.UNKNOWN_SERVER_ERROR
            logger.error(
                "%s: cannot process what broker %d sent",
                followed.partition.tp,
                self.leader_id,
                exc_info=error,
            )

    def _delay(self, followed: Followed, now_ms: int, pause_ms: int | None = None) -> None:
        key = followed.key
        followed.delayed_until_ms = now_ms + (
            self.limits.backoff_ms if pause_ms is None else pause_ms
        )
        self._delayed[key] = followed
        self._dirty.pop(key, None)
        if followed.sent is not None:
            followed.sent = None
            self._forgotten.add(key)

    def _on_error(self, followed: Followed, error: ErrorCode, now_ms: int) -> None:
        self._delay(followed, now_ms)
        if error == followed.refused:
            return
        followed.refused = error
        tp = followed.partition.tp
        if error == ErrorCode.FENCED_LEADER_EPOCH:
            # The controller has moved on and will inform this broker, too.
            logger.info("%s: epoch %d has ended", tp, followed.leader_epoch)
        elif error not in EXPECTED_ERRORS:
            logger.warning("%s: fetching from broker %d failed: %s", tp, self.leader_id, error.name)
        self._delay(followed, now_ms)

    def _take(self, followed: Followed, row: PartitionData, now_ms: int) -> None:
        partition = followed.partition
        diverging = row.diverging_epoch
        if diverging is not None and diverging.epoch >= 0:
            offset = common_end(partition, diverging.epoch, diverging.end_offset)
            if not self._truncate_diverging(partition, offset, diverging.epoch, now_ms):
                self._delay(followed, now_ms)  # not immediately: the answer would be the same
            return
        if row.records:
            appended = self._append(partition, memoryview(row.records), now_ms)
            if isinstance(appended, AppendError):
                if not partition.log.offline and followed.refused != appended.error:
                    followed.refused = appended.error
                    logger.error(
                        "%s: cannot append what broker %d sent: %s",
                        partition.tp,
                        self.leader_id,
                        appended.message,
                    )
                self._delay(followed, now_ms)
                return
            tp = partition.tp
            if self._quota.is_throttled(tp.topic, tp.partition):
                self._quota.record(len(row.records), now_ms)
        followed.refused = ErrorCode.NONE
        followed.in_sync = partition.log.log_end_offset >= row.high_watermark
        partition.follow_offsets(row.high_watermark, row.log_start_offset)

    def _truncate_diverging(
        self, partition: Partition, offset: int, epoch: int, now_ms: int
    ) -> bool:
        """Truncate to `offset`; returns whether this changed the replica."""
        log = partition.log
        before = log.log_end_offset, log.leader_epoch_cache.latest
        self._truncate(partition, offset, now_ms)
        if (log.log_end_offset, log.leader_epoch_cache.latest) == before:
            return False
        if log.log_end_offset < before[0]:
            logger.info(
                "%s: cut from %d to %d, where the leader's history differs (epoch %d)",
                partition.tp,
                before[0],
                log.log_end_offset,
                epoch,
            )
        return True

    def _append(self, partition: Partition, records: memoryview, now_ms: int) -> AppendError | None:
        log = partition.log
        if log.log_start_offset == log.log_end_offset:
            first = read_header(records, 0).base_offset
            if first < log.log_end_offset:
                # The log is empty and begins in the middle of the leader's batch.
                log.truncate_fully_and_start_at(first, now_ms)
        appended = partition.append_as_follower(records, now_ms)
        return appended if isinstance(appended, AppendError) else None

    def _truncate(self, partition: Partition, offset: int, now_ms: int) -> None:
        log = partition.log
        if offset < log.high_watermark:
            logger.warning(
                "%s: cut to %d, below the high watermark %d",
                partition.tp,
                offset,
                log.high_watermark,
            )
        try:
            partition.truncate_to(offset, now_ms)
        except OSError as error:
            log.on_io_error(error)

    # -- an offset that the leader does not have ---------------------------------------------------

    def offsets_request(self, followed: Followed, timestamp: int) -> ListOffsetsRequest:
        """Ask the leader where its log ends (LATEST) or begins (EARLIEST)."""
        tp = followed.partition.tp
        row = ListOffsetsPartition(
            partition_index=tp.partition,
            current_leader_epoch=followed.leader_epoch,
            timestamp=timestamp,
        )
        return ListOffsetsRequest(
            replica_id=self.broker_id, topics=[ListOffsetsTopic(name=tp.topic, partitions=[row])]
        )

    def on_offsets(
        self, followed: Followed, latest: int, earliest: int | None, now_ms: int
    ) -> None:
        """Continue where the leader has records: at its end if that is lower, else at its start.

        Shape: `earliest` is None if it was not needed. Source: fetchOffsetAndTruncate.
        """
        if not self._is_current(followed):
            return
        partition = followed.partition
        log = partition.log
        end = log.log_end_offset
        if latest < end:
            logger.warning("%s: cut from %d to the leader's end %d", partition.tp, end, latest)
            self._truncate(partition, latest, now_ms)
        elif earliest is not None and earliest > end:
            logger.info(
                "%s: restarted at %d, where the leader's log begins", partition.tp, earliest
            )
            try:
                log.truncate_fully_and_start_at(earliest, now_ms)
            except OSError as error:
                log.on_io_error(error)
        else:
            return  # the leader has the offset by now; it is asked again after the delay
        self._delayed.pop(followed.key, None)
        self._dirty[followed.key] = followed

    def _is_current(self, followed: Followed) -> bool:
        return self._followed.get(followed.key) is followed


def common_end(partition: Partition, leader_epoch: int, leader_end: int) -> int:
    """Where to truncate a follower's log when the leader names the end of an epoch in its history.

    Shape: an offset at or below the log end. If the follower does not know that epoch either, it
    truncates to the end of the one before it, and the next fetch continues from there.
    Source: AbstractFetcherThread.getOffsetTruncationState (KIP-279).
    """
    end = partition.log.log_end_offset
    if leader_end < 0:
        return end
    epoch, epoch_end = partition.log.end_offset_for_epoch(leader_epoch)
    if epoch_end < 0:
        return min(leader_end, end)
    if epoch != leader_epoch:
        return min(epoch_end, end)
    return min(epoch_end, leader_end, end)
