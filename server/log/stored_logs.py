"""Reads log directories that another process may change meanwhile: their partitions, segments and batches.

Files are read, not mapped: a broker may truncate one (a follower, recovery after a crash), and an access to mapped bytes beyond
the end of a file kills the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kwire.errors import CorruptRecord
from kwire.records.batch import RecordBatch, batch_size
from kwire.records.layout import HEADER_SIZE

from ..metadata.topic_partition import TopicPartition
from .log_directory import parse_directory_name
from .segment import LOG_SUFFIX, offset_of

#: Bytes read at once, unless a batch is larger.
WINDOW = 1 << 20


def logs_in(directory: Path) -> dict[TopicPartition, Path]:
    """The logs in a log directory, by the names of their directories. Errors: OSError."""
    return {
        tp: path
        for path in sorted(directory.iterdir())
        if (tp := parse_directory_name(path.name)) is not None and path.is_dir()
    }


def logs_at(directory: Path) -> dict[TopicPartition, Path]:
    """The logs in a log directory, or the log whose directory it is. Errors: OSError."""
    own = parse_directory_name(directory.name)
    if own is not None and any(path.suffix == LOG_SUFFIX for path in directory.iterdir()):
        return {own: directory}
    return logs_in(directory)


def segment_files(log: Path, suffix: str = LOG_SUFFIX) -> list[Path]:
    """The segments of a log, the oldest first; without pipes of such a name, since reading one may never end. Errors: OSError."""
    return sorted(
        path
        for path in log.iterdir()
        if path.name.endswith(suffix) and offset_of(path.name) is not None and path.is_file()
    )


def stored_batches(path: Path) -> Iterator[tuple[int, RecordBatch]]:
    """Yield (position, batch) of each whole batch that the file has; what is appended later is left out.

    Shape: ends without an error before a batch that is cut short, also by a truncation meanwhile. Batches stay valid. Errors:
    CorruptRecord, with the position in the file, for a damaged header; OSError.
    """
    with path.open("rb", buffering=0) as file:
        end = os.fstat(file.fileno()).st_size
        position, wanted = 0, WINDOW
        while position < end:
            window = memoryview(_read(file.fileno(), min(wanted, end - position), position))
            if len(window) < min(wanted, end - position):
                end = position + len(window)
            at, wanted = 0, WINDOW
            while at < len(window):
                left = end - position - at
                if len(window) - at < min(HEADER_SIZE, left):
                    break
                try:
                    size = batch_size(window, at, at + left)
                    if size is None:
                        return
                    if size > len(window) - at:
                        wanted = max(size, WINDOW)
                        break
                    batch = RecordBatch(window, at)
                except CorruptRecord as error:
                    if error.offset >= 0:
                        error.offset += position
                    raise
                yield position + at, batch
                at += size
            position += at


def _read(descriptor: int, size: int, position: int) -> bytes:
    """The bytes at a position; fewer only at the end of the file."""
    parts = []
    while size and (data := os.pread(descriptor, size, position)):
        parts.append(data)
        size -= len(data)
        position += len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)
