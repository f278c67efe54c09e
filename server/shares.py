"""The share of a bounded resource that each client may hold; pure.

A client is a principal, or the address of a client that has not logged in. It may hold at most a multiple of what is
left for all: the more is in use, the less a client that holds much may add, and a client that holds little is served
however much another one holds. With the multiple LARGE, one client alone may hold three quarters of the resource; with
SMALL, which is for requests that every client needs, seven eighths. The limit is never exceeded: a few clients that all
hold what they may leave little, so whoever can use many principals or addresses can still fill a resource.
"""

from __future__ import annotations

from collections.abc import Hashable

#: The multiple of what is left that a client may hold.
LARGE = 3
#: The same for requests that need little.
SMALL = 7

#: What was loaded from the log belongs to nobody, if the log does not say whose it is.
NOBODY: Hashable = None


class Shares:
    """What each client holds of one resource. Unit: that of the resource, such as bytes.

    Shape: `used` is what all clients hold together.
    """

    __slots__ = ("_held", "used")

    def __init__(self) -> None:
        self.used = 0
        self._held: dict[Hashable, int] = {}

    def of(self, client: Hashable) -> int:
        """What a client holds."""
        return self._held.get(client, 0)

    def refuses(self, client: Hashable, more: int, limit: int, times: int = LARGE) -> bool:
        """Whether a client may not have `more` of a resource of which there is `limit`."""
        left = limit - self.used - more
        return left < 0 or self._held.get(client, 0) + more > times * left

    def hold(self, client: Hashable, change: int) -> None:
        """Count what a client takes, or gives back if it is negative."""
        if not change:
            return
        self.used += change
        held = self._held.get(client, 0) + change
        if held:
            self._held[client] = held
        else:
            del self._held[client]

    def move(self, before: Hashable, after: Hashable, size: int) -> None:
        """Count what one client holds for another from now on."""
        if before != after:
            self.hold(before, -size)
            self.hold(after, size)

    def largest(self) -> Hashable:
        """The client that holds most; NOBODY if none holds anything."""
        return max(self._held, key=self._held.__getitem__, default=NOBODY)
