"""Durations as users write and read them."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(text: str) -> int:
    """`90s`, `15m`, `1h`, `7d` or `500ms` in milliseconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", text.strip())
    if found is None:
        raise ArgumentTypeError(f"{text!r} is not a duration such as 90s, 15m, 1h or 7d")
    return int(float(found.group(1)) * _UNITS[found.group(2)])


def shown(span_ms: int) -> str:
    """A duration in its two largest units, such as `3 h 20 min`."""
    seconds, ms = divmod(abs(span_ms), 1000)
    if seconds == 0:
        return f"{ms} ms"
    parts = []
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {unit}")
        if len(parts) == 2 or (parts and not count):
            break
    return " ".join(parts)
