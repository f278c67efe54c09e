"""The input of an assignor. Source: GroupSpec, SubscribedTopicDescriber."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from typing import NamedTuple, TypeVar

from ..modern.members import Partitions
from .group import SubscriptionType

T = TypeVar("T")

#: Work that yields between its steps and returns a T.
Steps = Generator[None, None, T]


class AssignedMember(NamedTuple):
    """A member: the existing topics that it reads, and its present target."""

    instance_id: str | None
    topics: Collection[bytes]
    assignment: Partitions


class AssignmentInput(NamedTuple):
    """A group, as input of an assignor.

    Shape: `members` are in the order in which they are served; `partitions` maps a topic to its number of partitions;
    `owners` is the present target by partition, including members that have left.
    """

    members: Mapping[str, AssignedMember]
    subscription_type: SubscriptionType
    partitions: Mapping[bytes, int]
    owners: Mapping[bytes, Mapping[int, str]]
