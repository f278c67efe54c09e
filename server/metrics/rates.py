"""Rates over about the last half minute, from totals that are read at each scrape."""

from __future__ import annotations

#: A rate is measured over at least this time, once there is so much.
WINDOW_MS = 30_000


class Rate:
    """How fast a total grows. Shape: two marks, at least a window apart once there is so much time."""

    __slots__ = ("_marks",)

    def __init__(self, now_ms: int, total: float) -> None:
        self._marks = [(now_ms, total)]

    def per_second(self, now_ms: int, total: float) -> float:
        """The rate since the older mark; 0 right at the beginning."""
        marks = self._marks
        if now_ms - marks[-1][0] >= WINDOW_MS:
            self._marks = marks = [marks[-1], (now_ms, total)]
        began_ms, began = marks[0]
        return (total - began) * 1000 / (now_ms - began_ms) if now_ms > began_ms else 0.0


class Rates:
    """Rates by any key. Shape: a total that is new is taken to have been 0 when the broker started."""

    def __init__(self, began_ms: int) -> None:
        self._began_ms = began_ms
        self._rates: dict[object, Rate] = {}

    def per_second(self, key: object, now_ms: int, total: float) -> float:
        """The rate of one total."""
        rate = self._rates.get(key)
        if rate is None:
            rate = self._rates[key] = Rate(self._began_ms, 0)
        return rate.per_second(now_ms, total)
