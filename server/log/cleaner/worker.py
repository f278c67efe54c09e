"""Compacts the segments of one log: reads the keys, then writes `.cleaned` files group by group.

    <20 digits>.log.cleaned  .index.cleaned  .timeindex.cleaned  .txnindex.cleaned

This is work for each record, so it runs in a process of its own. The process is given paths and
offsets and writes only `.cleaned` files; segment_swap.py puts those in place. With the native
module, one call does this work for all batches of a buffer, up to one that is unusual or belongs
to a transaction (`OffsetMap.note_batches`, `BatchFilter.filter_batches`). Recovery rule: at start,
`.cleaned` files are removed whatever they contain. Source: Cleaner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kwire.errors import CorruptRecord, RecordError
from kwire.records.batch import BatchHeader, read_header
from kwire.records.layout import NO_TIMESTAMP

from ..file_layer import Buffer, FileLayer, LogFile
from ..index.offset_index import OffsetIndex
from ..index.time_index import TimeIndex
from ..index.transaction_index import ENTRY_SIZE, AbortedTransaction, TransactionIndex, parse
from ..index.transaction_index import SUFFIX as TRANSACTION_SUFFIX
from ..recovery.loader import CLEANED_SUFFIX
from ..recovery.segment_recovery import checked_batches
from ..segment import INDEX_SUFFIXES, LOG_SUFFIX, LogSegment, stem_of
from .offset_map import offset_map
from .plan import CleanedGroup, CleanGroup, CleanPlan, KeysRead, SegmentFile, Uncleanable
from .record_filter import USUAL_ATTRIBUTES, BatchFilter, CleanedTransactions, note_keys

WRITE_BYTES = 1 << 20

THROTTLE_CHECK_S = 0.3
MARKS_SHARE = 8
"""Marks of last offsets may take this fraction (1/n) of the memory for keys, in addition to it."""


class IoThrottle:
    """Limits the rate of reads and writes together, by pausing. Source: Throttler."""

    __slots__ = ("_bytes", "_monotonic", "_pause", "_rate", "_since")

    def __init__(
        self,
        bytes_per_second: float,
        monotonic: Callable[[], float],
        pause: Callable[[float], None],
    ) -> None:
        """Unit: both callables work in seconds."""
        self._rate = bytes_per_second
        self._monotonic = monotonic
        self._pause = pause
        self._since = monotonic()
        self._bytes = 0

    def used(self, count: int) -> None:
        """Record that `count` bytes were read or written; pause if that was too fast."""
        self._bytes += count
        elapsed = self._monotonic() - self._since
        if elapsed < THROTTLE_CHECK_S and self._bytes < self._rate * THROTTLE_CHECK_S:
            return
        owed = self._bytes / self._rate - elapsed
        if owed > 0:
            self._pause(owed)
        self._since = self._monotonic()
        self._bytes = 0


class CleanSession:
    """One round over one log: `read_keys` once, then `clean` for each group, in order."""

    def __init__(self, plan: CleanPlan, layer: FileLayer, throttle: IoThrottle) -> None:
        self._plan = plan
        self._layer = layer
        self._throttle = throttle
        settings = plan.settings
        self._keys = offset_map(
            settings.dedupe_buffer_size,
            settings.dedupe_buffer_load_factor,
            plan.round_end_offset - plan.first_dirty_offset,
        )
        self._aborted: list[AbortedTransaction] = []
        self._filter: BatchFilter | None = None
        self._legacy_horizon_ms = 0

    # -- first pass --------------------------------------------------------------------------------

    def read_keys(self) -> KeysRead:
        """Read the keys from the first dirty offset on, as many as fit into memory.

        Errors: Uncleanable; OSError, in particular FileNotFoundError if the log has changed.
        """
        plan = self._plan
        self._aborted = self._read_aborted()
        self._note_legacy_horizon()
        start = plan.first_dirty_offset
        transactions = CleanedTransactions(self._overlapping(start, plan.round_end_offset))
        read = 0
        ends = [*(s.base_offset for s in plan.segments[1:]), plan.round_end_offset]
        for segment, end in zip(plan.segments, ends, strict=True):
            if end <= start:
                continue
            read += segment.size
            if not self._read_keys_of(segment, transactions, start):
                break
            self._keys.update_latest_offset(end - 1)  # there may be a gap before the next segment
        self._filter = BatchFilter(
            self._keys,
            CleanedTransactions(self._overlapping(0, plan.round_end_offset)),
            now_ms=plan.now_ms,
            delete_retention_ms=plan.delete_retention_ms,
            round_end_offset=plan.round_end_offset,
            keys_from=start,
            max_marks=plan.settings.dedupe_buffer_size // MARKS_SHARE,
        )
        return KeysRead(self._keys.latest_offset + 1, len(self._keys), read)

    def _read_aborted(self) -> list[AbortedTransaction]:
        # From all segments: the marker may be in one that is not being compacted.
        layer, directory = self._layer, self._plan.directory
        found: list[AbortedTransaction] = []
        for name in sorted(layer.list_directory(directory)):
            digits = name.removesuffix(TRANSACTION_SUFFIX)
            if digits != name and digits.isdigit():
                path = f"{directory}/{name}"
                data = layer.read_file(path)
                # The active segment's index may be growing right now; its new entries do not
                # matter.
                found += parse(data[: len(data) - len(data) % ENTRY_SIZE], path)
        return found

    def _overlapping(self, start: int, end: int) -> list[AbortedTransaction]:
        return [e for e in self._aborted if e.last_offset >= start and e.first_offset < end]

    def _note_legacy_horizon(self) -> None:
        clean = [s for s in self._plan.segments if s.base_offset < self._plan.first_dirty_offset]
        if clean:
            modified_ms = self._layer.modified_ms(self._path(clean[-1]))
            self._legacy_horizon_ms = modified_ms - self._plan.delete_retention_ms

    def _path(self, segment: SegmentFile) -> str:
        return stem_of(self._plan.directory, segment.base_offset) + LOG_SUFFIX

    def _read_keys_of(
        self, segment: SegmentFile, transactions: CleanedTransactions, start: int
    ) -> bool:
        keys = self._keys

        def take(window: memoryview, at: int) -> int:
            return keys.note_batches(window, at, USUAL_ATTRIBUTES, start)

        for position, header, view in self._batches(segment, take):
            if header.last_offset < start:
                continue
            try:
                if header.is_control:
                    transactions.on_control(header, view)
                elif not transactions.on_data(header) and not note_keys(header, view, keys, start):
                    return False
            except RecordError as e:
                raise self._uncleanable(segment, position, header, e) from None
            keys.update_latest_offset(header.last_offset)
        return True

    def _batches(
        self, segment: SegmentFile, take: Callable[[memoryview, int], int]
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        # The batches that `take` leaves: `checked_batches`. Errors: Uncleanable, because an
        # unreadable part of a segment must not be left out.
        opened = LogSegment(
            self._layer, self._plan.directory, segment.base_offset, segment.size, created_ms=0
        )
        opened.log = self._layer.open_read_only(opened.log.path)
        position = 0
        window_bytes = self._plan.settings.io_buffer_size

        def taken(window: memoryview, at: int) -> int:
            nonlocal position
            end = take(window, at)
            if end > at:
                position += end - at
                self._throttle.used(end - at)
            return end

        try:
            for position, header, view in checked_batches(opened, window_bytes, take=taken):
                yield position, header, view
                position += header.size
                self._throttle.used(header.size)
        except CorruptRecord as e:
            raise Uncleanable(f"{opened.log.path} at {position}: {e}") from None
        finally:
            opened.log.close()
        if position != segment.size:
            raise Uncleanable(
                f"{opened.log.path}: {segment.size - position} bytes at {position} are not a batch"
            )

    def _uncleanable(
        self, segment: SegmentFile, position: int, header: BatchHeader, error: RecordError
    ) -> Uncleanable:
        return Uncleanable(
            f"{self._path(segment)}: the batch at {position} with offsets "
            f"{header.base_offset} to {header.last_offset}: {error}"
        )

    # -- second pass -------------------------------------------------------------------------------

    def clean(self, group: CleanGroup) -> CleanedGroup:
        """Write the remaining records of the group's segments to one segment, and flush it to the device.

        Errors: as in `read_keys`; `.cleaned` files are then removed.
        """
        rules = self._filter
        assert rules is not None, "read_keys must be called first"
        rules.last_records = group.last_records
        rules.transactions.retained.clear()
        read_before, kept_before = rules.records_read, rules.records_kept
        base_offset = group.sources[0].base_offset
        output = CleanedSegment(self._layer, self._plan, base_offset, self._throttle)
        bytes_read = 0

        def take(window: memoryview, at: int) -> int:
            end, found = rules.filter_batches(window, at)
            for batch, last_offset, latest in found:
                output.append(batch, last_offset, latest)
            return end

        try:
            for segment in group.sources:
                modified_ms = self._layer.modified_ms(self._path(segment))
                rules.keep_legacy_deletes = modified_ms > self._legacy_horizon_ms
                for position, header, view in self._batches(segment, take):
                    try:
                        kept = rules.filter(header, view)
                    except RecordError as e:
                        raise self._uncleanable(segment, position, header, e) from None
                    if kept is not None:
                        stored = header if kept is view else read_header(kept)
                        latest = stored.max_timestamp if stored.records_count else NO_TIMESTAMP
                        output.append(kept, stored.last_offset, latest)
                bytes_read += segment.size
            output.finish(rules.transactions.retained, modified_ms)
        except BaseException:
            output.remove()
            raise
        return CleanedGroup(
            base_offset,
            output.size,
            bytes_read,
            rules.records_read - read_before,
            rules.records_kept - kept_before,
        )


class CleanedSegment:
    """The `.cleaned` files to which one group is written."""

    def __init__(
        self, layer: FileLayer, plan: CleanPlan, base_offset: int, throttle: IoThrottle
    ) -> None:
        self._layer = layer
        self._plan = plan
        self._throttle = throttle
        self._stem = stem_of(plan.directory, base_offset)
        self._base_offset = base_offset
        self._log = LogFile(layer, self._stem + LOG_SUFFIX + CLEANED_SUFFIX)
        self.remove()  # files left behind by an earlier attempt may be longer
        self._offset_index = OffsetIndex(layer, self._stem, base_offset, new=True)
        self._time_index = TimeIndex(layer, self._stem, base_offset, new=True)
        self._transaction_index = TransactionIndex(layer, self._stem, new=True)
        for index in (self._offset_index, self._time_index, self._transaction_index):
            index.path += CLEANED_SUFFIX
        self._index_room = min(
            plan.index_bytes // OffsetIndex.WIDTH, plan.index_bytes // TimeIndex.WIDTH - 1
        )
        self._pending = bytearray()
        self._last_entry = 0
        self._newest = (-1, base_offset)
        self.size = 0

    def append(self, batch: Buffer, last_offset: int, latest: int) -> None:
        """Append a batch; `latest` is its largest timestamp, -1 if it has no records. Errors: OSError."""
        position = self.size
        if latest > self._newest[0]:
            self._newest = (latest, last_offset)
        if position - self._last_entry > self._plan.index_interval_bytes and self._index_room > 0:
            self._offset_index.append(last_offset, position)
            self._time_index.maybe_append(*self._newest)
            self._last_entry = position
            self._index_room -= 1
        self._pending += batch
        self.size = position + len(batch)
        if len(self._pending) >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        self._log.write_at(self._pending, self.size - len(self._pending))
        self._throttle.used(len(self._pending))
        self._pending = bytearray()

    def finish(self, aborted: list[AbortedTransaction], modified_ms: int) -> None:
        """Write indexes, force all files to the device, and set the newest source's age."""
        if self._pending:
            self._write()
        if self._newest[0] >= 0:
            self._time_index.maybe_append(*self._newest)
        layer = self._layer
        opened = self._log.open()
        layer.fsync(opened.fd)
        self._log.close()
        for index in (self._offset_index, self._time_index):
            index.save()
            layer.sync_path(index.path)
        if aborted:
            self._transaction_index.replace(aborted)
            layer.sync_path(self._transaction_index.path)
        layer.set_modified_ms(self._log.path, modified_ms)
        layer.sync_directory(self._plan.directory)

    def remove(self) -> None:
        """Remove the files."""
        self._log.close()
        for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
            self._layer.unlink(self._stem + suffix + CLEANED_SUFFIX)
