"""What members of consumer groups and of share groups have in common. Source: ModernGroupMember, MemberState."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

#: The epochs that a member sends to join and to leave.
JOIN_EPOCH = 0
LEAVE_EPOCH = -1

Partitions = Mapping[bytes, frozenset[int]]
"""Partitions by topic id."""

NO_PARTITIONS: Partitions = {}


class MemberState(IntEnum):
    """How far a member is on the way to its target; the number is the one stored.

    STABLE: it has what it is to have at its epoch. UNREVOKED_PARTITIONS: it has to give up some first.
    UNRELEASED_PARTITIONS: others have not given up all that it is to get. UNKNOWN: stored by a later release.
    Members of share groups are always STABLE.
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN
