"""The bound on the memory of batches that wait to be appended. Pure."""

from __future__ import annotations

from collections.abc import Hashable

DEFAULT_MAX_BYTES = 128 * 1024 * 1024


class AppendMemory:
    """Counts the waiting bytes by client.

    Shape: up to `max_bytes`, every client may wait. Beyond that, only clients with less than an equal share may, so
    that one client does not shut out the others.
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

    def give_back(self, client: Hashable, size: int) -> None:
        """Release the memory of a batch that no longer waits."""
        left = self._by_client.get(client, 0) - size
        if left:
            self._by_client[client] = left
        else:
            self._by_client.pop(client, None)
        self.total -= size
