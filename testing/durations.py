"""Durations as people write them: "46s", "15 min", "1w", a timedelta, or a number of seconds."""

from __future__ import annotations

import math
import re
from datetime import timedelta

from .nearest import nearest

#: Milliseconds in a unit.
UNITS = {
    "ms": 1,
    "s": 1000,
    "sec": 1000,
    "second": 1000,
    "seconds": 1000,
    "min": 60_000,
    "m": 60_000,
    "minute": 60_000,
    "minutes": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "hours": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "days": 86_400_000,
    "w": 604_800_000,
    "week": 604_800_000,
    "weeks": 604_800_000,
}
#: Ten years, by which the time can be moved at once: asyncio's timers end at some decades.
MAX_MS = 10 * 365 * 86_400_000
_FORM = re.compile(r"\s*(-?[0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*")

Duration = str | int | float | timedelta


def to_ms(duration: Duration) -> int:
    """Return a duration in milliseconds.

    Shape: a number is in seconds; a string is one number and one unit, with a minus in front if it is negative.
    Errors: ValueError or TypeError, which say what is accepted.
    """
    if isinstance(duration, timedelta):
        return round(duration.total_seconds() * 1000)
    if isinstance(duration, bool) or not isinstance(duration, int | float | str):
        raise TypeError(f"not a duration: {duration!r}")
    if not isinstance(duration, str):
        return _rounded(duration * 1000, duration)
    match = _FORM.fullmatch(duration)
    if match is None or match[2] not in UNITS:
        known = nearest(match[2], UNITS) if match else ""
        form = "; write a number and a unit (ms, s, min, h, d, w), such as '46s'"
        raise ValueError(f"not a duration: {duration!r}{known or form}")
    return _rounded(float(match[1]) * UNITS[match[2]], duration)


def _rounded(ms: float, duration: Duration) -> int:
    if not math.isfinite(ms):
        raise ValueError(f"not a duration: {duration!s:.60} is not finite")
    return round(ms)


def to_timedelta(duration: Duration) -> timedelta:
    """Return a duration as a timedelta. Shape and errors: as for `to_ms`."""
    return timedelta(milliseconds=to_ms(duration))
