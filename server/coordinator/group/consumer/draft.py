"""The outcome of an operation on a consumer group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ..modern import draft as modern
from ..state import Group
from .group import ConsumerGroup
from .member import ConsumerGroupMember
from .records import ConsumerGroupRecord, MemberRecord


@dataclass(slots=True)
class ConsumerDraft(modern.Draft):
    """The outcome of an operation.

    Shape: `upgraded` is the classic group that becomes a consumer group. `downgraded` says that the group becomes a
    classic group; it is the reason for a rebalance, or "" if no rebalance is needed.
    """

    upgraded: Group | None = None
    downgraded: str | None = None

    def write_member(self, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
        """Store the subscription and identity of a member."""
        self.write(MemberRecord(group.group_id, member.member_id, member))

    def write(self, record: ConsumerGroupRecord) -> None:
        self.records.append(record)


class ResolveRegexes(NamedTuple):
    """The effect that regular expressions are matched against the names of all topics that the client may see."""

    group_id: str
    regexes: tuple[str, ...]
    may_describe: Callable[[str], bool]
    owner: object = None
