"""Processes a slice in a Spark task: finds its file, reads it, and reports what was skipped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from .batch_rows import CHECKED_COLUMNS, BatchReader
from .damage import SHOW, Damage
from .files import found_again, opened
from .options import Options
from .pushdown import Pushed
from .records import SliceReader, WantedColumns
from .slices import OffsetSlice

#: How often the files of a slice may vanish while a task reads them.
_TRIES = 5
_NOTHING = Pushed()


def read(
    cut: OffsetSlice,
    options: Options,
    columns: tuple[str, ...],
    pushed: Pushed = _NOTHING,
    tries: int = _TRIES,
) -> Iterator[Any]:
    """Yield the slice's rows as Arrow batches, except those that filters leave out. Errors: SegmentError, OSError."""
    of_batches = options.rows == "batches"
    mode = options.corrupt
    if of_batches and not CHECKED_COLUMNS.isdisjoint(columns):
        mode = SHOW
    with opened(cut) as file:
        if file is not None:
            descriptor, path = file
            damage = Damage(cut, path, mode, options.fail_on_data_loss)
            wanted = WantedColumns(columns, options.check_crc, pushed)
            if of_batches:
                check = options.check_crc or mode == SHOW
                reader = BatchReader(descriptor, cut, wanted, damage)
                yield from reader.rows_of_batches(
                    path, check=check, control=options.include_control
                )
            else:
                _read_ahead(descriptor, cut)
                yield from SliceReader(descriptor, cut, wanted, damage).batches()
            damage.report()
            return
    damage = Damage(cut, cut.directory, mode, options.fail_on_data_loss)
    if not tries:
        damage.missing(cut.start, "its segment vanished again and again while it was read")
        return
    for piece in found_again(cut, damage):
        yield from read(piece, options, columns, pushed, tries - 1)


def _read_ahead(descriptor: int, cut: OffsetSlice) -> None:
    length = 0 if cut.limit is None else cut.limit - cut.position
    os.posix_fadvise(descriptor, cut.position, length, os.POSIX_FADV_SEQUENTIAL)
