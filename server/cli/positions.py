"""The start and end of `kwire consume`: an offset, a number of records from the end, or a time."""

from __future__ import annotations

import re
import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ..arguments import shown
from ..explain.asking import EARLIEST, LATEST
from .client import whole_number

Partition = tuple[str, int]
#: Returns the first offset at or after a Unix time in ms, or at EARLIEST or LATEST; partitions without one are omitted.
OffsetsAt = Callable[[Sequence[Partition], int], Mapping[Partition, int]]

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
WORDS = {
    "beginning": "beginning",
    "earliest": "beginning",
    "start": "beginning",
    "end": "end",
    "latest": "end",
}


class Position(NamedTuple):
    """A position in every partition. Exactly one field is set.

    Shape: `word` is beginning or end. Unit: `before_end` is a number of offsets, `time_ms` Unix time.
    """

    word: str | None = None
    offset: int | None = None
    before_end: int | None = None
    time_ms: int | None = None


def position(text: str) -> Position:
    """Parse beginning, end, N, -N, @MILLISECONDS, @2025-01-31T12:00:00 or @-15m. Errors: ArgumentTypeError."""
    if text in WORDS:
        return Position(word=WORDS[text])
    if re.fullmatch("[0-9]+", text):
        return Position(offset=whole_number(text))
    if re.fullmatch("-[0-9]+", text):
        return Position(before_end=whole_number(text[1:]))
    if text.startswith("@"):
        return Position(time_ms=moment(text[1:]))
    raise ArgumentTypeError(
        f"{shown(text)} is neither beginning, end, an offset, -N (the last N) nor @TIME"
    )


def moment(text: str) -> int:
    """Parse milliseconds since 1970, an ISO time or -15m. Errors: ArgumentTypeError."""
    ago = re.fullmatch("-([0-9]+)([smhd])", text)
    if ago:
        ago_ms = whole_number(ago[1]) * SECONDS[ago[2]] * 1000
        return max(int(time.time() * 1000) - ago_ms, 0)
    try:
        return time_of(text)
    except ArgumentTypeError:
        raise ArgumentTypeError(
            f"{shown(text)} is neither a time such as 2025-01-31T12:00:00, milliseconds since 1970, nor -15m"
        ) from None


def time_of(text: str) -> int:
    """Parse milliseconds since 1970, or an ISO time, in UTC unless it has a zone. Errors: ArgumentTypeError.

    Shape: the protocol gives a meaning to times before 1970, so that they are taken as 0.
    """
    if re.fullmatch("[0-9]+", text):
        return whole_number(text)
    from ..times import unix_ms

    try:
        return max(unix_ms(text), 0)
    except ValueError:
        raise ArgumentTypeError(
            f"{shown(text)} is not a time such as 2025-01-31T12:00:00"
        ) from None


def resolve(
    offsets_at: OffsetsAt, tps: Sequence[Partition], where: Position
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
