"""The share coordinator's state machine: one partition of __share_group_state.

A share partition may have several changes in progress. Each change is computed from the state after the earlier ones
(`PendingRecords.latest`), as if they were committed. An answer is sent only when every change that it depends on is committed.
Source: ShareCoordinatorShard.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from kwire.errors import ErrorCode

from ..common.result import Result, Timer
from .batches import is_plain
from .config import ShareCoordinatorConfig
from .records import ShareKey, ShareRecord, ShareSnapshot, Update, decode_record, encode_record
from .rows import (
    UNINITIALIZED_DELIVERY_COMPLETE_COUNT,
    UNINITIALIZED_START_OFFSET,
    InitializeState,
    ReadState,
    StateOutcome,
    StatePartition,
    StateRead,
    StateSummary,
    WriteState,
)
from .state import ShareState, after, bytes_of, change, following

#: Timers, and the effect for the coordinator to remove records that are no longer needed.
PRUNE = "prune"
COLD_SNAPSHOTS = "cold_snapshots"

#: The maximum number of batches of a state: one per record that a group may lock, plus one further batch in as many
#: parts as the leader allows (MAX_RUNS). A snapshot with that many batches is far below the maximum size of a record.
MAX_BATCHES = 15_000
#: The maximum number of batches of a write, which is the maximum number of records that a group may lock.
MAX_WRITTEN = 10_000
#: If there is no memory for new states, a write that leaves a state with more additional batches than this is refused.
MUCH = 100
#: The batches of a larger write have to be in order and without overlaps, as leaders send them.
MAX_UNORDERED = 1_000

#: The number of snapshots or tombstones that are written as one batch.
RECORDS_PER_BATCH = 500

NEGATIVE_PARTITION = "The partition id cannot be a negative number."
WRITE_UNINITIALIZED = "Write operation on uninitialized share partition not allowed."
NO_MEMORY = "There is no memory for more states of share groups."
TOO_MANY_BATCHES = "The state of the share partition has too many batches."
READ_UNINITIALIZED = "Read operation on uninitialized share partition not allowed."

#: Apache Kafka's message for an error. Source: Errors.
MESSAGES = {
    ErrorCode.FENCED_LEADER_EPOCH: "The leader epoch in the request is older than the epoch on the broker.",
    ErrorCode.FENCED_STATE_EPOCH: "The share coordinator rejected the request because the share-group state epoch did not match.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
}

#: The error for the client when a write to the log fails. Source: CoordinatorOperationExceptionHelper.
WRITE_ERRORS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR: ErrorCode.UNKNOWN_SERVER_ERROR,
}


@dataclass(eq=False, slots=True)
class PendingRecord:
    """A record that is being written.

    Shape: `replies` are (token, answer) pairs to send when it is committed.
    """

    record: ShareRecord
    replies: list[tuple[int, StateOutcome]] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class PendingRecords:
    """The records of a share partition that are being written, and the state after them."""

    waiting: list[PendingRecord]
    latest: ShareState | None


class ShareMemory:
    """The memory of the states of all shards of a broker. Unit: bytes, estimated."""

    def __init__(self) -> None:
        self.held = 0


class ShareShard:
    """The share partitions of one partition of __share_group_state.

    Shape: `partitions_of(topic_id)` returns the number of partitions of a topic, 0 if there is no topic with this id.
    Stored states are always loaded; the memory bound applies to new ones.
    """

    keeps_latest = False

    def __init__(
        self,
        partition: int,
        config: ShareCoordinatorConfig,
        partitions_of: Callable[[bytes], int],
        memory: ShareMemory | None = None,
    ) -> None:
        self.memory = memory or ShareMemory()
        self.held_bytes = 0
        self.partition = partition
        self.config = config
        self.partitions_of = partitions_of
        #: The committed states.
        self.states: dict[ShareKey, ShareState] = {}
        self.changes: dict[ShareKey, PendingRecords] = {}

    # Operations

    def initialize_state(
        self, group_id: str, row: InitializeState, token: int, now_ms: int
    ) -> Result[StateOutcome]:
        """Create a state, or reset it.

        Errors: FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION.
        """
        key, state = self.find(group_id, row)
        refusal = self.invalid(row)
        if refusal is None and state is not None and -1 != row.state_epoch < state.state_fence:
            refusal = refused(row, ErrorCode.FENCED_STATE_EPOCH)
        refusal = refusal or self.unknown(row)
        if refusal is None and state is None:
            refusal = self.full(row)
        if refusal is not None:
            return self.at_once(token, refusal)
        known = row.start_offset != UNINITIALIZED_START_OFFSET
        snapshot = ShareSnapshot(
            0 if state is None else following(state.snapshot.snapshot_epoch),
            row.state_epoch,
            0,
            row.start_offset,
            0 if known else UNINITIALIZED_DELIVERY_COMPLETE_COUNT,
            now_ms,
            now_ms,
        )
        return self.write_record(key, snapshot, token, StateOutcome(row.topic_id, row.partition))

    def write_state(
        self, group_id: str, row: WriteState, token: int, now_ms: int
    ) -> Result[StateOutcome]:
        """Change a state. Errors: INVALID_REQUEST, FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION."""
        key, state = self.find(group_id, row)
        refusal = self.invalid(row)
        if refusal is None and state is None:
            refusal = refused(row, ErrorCode.INVALID_REQUEST, WRITE_UNINITIALIZED)
        elif refusal is None and state is not None:
            if -1 != row.leader_epoch < state.leader_fence:
                refusal = refused(row, ErrorCode.FENCED_LEADER_EPOCH)
            elif -1 != row.state_epoch < state.state_fence:
                refusal = refused(row, ErrorCode.FENCED_STATE_EPOCH)
        refusal = refusal or self.unknown(row)
        some = len(row.state_batches)
        if refusal is None and (
            some > MAX_WRITTEN or (some > MAX_UNORDERED and not is_plain(row.state_batches))
        ):
            refusal = refused(row, ErrorCode.INVALID_REQUEST, TOO_MANY_BATCHES)
        if refusal is not None or state is None:
            return self.at_once(token, refusal)
        # A write does not change the leader epoch, because a leader always reads first.
        leader_epoch = state.snapshot.leader_epoch
        limit = self.config.snapshot_update_records_per_snapshot
        record = change(state, row, leader_epoch, limit, now_ms)
        latest = after(state, record, limit)
        assert latest is not None
        batches = len(latest.snapshot.state_batches)
        more = batches - len(state.snapshot.state_batches)
        if batches > MAX_BATCHES and more > 0:
            refusal = refused(row, ErrorCode.INVALID_REQUEST, TOO_MANY_BATCHES)
        elif more > MUCH:
            refusal = self.full(row)
        if refusal is not None:
            return self.at_once(token, refusal)
        outcome = StateOutcome(row.topic_id, row.partition)
        return self.write_record(key, record, token, outcome, latest)

    def read_state(
        self, group_id: str, row: ReadState, token: int, now_ms: int
    ) -> Result[StateRead]:
        """Read a state, and store the epoch of a new leader.

        Errors: INVALID_REQUEST, FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION.
        """
        key, state = self.find(group_id, row)
        refusal = self.invalid(row)
        if refusal is None and state is None:
            refusal = refused(row, ErrorCode.INVALID_REQUEST, READ_UNINITIALIZED)
        elif refusal is None and state is not None and row.leader_epoch < state.leader_fence:
            refusal = refused(row, ErrorCode.FENCED_LEADER_EPOCH)
        refusal = refusal or self.unknown(row)
        if refusal is not None or state is None:
            assert refusal is not None
            return self.at_once(
                token,
                StateRead(row.topic_id, row.partition, refusal.error_code, refusal.error_message),
            )
        snapshot = state.snapshot
        answer = StateRead(
            row.topic_id,
            row.partition,
            state_epoch=snapshot.state_epoch,
            start_offset=snapshot.start_offset,
            state_batches=snapshot.state_batches,
        )
        if row.leader_epoch in (-1, state.leader_fence):
            return self.when_committed(key, token, answer)
        asked = WriteState(
            row.topic_id,
            row.partition,
            snapshot.state_epoch,
            row.leader_epoch,
            snapshot.start_offset,
            (),
            snapshot.delivery_complete_count,
        )
        limit = self.config.snapshot_update_records_per_snapshot
        record = change(state, asked, row.leader_epoch, limit, now_ms)
        return self.write_record(key, record, token, answer)

    def read_summary(
        self, group_id: str, row: ReadState, token: int, now_ms: int
    ) -> Result[StateSummary]:
        """Read a state without its batches. Errors: INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION."""
        key, state = self.find(group_id, row)
        refusal = self.invalid(row) or self.unknown(row)
        if refusal is not None:
            answer = StateSummary(
                row.topic_id, row.partition, refusal.error_code, refusal.error_message
            )
        elif state is None:
            answer = StateSummary(row.topic_id, row.partition)
        else:
            answer = state.summary(row.topic_id, row.partition)
        return self.when_committed(key, token, answer)

    def delete_state(
        self, group_id: str, row: StatePartition, token: int, now_ms: int
    ) -> Result[StateOutcome]:
        """Delete a state, if there is one.

        Errors: UNKNOWN_TOPIC_OR_PARTITION.
        """
        key, state = self.find(group_id, row)
        refusal = self.invalid(row) or self.unknown(row)
        if refusal is not None:
            return self.at_once(token, refusal)
        answer = StateOutcome(row.topic_id, row.partition)
        if state is None:
            return self.when_committed(key, token, answer)
        return self.write_record(key, None, token, answer)

    def keys_of(self, topic_ids: Collection[bytes]) -> Iterator[list[ShareKey]]:
        """The share partitions of topics, in groups of the size that one batch removes."""
        keys = [key for key in self.states if key.topic_id in topic_ids]
        for begin in range(0, len(keys), RECORDS_PER_BATCH):
            yield keys[begin : begin + RECORDS_PER_BATCH]

    def remove(self, keys: Collection[ShareKey]) -> Result[Any]:
        """Remove the states of topics that no longer exist."""
        records = [ShareRecord(key, None) for key in keys if self.latest(key) is not None]
        return self.write_records(records) if records else Result()

    # Helpers of the operations

    def latest(self, key: ShareKey) -> ShareState | None:
        """The state after all changes in progress."""
        changes = self.changes.get(key)
        return self.states.get(key) if changes is None else changes.latest

    def find(self, group_id: str, row: StatePartition) -> tuple[ShareKey, ShareState | None]:
        key = ShareKey(group_id, row.topic_id, row.partition)
        return key, self.latest(key)

    def invalid(self, row: StatePartition) -> StateOutcome | None:
        if row.partition < 0:
            return refused(row, ErrorCode.INVALID_REQUEST, NEGATIVE_PARTITION)
        return None

    def unknown(self, row: StatePartition) -> StateOutcome | None:
        if row.partition >= self.partitions_of(row.topic_id):
            return refused(row, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return None

    def full(self, row: StatePartition) -> StateOutcome | None:
        """Whether there is no memory for more; clients then retry for a while."""
        if self.memory.held < self.config.states_max_bytes:
            return None
        return refused(row, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NO_MEMORY)

    def at_once(self, token: int, answer: Any) -> Result[Any]:
        result: Result[Any] = Result()
        result.reply(token, answer)
        return result

    def when_committed(self, key: ShareKey, token: int, answer: Any) -> Result[Any]:
        """Answer when all changes that the answer reflects are committed."""
        changes = self.changes.get(key)
        if changes is None:
            return self.at_once(token, answer)
        changes.waiting[-1].replies.append((token, answer))
        return Result()

    def write_record(
        self,
        key: ShareKey,
        value: ShareSnapshot | Update | None,
        token: int,
        answer: Any,
        latest: ShareState | None = None,
    ) -> Result[Any]:
        """Write a record and answer when it is committed; `latest` is the state after it, if known."""
        result = self.write_records([ShareRecord(key, value)], latest)
        result.ticket[0].replies.append((token, answer))
        return result

    def write_records(
        self, records: list[ShareRecord], known: ShareState | None = None
    ) -> Result[Any]:
        """Write records of different share partitions as one batch, and treat them as applied in `latest`."""
        limit = self.config.snapshot_update_records_per_snapshot
        ticket = []
        for record in records:
            key = record.key
            one = PendingRecord(record)
            ticket.append(one)
            latest = known or after(self.latest(key), record.value, limit)
            changes = self.changes.get(key)
            if changes is None:
                self.changes[key] = PendingRecords([one], latest)
            else:
                changes.waiting.append(one)
                changes.latest = latest
        result: Result[Any] = Result()
        result.write(records, ticket)
        return result

    # Called by the runtime

    def encode(self, record: ShareRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def decode(self, key: bytes, value: bytes | None) -> ShareRecord | None:
        return decode_record(key, value)

    def replay(self, record: ShareRecord, position: int, producer_id: int = -1) -> None:
        """Apply a committed record."""
        key, value = record
        changes = self.changes.get(key)
        if (
            changes is not None
            and len(changes.waiting) == 1
            and changes.waiting[0].record is record
        ):
            state = changes.latest  # it existed when the record was written
        else:
            limit = self.config.snapshot_update_records_per_snapshot
            state = after(self.states.get(key), value, limit)
        more = bytes_of(key.group_id, state) - bytes_of(key.group_id, self.states.get(key))
        self.held_bytes += more
        self.memory.held += more
        if state is None:
            self.states.pop(key, None)
        else:
            self.states[key] = state

    def replay_marker(self, producer_id: int, committed: bool) -> Iterator[None]:
        """Ignored, because this topic has no transactions."""
        return iter(())

    def completed(self, ticket: list[PendingRecord], error: ErrorCode, now_ms: int) -> Result[Any]:
        """Answer the requests that waited for a batch; after a timeout, a later call reports the outcome."""
        result: Result[Any] = Result()
        for one in ticket:
            for token, answer in one.replies:
                result.reply(token, answer if not error else failed(answer, error))
            one.replies.clear()
            if error is not ErrorCode.REQUEST_TIMED_OUT:
                self.forget(one, error)
        return result

    def forget(self, one: PendingRecord, error: ErrorCode) -> None:
        """Remove a change; if it failed, recompute the later ones from the state before it."""
        key = one.record.key
        changes = self.changes[key]
        changes.waiting.remove(one)
        if not changes.waiting:
            del self.changes[key]
        elif error:
            limit = self.config.snapshot_update_records_per_snapshot
            changes.latest = self.states.get(key)
            for each in changes.waiting:
                changes.latest = after(changes.latest, each.record.value, limit)

    def fire(self, timer: Timer, now_ms: int) -> Result[Any]:
        """Run a periodic task."""
        if timer.op_name == COLD_SNAPSHOTS:
            result = self.cold_snapshots(now_ms)
            interval_ms = self.config.cold_partition_snapshot_interval_ms
        else:
            result = Result()
            result.effects.append(PRUNE)
            interval_ms = self.config.prune_interval_ms
        result.timers.append(Timer(timer.op_name, (), now_ms + interval_ms))
        return result

    def cold_snapshots(self, now_ms: int) -> Result[Any]:
        """Write new snapshots for share partitions whose last snapshot is old, so that earlier records can be deleted.

        Shape: nothing is written if no state has changed since its last such snapshot; otherwise a quiet topic would
        get new snapshots forever. The number per call is limited; the rest follow in the next call.
        """
        interval_ms = self.config.cold_partition_snapshot_interval_ms
        snapshots = [state.snapshot for state in self.states.values()]
        if all(each.create_timestamp != each.write_timestamp for each in snapshots):
            return Result()
        records = []
        for key, state in self.states.items():
            snapshot = state.snapshot
            if key not in self.changes and now_ms - snapshot.write_timestamp >= interval_ms:
                again = snapshot._replace(
                    snapshot_epoch=following(snapshot.snapshot_epoch), write_timestamp=now_ms
                )
                records.append(ShareRecord(key, again))
                if len(records) == RECORDS_PER_BATCH:
                    break
        return self.write_records(records) if records else Result()

    def loaded(self, now_ms: int) -> Result[Any]:
        """Start pruning and writing cold snapshots."""
        result: Result[Any] = Result()
        config = self.config
        result.timers.append(Timer(PRUNE, (), now_ms + config.prune_interval_ms))
        result.timers.append(
            Timer(COLD_SNAPSHOTS, (), now_ms + config.cold_partition_snapshot_interval_ms)
        )
        return result

    def unload(self, now_ms: int) -> Iterator[Result[Any]]:
        """Do nothing: requests wait only for the log, and the runtime answers those."""
        self.memory.held -= self.held_bytes
        self.held_bytes = 0
        return iter(())

    def shift_time(self, delta_ms: int) -> None:
        """Do nothing: times are wall-clock times, and stored as such."""

    # Pruning

    def is_needed(self, record: ShareRecord) -> bool:
        """Whether a committed record is still needed to rebuild the state.

        Shape: the records since the latest snapshot are needed. A tombstone is not needed once all earlier records are
        deleted. While a share partition has changes in progress, all of its records are needed.
        """
        if record.key in self.changes:
            return True
        state = self.states.get(record.key)
        if record.value is None or state is None:
            return False
        return record.value.snapshot_epoch == state.snapshot.snapshot_epoch


def refused(row: StatePartition, error: ErrorCode, message: str = "") -> StateOutcome:
    return StateOutcome(row.topic_id, row.partition, error, message or MESSAGES[error])


def failed(answer: StateOutcome, error: ErrorCode) -> StateOutcome:
    """The answer when a write fails. Source: CoordinatorOperationExceptionHelper."""
    meant = WRITE_ERRORS.get(error, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return type(answer)(answer.topic_id, answer.partition, meant, meant.name)
