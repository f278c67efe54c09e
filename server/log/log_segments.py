"""The segments of one log, in order: creating, truncating and removing them. Source: LogSegments, LocalLog."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from .delayed_delete import DelayedDeletes
from .file_layer import FileLayer, OpenFile
from .reader import LogReader, floor_index
from .retention import SegmentInfo
from .segment import LogSegment


class LogSegments:
    """Segments by base offset, the last of them the active one; there is always one."""

    __slots__ = ("_deletes", "_directory", "_layer", "in_order", "reader")

    def __init__(
        self,
        layer: FileLayer,
        directory: str,
        segments: list[LogSegment],
        deletes: DelayedDeletes,
    ) -> None:
        self._layer = layer
        self._directory = directory
        self._deletes = deletes
        self.in_order = segments
        self.reader = LogReader(layer, segments)

    def move_to(self, directory: str) -> None:
        """Note that the log's directory was renamed."""
        self._directory = directory
        for segment in self.in_order:
            segment.move_to(directory)

    def from_offset(self, offset: int) -> list[LogSegment]:
        """The segment that holds an offset, or the first one, and all after it."""
        return self.in_order[max(floor_index(self.in_order, offset), 0) :]

    def begin(self, base_offset: int, now_ms: int) -> LogSegment:
        """Make a new active segment. Errors: OSError."""
        segment = LogSegment(
            self._layer, self._directory, base_offset, 0, created_ms=now_ms, new=True
        )
        segment.create_files()
        self.in_order.append(segment)
        return segment

    def prepare_to_cut(self, offset: int) -> None:
        """Read and open what `cut` needs first, since this may fail. Errors: OSError, CorruptIndex."""
        self.in_order[floor_index(self.in_order, offset)].prepare_to_cut()

    def cut(self, offset: int) -> LogSegment:
        """Remove everything from offset on, at once, on the device; return the active segment.

        Shape: offset is not below the first segment's. Errors: OSError.
        """
        self.reader.forget()
        keep = floor_index(self.in_order, offset) + 1
        self._remove(self.in_order[keep:])
        del self.in_order[keep:]
        segment = self.in_order[-1]
        if segment.truncate_to(offset):
            # At once, since a new segment may follow: after a crash, the removed part must not reappear before it.
            segment.log.sync()
            for path in segment.save_indexes():
                self._layer.sync_path(path)
        self._layer.sync_directory(self._directory)
        return segment

    def start_at(self, offset: int, now_ms: int) -> LogSegment:
        """Remove everything and start again at offset; return the active segment. Errors: OSError."""
        self.reader.forget()
        self._remove(self.in_order)
        self.in_order.clear()
        segment = self.begin(offset, now_ms)
        self._layer.sync_directory(self._directory)
        return segment

    def _remove(self, segments: list[LogSegment]) -> None:
        # Immediately: truncated data was never committed, and its file names may be needed again. The newest first: a
        # power cut in between must not leave a gap.
        for segment in reversed(segments):
            for path in segment.mark_deleted():
                self._layer.unlink(path)

    def take_first(self, count: int, due_ms: int) -> list[LogSegment]:
        """Remove the oldest segments; their files are deleted later. Errors: OSError."""
        taken = self.in_order[:count]
        del self.in_order[:count]
        self.reader.forget()
        for segment in taken:
            self._deletes.add_files(segment.mark_deleted(), due_ms)
        return taken

    def first_gap(self, offset: int, log_start_offset: int) -> tuple[int, int] | None:
        """The first gap in the offsets between segments, from the segment that holds offset on.

        Shape: (the exclusive end of the segment before the gap, the beginning of the next).
        """
        for segment, later in pairwise(self.from_offset(offset)):
            end_offset = segment.next_offset()
            if max(end_offset, log_start_offset) < later.base_offset:
                return end_offset, later.base_offset
        return None

    def infos(self, end_offset: int, *, times: bool) -> Iterator[SegmentInfo]:
        """Yield what retention needs, segment by segment: a largest timestamp may have to be read from an index."""
        segments = self.in_order
        last = len(segments) - 1
        for number, segment in enumerate(segments):
            end = end_offset if number == last else segments[number + 1].base_offset
            newest = segment.largest_timestamp if times else 0
            yield SegmentInfo(segment.size, end, newest, number == last)

    def unflushed(self, recovery_point: int, *, was_cut: bool) -> tuple[list[OpenFile], list[str]]:
        """Files above the recovery point, open and closed ones; writes the active segment's index entries.

        With these entries in the index files, recovery need not read below the recovery point.
        """
        files: list[OpenFile] = []
        paths: list[str] = []
        active = self.in_order[-1]
        # From the segment with the last record below it: that may have been sealed since.
        for segment in self.from_offset(recovery_point - 1):
            files.append(segment.log.open())
            if segment is active:
                paths += segment.save_indexes()
                if was_cut:
                    paths += segment.index_paths()  # they were written already
            else:
                paths += segment.index_paths()
        return files, paths

    def close(self) -> list[str]:
        """Write index files and close descriptors; return the files that were written."""
        self.reader.forget()
        return [path for segment in self.in_order for path in segment.close()]

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """`Log.aborted_transactions`. Source: LocalLog.collectAbortedTransactions."""
        found = []
        for segment in self.from_offset(start_offset):
            entries, complete = segment.transaction_index.collect(start_offset, end_offset)
            found += [(entry.producer_id, entry.first_offset) for entry in entries]
            if complete:
                break
        return found
