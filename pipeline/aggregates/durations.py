"""Lengths of time as options give them: `10 minutes`, `90s`, `250 ms`."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError

_NAMES_MS = {
    "millisecond": 1,
    "sec": 1_000,
    "second": 1_000,
    "min": 60_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
#: Unit -> milliseconds.
UNITS_MS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    **_NAMES_MS,
    **{f"{name}s": length for name, length in _NAMES_MS.items()},
}


def duration_ms(text: str) -> int:
    """Milliseconds; raises ArgumentTypeError for what is no length of time."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", text.lower())
    if found is None or found[2] not in UNITS_MS:
        raise ArgumentTypeError(f"{text!r} is no length of time such as '10 minutes', 90s or 250ms")
    return round(float(found[1]) * UNITS_MS[found[2]])


def positive_ms(text: str) -> int:
    """Milliseconds, at least one."""
    length = duration_ms(text)
    if length < 1:
        raise ArgumentTypeError(f"{text!r} is shorter than a millisecond")
    return length


def words(length_ms: int) -> str:
    """The same as Spark reads it."""
    return f"{length_ms} milliseconds"
