"""Rates over about the last half minute, from totals that each scrape reads."""

from __future__ import annotations

#: The minimum time over which a rate is measured, once the broker has run that long.
WINDOW_MS = 30_000


class Rate:
    """The rate at which a total grows. Shape: two marks, at least a window apart once enough time has passed."""

    __slots__ = ("_marks",)

    def __init__(self, now_ms: int, total: float) -> None:
        self._marks = [(now_ms, total)]

    def per_second(self, now_ms: int, total: float) -> float:
        """The rate since the older mark; 0 at the very beginning."""
        marks = self._marks
        if now_ms - marks[-1][0] >= WINDOW_MS:
            self._marks = marks = [marks[-1], (now_ms, total)]
        began_ms, began = marks[0]
        return (total - began) * 1000 / (now_ms - began_ms) if now_ms > began_ms else 0.0


class Rates:
    """Rates by any key. Shape: a new total is assumed to have been 0 when the broker started."""

    def __init__(self, began_ms: int) -> None:
        self._began_ms = began_ms
        self._rates: dict[object, Rate] = {}

    def per_second(self, key: object, now_ms: int, total: float) -> float:
        """The rate of one total."""
        rate = self._rates.get(key)
        if rate is None:
            rate = self._rates[key] = Rate(self._began_ms, 0)
        return rate.per_second(now_ms, total)
