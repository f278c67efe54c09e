"""A clock that a test moves by hand."""

from __future__ import annotations


class ManualClock:
    """Wall clock and monotonic clock in one number; `advance` moves it forward."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._now_ms

    def monotonic_us(self) -> int:
        return self._now_ms * 1000

    def advance(self, ms: int) -> int:
        """Move forward by `ms` and return the new time."""
        self._now_ms += ms
        return self._now_ms
