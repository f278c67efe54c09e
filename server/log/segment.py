"""One segment of a log: batches back to back, and the indexes that find them.

    <20 digits>.log        batches as kwire.records.batch lays them out, no padding
    <20 digits>.index      offset_index.py           <20 digits>.timeindex  time_index.py
    <20 digits>.txnindex   transaction_index.py, once a transaction was aborted

The digits are the base offset: no record in the segment is below it. Recovery rule: batches are
read from the start and their CRCs checked; the file is truncated after the last whole valid batch,
and the indexes are rebuilt. Source: LogSegment, FileRecords, LogFileUtils.
"""

from __future__ import annotations

from collections.abc import Iterator

from kwire.records.batch import BatchHeader, batch_size, read_header
from kwire.records.layout import (
    HEADER_SIZE,
    HEADER_TO_DELTA,
    LEGACY_MIN_SIZE,
    LOG_OVERHEAD,
    OFFSET_AND_LENGTH,
)

from .file_layer import READ_CHUNK_BYTES, Buffer, FileLayer, LogFile
from .index.offset_index import OffsetIndex
from .index.time_index import TimeIndex
from .index.transaction_index import TransactionIndex
from .log_config import INT64_MAX

LOG_SUFFIX = ".log"
DELETED_SUFFIX = ".deleted"
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")

NEVER = 1 << 63
UNKNOWN = -(1 << 63)
INT32_MAX = (1 << 31) - 1

#: Below this the batch at the beginning of a read is looked at before the index is.
SMALL_REST_BYTES = 64 * 1024


def stem_of(directory: str, offset: int) -> str:
    """Path of a segment's files up to the suffix."""
    return f"{directory}/{offset:020d}"


def offset_of(name: str) -> int | None:
    """The offset that a file is named after; None if its name does not begin with one."""
    digits = name.partition(".")[0]
    if len(digits) != 20 or not digits.isascii() or not digits.isdigit():
        return None
    offset = int(digits)
    return offset if offset <= INT64_MAX else None


