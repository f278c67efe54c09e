"""The bound on the memory of batches that wait to be appended. Pure."""

from __future__ import annotations

from collections.abc import Hashable

DEFAULT_MAX_BYTES = 128 * 1024 * 1024


class AppendMemory:
    """Counts the waiting bytes by client.

    Shape: up to `max_bytes`, every client may wait. Beyond that, only clients with less than an equal share may, so
    that one client does not shut out the others. Long before that, clients that hold much should send no more.
    """

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self.total = 0
        self._by_client: dict[Hashable, int] = {}

    def take(self, client: Hashable, size: int, *, must: bool = False) -> bool:
        """Reserve memory for a batch; False if it may not wait.

        Shape: with `must`, memory is reserved in any case.
        """
        own = self._by_client.get(client, 0)
        if self.total + size > self.max_bytes and not must:
            clients = len(self._by_client) + (not own)
            if own + size > self.max_bytes // clients:
                return False
        self._by_client[client] = own + size
        self.total += size
        return True

    def is_pressed_by(self, client: Hashable) -> bool:
        """Whether a client should send no more: half of the memory is in use, and more than half of its equal share."""
        return self.total * 2 > self.max_bytes and self._shares(client) * 2 > self.max_bytes

    def is_eased_by(self, client: Hashable) -> bool:
        """Whether such a client may send again: a quarter of one or of the other is in use."""
        return self.total * 4 <= self.max_bytes or self._shares(client) * 4 <= self.max_bytes

    def _shares(self, client: Hashable) -> int:
        """What all clients would use together if each used as much as this one."""
        return self._by_client.get(client, 0) * len(self._by_client)

    def give_back(self, client: Hashable, size: int) -> None:
        """Release the memory of a batch that no longer waits."""
        left = self._by_client.get(client, 0) - size
        if left:
            self._by_client[client] = left
        else:
            self._by_client.pop(client, None)
        self.total -= size
