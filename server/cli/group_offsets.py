"""The offsets of a group, according to its type: committed by members, or start offsets of a share group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from kwire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kwire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kwire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kwire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kwire.messages.offset_fetch import OffsetFetchRequest
from kwire.messages.share_group_describe import ShareGroupDescribeRequest

from ..client.asking import coordinator_of
from ..client.brokers import Brokers
from ..client.errors import Unavailable, Unreached
from ..client.requests import GROUP
from .brokers import check
from .client import CommandError
from .reset_target import Partition


class GroupOffsetCommands(Protocol):
    """The operations of `kwire groups` on the offsets of a group. Errors: CommandError, Unavailable."""

    #: Whether offsets can be removed for single partitions, or only for whole topics.
    by_partition: bool

    def stored(self) -> dict[Partition, int]:
        """The offset of each partition that has one."""

    def store(self, plan: Mapping[Partition, int]) -> dict[Partition, int]:
        """Set offsets; returns the error code of each."""

    def forget(self, tps: Iterable[Partition]) -> dict[str, int]:
        """Remove offsets; returns error codes by partition or topic, in words."""


def offsets_of(brokers: Brokers, group: str) -> GroupOffsetCommands:
    """The offsets of a group; an unknown group is treated as one with committed offsets. Errors: Unavailable."""
    try:
        broker = brokers.run(coordinator_of(GROUP, group))
    except Unavailable as error:
        if isinstance(error, Unreached):
            raise
        raise CommandError(f"{group}: {error}") from None
    try:
        described = brokers.ask(ShareGroupDescribeRequest(group_ids=[group]), broker)
    except Unavailable:
        return CommittedOffsets(brokers, group, broker)
    is_share = not described.groups[0].error_code
    return (StartOffsets if is_share else CommittedOffsets)(brokers, group, broker)


def by_topic(tps: Iterable[Partition]) -> dict[str, list[int]]:
    """Partition numbers by topic."""
    topics: dict[str, list[int]] = {}
    for topic, partition in tps:
        topics.setdefault(topic, []).append(partition)
    return topics


class CommittedOffsets:
    """For classic and consumer groups, set as a commit from outside the group."""

    by_partition = True

    def __init__(self, brokers: Brokers, group: str, broker: int) -> None:
        self._brokers = brokers
        self._group = group
        self._broker = broker

    def stored(self) -> dict[Partition, int]:
        """See GroupOffsetCommands."""
        request = OffsetFetchRequest(group_id=self._group, topics=None)
        response = self._brokers.ask(request, self._broker, 7)
        check(response.error_code, None, self._group)
        return {
            (topic.name, row.partition_index): row.committed_offset
            for topic in response.topics
            for row in topic.partitions
            if row.committed_offset >= 0
        }

    def store(self, plan: Mapping[Partition, int]) -> dict[Partition, int]:
        """See GroupOffsetCommands."""
        request = OffsetCommitRequest(
            group_id=self._group,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=number,
                            committed_offset=plan[topic, number],
                            committed_metadata="",
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(plan).items()
            ],
        )
        response = self._brokers.ask(request, self._broker, 7)
        return {
            (topic.name, row.partition_index): row.error_code
            for topic in response.topics
            for row in topic.partitions
        }

    def forget(self, tps: Iterable[Partition]) -> dict[str, int]:
        """See GroupOffsetCommands."""
        request = OffsetDeleteRequest(
            group_id=self._group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetDeleteRequestPartition(partition_index=each) for each in numbers
                    ],
                )
                for topic, numbers in by_topic(tps).items()
            ],
        )
        response = self._brokers.ask(request, self._broker)
        if response.error_code:
            return {self._group: response.error_code}
        return {
            f"{topic.name}-{row.partition_index}": row.error_code
            for topic in response.topics
            for row in topic.partitions
        }


class StartOffsets:
    """For share groups. Source: KIP-932."""

    by_partition = False

    def __init__(self, brokers: Brokers, group: str, broker: int) -> None:
        self._brokers = brokers
        self._group = group
        self._broker = broker

    def stored(self) -> dict[Partition, int]:
        """See GroupOffsetCommands."""
        wanted = DescribeShareGroupOffsetsRequestGroup(group_id=self._group, topics=None)
        request = DescribeShareGroupOffsetsRequest(groups=[wanted])
        row = self._brokers.ask(request, self._broker).groups[0]
        check(row.error_code, row.error_message, self._group)
        return {
            (topic.topic_name, part.partition_index): part.start_offset
            for topic in row.topics
            for part in topic.partitions
            if not part.error_code and part.start_offset >= 0
        }

    def store(self, plan: Mapping[Partition, int]) -> dict[Partition, int]:
        """See GroupOffsetCommands."""
        request = AlterShareGroupOffsetsRequest(
            group_id=self._group,
            topics=[
                AlterShareGroupOffsetsRequestTopic(
                    topic_name=topic,
                    partitions=[
                        AlterShareGroupOffsetsRequestPartition(
                            partition_index=number, start_offset=plan[topic, number]
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(plan).items()
            ],
        )
        response = self._brokers.ask(request, self._broker)
        if response.error_code:
            return dict.fromkeys(plan, response.error_code)
        return {
            (topic.topic_name, row.partition_index): row.error_code
            for topic in response.responses
            for row in topic.partitions
        }

    def forget(self, tps: Iterable[Partition]) -> dict[str, int]:
        """See GroupOffsetCommands."""
        request = DeleteShareGroupOffsetsRequest(
            group_id=self._group,
            topics=[
                DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in by_topic(tps)
            ],
        )
        response = self._brokers.ask(request, self._broker)
        if response.error_code:
            return {self._group: response.error_code}
        return {topic.topic_name: topic.error_code for topic in response.responses}
