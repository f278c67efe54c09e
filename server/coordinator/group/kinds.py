"""The interface that all kinds of groups share; the rest of this folder uses groups only through it.

There are three kinds: classic groups (state.py, classic_groups.py), which include groups that only store offsets;
consumer groups (consumer/); and share groups (share/). A classic group may become a consumer group, and the reverse.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sized
from enum import Enum
from typing import Any, NamedTuple, Protocol

from kwire.errors import ErrorCode
from kwire.messages.heartbeat import HeartbeatRequest
from kwire.messages.leave_group import LeaveGroupRequest
from kwire.messages.sync_group import SyncGroupRequest

from ...metadata.topic_partition import TopicPartition
from ..common.result import Result
from .config import GroupConfig
from .memory import GroupMemory
from .offset_store import OffsetStore


class CommitSender(NamedTuple):
    """The sender of a commit, as the request describes it; `version` is that of the API."""

    generation_id: int
    member_id: str
    instance_id: str | None
    transactional: bool
    version: int


PartitionCheck = Callable[[bytes | None, int], ErrorCode]
"""Whether the sender may commit for a topic, by its id, and a partition."""


class AnyGroup(Protocol):
    """A group of any kind.

    Shape: `kind` and the value of `state` are the names on the wire. `keeps_offsets`: offsets can be committed for the
    group, which is removed when it has neither members nor offsets.
    """

    group_id: str
    memory: GroupMemory
    held_bytes: int
    offsets: OffsetStore

    @property
    def kind(self) -> str: ...

    @property
    def keeps_offsets(self) -> bool: ...

    @property
    def protocol_type(self) -> str | None: ...

    @property
    def state(self) -> Enum: ...

    @property
    def members(self) -> Sized: ...

    @property
    def is_empty(self) -> bool: ...

    @property
    def is_dead(self) -> bool: ...

    def validate_commit(self, sender: CommitSender) -> ErrorCode:
        """Check whether the sender may commit offsets."""
        ...

    def partition_check(self, sender: CommitSender) -> PartitionCheck | None:
        """Return the check for single partitions of a commit that is allowed as a whole; None if all are allowed."""
        ...

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Check whether a member may fetch offsets; an administrator has no id, and epoch -1."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, or may read it."""
        ...

    def expired_offsets(self, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """Return the partitions whose offsets have expired."""
        ...

    client: Hashable

    def used_by(self, client: Hashable) -> None:
        """Note that a client uses the group."""
        ...

    def give_to(self, client: Hashable) -> None:
        """Count the group for another client."""
        ...

    def hold_offsets(self, before: int) -> None:
        """Count what has become of the memory of the group's offsets, which was `before`."""
        ...

    def forget(self) -> None:
        """Stop counting memory for the group."""
        ...


class GroupRules(Protocol):
    """The operations on groups of one kind that members of the classic protocol can request."""

    def join_group(self, joining: Any, now_ms: int) -> Result[Any]: ...

    def sync_group(self, request: SyncGroupRequest, token: int, now_ms: int) -> Result[Any]: ...

    def heartbeat(self, request: HeartbeatRequest, token: int, now_ms: int) -> Result[Any]: ...

    def leave_group(self, request: LeaveGroupRequest, token: int, now_ms: int) -> Result[Any]: ...

    def delete_group(self, group_id: str, token: int, now_ms: int) -> Result[ErrorCode]: ...


class GroupHome(Protocol):
    """The shard, as the rules of one kind of groups see it."""

    config: GroupConfig
    memory: GroupMemory
    groups: dict[str, AnyGroup]

    def create(self, group_id: str, now_ms: int, account: Hashable = None) -> Any:
        """Create an empty classic group."""
        ...

    def forget(self, group_id: str) -> None:
        """Remove a group from memory."""
        ...

    def removed(
        self, group_ids: Iterable[str], error: ErrorCode, now_ms: int, out: Result[Any]
    ) -> None:
        """Forget dead groups whose tombstones are stored, and restore groups that still have stored state."""
        ...

    def drop_if_unused(self, group: AnyGroup, out: Result[Any]) -> None:
        """Forget a group that has no members and nothing in the log."""
        ...
