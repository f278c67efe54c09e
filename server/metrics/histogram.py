"""Distributions of durations: fixed buckets, and quantiles of the last minutes.

Apache Kafka keeps a sample of the values of the last five minutes and sorts it for each query. Here, the bounds of the
buckets grow by a factor of 2^(1/4). Their memory does not depend on the counted values, and quantiles are within a
tenth of the exact value.
"""

from __future__ import annotations

from bisect import bisect_left

#: Upper bounds, inclusive. Unit: microseconds, 8 us to 1,000 s; the last bucket has no bound.
BOUNDS_US = tuple(round(8 * 2 ** (k / 4)) for k in range(109))
#: The minimum time for which a value counts: quantiles cover the last one to two windows.
WINDOW_MS = 150_000


class Histogram:
    """Counts durations. Shape: `recent` and `before` are the windows, `older` has the counts of earlier ones."""

    __slots__ = ("before", "began_ms", "older", "recent", "sum_us")

    def __init__(self) -> None:
        self.recent = [0] * (len(BOUNDS_US) + 1)
        self.before = [0] * (len(BOUNDS_US) + 1)
        self.older = [0] * (len(BOUNDS_US) + 1)
        self.began_ms = 0
        self.sum_us = 0

    def add(self, us: int, weight: int = 1) -> None:
        """Count a duration on behalf of `weight` requests."""
        self.recent[bisect_left(BOUNDS_US, us)] += weight
        self.sum_us += us * weight

    def roll(self, now_ms: int) -> None:
        """Begin the next window if this one is over."""
        if now_ms - self.began_ms >= WINDOW_MS:
            self.began_ms = now_ms
            self.older = [old + new for old, new in zip(self.older, self.before, strict=True)]
            self.before, self.recent = self.recent, [0] * len(self.recent)

    def window(self) -> list[int]:
        """The counts of the last minutes, by bucket."""
        return [a + b for a, b in zip(self.recent, self.before, strict=True)]

    def total(self) -> list[int]:
        """The counts since the beginning, by bucket."""
        return [a + b for a, b in zip(self.window(), self.older, strict=True)]


def quantile_us(counts: list[int], q: float) -> float:
    """The value below which a fraction `q` of the counted durations lies; 0 if there are none.

    Shape: the values within a bucket are assumed to be evenly distributed; those in the first bucket count as 0.
    """
    total = sum(counts)
    if not total:
        return 0.0
    wanted = q * total
    seen = 0
    for number, count in enumerate(counts):
        if count and seen + count >= wanted:
            if not number:
                return 0.0
            low = BOUNDS_US[number - 1]
            high = BOUNDS_US[min(number, len(BOUNDS_US) - 1)]
            return low + (high - low) * (wanted - seen) / count
        seen += count
    return float(BOUNDS_US[-1])


def merged(histograms: list[list[int]]) -> list[int]:
    """The combined counts of several histograms."""
    return [sum(each) for each in zip(*histograms, strict=True)]
