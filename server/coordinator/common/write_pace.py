"""How much small requests of one client may make the broker write; pure.

Some requests of a few bytes have much more written: the topics that an expression matches, the target assignment of a
member, all partitions of a transaction. A client may have BURST_BYTES written at once, and then BYTES_PER_SECOND;
beyond that it is told to retry such a request, and work that would write more for it is left to its next request. Small
writes, as most requests have them, do not count.
"""

from __future__ import annotations

from collections.abc import Hashable

from ...shares import NOBODY

BURST_BYTES = 32 * 1024 * 1024
BYTES_PER_SECOND = 2 * 1024 * 1024
#: What each write may have without being counted.
SMALL_BYTES = 4096

_BURST_MS = BURST_BYTES * 1000 // BYTES_PER_SECOND

#: The number of clients after which those whose writes no longer count are forgotten.
CLIENTS_KEPT = 1_000


class WritePace:
    """The account of what each client has had written lately.

    Shape: `_settled_ms` maps clients to the time at which nothing of it counts any longer.
    """

    __slots__ = ("_most", "_settled_ms")

    def __init__(self) -> None:
        self._settled_ms: dict[Hashable, float] = {}
        self._most = CLIENTS_KEPT

    def wrote(self, client: Hashable, size: int, now_ms: int) -> None:
        """Count bytes that were written for a client; those of NOBODY, for the broker itself, do not count."""
        if client == NOBODY or size <= SMALL_BYTES:
            return
        settled_ms = self._settled_ms
        counted = self.counted_ms(client, now_ms)
        settled_ms[client] = now_ms + counted + (size - SMALL_BYTES) * 1000 / BYTES_PER_SECOND
        if len(settled_ms) > self._most:
            self._settled_ms = {
                each: at for each, at in settled_ms.items() if self.counted_ms(each, now_ms)
            }
            self._most = max(CLIENTS_KEPT, 2 * len(self._settled_ms))

    def may_write(self, client: Hashable, now_ms: int) -> bool:
        """Whether more may be written for a client."""
        return client == NOBODY or self.counted_ms(client, now_ms) < _BURST_MS

    def counted_ms(self, client: Hashable, now_ms: int) -> float:
        """How long what was written for a client counts. A time far ahead is from before the clock was set back."""
        left = self._settled_ms.get(client, 0.0) - now_ms
        return left if 0 < left < 2 * _BURST_MS else 0.0
