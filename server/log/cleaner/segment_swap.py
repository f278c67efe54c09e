"""Puts a compacted segment in the place of its sources, so that a crash at any step does no harm.

1. `.cleaned` becomes `.swap`, file by file. Until the last one, the sources are what counts: a
   `.swap` beside a `.cleaned` of the same base is thrown away at start.
2. The sources get `.deleted` behind their names. From here on the `.swap` files are what counts:
   at start, sources that are left in their range are removed and they are given their names.
3. `.swap` becomes the name. The `.deleted` files go after file.delete.delay.ms.

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
    """Swap the `.cleaned` segment at the first source's base offset in; it has so many bytes.

    Shape: sources are neighbours in log.segments, none of them active. Readers that hold a slice
    of them go on. Errors: OSError; the log must then be opened anew, and must not be used before.
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
    """Remove the `.cleaned` files of a group that is not wanted any more."""
    stem = stem_of(directory, base_offset)
    for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
        layer.unlink(stem + suffix + CLEANED_SUFFIX)
