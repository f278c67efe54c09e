"""The records of share groups in __consumer_offsets, as values and as bytes.

    key   int16, then group id and what follows          value  int16 0, then the fields; null is a tombstone
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
from struct import Struct
from sys import intern
from typing import Any, NamedTuple

from kwire.codec import decode, encode
from kwire.messages.internal import share_group as stored

from ..modern.members import MemberState, Partitions
from .member import ShareGroupMember

VALUE_VERSION = 0

_INT16 = Struct(">h")


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

_KEYS: dict[type, tuple[int, type]] = {
    ShareMemberRecord: (10, stored.ShareGroupMemberMetadataKey),
    ShareEpochRecord: (11, stored.ShareGroupMetadataKey),
    ShareTargetEpochRecord: (12, stored.ShareGroupTargetAssignmentMetadataKey),
    ShareTargetRecord: (13, stored.ShareGroupTargetAssignmentMemberKey),
    ShareCurrentRecord: (14, stored.ShareGroupCurrentMemberAssignmentKey),
    StatePartitionsRecord: (15, stored.ShareGroupStatePartitionMetadataKey),
}
_KEY_MESSAGES = dict(_KEYS.values())
KEY_TYPES = frozenset(_KEY_MESSAGES)


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


def encode_share_group_record(record: ShareGroupRecord) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a record."""
    key_type, message = _KEYS[type(record)]
    key = _INT16.pack(key_type) + encode(
        message(**dict(zip(record._fields[:-1], record, strict=False))), 0
    )
    if record.value is None:
        return key, None
    return key, _INT16.pack(VALUE_VERSION) + encode(_value(record), VALUE_VERSION)


def _value(record: ShareGroupRecord) -> Any:
    """The message of a record's value."""
    match record:
        case ShareEpochRecord(_, (epoch, metadata_hash)):
            return stored.ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
        case ShareTargetEpochRecord(_, (epoch, timestamp_ms)):
            return stored.ShareGroupTargetAssignmentMetadataValue(
                assignment_epoch=epoch, assignment_timestamp=timestamp_ms
            )
        case ShareMemberRecord(_, _, ShareGroupMember() as member):
            return stored.ShareGroupMemberMetadataValue(
                rack_id=member.rack_id,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.subscribed_topic_names),
            )
        case ShareTargetRecord(_, _, partitions) if partitions is not None:
            return stored.ShareGroupTargetAssignmentMemberValue(
                topic_partitions=[
                    stored.TopicPartition(topic_id=topic_id, partitions=sorted(some))
                    for topic_id, some in partitions.items()
                ]
            )
        case ShareCurrentRecord(_, _, ShareGroupMember() as member):
            return stored.ShareGroupCurrentMemberAssignmentValue(
                member_epoch=member.member_epoch,
                previous_member_epoch=member.previous_member_epoch,
                state=member.state,
                assigned_partitions=[
                    stored.TopicPartitions(topic_id=topic_id, partitions=sorted(some))
                    for topic_id, some in member.assigned.items()
                ],
            )
        case StatePartitionsRecord(_, StatePartitions() as states):
            return stored.ShareGroupStatePartitionMetadataValue(
                initializing_topics=_with_names(states.initializing),
                initialized_topics=_with_names(states.initialized),
                deleting_topics=[
                    stored.TopicInfo(topic_id=topic_id, topic_name=name)
                    for topic_id, name in states.deleting.items()
                ],
            )
    raise TypeError(f"no value for {record!r}")


def _with_names(topics: Mapping[bytes, NamedPartitions]) -> list[stored.TopicPartitionsInfo]:
    return [
        stored.TopicPartitionsInfo(
            topic_id=topic_id, topic_name=name, partitions=sorted(partitions)
        )
        for topic_id, (name, partitions) in topics.items()
    ]


def decode_share_group_record(
    key: bytes | memoryview, value: bytes | memoryview | None
) -> ShareGroupRecord:
    """Decode a record whose key is one of KEY_TYPES. Errors: WireError if the bytes do not match their version."""
    (key_type,) = _INT16.unpack_from(key)
    message: Any = decode(_KEY_MESSAGES[key_type], key, 0, 2)
    group_id: str = message.group_id
    version = 0 if value is None else _INT16.unpack_from(value)[0]
    if key_type == 11:
        if value is None:
            return ShareEpochRecord(group_id, None)
        group = decode(stored.ShareGroupMetadataValue, value, version, 2)
        return ShareEpochRecord(group_id, (group.epoch, group.metadata_hash))
    if key_type == 12:
        if value is None:
            return ShareTargetEpochRecord(group_id, None)
        target = decode(stored.ShareGroupTargetAssignmentMetadataValue, value, version, 2)
        return ShareTargetEpochRecord(
            group_id, (target.assignment_epoch, target.assignment_timestamp)
        )
    if key_type == 15:
        return StatePartitionsRecord(group_id, None if value is None else _states(value, version))
    member_id: str = intern(message.member_id)
    if key_type == 10:
        return ShareMemberRecord(
            group_id, member_id, None if value is None else _member(member_id, value, version)
        )
    if key_type == 13:
        return ShareTargetRecord(
            group_id, member_id, None if value is None else _target(value, version)
        )
    return ShareCurrentRecord(
        group_id, member_id, None if value is None else _current(member_id, value, version)
    )


def _states(value: bytes | memoryview, version: int) -> StatePartitions:
    message = decode(stored.ShareGroupStatePartitionMetadataValue, value, version, 2)
    return StatePartitions(
        _without_infos(message.initializing_topics),
        _without_infos(message.initialized_topics),
        {row.topic_id: row.topic_name for row in message.deleting_topics},
    )


def _without_infos(rows: list[stored.TopicPartitionsInfo]) -> dict[bytes, NamedPartitions]:
    return {
        row.topic_id: NamedPartitions(row.topic_name, frozenset(row.partitions)) for row in rows
    }


def _member(member_id: str, value: bytes | memoryview, version: int) -> ShareGroupMember:
    message = decode(stored.ShareGroupMemberMetadataValue, value, version, 2)
    return ShareGroupMember(
        member_id,
        rack_id=message.rack_id,
        client_id=message.client_id,
        client_host=message.client_host,
        subscribed_topic_names=frozenset(map(intern, message.subscribed_topic_names)),
    )


def _target(value: bytes | memoryview, version: int) -> Partitions:
    message = decode(stored.ShareGroupTargetAssignmentMemberValue, value, version, 2)
    return {row.topic_id: frozenset(row.partitions) for row in message.topic_partitions}


def _current(member_id: str, value: bytes | memoryview, version: int) -> ShareGroupMember:
    message = decode(stored.ShareGroupCurrentMemberAssignmentValue, value, version, 2)
    return ShareGroupMember(
        member_id,
        message.member_epoch,
        message.previous_member_epoch,
        MemberState(message.state),
        assigned={row.topic_id: frozenset(row.partitions) for row in message.assigned_partitions},
    )
