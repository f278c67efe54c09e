"""The committed state that consumer groups and share groups have in common. Source: ModernGroup."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from enum import Enum
from sys import getsizeof
from typing import Generic, TypeVar

from ..memory import GROUP_BYTES, GroupMemory
from ..offset_store import OffsetStore
from .members import Partitions

INITIAL_EPOCH = 1

#: The memory of a subscribed name apart from its characters: the entry of the member. Unit: bytes.
NAME_BYTES = 64

M = TypeVar("M")


class ModernGroup(ABC, Generic[M]):
    """The hard state of a group, which changes only when records are replayed.

    Shape: `group_epoch` is the epoch of the members' subscriptions, `assignment_epoch` that of the target (-1 after its
    tombstone). The soft state is lost when the coordinator moves: `image_version` is the version of the image whose
    topics were last checked; `is_assigning` says that a target is being computed.
    """

    is_dead = False

    def __init__(self, group_id: str, memory: GroupMemory | None = None) -> None:
        self.group_id = group_id
        self.memory = memory or GroupMemory()
        self.held_bytes = 0
        self.offsets = OffsetStore()
        self.group_epoch = INITIAL_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = INITIAL_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, M] = {}
        self.target: dict[str, Partitions] = {}
        self.image_version = -1
        self.is_assigning = False
        self.hold(GROUP_BYTES + getsizeof(group_id))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.group_id!r}, {self.state.value}, "
            f"epoch={self.group_epoch}, members={len(self.members)})"
        )

    @property
    @abstractmethod
    def state(self) -> Enum:
        """The state of the group; the value is Kafka's name on the wire."""

    @property
    def is_empty(self) -> bool:
        return not self.members

    def hold(self, more: int) -> None:
        """Count more memory, or less if negative."""
        self.held_bytes += more
        self.memory.members += more

    def forget(self) -> None:
        """Stop counting memory for the group."""
        self.memory.offsets -= self.offsets.held_bytes
        self.hold(-self.held_bytes)


def partition_count(partitions: Mapping[bytes, Collection[int]]) -> int:
    """The number of partitions of all topics."""
    return sum(len(some) for some in partitions.values())
