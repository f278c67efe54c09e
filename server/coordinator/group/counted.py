"""A group whose memory is counted, for the client that it belongs to."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable

from ...shares import NOBODY
from .memory import GroupMemory
from .offset_store import OffsetStore


class CountedGroup:
    """What all kinds of groups count.

    Shape: `held_bytes` is the memory of the group and its members, without offsets; it is also counted in `memory`, for
    the client that the group belongs to.
    """

    __slots__ = ("client", "held_bytes", "memory", "offsets")

    offsets: OffsetStore

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the group has no members."""

    def __init__(self, memory: GroupMemory | None, client: Hashable = NOBODY) -> None:
        self.memory = memory or GroupMemory()
        self.client = client
        self.held_bytes = 0

    def hold(self, more: int) -> None:
        """Count more memory, or less if negative."""
        self.held_bytes += more
        self.memory.hold_members(self.client, more)

    def hold_offsets(self, before: int) -> None:
        """Count what has become of the memory of the group's offsets, which was `before`."""
        self.memory.hold_offsets(self.client, self.offsets.held_bytes - before)

    def used_by(self, client: Hashable) -> None:
        """Note that a client uses the group: it belongs to the client if it has no members, or belongs to nobody."""
        if self.user_after(client) is not self.client:
            self.give_to(client)

    def user_after(self, client: Hashable) -> Hashable:
        """The client that the group belongs to once `client` uses it."""
        return client if self.client is NOBODY or self.is_empty else self.client

    def give_to(self, client: Hashable) -> None:
        """Count the group for another client."""
        self.memory.move(self.client, client, self.held_bytes, self.offsets.held_bytes)
        self.client = client

    def forget(self) -> None:
        """Stop counting memory for the group."""
        self.memory.hold_offsets(self.client, -self.offsets.held_bytes)
        self.hold(-self.held_bytes)
