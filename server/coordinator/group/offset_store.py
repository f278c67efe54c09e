"""The offsets of one group: committed offsets, and offsets being written to the log.

Committed offsets change only in `apply_*`, which replay calls. Source: GroupMetadata.scala.
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import getsizeof
from typing import NamedTuple

from kwire.records.layout import NO_TIMESTAMP

from ...metadata.topic_partition import TopicPartition
from .memory import OFFSET_BYTES

NO_OFFSET = -1


class OffsetAndMetadata(NamedTuple):
    """A committed offset as stored.

    Unit: times in ms since the epoch; expire_timestamp_ms is -1 unless the client set its own retention (OffsetCommit 2
    to 4). topic_id is the topic's id at the time of the commit, zeros if it is not known; None in the formats before
    Apache Kafka 4, which have no field for it.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: bytes | None = None


def offset_bytes(tp: TopicPartition, value: OffsetAndMetadata) -> int:
    """The memory that a stored offset takes."""
    return OFFSET_BYTES + len(tp.topic) + getsizeof(value.metadata)


class StoredOffset(NamedTuple):
    """An offset and its position in the log: positions are compared, never added."""

    position: int
    value: OffsetAndMetadata


class OffsetStore:
    """Offsets of one group.

    Shape: `pending` maps a partition to the latest write that will store its offset; `transactional` maps a producer id
    to its offsets in the log that have no marker yet; `pending_transactional` maps a producer id to a map from
    partition to write. A partition in any of these three is unstable. `held_bytes` is the approximate memory of the
    offsets in the log.
    """

    __slots__ = ("committed", "held_bytes", "pending", "pending_transactional", "transactional")

    def __init__(self) -> None:
        self.held_bytes = 0
        self.committed: dict[TopicPartition, StoredOffset] = {}
        self.pending: dict[TopicPartition, int] = {}
        self.transactional: dict[int, dict[TopicPartition, StoredOffset]] = {}
        self.pending_transactional: dict[int, dict[TopicPartition, int]] = {}

    def __bool__(self) -> bool:
        """True while anything is stored or being written."""
        return bool(
            self.committed or self.pending or self.transactional or self.pending_transactional
        )

    def is_unstable(self, tp: TopicPartition) -> bool:
        """Whether the partition's committed offset may be about to change."""
        return (
            tp in self.pending
            or any(tp in offsets for offsets in self.transactional.values())
            or any(tp in writes for writes in self.pending_transactional.values())
        )

    def prepare(self, tps: Iterable[TopicPartition], write_id: int, producer_id: int) -> None:
        """Note that a write has begun."""
        if producer_id < 0:
            for tp in tps:
                self.pending[tp] = write_id
        else:
            writes = self.pending_transactional.setdefault(producer_id, {})
            for tp in tps:
                writes[tp] = write_id

    def settle(self, tps: Iterable[TopicPartition], write_id: int, producer_id: int) -> None:
        """Forget a write that was stored or has failed; a later write for a partition stays."""
        if producer_id < 0:
            pending = self.pending
            for tp in tps:
                if pending.get(tp) == write_id:
                    del pending[tp]
            return
        writes = self.pending_transactional.get(producer_id, {})
        for tp in tps:
            if writes.get(tp) == write_id:
                del writes[tp]
        if not writes:
            self.pending_transactional.pop(producer_id, None)

    def apply(
        self, tp: TopicPartition, value: OffsetAndMetadata | None, position: int, producer_id: int
    ) -> None:
        """Apply a record of the log; None is a tombstone. Called in log order."""
        if producer_id < 0:
            self._put(self.committed, tp, None if value is None else StoredOffset(position, value))
            return
        offsets = self.transactional.setdefault(producer_id, {})
        self._put(offsets, tp, None if value is None else StoredOffset(position, value))

    def _put(
        self,
        offsets: dict[TopicPartition, StoredOffset],
        tp: TopicPartition,
        stored: StoredOffset | None,
    ) -> None:
        before = offsets.get(tp)
        if before is not None:
            self.held_bytes -= offset_bytes(tp, before.value)
        if stored is not None:
            offsets[tp] = stored
            self.held_bytes += offset_bytes(tp, stored.value)
        elif before is not None:
            del offsets[tp]

    def more_bytes(self, rows: Iterable[tuple[TopicPartition, OffsetAndMetadata]]) -> int:
        """The additional memory needed if these offsets are committed."""
        more = 0
        for tp, value in rows:
            before = self.committed.get(tp)
            more += offset_bytes(tp, value)
            if before is not None:
                more -= offset_bytes(tp, before.value)
        return more

    def apply_marker(self, producer_id: int, committed: bool) -> None:
        """Apply the end of a producer's transaction.

        Shape: an offset committed outside transactions after the transaction's own record stays, so
        that compaction, which keeps only the later of the two, does not change the outcome.
        """
        offsets = self.transactional.pop(producer_id, {})
        for tp, stored in offsets.items():
            self.held_bytes -= offset_bytes(tp, stored.value)
            current = self.committed.get(tp)
            if committed and (current is None or current.position < stored.position):
                self._put(self.committed, tp, stored)

    def known_partitions(self, tps: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The given partitions that need a tombstone."""
        return [tp for tp in tps if tp in self.committed or tp in self.pending]

    def nothing_left_without(self, tps: Iterable[TopicPartition]) -> bool:
        """Whether the group would have no offsets without those of the given partitions."""
        return (
            not self.pending
            and not self.transactional
            and not self.pending_transactional
            and self.committed.keys() <= set(tps)
        )

    def expired(
        self,
        now_ms: int,
        retention_ms: int,
        *,
        since_ms: int | None = None,
        subscribed_topics: frozenset[str] = frozenset(),
    ) -> list[TopicPartition]:
        """Return the partitions whose offset has been kept long enough.

        Shape: retention counts from `since_ms`, or from each offset's commit if that is None; an offset's own expire
        time overrides both. The offsets of subscribed topics never expire.
        Source: GroupMetadata.removeExpiredOffsets.
        """
        due = []
        for tp, (_, value) in self.committed.items():
            if tp.topic in subscribed_topics or tp in self.pending:
                continue
            if value.expire_timestamp_ms != NO_TIMESTAMP:
                is_due = now_ms >= value.expire_timestamp_ms
            else:
                base_ms = value.commit_timestamp_ms if since_ms is None else since_ms
                is_due = now_ms - base_ms >= retention_ms
            if is_due:
                due.append(tp)
        return due