class LogSegment:
    """A `.log` file and its indexes; it handles positions, not the meaning of the log's offsets."""

    __slots__ = (
        "_layer",
        "_transaction_index",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "index_room",
        "jitter_ms",
        "known_max_timestamp",
        "known_max_timestamp_offset",
        "loaded_offset_index",
        "loaded_time_index",
        "log",
        "roll_timestamp",
        "size",
    )

    def __init__(
        self,
        layer: FileLayer,
        directory: str,
        base_offset: int,
        size: int,
        *,
        created_ms: int,
        new: bool = False,
    ) -> None:
        self._layer = layer
        stem = stem_of(directory, base_offset)
        self.log = LogFile(layer, stem + LOG_SUFFIX)
        self.base_offset = base_offset
        self.size = size
        self.loaded_offset_index: OffsetIndex | None = None
        self.loaded_time_index: TimeIndex | None = None
        self._transaction_index: TransactionIndex | None = None
        if new:
            self.loaded_offset_index = OffsetIndex(layer, stem, base_offset, new=True)
            self.loaded_time_index = TimeIndex(layer, stem, base_offset, new=True)
            self._transaction_index = TransactionIndex(layer, stem, new=True)
        self.known_max_timestamp = -1 if new else UNKNOWN
        self.known_max_timestamp_offset = base_offset
        self.bytes_since_index_entry = 0
        self.created_ms = created_ms
        self.jitter_ms = 0
        self.roll_timestamp = NEVER if size == 0 else UNKNOWN
        """A batch with a later timestamp starts a new segment; UNKNOWN: ask the log to compute."""
        self.index_room = 0
        """Index entries that surely still fit; 0: `update_index_room` has to look."""

    def __repr__(self) -> str:
        return f"LogSegment({self._stem}, size={self.size})"

    @property
    def _stem(self) -> str:
        return self.log.path.removesuffix(LOG_SUFFIX)

    # -- indexes, made on first use ----------------------------------------------------------------

    @property
    def offset_index(self) -> OffsetIndex:
        """From offsets to positions."""
        if self.loaded_offset_index is None:
            self.loaded_offset_index = OffsetIndex(self._layer, self._stem, self.base_offset)
        return self.loaded_offset_index

    @property
    def time_index(self) -> TimeIndex:
        """From timestamps to offsets."""
        if self.loaded_time_index is None:
            self.loaded_time_index = TimeIndex(self._layer, self._stem, self.base_offset)
        return self.loaded_time_index

    @property
    def transaction_index(self) -> TransactionIndex:
        """Aborted transactions that ended here."""
        if self._transaction_index is None:
            self._transaction_index = TransactionIndex(self._layer, self._stem)
        return self._transaction_index

    @property
    def max_timestamp(self) -> int:
        """Largest batch timestamp so far, ms; -1 if there is none."""
        if self.known_max_timestamp == UNKNOWN:
            self.load_max_timestamp()
        return self.known_max_timestamp

    @property
    def max_timestamp_offset(self) -> int:
        """LAST offset of the batch with the largest timestamp."""
        if self.known_max_timestamp == UNKNOWN:
            self.load_max_timestamp()
        return self.known_max_timestamp_offset

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp, or where there is none the file's modification time, in ms."""
        if self.max_timestamp >= 0:
            return self.known_max_timestamp
        return self.modified_ms()

    def modified_ms(self) -> int:
        """When the segment was last written, in ms since the epoch."""
        return self._layer.modified_ms(self.log.path)

    def load_max_timestamp(self) -> None:
        """Find the largest timestamp: the last time index entry, or a batch after it."""
        timestamp, offset = self.time_index.last()
        for _, header in self.headers(self.offset_index.lookup(offset)):
            # If compaction emptied a batch, only its header mentions a record of that time.
            if header.max_timestamp > timestamp and header.records_count:
                timestamp, offset = header.max_timestamp, header.last_offset
        self.known_max_timestamp = timestamp
        self.known_max_timestamp_offset = offset

    # -- appending ---------------------------------------------------------------------------------

    def append(
        self, records: Buffer, last_offset: int, max_timestamp: int, interval_bytes: int
    ) -> None:
        """Write batches at the end, one write, and perhaps an index entry.

        Shape: last_offset of the whole append; max_timestamp its largest. Errors: OSError; the
        segment is then as before, whatever bytes the file has beyond its size.
        """
        position = self.size
        size = len(records)
        # What has to be read comes before the write, as reading may fail.
        if self.known_max_timestamp == UNKNOWN:
            self.load_max_timestamp()
        offsets, times = self.loaded_offset_index, self.loaded_time_index
        if self.bytes_since_index_entry > interval_bytes:
            if offsets is None or times is None:
                offsets, times = self.offset_index, self.time_index
            offsets.load()
            times.load()
        self.log.write_at(records, position)
        self.size = position + size
        if max_timestamp > self.known_max_timestamp:
            self.known_max_timestamp = max_timestamp
            self.known_max_timestamp_offset = last_offset
        if self.bytes_since_index_entry > interval_bytes:
            assert offsets is not None
            assert times is not None
            offsets.append(last_offset, position)
            times.maybe_append(self.known_max_timestamp, self.known_max_timestamp_offset)
            self.bytes_since_index_entry = 0
            self.index_room -= 1
        self.bytes_since_index_entry += size

    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, which determines the segment's age; -1 if none."""
        for _, header in self.headers(0):
            return header.max_timestamp
        return -1

    def update_index_room(self, index_bytes: int) -> None:
        """Count the entries that segment.index.bytes still allows; 0 if an index is full."""
        self.index_room = max(
            0,
            min(
                index_bytes // OffsetIndex.WIDTH - len(self.offset_index),
                index_bytes // TimeIndex.WIDTH - 1 - len(self.time_index),
            ),
        )

    # -- reading -----------------------------------------------------------------------------------

    def headers(self, position: int, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of the whole batches from a batch boundary on.

        Shape: ends quietly before a batch that is cut short. Errors: CorruptRecord.
        """
        if end is None:
            end = self.size
        chunk = b""
        chunk_at = position
        while position < end:
            at = position - chunk_at
            if at + HEADER_SIZE > len(chunk) and chunk_at + len(chunk) < end:
                chunk = self.log.read_at(min(READ_CHUNK_BYTES, end - position), position)
                chunk_at = position
                at = 0
            size = batch_size(chunk, at, at + end - position) if at < len(chunk) else None
            if size is None:
                return
            yield position, read_header(chunk, at)
            position += size

    def locate(self, offset: int) -> tuple[int, int, int] | None:
        """Find the first batch whose last offset is not below offset.

        Shape: (position, base_offset, size), or None if all batches are below.
        """
        return self._search(self.offset_index.lookup(offset), offset)

    def _search(self, position: int, offset: int) -> tuple[int, int, int] | None:
        # Like `headers`, without an object per batch: this is the fetch path.
        end = self.size
        unpack = HEADER_TO_DELTA.unpack_from
        needed = HEADER_TO_DELTA.size
        chunk = b""
        at = 0
        while position + needed <= end:
            if at + needed > len(chunk):
                chunk = self.log.read_at(min(READ_CHUNK_BYTES, end - position), position)
                at = 0
                if len(chunk) < needed:
                    return None
            base_offset, length, _, magic, _, _, delta = unpack(chunk, at)
            size: int = LOG_OVERHEAD + length
            if size < needed or position + size > end:
                return None
            if base_offset + (delta if magic == 2 else 0) >= offset:
                return position, base_offset, size
            position += size
            at += size
        if end - position > LOG_OVERHEAD:  # a message of magic 0 can be as small as 26 bytes
            for found, header in self.headers(position):
                if header.last_offset >= offset:
                    return found, header.base_offset, header.size
        return None

    def boundary(self, start: int, limit: int) -> tuple[int, int, int]:
        """Find the last batch boundary in [start, limit], start being one.

        Shape: (position, base_offset, size) where the last two belong to the batch that begins
        there; size 0 where the segment ends there.
        """
        end = self.size
        if limit - start < SMALL_REST_BYTES and start + HEADER_TO_DELTA.size <= end:
            # The remaining bytes of a request often do not suffice for the first batch.
            first = self.log.read_at(LOG_OVERHEAD, start)
            if len(first) == LOG_OVERHEAD:
                base_offset, length = OFFSET_AND_LENGTH.unpack(first)
                if LOG_OVERHEAD + length > limit - start:
                    return start, base_offset, LOG_OVERHEAD + length
        position = self.offset_index.floor_position(limit, end)
        if position < start:
            position = start
        unpack = HEADER_TO_DELTA.unpack_from
        needed = HEADER_TO_DELTA.size
        chunk = b""
        at = 0
        while position + needed <= end:
            if at + needed > len(chunk):
                chunk = self.log.read_at(min(READ_CHUNK_BYTES, end - position), position)
                at = 0
                if len(chunk) < needed:
                    break
            base_offset, length, *_ = unpack(chunk, at)
            size: int = LOG_OVERHEAD + length
            if size < LEGACY_MIN_SIZE[0]:
                break  # damage: nothing beyond it can be found
            if position + size > limit:
                return position, base_offset, size
            position += size
            at += size
        return position, -1, 0

    def next_offset(self) -> int:
        """The offset after the last record, by scanning on from the last index entry."""
        return self.scanned_end()[0]

    def scanned_end(self) -> tuple[int, int]:
        """The same, and the position of the end of the last whole batch. Errors: CorruptRecord."""
        offset, end = self.base_offset, self.offset_index.floor_position(self.size)
        for position, header in self.headers(end):
            offset, end = header.next_offset, position + header.size
        return offset, end

    # -- changing ----------------------------------------------------------------------------------

    def create_files(self) -> None:
        """Make the files of a new segment: the log and empty indexes, where tools look for them.

        Errors: OSError.
        """
        self.log.open()
        self.offset_index.save()
        self.time_index.save()

    def move_to(self, directory: str) -> None:
        """Note that the files are in another directory now, since it was renamed; open descriptors stay valid."""
        stem = stem_of(directory, self.base_offset)
        self.log.path = stem + LOG_SUFFIX
        for index in (self.loaded_offset_index, self.loaded_time_index, self._transaction_index):
            if index is not None:
                index.move_to(stem)

    def become_inactive(self) -> None:
        """Seal the segment at a roll: add the last time index entry, write index files, free memory. Errors: OSError."""
        if self._transaction_index is not None:
            self._transaction_index.save()
        self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        self.bytes_since_index_entry = 0
        self.offset_index.seal()
        self.time_index.seal()
        self._transaction_index = None

    def prepare_to_cut(self) -> None:
        """Read and open what `truncate_to` needs, since this may fail. Errors: OSError, CorruptIndex."""
        self.offset_index.load()
        self.time_index.load()
        self.transaction_index.entries()
        self.log.open()

    def truncate_to(self, offset: int) -> int:
        """Remove the batch that holds offset and all after it; return how many bytes were removed.

        Errors: as for `prepare_to_cut`, with nothing removed; OSError. Source: LogSegment.truncateTo.
        """
        self.prepare_to_cut()
        found = self.locate(offset)
        if found is None:
            return 0
        position = found[0]
        removed = self.size - position
        self.log.truncate(position)
        self.size = position
        self.bytes_since_index_entry = 0
        self.index_room = 0
        if position == 0:
            self.roll_timestamp = NEVER
        self.known_max_timestamp = UNKNOWN
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self.load_max_timestamp()
        return removed

    def release(self) -> None:
        """Close descriptors, and free whatever can be read again from files that are up to date."""
        self.log.close()
        if self.loaded_offset_index is not None and self.loaded_offset_index.is_saved:
            self.loaded_offset_index.close()
            self.loaded_offset_index = None
        if self.loaded_time_index is not None and self.loaded_time_index.is_saved:
            self.loaded_time_index.close()
            self.loaded_time_index = None

    def save_indexes(self) -> list[str]:
        """Write index entries that are in memory only; return the files that a flush must force."""
        if self._transaction_index is not None:
            self._transaction_index.save()
        indexes = (self.loaded_offset_index, self.loaded_time_index)
        written = [index.path for index in indexes if index is not None and index.save()]
        return [*written, self._stem + INDEX_SUFFIXES[2]]

    def index_largest_timestamp(self) -> None:
        """Add the last time index entry, from which an opened log takes its largest timestamp."""
        if self.known_max_timestamp != UNKNOWN and self.known_max_timestamp >= 0:
            self.time_index.maybe_append(self.known_max_timestamp, self.known_max_timestamp_offset)

    def index_paths(self) -> list[str]:
        """The index files that a sealed segment may have."""
        return [self._stem + suffix for suffix in INDEX_SUFFIXES]

    def mark_deleted(self) -> list[str]:
        """Rename the files to `.deleted`; return the new paths. Active readers can continue."""
        renamed = []
        self.close_files()
        for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
            path = self._stem + suffix
            try:
                self._layer.rename(path, path + DELETED_SUFFIX)
            except FileNotFoundError:
                continue
            renamed.append(path + DELETED_SUFFIX)
        return renamed

    def close_files(self) -> None:
        """Give all descriptors back, and write nothing: for files that go."""
        self.log.close()
        for index in (self.loaded_offset_index, self.loaded_time_index):
            if index is not None:
                index.close_file()

    def close(self) -> list[str]:
        """Write the last time index entry and the index files, and close descriptors.

        Shape: returns the index files that were written.
        """
        if self._transaction_index is not None:
            self._transaction_index.save()
        self.index_largest_timestamp()
        indexes = (self.loaded_offset_index, self.loaded_time_index)
        written = [index.path for index in indexes if index is not None and index.close()]
        self.log.close()
        return written
