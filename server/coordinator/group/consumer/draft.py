"""What an operation on a consumer group works with, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ....metadata.image import MetadataImage
from ...result import Result
from ..config import GroupConfig
from ..memory import GroupMemory
from ..state import Group
from .group import ConsumerGroup
from .member import ConsumerGroupMember
from .records import ConsumerGroupRecord, MemberRecord
from .topic_hash import TopicHashes

Afterwards = Callable[[int, Result[Any]], None]
"""What follows when the records are committed, or at once if there are none: deadlines, other machines' work."""


class Client(NamedTuple):
    """Who sends a request: its version, and which topics it may know of."""

    client_id: str
    client_host: str
    version: int
    may_describe: Callable[[str], bool]


class GroupSettings(NamedTuple):
    """The settings that a group may have of its own. Unit: ms."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int

    @classmethod
    def of(cls, config: GroupConfig) -> GroupSettings:
        """Those of a group that has none of its own."""
        return cls(
            config.consumer_session_timeout_ms,
            config.consumer_heartbeat_interval_ms,
            config.consumer_assignment_interval_ms,
        )


class Surroundings(NamedTuple):
    """What an operation sees of the broker: the topics, the settings of the group, and the memory of all groups."""

    config: GroupConfig
    settings: GroupSettings
    image: MetadataImage
    hashes: TopicHashes
    now_ms: int
    memory: GroupMemory


@dataclass(slots=True)
class Draft:
    """The outcome of an operation.

    Shape: `records` are one batch; when they are committed, `answer` goes out, `deadlines` are set, and `effects`
    and `afterwards` follow. `upgraded` is the classic group that becomes a consumer group; `downgraded` says that it
    becomes a classic one, and why that has to rebalance, or "" if it has not to.
    """

    records: list[Any] = field(default_factory=list)
    answer: Any = None
    deadlines: list[Any] = field(default_factory=list)
    effects: list[Any] = field(default_factory=list)
    afterwards: list[Afterwards] = field(default_factory=list)
    upgraded: Group | None = None
    downgraded: str | None = None

    def write_member(self, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
        """Store what a member has said about itself."""
        self.write(MemberRecord(group.group_id, member.member_id, member))

    def write(self, record: ConsumerGroupRecord) -> None:
        self.records.append(record)


class AssignTarget(NamedTuple):
    """The effect that a target is computed in steps, because the group is large."""

    group_id: str
    epoch: int
    member_ids: list[str]
    steps: Generator[None, None, Any]


class ResolveRegexes(NamedTuple):
    """The effect that regular expressions are matched with the names of all topics that a client may know."""

    group_id: str
    regexes: tuple[str, ...]
    may_describe: Callable[[str], bool]
