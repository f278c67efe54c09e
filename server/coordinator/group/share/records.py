"""The records of share groups in __consumer_offsets, as values and as bytes.

    key type, group id and what follows                  value; null is a tombstone
    10    member id                                       what the member has said about itself
    11                                                    epoch of the group, hash of its topics' metadata
    12                                                    epoch and time of the target assignment
    13    member id                                       what the member is to have
    14    member id                                       what the member has, and at which epoch
    15                                                    partitions whose state is being made, is there, or goes

Key 9, of an early release, is not written by Apache Kafka 4. Source: GroupCoordinatorRecordHelpers,
CoordinatorRecordType.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from sys import intern
from typing import NamedTuple

from kwire.messages.internal import share_group as stored

from ..modern.members import MemberState, Partitions
from ..modern.records import (
    Forms,
    RecordForm,
    epoch_form,
    from_rows,
    in_rows,
    target_epoch_form,
    target_form,
)
from .member import ShareGroupMember


class NamedPartitions(NamedTuple):
    """The partitions of a topic, and the topic's name when they were stored."""

    name: str
    partitions: frozenset[int]


class StatePartitions(NamedTuple):
    """The share partitions of a group for which the share coordinators have a state, by topic id.

    Shape: for partitions in `initializing`, a state has been requested; those in `initialized` have one. The states of
    the topics in `deleting`, by name, are being deleted.
    """

    initializing: Mapping[bytes, NamedPartitions] = {}
    initialized: Mapping[bytes, NamedPartitions] = {}
    deleting: Mapping[bytes, str] = {}


class ShareEpochRecord(NamedTuple):
    """A group's epoch and the hash of its topics' metadata; None deletes the group."""

    group_id: str
    value: tuple[int, int] | None


class ShareMemberRecord(NamedTuple):
    """The subscription and identity that a member has sent; its epochs and partitions are in `ShareCurrentRecord`."""

    group_id: str
    member_id: str
    value: ShareGroupMember | None


class ShareTargetEpochRecord(NamedTuple):
    """The epoch of the target assignment, and when it was made in ms since the epoch."""

    group_id: str
    value: tuple[int, int] | None


class ShareTargetRecord(NamedTuple):
    """The target assignment of a member."""

    group_id: str
    member_id: str
    value: Partitions | None


class ShareCurrentRecord(NamedTuple):
    """A member's epochs, state and partitions; the other fields of the value are not used."""

    group_id: str
    member_id: str
    value: ShareGroupMember | None


class StatePartitionsRecord(NamedTuple):
    """The share partitions that have a state."""

    group_id: str
    value: StatePartitions | None


ShareGroupRecord = (
    ShareEpochRecord
    | ShareMemberRecord
    | ShareTargetEpochRecord
    | ShareTargetRecord
    | ShareCurrentRecord
    | StatePartitionsRecord
)


def tombstones(group_id: str, member_ids: Collection[str]) -> list[ShareGroupRecord]:
    """The records that delete a group and its members."""
    return [
        *(ShareCurrentRecord(group_id, member_id, None) for member_id in member_ids),
        *(ShareTargetRecord(group_id, member_id, None) for member_id in member_ids),
        ShareTargetEpochRecord(group_id, None),
        *(ShareMemberRecord(group_id, member_id, None) for member_id in member_ids),
        StatePartitionsRecord(group_id, None),
        ShareEpochRecord(group_id, None),
    ]


def _with_names(topics: Mapping[bytes, NamedPartitions]) -> list[stored.TopicPartitionsInfo]:
    return [
        stored.TopicPartitionsInfo(
            topic_id=topic_id, topic_name=name, partitions=sorted(partitions)
        )
        for topic_id, (name, partitions) in topics.items()
    ]


def _states(message: stored.ShareGroupStatePartitionMetadataValue) -> StatePartitions:
    return StatePartitions(
        _without_infos(message.initializing_topics),
        _without_infos(message.initialized_topics),
        {row.topic_id: row.topic_name for row in message.deleting_topics},
    )


def _without_infos(rows: list[stored.TopicPartitionsInfo]) -> dict[bytes, NamedPartitions]:
    return {
        row.topic_id: NamedPartitions(row.topic_name, frozenset(row.partitions)) for row in rows
    }


def _member(member_id: str, message: stored.ShareGroupMemberMetadataValue) -> ShareGroupMember:
    return ShareGroupMember(
        member_id,
        rack_id=message.rack_id,
        client_id=message.client_id,
        client_host=message.client_host,
        subscribed_topic_names=frozenset(map(intern, message.subscribed_topic_names)),
    )


def _current(
    member_id: str, message: stored.ShareGroupCurrentMemberAssignmentValue
) -> ShareGroupMember:
    return ShareGroupMember(
        member_id,
        message.member_epoch,
        message.previous_member_epoch,
        MemberState(message.state),
        assigned=from_rows(message.assigned_partitions),
    )


FORMS = Forms(
    RecordForm(
        ShareMemberRecord,
        stored.ShareGroupMemberMetadataKey,
        stored.ShareGroupMemberMetadataValue,
        lambda record: stored.ShareGroupMemberMetadataValue(
            rack_id=record.value.rack_id,
            client_id=record.value.client_id,
            client_host=record.value.client_host,
            subscribed_topic_names=sorted(record.value.subscribed_topic_names),
        ),
        lambda key, message: _member(intern(key.member_id), message),
    ),
    epoch_form(ShareEpochRecord, stored.ShareGroupMetadataKey, stored.ShareGroupMetadataValue),
    target_epoch_form(
        ShareTargetEpochRecord,
        stored.ShareGroupTargetAssignmentMetadataKey,
        stored.ShareGroupTargetAssignmentMetadataValue,
    ),
    target_form(
        ShareTargetRecord,
        stored.ShareGroupTargetAssignmentMemberKey,
        stored.ShareGroupTargetAssignmentMemberValue,
        stored.TopicPartition,
    ),
    RecordForm(
        ShareCurrentRecord,
        stored.ShareGroupCurrentMemberAssignmentKey,
        stored.ShareGroupCurrentMemberAssignmentValue,
        lambda record: stored.ShareGroupCurrentMemberAssignmentValue(
            member_epoch=record.value.member_epoch,
            previous_member_epoch=record.value.previous_member_epoch,
            state=record.value.state,
            assigned_partitions=in_rows(stored.TopicPartitions, record.value.assigned),
        ),
        lambda key, message: _current(intern(key.member_id), message),
    ),
    RecordForm(
        StatePartitionsRecord,
        stored.ShareGroupStatePartitionMetadataKey,
        stored.ShareGroupStatePartitionMetadataValue,
        lambda record: stored.ShareGroupStatePartitionMetadataValue(
            initializing_topics=_with_names(record.value.initializing),
            initialized_topics=_with_names(record.value.initialized),
            deleting_topics=[
                stored.TopicInfo(topic_id=topic_id, topic_name=name)
                for topic_id, name in record.value.deleting.items()
            ],
        ),
        lambda _, message: _states(message),
    ),
)
