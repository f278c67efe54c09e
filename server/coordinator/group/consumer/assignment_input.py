"""What an assignor is given. Source: GroupSpec, SubscribedTopicDescriber."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from typing import NamedTuple, TypeVar

from ..modern.members import Partitions
from .group import SubscriptionType

T = TypeVar("T")

#: Work that yields between its steps and returns a T.
Steps = Generator[None, None, T]


class AssignedMember(NamedTuple):
    """A member: the topics that it reads, those that exist, and its present target."""

    instance_id: str | None
    topics: Collection[bytes]
    assignment: Partitions


class AssignmentInput(NamedTuple):
    """A group.

    Shape: `members` in the order in which they are served; `partitions` maps a topic to how many it has;
    `owners` is the present target by partition, also of members that have left.
    """

    members: Mapping[str, AssignedMember]
    subscription_type: SubscriptionType
    partitions: Mapping[bytes, int]
    owners: Mapping[bytes, Mapping[int, str]]
