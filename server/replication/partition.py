"""One replica of a partition on this broker: its role, and the rules of appending and reading."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from typing import Protocol

from kwire.errors import ErrorCode

from ..log.file_layer import FileSlice
from ..log.log import AppendError, AppendInfo, AppendOrigin, Log, LogSlice
from ..metadata.image import NO_EPOCH, NO_LEADER
from ..metadata.topic_partition import TopicPartition
from .append_queue import AppendQueues
from .isr import NEVER_MS, FollowerState, IsrState, committed_offset, may_join, out_of_sync
from .membership import Membership, PartitionState
from .purgatory import Waiters
from .read_result import FollowerFetch, LaterRead, ReadResult, read_result, refused

#: In DeleteRecords: delete everything below the high watermark.
HIGH_WATERMARK = -1

NOT_LEADER = AppendError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
NOT_ENOUGH_REPLICAS = AppendError(
    ErrorCode.NOT_ENOUGH_REPLICAS, "The in-sync replicas are fewer than min.insync.replicas."
)


class RecordReader(Protocol):
    """The source of a partition's records; see `Log.read`."""

    def read(
        self, start_offset: int, max_bytes: int, end_offset: int, min_one_batch: bool = True
    ) -> LogSlice | ErrorCode | Awaitable[LogSlice | ErrorCode]:
        """Read whole stored batches from an offset on; returns an awaitable if they are not in memory."""
        ...


class Partition:
    """A partition of which this broker has a replica.

    Not thread-safe: everything runs on the broker's loop. Source: kafka.cluster.Partition.
    """

    __slots__ = (
        "_membership",
        "append_queues",
        "appends",
        "bytes_in",
        "epoch_start_offset",
        "followers",
        "held_bytes",
        "is_leader",
        "isr",
        "log",
        "messages_before",
        "min_insync_replicas",
        "reader",
        "state",
        "tp",
        "waiters",
    )

    def __init__(self, tp: TopicPartition, log: Log, membership: Membership[Partition]) -> None:
        self.tp = tp
        self.log = log
        #: Where records are read from: the log itself, unless part of them is kept elsewhere.
        self.reader: RecordReader = log
        self.state = PartitionState(NO_LEADER, NO_EPOCH, (), (), -1)
        self.is_leader = False
        #: While this broker leads: the in-sync replicas, and the log end when its leadership began.
        self.isr = IsrState(())
        self.epoch_start_offset = 0
        #: While this broker leads: the other replicas by broker id.
        self.followers: dict[int, FollowerState] = {}
        self.min_insync_replicas = 1
        #: Requests that wait for something to happen here.
        self.waiters = Waiters()
        #: Bytes appended but not reported to anyone, since flush.messages wants them on the device
        #: first.
        self.held_bytes = 0
        #: Delayed appends, and those queued behind them; None if there are none.
        self.append_queues: AppendQueues | None = None
        #: Appends as leader and their bytes, and messages in earlier leaderships of this process.
        self.appends = 0
        self.bytes_in = 0
        self.messages_before = 0
        self._membership = membership

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.state.leader}"
        return f"Partition({self.tp}, {role}, epoch {self.state.leader_epoch}, {self.log})"

    def change_log(self, log: Log) -> None:
        """Switch to another copy of the log that has the same records."""
        if self.reader is self.log:
            self.reader = log
        self.log = log

    # -- roles -----------------------------------------------------------------------------------

    def apply(self, state: PartitionState, now_ms: int) -> bool:
        """Take the role that the controller gave; False if it is older than the current one.

        Source: Partition.makeLeader, makeFollower.
        """
        before = self.state
        if (state.leader_epoch, state.partition_epoch) < (
            before.leader_epoch,
            before.partition_epoch,
        ):
            return False
        self.state = state
        if state.leader == self._membership.local_id:
            self._lead(before, state, now_ms)
        else:
            self._count_messages()
            self.is_leader = False
            self.isr = IsrState(())
            self.followers = {}
            self.waiters.release(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return True

    def _lead(self, before: PartitionState, state: PartitionState, now_ms: int) -> None:
        log = self.log
        end = log.log_end_offset
        new_leader = not self.is_leader
        self.isr = IsrState(state.isr)
        known = self.followers
        self.followers = {
            broker_id: known.get(broker_id) or FollowerState(broker_id)
            for broker_id in state.replicas
            if broker_id != self._membership.local_id
        }
        if state.leader_epoch > before.leader_epoch:
            self._count_messages()
            self.epoch_start_offset = end
            log.leader_epoch_cache.assign(state.leader_epoch, end)
            steady_ms = self._membership.steady_ms(now_ms)
            for follower in self.followers.values():
                in_sync = follower.broker_id in state.isr
                follower.reset(steady_ms, end, new_leader=new_leader, in_sync=in_sync)
        self.is_leader = True
        if new_leader:
            self.waiters.release(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # these read from a follower
        self.advance_high_watermark(0, now_ms)

    def close(self, error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """The replica leaves this broker, or its disk has failed: end all waits."""
        counts = self._membership.counts
        counts.appends_gone += self.appends
        counts.bytes_in_gone += self.bytes_in
        counts.messages_in_gone += self.messages_in
        self.appends = self.bytes_in = self.messages_before = 0
        self.is_leader = False
        self.waiters.release(error)

    @property
    def messages_in(self) -> int:
        """Messages appended as leader since this process began. Source: MessagesInPerSec."""
        if not self.is_leader:
            return self.messages_before
        return self.messages_before + self.log.log_end_offset - self.epoch_start_offset

    def _count_messages(self) -> None:
        """Add to the counter when a leadership ends."""
        self.messages_before = self.messages_in

    # -- the in-sync replicas ---------------------------------------------------------------------

    def under_min_isr(self) -> bool:
        # A topic with fewer replicas than min.insync.replicas needs all that it has (KAFKA-15583).
        in_sync = len(self.isr.isr)
        return in_sync < self.min_insync_replicas and in_sync < len(self.state.replicas)

    def on_follower_fetch(
        self, fetch: FollowerFetch, fetch_offset: int, leader_end: int, now_ms: int
    ) -> None:
        """A follower fetched from `fetch_offset`, so it has everything below it.

        Unit: `leader_end` was the log end when the follower's fetch was read.
        """
        follower = self.followers.get(fetch.broker_id)
        if follower is None:
            return
        if follower.broker_epoch > fetch.broker_epoch >= 0:
            return  # from an earlier process of this follower
        before = follower.log_end_offset
        follower.on_fetch(
            fetch_offset,
            fetch.log_start_offset,
            leader_end,
            fetch.broker_epoch,
            self._membership.steady_ms(now_ms),
        )
        if (
            fetch.broker_id not in self.isr.isr
            and may_join(self.isr, follower, self.log.high_watermark, self.epoch_start_offset)
            and fetch.broker_id in self._membership.live_brokers()
        ):
            self.isr = IsrState(self.isr.isr, adding=fetch.broker_id)
            self._membership.propose(self)
        if follower.log_end_offset != before:
            self.advance_high_watermark(0, now_ms)
        if self.waiters.starts:
            self.waiters.release_started(self.low_watermark)

    def idles(
        self,
        state: PartitionState,
        end_offset: int,
        follower_id: int,
        broker_epoch: int,
        now_ms: int | None,
    ) -> bool:
        """Whether a follower that was at the end in `state` is still there and in sync.

        A follower's session has thousands of partitions, and nearly all are in this state at each
        fetch. Notes that the follower still fetches, unless `now_ms` is None.
        """
        if self.state is not state or not self.is_leader or self.log.log_end_offset != end_offset:
            return False
        follower = self.followers.get(follower_id)
        if (
            follower is None
            or follower.log_end_offset != end_offset
            or follower.broker_epoch != broker_epoch
            or follower_id not in self.isr.isr
            or self.log.offline
        ):
            return False
        if now_ms is not None:
            steady_ms = self._membership.steady_ms(now_ms)
            follower.last_caught_up_ms = max(follower.last_caught_up_ms, steady_ms)
            follower.last_fetch_ms = steady_ms
        return True

    def drop_laggards(self, now_ms: int) -> None:
        """Propose to drop in-sync followers that have not kept up. Source: maybeShrinkIsr."""
        if not self.is_leader or not self.followers:
            return
        if self.waiters.starts:
            self.waiters.release_started(self.low_watermark)  # a follower may have left the cluster
        slow = out_of_sync(
            self.isr,
            self.log.log_end_offset,
            self.followers.values(),
            self._membership.steady_ms(now_ms),
            self._membership.max_lag_ms,
        )
        if slow:
            self.isr = IsrState(self.isr.isr, dropping=slow)
            self._membership.propose(self)
        else:
            # A follower that has left the cluster no longer holds the watermark back.
            self.advance_high_watermark(0, now_ms)

    def on_isr_confirmed(
        self, isr: tuple[int, ...], partition_epoch: int, now_ms: int, *, recovering: bool = False
    ) -> None:
        """Apply the controller's answer: the current in-sync replicas."""
        if not self.is_leader or partition_epoch < self.state.partition_epoch:
            return
        self._membership.counts.isr_changed(len(self.isr.isr), len(isr))
        self.state = self.state._replace(
            isr=isr, partition_epoch=partition_epoch, recovering=recovering
        )
        self.isr = IsrState(isr)
        self.advance_high_watermark(0, now_ms)

    def require_in_sync(self, minimum: int, now_ms: int) -> None:
        """Change min.insync.replicas: what the old value held back may be committed now."""
        self.min_insync_replicas = minimum
        if self.is_leader:
            self.advance_high_watermark(0, now_ms)

    def on_isr_refused(self, now_ms: int) -> None:
        """The controller refused the proposal: go back to the previous set."""
        refused = None if self.isr.adding is None else self.followers.get(self.isr.adding)
        self.isr = self.isr.committed()
        if self.is_leader:
            # A replica that was to be added holds the watermark back only once it has fetched again: a broker that
            # shuts down is refused, and fetches no more.
            if refused is not None:
                refused.last_caught_up_ms = NEVER_MS
            self.advance_high_watermark(0, now_ms)

    # -- deleting --------------------------------------------------------------------------------

    @property
    def low_watermark(self) -> int:
        """The lowest log start offset of all live replicas; for the leader.

        Source: Partition.lowWatermarkIfLeader.
        """
        live = self._membership.live_brokers()
        starts = [
            each.log_start_offset for each in self.followers.values() if each.broker_id in live
        ]
        return min(self.log.log_start_offset, *starts) if starts else self.log.log_start_offset

    def delete_records_before(self, offset: int) -> tuple[ErrorCode, int]:
        """Raise the log start offset as leader, and let followers know without delay.

        Shape: the error, and the resolved offset: -1 stands for the high watermark.
        Errors: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR; POLICY_VIOLATION if cleanup.policy does
        not include delete; OFFSET_OUT_OF_RANGE beyond the high watermark.
        Source: Partition.deleteRecordsOnLeader.
        """
        log = self.log
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, offset
        if log.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR, offset
        if not log.config.is_deleting:
            return ErrorCode.POLICY_VIOLATION, offset
        if offset == HIGH_WATERMARK:
            offset = log.high_watermark
        try:
            error = log.delete_records_before(offset)
        except OSError as failure:
            error = log.on_io_error(failure).error
        if not error:
            self.waiters.end_replica_fetches()
        return error, offset

    # -- appending -------------------------------------------------------------------------------

    def append_refusal(self, acks: int) -> AppendError | None:
        """The reason why nothing may be appended as leader now; None if appending is allowed.

        Errors: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (acks=-1 only).
        """
        if not self.is_leader:
            return NOT_LEADER
        return NOT_ENOUGH_REPLICAS if acks == -1 and self.under_min_isr() else None

    def append_as_leader(
        self,
        records: memoryview,
        *,
        acks: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        prepared: bool = False,
        max_bytes: int = 0,
    ) -> AppendInfo | AppendError:
        """Append whole batches and wake the requests that wait for them.

        Shape: `prepared` says that `Log.prepare` has already checked the records; otherwise no more
        than max_bytes of records are read one by one, see TOO_MUCH_HERE.
        Errors: those of append_refusal and of the log.
        """
        if not self.is_leader or (acks == -1 and self.followers):  # alone, it has them all
            refusal = self.append_refusal(acks)
            if refusal is not None:
                return refusal
        log = self.log
        appended = log.append_as_leader(
            records,
            self.state.leader_epoch,
            now_ms,
            origin=origin,
            prepared=prepared,
            max_bytes=max_bytes,
        )
        if not isinstance(appended, AppendError):
            size = len(records)
            self.appends += 1
            self.bytes_in += size
            self.advance_high_watermark(size, now_ms)
        return appended

    def append_as_follower(self, records: memoryview, now_ms: int) -> AppendInfo | AppendError:
        """Append what was fetched from the leader. Errors: those of `Log.append_as_follower`."""
        return self.log.append_as_follower(records, now_ms)

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Truncate the log, since the leader has another history. Errors: OSError."""
        self.log.truncate_to(offset, now_ms)

    def follow_offsets(self, high_watermark: int, log_start_offset: int) -> None:
        """Adopt the leader's high watermark and log start offset."""
        log = self.log
        committed = min(high_watermark, log.log_end_offset)
        if committed > log.high_watermark:
            log.high_watermark = committed
            if self.waiters.fetches:
                self.waiters.wake_consumers(log, 0)
        if log_start_offset > log.log_start_offset:
            log.increment_log_start_offset(min(log_start_offset, log.log_end_offset))

    def advance_high_watermark(self, appended_bytes: int, now_ms: int) -> None:
        log = self.log
        end = log.log_end_offset
        if log.flush_state.awaited or self.held_bytes:
            appended_bytes, end = self._hold_back(appended_bytes)
        alone = not self.followers
        if not alone:
            if appended_bytes and self.waiters.fetches:
                self.waiters.wake_followers(appended_bytes)
            if self.under_min_isr():
                return  # too few replicas have it to call it committed
            end = committed_offset(
                end,
                self.followers.values(),
                self.isr.maximal,
                self._membership.live_brokers(),
                self._membership.steady_ms(now_ms),
                self._membership.max_lag_ms,
            )
            if end <= log.high_watermark:
                if self.waiters.commits:
                    self.waiters.release_committed(log.high_watermark, self.commit_error)
                return
        if end != log.committed:
            log.high_watermark = end
        if self.waiters.commits:
            self.waiters.release_committed(end, self.commit_error)
        if self.waiters.fetches:
            self.waiters.wake_consumers(log, appended_bytes if alone else 0)

    def _hold_back(self, appended_bytes: int) -> tuple[int, int]:
        # Apache Kafka flushes within the append; here other work continues during the flush, and
        # the records become visible when they are on the device.
        log = self.log
        self.held_bytes += appended_bytes
        end = log.log_end_offset
        if log.flush_state.awaited:
            self._membership.flush(self)
            end = max(log.high_watermark, min(end, log.recovery_point))
            if end == log.high_watermark:
                return 0, end
        appended_bytes, self.held_bytes = self.held_bytes, 0
        return appended_bytes, end

    def on_flushed(self, now_ms: int) -> None:
        """The flush that flush.messages requires is done, or the disk has failed."""
        if self.log.offline:
            self.waiters.fail_commits(ErrorCode.KAFKA_STORAGE_ERROR)
        elif self.is_leader:
            self.advance_high_watermark(0, now_ms)

    def commit_error(self) -> ErrorCode:
        """The error for records that the high watermark has passed.

        Errors: NOT_ENOUGH_REPLICAS_AFTER_APPEND if the in-sync replicas have since fallen below
        min.insync.replicas. Source: Partition.checkEnoughReplicasReachOffset.
        """
        in_sync = len(self.isr.maximal)
        if in_sync < self.min_insync_replicas and in_sync < len(self.state.replicas):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def is_committed(self, required_offset: int) -> bool:
        """Whether the high watermark has reached an (exclusive) end offset."""
        return self.log.high_watermark >= required_offset

    # -- reading ---------------------------------------------------------------------------------

    def check_epoch(self, current_leader_epoch: int, *, leader_only: bool = True) -> ErrorCode:
        """Compare the epoch that a client knows with this replica's (KIP-320); -1 is not compared.

        Errors: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER.
        """
        if current_leader_epoch != NO_EPOCH:
            epoch = self.state.leader_epoch
            if current_leader_epoch < epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            if current_leader_epoch > epoch:
                return ErrorCode.UNKNOWN_LEADER_EPOCH
        if self.is_leader or not leader_only:
            return ErrorCode.NONE
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def check_follower(self, broker_id: int, current_leader_epoch: int) -> ErrorCode:
        """Check that a broker may fetch as a replica of this partition.

        Errors: NOT_LEADER_OR_FOLLOWER; UNKNOWN_LEADER_EPOCH if it cannot be decided yet.
        Source: Partition.followerReplicaOrThrow.
        """
        if broker_id in self.followers or not self.is_leader:
            return ErrorCode.NONE
        if current_leader_epoch == self.state.leader_epoch:
            # The controller has informed the follower of its role, but not yet this leader.
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def read(  # noqa: C901 - on the path of each fetch
        self,
        fetch_offset: int,
        max_bytes: int,
        *,
        current_leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
        read_committed: bool = False,
        min_one_batch: bool = True,
        leader_only: bool = True,
        follower: FollowerFetch | None = None,
        now_ms: int | None = None,
    ) -> ReadResult | LaterRead:
        """Read batches from an offset: committed ones for a consumer, all for a follower.

        Shape: with `follower`, its progress is noted unless `now_ms` is None. What `reader` does
        not have at hand comes later.
        Errors: those of check_epoch and check_follower, OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR; OSError and
        CorruptIndex if the aborted transactions cannot be read.
        """
        if (
            current_leader_epoch != NO_EPOCH and current_leader_epoch != self.state.leader_epoch
        ) or (leader_only and not self.is_leader):
            error = self.check_epoch(current_leader_epoch, leader_only=leader_only)
            if error:
                return refused(error)
        log = self.log
        if log.offline:
            return refused(ErrorCode.KAFKA_STORAGE_ERROR)
        if follower is not None:
            error = self.check_follower(follower.broker_id, current_leader_epoch)
            if error:
                return refused(error)
        if last_fetched_epoch != NO_EPOCH:
            epoch, end_offset = log.end_offset_for_epoch(last_fetched_epoch)
            if end_offset < 0:
                return refused(ErrorCode.OFFSET_OUT_OF_RANGE)
            if epoch < last_fetched_epoch or end_offset < fetch_offset:
                return ReadResult(
                    ErrorCode.NONE,
                    log.high_watermark,
                    log.last_stable_offset,
                    log.log_start_offset,
                    b"",
                    fetch_offset,
                    (epoch, end_offset),
                )
        high_watermark = log.committed
        producers = log.producers
        if producers.ongoing or producers.unreplicated:
            stable = log.last_stable_offset
        else:
            stable = high_watermark
        if follower is not None:
            until = log.log_end_offset
        else:
            until = stable if read_committed else high_watermark
        data: bytes | FileSlice = b""
        next_offset = fetch_offset
        if fetch_offset != log.log_end_offset:  # at the end there is nothing to read yet
            found = self.reader.read(fetch_offset, max_bytes, until, min_one_batch)
            if not isinstance(found, LogSlice):
                return self._read_later(found, fetch_offset, read_committed, follower, now_ms)
            data, next_offset = found.data, found.next_offset
        aborted = None
        if follower is not None:
            if now_ms is not None:
                self.on_follower_fetch(follower, fetch_offset, until, now_ms)
                high_watermark = log.high_watermark  # this fetch may have committed something
        elif read_committed:
            # Where the limit is below the first batch there is not even an empty list.
            empty: list[tuple[int, int]] | None
            empty = None if max_bytes > 0 and fetch_offset < until else []
            aborted = log.aborted_transactions(fetch_offset, next_offset) if len(data) else empty
        return read_result(
            (
                ErrorCode.NONE,
                high_watermark,
                stable,
                log.log_start_offset,
                data,
                next_offset,
                None,
                aborted,
                -1,
            )
        )

    def _read_later(
        self,
        found: ErrorCode | Awaitable[LogSlice | ErrorCode],
        fetch_offset: int,
        read_committed: bool,
        follower: FollowerFetch | None,
        now_ms: int | None,
    ) -> ReadResult | LaterRead:
        """The result where the reader returned an error, or no records yet."""
        if isinstance(found, ErrorCode):
            return refused(found)
        log = self.log
        if follower is not None and now_ms is not None:
            self.on_follower_fetch(follower, fetch_offset, log.log_end_offset, now_ms)
        now = ReadResult(
            ErrorCode.NONE,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            b"",
            fetch_offset,
            None,
            [] if read_committed and follower is None else None,
        )

        source = asyncio.ensure_future(found)
        later: asyncio.Future[ReadResult] = source.get_loop().create_future()

        def came(source: asyncio.Future[LogSlice | ErrorCode]) -> None:
            if source.cancelled():
                later.cancel()
            elif (error := source.exception()) is not None:
                if not later.done():
                    later.set_exception(error)
            else:
                try:
                    result = self._with_records(now, source.result())
                except Exception as failure:  # noqa: BLE001 - as an error of the source
                    if not later.done():
                        later.set_exception(failure)
                    return
                if later.done():  # the result is no longer needed
                    result.close()
                else:
                    later.set_result(result)

        source.add_done_callback(came)
        later.add_done_callback(lambda later: source.cancel() if later.cancelled() else None)
        return LaterRead(now, later)

    def _with_records(self, now: ReadResult, found: LogSlice | ErrorCode) -> ReadResult:
        if not isinstance(found, LogSlice):
            return refused(found)
        data, next_offset = found.data, found.next_offset
        aborted = now.aborted
        if aborted is not None and len(data):
            aborted = self.log.aborted_transactions(now.next_offset, next_offset)
        return now._replace(data=data, next_offset=next_offset, aborted=aborted)

    def redirected(self, preferred: int) -> ReadResult:
        """The result for a consumer that should read from another replica."""
        log = self.log
        return ReadResult(
            ErrorCode.NONE,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            b"",
            -1,
            None,
            [],
            preferred,
        )

    def preferred_replica(self, fetch_offset: int, in_rack: Collection[int]) -> int:
        """The follower in the consumer's rack to read from instead of here; -1 for none.

        Shape: `in_rack` are the live brokers of that rack. Source: RackAwareReplicaSelector
        (KIP-392).
        """
        if self._membership.local_id in in_rack:
            return -1
        candidates = [
            follower
            for follower in self.followers.values()
            if follower.broker_id in in_rack
            and follower.broker_id in self.isr.isr
            and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
        ]
        best = max(
            candidates, key=lambda each: (each.log_end_offset, -each.broker_id), default=None
        )
        return -1 if best is None else best.broker_id
