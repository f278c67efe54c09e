"""The memory of a broker's groups, and its limits; pure.

Members (ids, metadata and assignments, including pending members) and stored offsets are counted separately. Stored
offsets are always loaded from the log; the limit applies to new ones. A group belongs to the client that made it, or
that was the first to join it while it was empty: what clients hold is divided as server/shares.py says, and the share
of one group is limited, too.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode

from ..common.account import Account
from ..common.write_pace import WritePace

if TYPE_CHECKING:
    from .config import GroupConfig

#: A group without members or offsets: the object, its tables and its entry in the shard.
GROUP_BYTES = 1500
#: A member without its strings and bytes: the object, its timer, and its places in the group's
#: tables.
MEMBER_BYTES = 1500
#: A member id that was given to a client: its entry and its deadline.
PENDING_BYTES = 250
#: A stored offset without its strings: key, value, topic id, position and entry.
OFFSET_BYTES = 550

#: One group may use at most this fraction (1/n) of the bound on members.
GROUP_PARTS = 4
#: Groups with more members than this are not small.
SMALL_GROUP_BYTES = 64 * 1024


class GroupMemory:
    """The accounts of all groups of a broker: their members, and their stored offsets.

    Shape: `pace` is the account of what was written for clients.
    """

    __slots__ = ("_members", "_offsets", "pace")

    def __init__(self) -> None:
        self.pace = WritePace()
        self._members = Account("groups", "kwire.group.members.max.bytes")
        self._offsets = Account("groups", "kwire.group.offsets.max.bytes")

    @property
    def members(self) -> int:
        """The memory of members and groups."""
        return self._members.used

    @property
    def offsets(self) -> int:
        """The memory of stored offsets."""
        return self._offsets.used

    def refuses_members(
        self, config: GroupConfig, client: Hashable, held: int, more: int
    ) -> ErrorCode:
        """The error if a client's group with `held` bytes may not have `more` bytes for members; otherwise NONE.

        Shape: GROUP_MAX_SIZE_REACHED if the group itself is too large, which clients report;
        COORDINATOR_LOAD_IN_PROGRESS if all groups together are too large, upon which clients try again.
        """
        if more > 0 and held + more > config.members_max_bytes // GROUP_PARTS:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        is_small = held + more <= SMALL_GROUP_BYTES
        return self._members.error(client, more, config.members_max_bytes, is_small=is_small)

    def refuses_assignment(
        self, config: GroupConfig, client: Hashable, held: int, more: int
    ) -> ErrorCode:
        """The same for what the broker keeps about topics that members read, however large the group is."""
        is_small = held + more <= SMALL_GROUP_BYTES
        return self._members.error(client, more, config.members_max_bytes, is_small=is_small)

    def refuses_offsets(self, config: GroupConfig, client: Hashable, more: int) -> ErrorCode:
        """The error if this many more bytes of offsets may not be stored: COORDINATOR_LOAD_IN_PROGRESS, as above."""
        is_small = more <= SMALL_GROUP_BYTES
        return self._offsets.error(client, more, config.offsets_max_bytes, is_small=is_small)

    def hold_members(self, client: Hashable, change: int) -> None:
        """Count more memory for the members of a client's group, or less if negative."""
        self._members.hold(client, change)

    def hold_offsets(self, client: Hashable, change: int) -> None:
        """The same for its offsets."""
        self._offsets.hold(client, change)

    def move(self, before: Hashable, after: Hashable, members: int, offsets: int) -> None:
        """Count a group for another client."""
        self._members.move(before, after, members)
        self._offsets.move(before, after, offsets)
