"""Finds the file of a slice when a task gets to it, which may be long after planning.

Retention and compaction rename a segment to `.deleted` and remove it later; compaction replaces it. The
file's inode shows whether it is the one that was planned; if no file has that inode, the offsets are looked up again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from kwire.server.log.file_layer import FileLayer
from kwire.server.log.segment import DELETED_SUFFIX, LOG_SUFFIX, stem_of

from .damage import Damage
from .logs import PartitionLog
from .slices import OffsetSlice

#: While segments are swapped, there may be none for a moment; the next attempt may find it.
_TRIES = 20
_PAUSE_S = 0.05


@contextmanager
def opened(cut: OffsetSlice) -> Iterator[tuple[int, str] | None]:
    """The planned file, open, and its path; None if it is gone."""
    path = stem_of(cut.directory, cut.base_offset) + LOG_SUFFIX
    for candidate in (path, path + DELETED_SUFFIX):
        try:
            descriptor = os.open(candidate, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            if os.fstat(descriptor).st_ino == cut.inode:
                yield descriptor, candidate
                return
        finally:
            os.close(descriptor)
    yield None


def found_again(cut: OffsetSlice, damage: Damage) -> list[OffsetSlice]:
    """Slices with the same offsets in the files that are there now.

    Errors: SegmentError for offsets that retention has deleted since, unless data loss is accepted.
    """
    for _ in range(_TRIES):
        try:
            log = PartitionLog(FileLayer(), cut.directory, cut.topic, cut.partition)
        except FileNotFoundError:
            damage.missing(cut.start, "the partition was deleted while it was read")
            return []
        if log.files:
            if log.log_start_offset > cut.start:
                damage.missing(
                    cut.start,
                    f"it was deleted by retention while it was read; the log begins at {log.log_start_offset} now",
                )
            if log.files[0].base_offset <= max(cut.start, log.log_start_offset):
                start = max(cut.start, log.log_start_offset)
                slices = log.slices(start, cut.end, 1 << 62, committed=False)
                return [replace(piece, aborted=cut.aborted) for piece in slices]
        time.sleep(_PAUSE_S)
    damage.missing(cut.start, "its segment vanished while it was read")
    return []
