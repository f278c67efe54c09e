"""Chooses the compacted log to clean next and how far, and puts the result in place.

    cleaner-offset-checkpoint    checkpoint.py; the first dirty offset of each log: everything below
                                 it is compacted

A log is cleaned when the new part of it, as a share of what could be cleaned, exceeds
min.cleanable.dirty.ratio, or when a record in it is older than max.compaction.lag.ms; the dirtiest
first. Cleaning never reaches the active segment, the last stable offset or a segment with a record
younger than min.compaction.lag.ms. All calls are synchronous; the cleaning itself is in worker.py.
Source: LogCleanerManager, LogToClean.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..log_config import INT64_MAX
from ..reader import floor_index
from ..segment import LogSegment
from .plan import (
    CleanedGroup,
    CleanerSettings,
    CleanGroup,
    CleanPlan,
    LastRecord,
    SegmentFile,
    Uncleanable,
    group_segments,
)
from .segment_swap import discard_cleaned, replace_segments

if TYPE_CHECKING:
    from ...metadata.topic_partition import TopicPartition
    from ..log import Log
    from ..log_manager import LogManager

MAX_GROUP_SEGMENTS = 64
"""A bound on one swap, which renames four files per segment on the event loop."""
RETRY_MS = 10 * 60 * 1000
"""How long a log is left alone after the disk was full."""
CHANGED_RETRY_MS = 60 * 1000
"""How long a log is left alone after its files disappeared while the worker read them."""

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogToClean:
    """A compacted log, and the range that a round would cover.

    Shape: each offset is the base of a segment, or where the last round ended; end_offset is
    exclusive. Unit: bytes.
    """

    log: Log
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    cleanable_bytes: int
    overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """The new part as a share of all that the round would read."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0


def log_to_clean(log: Log, checkpoint: int | None, now_ms: int) -> LogToClean:
    """The range that a round over the log would cover.

    Shape: `checkpoint` is where the last round ended, if that is known.

    Source: LogCleanerManager.cleanableOffsets, maxCompactionDelay.
    """
    config = log.config
    segments = log.segments
    sealed = segments[:-1]
    start = log.log_start_offset if checkpoint is None else checkpoint
    if not log.log_start_offset <= start <= log.log_end_offset:
        start = log.log_start_offset
    active = log.active_segment.base_offset
    dirty = sealed[max(floor_index(sealed, start), 0) :] if start < active else []
    # A power cut may lose what is not on the device yet, so no older record may be dropped for it.
    # The same holds for a transaction's marker.
    limit = min(log.last_stable_offset, active, log.recovery_point, log.flush_state.stable_offset)
    if config.min_compaction_lag_ms > 0:
        youngest = now_ms - config.min_compaction_lag_ms
        for segment in dirty:
            if segment.largest_timestamp > youngest:
                limit = min(limit, segment.base_offset)
                break
    # Round down to the beginning of a segment: a segment is cleaned as a whole or not at all.
    end = max(segments[max(floor_index(segments, limit), 0)].base_offset, start)
    clean = sum(segment.size for segment in sealed if segment.base_offset < start)
    cleanable = 0
    if start < end:
        cleanable = sum(segment.size for segment in dirty if segment.base_offset < end)
    overdue = False
    if cleanable and config.max_compaction_lag_ms < INT64_MAX:
        oldest = now_ms - config.max_compaction_lag_ms
        overdue = any(0 < segment.first_timestamp() < oldest for segment in dirty)
    return LogToClean(log, start, end, clean, cleanable, overdue)


class CleanRound:
    """The state of one round over one log that the event loop keeps."""

    __slots__ = ("cuts", "groups", "log", "plan", "sources")

    def __init__(self, log: Log, plan: CleanPlan, sources: list[LogSegment]) -> None:
        self.log = log
        self.cuts = log.flush_state.cuts
        self.plan = plan
        self.sources = {segment.base_offset: segment for segment in sources}
        self.groups: list[tuple[SegmentFile, ...]] = []


