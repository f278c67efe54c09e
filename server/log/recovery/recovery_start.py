"""Where to begin reading a segment after a crash: later than its first batch if its index is good.

Everything below the recovery point is on the device, including its index entries, because a flush
forces those too. So reading begins at the batch to which the last such entry points. The entries
are checked first, since an index file may have been in the middle of a rewrite when the power
failed: they must ascend, and the batch must be complete, with a valid CRC and an offset between the
entries.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from kwire.errors import CorruptRecord
from kwire.records.batch import batch_size, read_header, verify_crc
from kwire.records.layout import HEADER_SIZE

from ..index.offset_index import ENTRY as OFFSET_ENTRY
from ..index.time_index import ENTRY as TIME_ENTRY
from ..segment import LogSegment


class RecoveryStart(NamedTuple):
    """A batch boundary: the batch's position, its base offset and the offset in its index entry."""

    position: int
    base_offset: int
    entry_offset: int


def recovery_start(segment: LogSegment, recovery_point: int) -> RecoveryStart | None:
    """The last indexed batch below the recovery point; None if all of the segment must be read.

    Shape: the indexes are truncated after the batch's entry; if the result is None, their content
    is meaningless.
    """
    offset_index, time_index = segment.offset_index, segment.time_index
    offset_index.truncate_to(recovery_point)
    if not len(offset_index):
        return None
    entries = [(-1, 0), *OFFSET_ENTRY.iter_unpack(offset_index.content())]
    if not _ascend(entries):
        return None
    offset, position = offset_index.entry(len(offset_index) - 1)
    time_index.truncate_to(offset + 1)
    if not _ascend(list(TIME_ENTRY.iter_unpack(time_index.content()))):
        return None
    try:
        head = segment.log.read_at(HEADER_SIZE, position)
        size = batch_size(head, 0, segment.size - position) if len(head) == HEADER_SIZE else None
        if size is None:
            return None
        data = memoryview(segment.log.read_at(size, position))
        if len(data) < size:
            return None
        header = read_header(data, 0)
        verify_crc(data, 0, header)
    except CorruptRecord:
        return None
    if not segment.base_offset + entries[-2][0] < header.base_offset <= offset:
        return None
    if header.records_count and header.max_timestamp > time_index.last()[0]:
        return None  # entries are added to both indexes, so this time index is not the flushed one
    return RecoveryStart(position, header.base_offset, offset)


def _ascend(entries: list[tuple[int, int]]) -> bool:
    return all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries))
