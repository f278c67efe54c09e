"""Replaces segments by their compacted form, so that a crash at any step does no harm.

1. `.cleaned` is renamed to `.swap`, file by file. Until the last rename, the sources are valid: at
   the next start, a `.swap` file beside a `.cleaned` file of the same base offset is deleted.
2. The sources are renamed to `.deleted`. From here on, the `.swap` files are valid: at the next
   start, sources that are left in their range are removed and step 3 is done.
3. The suffix `.swap` is removed. The `.deleted` files are deleted after file.delete.delay.ms.

Source: LocalLog.replaceSegments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..recovery.loader import CLEANED_SUFFIX, SWAP_SUFFIX
from ..segment import INDEX_SUFFIXES, LOG_SUFFIX, LogSegment, stem_of

if TYPE_CHECKING:
    from ..file_layer import FileLayer
    from ..log import Log


def replace_segments(log: Log, sources: list[LogSegment], size: int, now_ms: int) -> None:
    """Put the `.cleaned` segment at the first source's base offset in place; `size` is its length.

    Shape: sources are adjacent in log.segments, and none is active. Readers that hold a slice of
    them can continue. Errors: OSError; the log must then be opened again before it is used.
    """
    layer = log.layer
    base_offset = sources[0].base_offset
    stem = stem_of(log.dir, base_offset)
    first = log.segments.index(sources[0])
    assert log.segments[first : first + len(sources)] == sources
    assert log.active_segment not in sources
    due_ms = now_ms + log.config.file_delete_delay_ms
    log.forget_positions()
    _rename_all(layer, stem, CLEANED_SUFFIX, SWAP_SUFFIX)
    for source in sources:
        log.deletes.add_files(source.mark_deleted(), due_ms)
    _rename_all(layer, stem, SWAP_SUFFIX, "")
    cleaned = LogSegment(layer, log.dir, base_offset, size, created_ms=sources[0].created_ms)
    log.segments[first : first + len(sources)] = [cleaned]
    # A snapshot belongs to the segment that begins there.
    log.snapshots.retire([source.base_offset for source in sources[1:]], log.deletes, due_ms)


def _rename_all(layer: FileLayer, stem: str, old: str, new: str) -> None:
    for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
        try:
            layer.rename(stem + suffix + old, stem + suffix + new)
        except FileNotFoundError:
            if suffix == LOG_SUFFIX:
                raise


def discard_cleaned(layer: FileLayer, directory: str, base_offset: int) -> None:
    """Remove the `.cleaned` files of a group that is no longer needed."""
    stem = stem_of(directory, base_offset)
    for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
        layer.unlink(stem + suffix + CLEANED_SUFFIX)
