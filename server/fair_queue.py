"""A queue in which clients take turns; pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items by client: each `take` serves the next client in rotation, and the items of one client are in order.

    Shape: a client is the address of connections, or None for work of the broker itself.
    """

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: dict[Hashable, deque[T]] = {}

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._items)

    def __len__(self) -> int:
        return sum(len(items) for items in self._items.values())

    def put(self, client: Hashable, item: T) -> None:
        """Add an item behind the client's other items; a client without any comes behind the other clients."""
        items = self._items.get(client)
        if items is None:
            items = self._items[client] = deque()
        items.append(item)

    def take(self) -> tuple[Hashable, T]:
        """Remove the first item of the next client. Errors: StopIteration if nothing waits."""
        client = next(iter(self._items))
        items = self._items.pop(client)
        item = items.popleft()
        if items:
            self._items[client] = items  # behind all others
        return client, item

    def remove(self, client: Hashable, item: T) -> None:
        """Remove one of a client's items, if it still waits."""
        items = self._items.get(client)
        if items is not None and item in items:
            items.remove(item)
            if not items:
                del self._items[client]

    def take_all(self) -> list[T]:
        """Remove all items, in the order of `take`."""
        taken = []
        while self._items:
            taken.append(self.take()[1])
        return taken
