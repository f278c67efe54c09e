"""The start and end of `kwire consume`: an offset, a number of records from the end, or a time."""

from __future__ import annotations

import re
import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ..explain.asking import EARLIEST, LATEST

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
        return Position(offset=int(text))
    if re.fullmatch("-[0-9]+", text):
        return Position(before_end=int(text[1:]))
    if text.startswith("@"):
        return Position(time_ms=unix_ms(text[1:]))
    raise ArgumentTypeError(
        f"{text!r} is neither beginning, end, an offset, -N (the last N) nor @TIME"
    )


def unix_ms(text: str) -> int:
    """Parse milliseconds since 1970, an ISO time (local unless it has a zone) or -15m. Errors: ArgumentTypeError."""
    if re.fullmatch("[0-9]+", text):
        return int(text)
    ago = re.fullmatch("-([0-9]+)([smhd])", text)
    if ago:
        return int((time.time() - int(ago[1]) * SECONDS[ago[2]]) * 1000)
    from datetime import datetime

    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise ArgumentTypeError(
            f"{text!r} is neither a time such as 2025-01-31T12:00:00, milliseconds since 1970, nor -15m"
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
