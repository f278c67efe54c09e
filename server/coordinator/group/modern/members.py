"""The parts that members of consumer groups and share groups have in common. Source: ModernGroupMember, MemberState."""

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
    """How far a member has come toward its target; the number is the stored form.

    STABLE: it has its target assignment for its epoch. UNREVOKED_PARTITIONS: it has to give up some partitions first.
    UNRELEASED_PARTITIONS: other members still own partitions of its target. UNKNOWN: stored by a later release.
    Members of share groups are always STABLE.
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN
