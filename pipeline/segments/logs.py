"""The partitions of log directories as they are on disk: segments, offsets, times, transactions.

Nothing is written, and a broker may be running meanwhile: what counts is what it has committed according to its
`replication-offset-checkpoint`. A directory without that file is a copy, and is read to its last whole valid batch.
"""

from __future__ import annotations

import glob
import os
import stat
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from kwire.errors import RecordError
from kwire.records.batch import BatchHeader, RecordBatch
from kwire.server.log.checkpoint import (
    HIGH_WATERMARK,
    LOG_START_OFFSET,
    CorruptCheckpoint,
    read_offsets,
)
from kwire.server.log.file_layer import FileLayer
from kwire.server.log.index.transaction_index import CorruptIndex
from kwire.server.log.meta_properties import CorruptMetaProperties, read_topic_id
from kwire.server.log.producer_state import SNAPSHOT_SUFFIX, CorruptSnapshot, parse_snapshot
from kwire.server.log.segment import LOG_SUFFIX, LogSegment, offset_of
from kwire.server.log.stored_logs import logs_at
from kwire.types import uuid_to_str

from .errors import SegmentError
from .slices import Aborted, OffsetSlice

#: Suffix of a segment whose files compaction is about to rename.
_SWAP_SUFFIX = f"{LOG_SUFFIX}.swap"
_TRIES = 40
_PAUSE_S = 0.05


class ListedSegment(NamedTuple):
    """A segment as it was listed."""

    base_offset: int
    size: int
    inode: int


class Checkpoints:
    """The content of the checkpoint files of a log directory.

    Read them before listing files: everything committed by then is in the files that are listed.
    """

    def __init__(self, layer: FileLayer, log_dir: Path) -> None:
        self.is_live = (log_dir / HIGH_WATERMARK).exists()
        self._committed = _checkpoint(layer, log_dir, HIGH_WATERMARK)
        self._starts = _checkpoint(layer, log_dir, LOG_START_OFFSET)

    def committed(self, topic: str, partition: int) -> int:
        """The high watermark; for a partition too new to be in the file, nothing is known to be committed."""
        return self._committed.get((topic, partition), 0)

    def start(self, topic: str, partition: int) -> int:
        """The log start offset, if it is within a segment."""
        return self._starts.get((topic, partition), 0)


class Memory:
    """The state of one partition, kept for the next listing: a stream lists it at each trigger.

    The indexes of a broker's newest segment may be only in the broker's memory; without this, all headers of that
    segment would be read each time.
    """

    def __init__(self) -> None:
        self.start: tuple[int, int, int, int] | None = None
        """Where the last slice began: segment, its inode, offset, position."""
        self.stable: tuple[int, dict[int, int]] | None = None
        """The offset up to which transactions were followed, and those open there: producer id -> first offset."""


class PartitionLog:
    """One partition's directory, as of its listing."""

    def __init__(
        self,
        layer: FileLayer,
        directory: str,
        topic: str,
        partition: int,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.directory = directory
        self._layer = layer
        self.memory = Memory()
        checkpoints = checkpoints or Checkpoints(layer, Path(directory).parent)
        self.files, self._snapshots = self._listed()
        self._bases = [file.base_offset for file in self.files]
        first = self.files[0].base_offset if self.files else 0
        self.log_start_offset = max(first, checkpoints.start(topic, partition))
        self._is_live = checkpoints.is_live
        self._committed = max(checkpoints.committed(topic, partition), self.log_start_offset)

    def _listed(self) -> tuple[list[ListedSegment], list[int]]:
        """Segments, and offsets of producer snapshots.

        A listing made while files are renamed may lack both the old and the new names, so it counts only if the next one is
        the same. Errors: SegmentError if a swap of segments was begun and does not end.
        """
        before: list[tuple[int, int]] | None = None
        for _ in range(_TRIES):
            paths = list(Path(self.directory).iterdir())
            files = sorted(_segment_files(paths))
            swapping = any(path.name.endswith(_SWAP_SUFFIX) for path in paths)
            bases = [(file.base_offset, file.inode) for file in files]
            if not swapping and before is not None and bases == before:
                snapshots = (offset_of(p.name) for p in paths if p.suffix == SNAPSHOT_SUFFIX)
                return files, sorted(offset for offset in snapshots if offset is not None)
            if swapping or before is not None:
                time.sleep(_PAUSE_S)
            before = bases
        if swapping:
            raise SegmentError(
                f"{self}: a swap of segments is not finished in {self.directory}; a broker that opens it finishes it"
            )
        raise SegmentError(f"{self}: {self.directory} keeps changing")

    def __str__(self) -> str:
        return f"topic {self.topic} partition {self.partition}"

    def segment(self, number: int) -> LogSegment:
        """The segment with that number, for lookups."""
        file = self.files[number]
        return LogSegment(self._layer, self.directory, file.base_offset, file.size, created_ms=0)

    # -- offsets -----------------------------------------------------------------------------------

    @cached_property
    def high_watermark(self) -> int:
        """The offset after the last record that can be read."""
        if self._is_live or not self.files:
            return self._committed
        return max(self._valid_end(), self._committed)

    def _valid_end(self) -> int:
        segment = self.segment(-1)
        starts = {max(segment.offset_index.floor_position(segment.size), 0), 0}
        for start in sorted(starts, reverse=True):
            found: int = segment.base_offset
            try:
                for position, header in segment.headers(start):
                    batch = RecordBatch(segment.log.read_at(header.size, position))
                    try:
                        batch.verify_crc()
                    except RecordError:
                        continue
                    found = header.next_offset
            except RecordError:
                pass
            if found > segment.base_offset:
                return found
        return self.files[-1].base_offset

    def _number_of(self, offset: int) -> int:
        """The number of the segment that has the offset, or would have it."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def headers(self, offset: int, end: int) -> Iterator[BatchHeader]:
        """Yield the headers of the batches between two offsets. Errors: SegmentError for damage."""
        for number in range(self._number_of(offset), len(self.files)):
            segment = self.segment(number)
            if segment.base_offset >= end:
                return
            position = self._sound(segment, segment.offset_index.lookup(offset), offset)
            try:
                for _, header in segment.headers(position):
                    if header.base_offset >= end:
                        return
                    if header.last_offset >= offset:
                        yield header
                    if header.next_offset >= end:
                        return
            except RecordError as error:
                raise SegmentError(f"{self}: {segment.log.path}: {error}") from error

    @staticmethod
    def _sound(segment: LogSegment, position: int, offset: int) -> int:
        """The position, or 0 if no batch at or before the offset begins there: after a crash, indexes can be wrong."""
        if 0 < position < segment.size:
            try:
                for _, header in segment.headers(position):
                    if segment.base_offset <= header.base_offset <= offset:
                        return position
                    break
            except RecordError:
                pass
        return 0

    def offset_at(self, timestamp_ms: int) -> int | None:
        """The offset of the first record, from the log's start on, that is not older; None if there is none.

        Source: UnifiedLog.fetchOffsetByTimestamp.
        """
        for number in range(len(self.files)):
            segment = self.segment(number)
            times = segment.time_index
            sealed = number < len(self.files) - 1
            if sealed and len(times) and times.last()[0] < timestamp_ms:
                continue
            offset = times.lookup(timestamp_ms)
            position = self._sound(segment, segment.offset_index.lookup(offset), offset)
            found = self._first_not_older(segment, position, timestamp_ms)
            if found is not None:
                return found if found < self.high_watermark else None
        return None

    def _first_not_older(self, segment: LogSegment, position: int, timestamp_ms: int) -> int | None:
        end = self.high_watermark
        try:
            for at, header in segment.headers(position):
                if header.base_offset >= end:
                    return None
                if header.max_timestamp >= timestamp_ms:
                    batch = RecordBatch(segment.log.read_at(header.size, at))
                    for record in batch.records():
                        if (
                            record.timestamp >= timestamp_ms
                            and record.offset >= self.log_start_offset
                        ):
                            return record.offset
                if header.next_offset >= end:
                    return None
        except RecordError as error:
            raise SegmentError(f"{self}: {segment.log.path}: {error}") from error
        return None

    # -- transactions ------------------------------------------------------------------------------

    @cached_property
    def last_stable_offset(self) -> int:
        """The offset before which every transaction has ended."""
        end = self.high_watermark
        known = self.memory.stable
        if known is not None and known[0] <= end:
            start, ongoing = known[0], dict(known[1])
        else:
            start, ongoing = self._ongoing_by_snapshot(end)
        try:
            for header in self.headers(start, end) if self.files else ():
                if not header.is_transactional:
                    continue
                if header.is_control:
                    ongoing.pop(header.producer_id, None)
                else:
                    ongoing.setdefault(header.producer_id, header.base_offset)
        except SegmentError as error:
            # Even with corrupt=skip, because the lost bytes may contain the end of a transaction.
            raise SegmentError(
                f"{error}; therefore it is unknown which transactions are open (isolation=read_uncommitted does not need this)"
            ) from error
        self.memory.stable = (end, ongoing)
        return min(ongoing.values(), default=end)

    def _ongoing_by_snapshot(self, end: int) -> tuple[int, dict[int, int]]:
        """The offset from which to read batches, and producer id -> first offset of transactions open there."""
        for offset in reversed([offset for offset in self._snapshots if offset <= end]):
            try:
                data = self._layer.read_file(f"{self.directory}/{offset:020d}{SNAPSHOT_SUFFIX}")
                entries = parse_snapshot(data)
            except (CorruptSnapshot, FileNotFoundError):
                continue
            return offset, {
                entry.producer_id: entry.current_txn_first_offset
                for entry in entries
                if entry.current_txn_first_offset >= 0
            }
        return self.log_start_offset, {}

    @cached_property
    def _aborted(self) -> list[tuple[int, int, int]]:
        found = []
        for number in range(len(self.files)):
            segment = self.segment(number)
            try:
                entries = segment.transaction_index.entries()
            except CorruptIndex as error:
                raise SegmentError(
                    f"{self}: cannot find out which transactions were aborted: {error}"
                ) from error
            found += [(e.producer_id, e.first_offset, e.last_offset) for e in entries]
        return found

    def aborted(self, start: int, end: int) -> Aborted:
        """The aborted transactions between two offsets."""
        found: Aborted = {}
        for producer_id, first, last in self._aborted:
            if last >= start and first < end:
                found.setdefault(producer_id, []).append((first, last))
        return found

    # -- slices ------------------------------------------------------------------------------------

    def slices(self, start: int, end: int, size: int, *, committed: bool) -> Iterator[OffsetSlice]:
        """Cut the records between two offsets into pieces of about `size` bytes, within segments."""
        if start >= end or not self.files:
            return
        for number in range(self._number_of(start), len(self.files)):
            file = self.files[number]
            newest = number == len(self.files) - 1
            if file.base_offset >= end:
                return
            if not newest and self.files[number + 1].base_offset <= start:
                continue
            following = None if newest else self.files[number + 1].base_offset
            pieces = list(self._pieces(number, start, end, size))
            for piece, (position, limit, first, after) in enumerate(pieces):
                yield OffsetSlice(
                    self.topic,
                    self.partition,
                    self.directory,
                    file.base_offset,
                    file.inode,
                    position,
                    limit,
                    first,
                    after,
                    newest and piece == len(pieces) - 1,
                    self.aborted(first, after) if committed else {},
                    following if limit is None else after,
                )

    def _pieces(
        self, number: int, start: int, end: int, size: int
    ) -> Iterator[tuple[int, int | None, int, int]]:
        """Yield (position, limit, first offset, offset after the last) of each piece of a segment."""
        segment = self.segment(number)
        after = end
        if number + 1 < len(self.files):
            after = min(end, self.files[number + 1].base_offset)
        offset = max(start, segment.base_offset)
        position = self._position(segment, self.files[number].inode, offset)
        while True:
            cut, base = self._boundary(segment, position, size)
            if cut <= position or not offset < base < after:
                yield position, None, offset, after
                return
            yield position, cut, offset, base
            position, offset = cut, base

    def _position(self, segment: LogSegment, inode: int, offset: int) -> int:
        """The position of the batch that contains the offset, or of the next one; if damage hides it, an earlier position."""
        position = self._sound(segment, segment.offset_index.lookup(offset), offset)
        known = self.memory.start
        if known is not None and known[:2] == (segment.base_offset, inode) and known[2] <= offset:
            position = max(position, known[3])
        lowest = segment.base_offset
        try:
            for at, header in segment.headers(position):
                position = at
                if header.last_offset >= offset or header.base_offset < lowest:
                    break
                lowest = header.next_offset
        except RecordError:
            return position
        self.memory.start = (segment.base_offset, inode, offset, position)
        return position

    def _boundary(self, segment: LogSegment, position: int, size: int) -> tuple[int, int]:
        """The position of a batch about `size` bytes after a position, and its base offset."""
        if segment.size - position <= size * 3 // 2:
            return position, -1
        cut, base, length = segment.boundary(position, position + size)
        if cut == position and length:
            cut, base, length = segment.boundary(position, position + length)
        return (cut, base) if length else (position, -1)


def _segment_files(paths: list[Path]) -> Iterator[ListedSegment]:
    for path in paths:
        base_offset = offset_of(path.name)
        if base_offset is None or path.suffix != LOG_SUFFIX:
            continue
        try:
            status = path.stat()
        except FileNotFoundError:
            if path.is_symlink():
                raise SegmentError(f"{path} is a symbolic link to a file that is gone") from None
            continue
        except OSError as error:  # a symbolic link to itself
            raise SegmentError(f"{path}: {error.strerror}") from error
        if not stat.S_ISREG(status.st_mode):
            raise SegmentError(f"{path} is not a file")
        yield ListedSegment(base_offset, status.st_size, status.st_ino)


def _checkpoint(layer: FileLayer, log_dir: Path, name: str) -> dict[tuple[str, int], int]:
    try:
        found: dict[tuple[str, int], int] = read_offsets(layer, str(log_dir / name))
    except CorruptCheckpoint as error:
        raise SegmentError(str(error)) from error
    return found


def topic_id(directory: str) -> str | None:
    """The id of a partition's topic as Kafka's tools write it; None for a directory from before 2.8, or an unreadable file."""
    try:
        found = read_topic_id(FileLayer(), directory)
    except CorruptMetaProperties:
        return None
    return None if found is None else uuid_to_str(found)


def find_logs(
    paths: Iterable[str], wants: Callable[[str], bool]
) -> dict[tuple[str, int], PartitionLog]:
    """The partitions below log directories, or the partition directories named; patterns as in glob.

    Shape: of several replicas of a partition, the one that has committed most. Errors: SegmentError if there is no such
    directory.
    """
    layer = FileLayer()
    found: dict[tuple[str, int], PartitionLog] = {}
    checkpoints: dict[Path, Checkpoints] = {}
    for directory in matching(paths):
        for (topic, partition), place in logs_at(directory).items():
            if not wants(topic):
                continue
            if place.parent not in checkpoints:
                checkpoints[place.parent] = Checkpoints(layer, place.parent)
            try:
                log = PartitionLog(layer, str(place), topic, partition, checkpoints[place.parent])
            except (FileNotFoundError, NotADirectoryError):
                continue  # deleted in the meantime
            other = found.get((topic, partition))
            if other is None or other.high_watermark < log.high_watermark:
                found[topic, partition] = log
    return dict(sorted(found.items()))


def matching(paths: Iterable[str]) -> Iterator[Path]:
    """The directories that paths name, or patterns as in glob. Errors: SegmentError for one that matches none."""
    for path in paths:
        pattern = path.removeprefix("file://").removeprefix("file:")
        matching = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]  # noqa: PTH207 - absolute ones too
        directories = [Path(match).absolute() for match in matching if Path(match).is_dir()]
        if not directories:
            raise SegmentError(f"{path} is not a directory on {os.uname().nodename}")
        yield from directories
