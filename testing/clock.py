"""The verbs by which a test commands a broker's time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .durations import MAX_MS, Duration, to_ms

if TYPE_CHECKING:
    from .thread import LoopThread

#: A year of steps takes half a minute.
PATIENCE_S = 300.0
#: The last millisecond of 9999, which is the last year that dates have.
LATEST_MS = 253_402_300_799_999


class Clock:
    """The clock of one broker, or of one cluster.

    Shape: durations are strings such as "46s" and "1w", timedeltas, or numbers of seconds. The clock runs with the
    machine's until it is commanded. It drives everything that the broker decides by time: sessions, rebalances,
    retention, rolling of segments, compaction, transactions, producer ids, offsets. Clients' own timers stay in real
    time, and so does the time that a Fetch waits for records, unless `freeze` changes this.
    """

    def __init__(
        self, thread: LoopThread, keep_members: Callable[[], None], moved: Callable[[], None]
    ) -> None:
        self._thread = thread
        self._keep_members = keep_members
        self._moved = moved

    @property
    def is_frozen(self) -> bool:
        """Whether the time stands still."""
        return self._thread.loop.is_frozen

    def now_ms(self) -> int:
        """The broker's wall-clock time in ms since the Unix epoch."""
        return self._thread.clock.now_ms()

    def freeze(self, *, fetch_waits: bool = False) -> Frozen:
        """Stop the time until `resume`, or until the end of a `with` block.

        Shape: with `fetch_waits`, a Fetch that arrives in the meantime waits for records until the time is advanced;
        otherwise it waits in real time for as long as it requests.
        """

        async def freeze() -> None:
            self._thread.loop.freeze()
            self._thread.loop.command_fetches(fetch_waits)

        self._thread.call(freeze)
        return Frozen(self)

    def resume(self) -> None:
        """Let the time continue; does nothing if it is running."""

        async def resume() -> None:
            self._thread.loop.resume()
            self._thread.loop.command_fetches(False)

        self._thread.call(resume)

    def advance(self, duration: Duration, *, keep_members: bool = False) -> None:
        """Let a duration pass, through each of the broker's timers in order; a frozen clock stays frozen.

        Shape: returns when all due work is done. With `keep_members`, the members of consumer groups stay alive as if
        their heartbeats had arrived; otherwise members whose session ends are removed, because clients cannot send
        heartbeats in the meantime. Errors: ValueError for a negative duration, or one of more than ten years.
        """
        ms = to_ms(duration)
        if ms < 0:
            raise ValueError(
                f"time cannot be advanced by {duration!r}; to set the wall clock back, use jump()"
            )
        if ms > MAX_MS:
            raise ValueError(f"cannot advance by {duration!r}: ten years is the most")
        loop, keep = self._thread.loop, self._keep_members

        async def advance() -> None:
            was_frozen = loop.is_frozen
            loop.freeze()
            try:
                await loop.advance(ms / 1000, keep if keep_members else _nothing)
            finally:
                if not was_frozen:
                    loop.resume()

        self._thread.call(advance, PATIENCE_S)
        self._moved()

    def jump(self, duration: Duration) -> None:
        """Move the wall clock forward, or back if negative, as an operator or NTP does.

        Shape: no timer fires, because timers use the monotonic clock. Comparisons of timestamps see the new time.
        Errors: ValueError for a time before 1970 or after 9999.
        """
        ms = to_ms(duration)
        if not 0 <= self.now_ms() + ms <= LATEST_MS:
            raise ValueError(f"cannot jump by {duration!r}: time is from 1970 to 9999")

        async def jump() -> None:
            self._thread.clock.set_back_or_forward(ms)

        self._thread.call(jump)
        self._moved()


class Frozen:
    """Resumes the time at the end of a `with` block."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __enter__(self) -> Clock:
        return self._clock

    def __exit__(self, *_: object) -> None:
        self._clock.resume()


def _nothing() -> None:
    """Members have to look after themselves."""
