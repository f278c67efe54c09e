"""The rate of events, and the wait until a rate is within its bound; pure.

A rate is measured over samples of fixed length. The window reaches back to the start of the oldest sample that still
counts, but has at least the length of `samples - 1` whole samples even for a new client, so that a short burst is
allowed. Source: Rate, SampledStat, TokenBucket, QuotaUtils (3.9).
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

START, LAST, SUM = 0, 1, 2

#: Sums of fractions of tokens are not exact; only amounts below this count as missing tokens.
USED_UP = -1e-6


class Window(NamedTuple):
    """The window of a rate: the settings `quota.window.num` and `.size.seconds`."""

    samples: int = 11
    sample_ms: int = 1000

    @property
    def full_s(self) -> int:
        """The time that a client's burst may take, without the current sample."""
        return (self.samples - 1) * self.sample_ms // 1000


class SampledRate:
    """The sum of recent values, and the time in which they were recorded.

    Shape: a sample ends `sample_ms` after its first event. It counts until its **last** event is `samples` times
    `sample_ms` ago; one sample more than `samples` is kept for samples that overlap the window's start. Values are
    whole numbers, so that taking one back restores the exact sum.
    """

    __slots__ = ("_recent", "_sum", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        #: [start, last event, sum], in ascending order.
        self._recent: list[list[int]] = []
        self._sum = 0

    def record(self, value: int, now_ms: int) -> None:
        """Add a value, or take back one that was added at the same time."""
        recent = self._recent
        if recent and now_ms - recent[-1][START] < self._window.sample_ms:
            sample = recent[-1]
            sample[LAST] = now_ms
            sample[SUM] += value
        else:
            recent.append([now_ms, now_ms, value])
            if len(recent) > self._window.samples + 1:
                self._sum -= recent.pop(0)[SUM]
        self._sum += value

    def measure(self, now_ms: int) -> tuple[int, int]:
        """The sum of the samples that still count, and the length of their window in ms."""
        window, recent = self._window, self._recent
        expired_ms = now_ms - window.samples * window.sample_ms
        while recent and recent[0][LAST] <= expired_ms:
            self._sum -= recent.pop(0)[SUM]
        elapsed_ms = now_ms - recent[0][START] if recent else 0
        missing = window.samples - 1 - elapsed_ms // window.sample_ms
        if missing > 0:
            elapsed_ms += missing * window.sample_ms
        return self._sum, max(elapsed_ms, 1)


class RateSensor:
    """A rate with an upper bound. Unit: `bound` per second."""

    __slots__ = ("_rate", "bound", "used_ms")

    def __init__(self, bound: float, window: Window, now_ms: int) -> None:
        self.bound = bound
        self.used_ms = now_ms
        self._rate = SampledRate(window)

    def record(self, value: int, now_ms: int) -> int:
        """Add a value; return the wait in ms until the rate is within its bound again.

        Shape: with an observed rate O above the bound T over a window W, (O - T) / T x W. A bound of 0, for which this
        is infinite, and a negative bound result in one window; Apache Kafka does not throttle then.
        """
        self.used_ms = now_ms
        self._rate.record(value, now_ms)
        total, window_ms = self._rate.measure(now_ms)
        observed, bound = total * 1000 / window_ms, self.bound
        if observed <= bound:
            return 0
        if bound <= 0:
            return window_ms
        return whole_ms((observed - bound) / bound * window_ms)

    def take_back(self, value: int, now_ms: int) -> None:
        """Undo a record of the same time."""
        self._rate.record(-value, now_ms)


class TokenBucket:
    """A bucket that fills at `bound` tokens a second, up to a burst of one whole window; initially full.

    Shape: one operation may overdraw it; it is used up while it has fewer than 0 tokens.
    """

    __slots__ = ("_tokens", "_window_s", "bound", "used_ms")

    def __init__(self, bound: float, window: Window, now_ms: int) -> None:
        self.bound = bound
        self.used_ms = now_ms
        self._window_s = window.samples * window.sample_ms / 1000
        self._tokens = inf

    def record(self, value: float, now_ms: int) -> int:
        """Take tokens, even if there are not enough; return the time in ms until there are 0 again."""
        self._refill(now_ms)
        self._tokens -= value
        return self._wait_ms()

    def try_record(self, value: float, now_ms: int) -> int:
        """Take tokens unless the bucket is used up; return the time in ms for which it is used up, otherwise 0."""
        self._refill(now_ms)
        if self._tokens < USED_UP:
            return self._wait_ms()
        self._tokens -= value
        return 0

    def _refill(self, now_ms: int) -> None:
        bound = max(self.bound, 0)
        gained = bound * (now_ms - self.used_ms) / 1000
        self._tokens = min(bound * self._window_s, self._tokens + gained)
        self.used_ms = now_ms

    def _wait_ms(self) -> int:
        if self._tokens >= USED_UP:
            return 0
        if self.bound <= 0:
            return int(self._window_s * 1000)
        return max(1, whole_ms(-self._tokens / self.bound * 1000))


def whole_ms(ms: float) -> int:
    """Round like Java's Math.round, up to the maximum of a response (24 days)."""
    return int(min(ms + 0.5, 2**31 - 1))
