"""The memory of a broker's groups, and its limits; pure.

Members (ids, metadata and assignments, including pending members) and stored offsets are counted separately. Stored
offsets are always loaded from the log; the limit applies to new ones. The share of one group is limited, and the last
quarter is reserved for small groups, so that one client with many large members does not lock out all others.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode

if TYPE_CHECKING:
    from .config import GroupConfig

logger = logging.getLogger(__name__)

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
#: Groups with more members than this share all of the bound but its last quarter.
SMALL_GROUP_BYTES = 64 * 1024


class GroupMemory:
    """The account of all groups of a broker. Unit: bytes, estimated."""

    __slots__ = ("_full", "members", "offsets")

    def __init__(self) -> None:
        self.members = 0
        self.offsets = 0
        self._full = False

    def refuses_members(self, config: GroupConfig, held: int, more: int) -> ErrorCode:
        """The error if a group with `held` bytes of members may not have `more` bytes; otherwise NONE.

        Shape: GROUP_MAX_SIZE_REACHED if the group itself is too large, which clients report;
        COORDINATOR_LOAD_IN_PROGRESS if all groups together are too large, upon which clients try again.
        """
        most = config.members_max_bytes
        if more <= 0:
            return ErrorCode.NONE
        if held + more > most // GROUP_PARTS:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if self.members + more > (most if held + more <= SMALL_GROUP_BYTES else most * 3 // 4):
            self._report("kwire.group.members.max.bytes", most)
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._full = False
        return ErrorCode.NONE

    def refuses_offsets(self, config: GroupConfig, more: int) -> ErrorCode:
        """The error if this many more bytes of offsets may not be stored: COORDINATOR_LOAD_IN_PROGRESS, as above."""
        if more <= 0 or self.offsets + more <= config.offsets_max_bytes:
            return ErrorCode.NONE
        self._report("kwire.group.offsets.max.bytes", config.offsets_max_bytes)
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def _report(self, setting: str, limit: int) -> None:
        """Log once that a limit is reached, until there is room again."""
        if not self._full:
            self._full = True
            logger.warning(
                "groups have reached %s=%d: requests that need more are refused, and clients retry",
                setting,
                limit,
            )
