"""The committed state that consumer groups and share groups have in common. Source: ModernGroup."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Mapping
from enum import Enum
from sys import getsizeof
from typing import Generic, TypeVar

from ....shares import NOBODY
from ..counted import CountedGroup
from ..memory import GROUP_BYTES, GroupMemory
from ..offset_store import OffsetStore
from .members import Partitions

INITIAL_EPOCH = 1

#: The memory of a subscribed name apart from its characters: the entry of the member. Unit: bytes.
NAME_BYTES = 64

M = TypeVar("M")


class ModernGroup(CountedGroup, ABC, Generic[M]):
    """The hard state of a group, which changes only when records are replayed.

    Shape: `group_epoch` is the epoch of the members' subscriptions, `assignment_epoch` that of the target (-1 after its
    tombstone). The soft state is lost when the coordinator moves: `image_version` is the version of the image whose
    topics were last checked; `is_assigning` says that a target is being computed, and `promised_bytes` are counted for
    it meanwhile. `partition_bytes` are counted for targets and assignments.
    """

    is_dead = False

    #: The memory of a partition in a target, and again in an assignment. Unit: bytes.
    PARTITION_BYTES = 64

    def __init__(
        self, group_id: str, memory: GroupMemory | None = None, client: Hashable = NOBODY
    ) -> None:
        super().__init__(memory, client)
        self.group_id = group_id
        self.offsets = OffsetStore()
        self.group_epoch = INITIAL_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = INITIAL_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, M] = {}
        self.target: dict[str, Partitions] = {}
        self.image_version = -1
        self.is_assigning = False
        self.partition_bytes = 0
        self.promised_bytes = 0
        self._targeted = self._assigned = 0
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

    # Memory

    def count_partitions(self, targeted: int, assigned: int) -> None:
        """Count more partitions in targets and in assignments, or fewer if negative.

        Shape: a target counts twice, since members take it over later without asking for memory.
        """
        self._targeted += targeted
        self._assigned += assigned
        size = self.PARTITION_BYTES * (self._targeted + max(self._targeted, self._assigned))
        self.hold(size - self.partition_bytes)
        self.partition_bytes = size

    def more_for(self, partitions: int) -> int:
        """The additional memory that the group needs if its target has this many partitions."""
        return 2 * self.PARTITION_BYTES * partitions - self.partition_bytes - self.promised_bytes

    def promise(self, size: int) -> None:
        """Count memory for a target that is being computed; 0 when it is stored, or has failed."""
        self.hold(size - self.promised_bytes)
        self.promised_bytes = size

    def forget(self) -> None:
        """Stop counting memory for the group."""
        super().forget()
        self.promised_bytes = 0


def partition_count(partitions: Mapping[bytes, Collection[int]]) -> int:
    """The number of partitions of all topics."""
    return sum(len(some) for some in partitions.values())
