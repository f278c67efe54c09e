"""Positions in partitions, and the offsets that they are. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from .requests import EARLIEST, LATEST, Partition

#: Returns the first offset at or after a Unix time in ms, or at EARLIEST or LATEST; partitions without one are omitted.
OffsetsAt = Callable[[Sequence[Partition], int], Mapping[Partition, int]]


class StartPosition(NamedTuple):
    """A position in every partition. Exactly one field is set.

    Shape: `word` is beginning or end. Unit: `before_end` is a number of offsets, `time_ms` Unix time.
    """

    word: str | None = None
    offset: int | None = None
    before_end: int | None = None
    time_ms: int | None = None


def resolve(
    offsets_at: OffsetsAt, tps: Sequence[Partition], where: StartPosition
) -> dict[Partition, int]:
    """The offset of a position in each partition, within the partition's range.

    Shape: the offset of a time is that of the first record at or after it, or the end if there is none.
    """
    if where.word == "beginning":
        return dict(offsets_at(tps, EARLIEST))
    end = offsets_at(tps, LATEST)
    if where.word is not None:
        return dict(end)
    if where.time_ms is not None:
        later = offsets_at(tps, where.time_ms)
        return {tp: min(later.get(tp, end[tp]), end[tp]) for tp in tps}
    first = offsets_at(tps, EARLIEST)
    if where.before_end is not None:
        return {tp: max(end[tp] - where.before_end, first[tp]) for tp in tps}
    assert where.offset is not None
    return {tp: min(max(where.offset, first[tp]), end[tp]) for tp in tps}
