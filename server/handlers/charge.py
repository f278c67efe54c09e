"""The cost of a request, in bytes and in time of the loop."""

from __future__ import annotations


class Charge:
    """The cost of one request so far, while any quota is set.

    Shape: `throttle_ms` is the throttle time of a handler that computes it itself, request quota included; otherwise
    the gate computes it. Until `throttled_until_ms`, by the monotonic clock, the client is throttled for changes that
    it has made in the cluster.
    Unit: `size` is in bytes; `used_us` is the loop's time up to `since_us`, from which it continues to count.
    """

    __slots__ = ("since_us", "size", "throttle_ms", "throttled_until_ms", "used_us")

    def __init__(self, size: int, now_us: int) -> None:
        self.size = size
        self.used_us = 0
        self.since_us: int | None = now_us
        self.throttle_ms: int | None = None
        self.throttled_until_ms = 0

    def stop(self, now_us: int) -> None:
        """The request waits, or others have their turn."""
        if self.since_us is not None:
            self.used_us += now_us - self.since_us
            self.since_us = None

    def go_on(self, now_us: int) -> None:
        """The loop works for the request again."""
        self.stop(now_us)
        self.since_us = now_us