class LogCleaner:
    """The compaction of this broker's logs; one round at a time."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._uncleanable: dict[TopicPartition, tuple[Log, str]] = {}
        self._retry_at_ms: dict[TopicPartition, int] = {}
        self._rounds = 0
        self.settings = CleanerSettings()

    # -- what next ---------------------------------------------------------------------------------

    @property
    def uncleanable(self) -> dict[TopicPartition, str]:
        """Partitions that are not cleaned until the broker is restarted, with the reason."""
        return {
            tp: reason
            for tp, (log, reason) in self._uncleanable.items()
            if self._manager.get(tp) is log
        }

    def checkpoint_of(self, tp: TopicPartition) -> int | None:
        """Where the last round over a log ended; None if there was none. Errors: OSError."""
        directory = self._manager.directory_of(tp)
        return None if directory is None else directory.cleaned_to(tp)

    def next_round(self, now_ms: int) -> CleanRound | None:
        """The dirtiest log that is due; None if none is. A disk error takes the log offline."""
        best: LogToClean | None = None
        for log in self._manager.logs():
            if log.offline or not log.config.is_compacted or len(log.segments) < 2:
                continue
            if self._is_left_alone(log, now_ms):
                continue
            try:
                found = log_to_clean(log, self.checkpoint_of(log.tp), now_ms)
            except OSError as e:
                log.on_io_error(e)
                continue
            if not found.cleanable_bytes:
                continue
            if not found.overdue and found.dirty_ratio <= log.config.min_cleanable_dirty_ratio:
                continue
            if best is None or found.dirty_ratio > best.dirty_ratio:
                best = found
        return None if best is None else self._round(best, now_ms)

    def _is_left_alone(self, log: Log, now_ms: int) -> bool:
        if self._manager.future(log.tp) is not None:
            # Its copy may have records whose tombstones a round would remove.
            return True
        known = self._uncleanable.get(log.tp)
        if known is not None:
            if known[0] is log:
                return True
            del self._uncleanable[log.tp]  # the topic was created again: this is another log
        return now_ms < self._retry_at_ms.get(log.tp, 0)

    def _round(self, found: LogToClean, now_ms: int) -> CleanRound:
        log = found.log
        config = log.config
        sources = [s for s in log.segments[:-1] if s.base_offset < found.end_offset]
        self._rounds += 1
        plan = CleanPlan(
            number=self._rounds,
            directory=log.dir,
            segments=tuple(SegmentFile(s.base_offset, s.size) for s in sources),
            first_dirty_offset=found.first_dirty_offset,
            round_end_offset=found.end_offset,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            index_interval_bytes=config.index_interval_bytes,
            index_bytes=config.segment_index_bytes,
            settings=self.settings,
        )
        return CleanRound(log, plan, sources)

    # -- step by step ------------------------------------------------------------------------------

    def keys_read(self, round_: CleanRound, end_offset: int) -> None:
        """Group the segments to merge, now that all keys below end_offset are known."""
        plan = round_.plan
        segments = tuple(s for s in plan.segments if s.base_offset < end_offset)
        later = [s.base_offset for s in plan.segments[len(segments) :]]
        round_.groups = group_segments(
            segments,
            later[0] if later else plan.round_end_offset,
            round_.log.config.segment_bytes,
            MAX_GROUP_SEGMENTS,
        )

    def group(self, round_: CleanRound, sources: tuple[SegmentFile, ...]) -> CleanGroup:
        """Return the worker's input for one group, in its current state."""
        last_records = {
            producer_id: LastRecord(entry.last_data_offset, entry.producer_epoch)
            for producer_id, entry in round_.log.producers.producers.items()
        }
        return CleanGroup(round_.plan.number, sources, last_records)

    def is_current(self, round_: CleanRound, sources: tuple[SegmentFile, ...]) -> bool:
        """Whether the log still exists, with these segments unchanged."""
        log = round_.log
        if (
            log.offline
            or self._manager.get(log.tp) is not log
            or self._manager.future(log.tp) is not None
            or log.flush_state.cuts != round_.cuts
        ):
            return False
        wanted = [round_.sources[source.base_offset] for source in sources]
        at = floor_index(log.segments, wanted[0].base_offset)
        present = log.segments[max(at, 0) : max(at, 0) + len(wanted)]
        return present == wanted and all(
            segment.size == source.size for segment, source in zip(wanted, sources, strict=True)
        )

    def swap(
        self,
        round_: CleanRound,
        sources: tuple[SegmentFile, ...],
        cleaned: CleanedGroup,
        now_ms: int,
    ) -> bool:
        """Put a cleaned group in place; False if the log has changed and the round is over.

        Shape: sync the log's directory afterwards, off the loop.
        """
        log = round_.log
        if not self.is_current(round_, sources):
            # Later groups must not be swapped either: a tombstone could vanish before its record.
            self.discard(round_, cleaned.base_offset)
            return False
        try:
            replace_segments(
                log, [round_.sources[s.base_offset] for s in sources], cleaned.size, now_ms
            )
        except OSError as e:
            log.on_io_error(e)
            return False
        return True

    def discard(self, round_: CleanRound, base_offset: int) -> None:
        """Remove the files that the worker wrote for a group."""
        try:
            discard_cleaned(self._manager.layer, round_.plan.directory, base_offset)
        except OSError as e:
            logger.warning("cannot remove %s: %s", e.filename, e)

    def finish(self, round_: CleanRound, end_offset: int) -> Callable[[], object]:
        """End a complete round; return a function that writes the checkpoint, to run off the loop.

        Errors of that function: OSError; the next round then begins where this one did.
        """
        tp = round_.log.tp
        directory = self._manager.directory_of(tp)
        if directory is None or self._manager.get(tp) is not round_.log:
            return lambda: None
        if self._manager.future(tp) is not None:
            return lambda: None
        if round_.log.flush_state.cuts != round_.cuts:
            return lambda: None
        self._retry_at_ms.pop(tp, None)
        write = directory.begin_cleaned_to(tp, end_offset)
        return (lambda: None) if write is None else write.run

    def postpone(self, tp: TopicPartition, now_ms: int) -> None:
        """The round ended for an unknown reason: let other logs go first."""
        self._retry_at_ms[tp] = now_ms + RETRY_MS

    def fail(self, round_: CleanRound, error: Exception, now_ms: int) -> None:
        """End a round that failed: skip this log for a while or until restart, not the others."""
        log = round_.log
        tp = log.tp
        if log.offline or self._manager.get(tp) is not log:
            return
        if isinstance(error, FileNotFoundError):
            logger.info("%s changed during its compaction, which will be tried again", tp)
            self._retry_at_ms[tp] = now_ms + CHANGED_RETRY_MS
        elif isinstance(error, OSError) and error.errno in DISK_FULL:
            logger.warning("%s cannot be compacted while the disk is full: %s", tp, error)
            self._retry_at_ms[tp] = now_ms + RETRY_MS
        elif isinstance(error, OSError):
            log.on_io_error(error)
        else:
            reason = str(error) if isinstance(error, Uncleanable) else repr(error)
            if isinstance(error, MemoryError):
                reason = "it takes more memory than kwire.worker.max.bytes allows"
            self._uncleanable[tp] = (log, reason)
            logger.error(
                "%s cannot be compacted, and no attempt is made until the broker is restarted: %s",
                tp,
                reason,
                exc_info=None if isinstance(error, Uncleanable) else error,
            )
