"""The records of consumer groups in __consumer_offsets, as values and as bytes.

    key   int16, then group id and what follows          value  int16 0, then the fields; null is a tombstone
     3                                                    epoch of the group, hash of its topics' metadata
     4                                                    partitions of topics, before 4.1; deleted when met
     5    member id                                       what the member has said about itself
     6                                                    epoch and time of the target assignment
     7    member id                                       what the member is to have
     8    member id                                       what the member has, and at which epoch
    16    regular expression                              the topics that it matches

Source: GroupCoordinatorRecordHelpers, CoordinatorRecordType.
"""

from __future__ import annotations

from collections.abc import Collection
from struct import Struct
from sys import intern
from typing import Any, NamedTuple

from kwire.codec import decode, encode
from kwire.messages.internal import consumer_group as stored

from ..modern.members import MemberState, Partitions
from .group import ConsumerGroup, ResolvedRegex
from .member import ClassicMember, ConsumerGroupMember, PartitionEpochs

VALUE_VERSION = 0

_INT16 = Struct(">h")


class EpochRecord(NamedTuple):
    """A group's epoch and the hash of its topics' metadata; None deletes the group."""

    group_id: str
    value: tuple[int, int] | None


class PartitionMetadataRecord(NamedTuple):
    """The record that releases before 4.1 kept instead of a hash; its content is not used."""

    group_id: str
    value: bytes | None


class MemberRecord(NamedTuple):
    """The subscription and identity that a member has sent; its epochs and partitions are in `CurrentRecord`."""

    group_id: str
    member_id: str
    value: ConsumerGroupMember | None


class TargetEpochRecord(NamedTuple):
    """The epoch of the target assignment, and when it was made in ms since the epoch."""

    group_id: str
    value: tuple[int, int] | None


class TargetRecord(NamedTuple):
    """The target assignment of a member."""

    group_id: str
    member_id: str
    value: Partitions | None


class CurrentRecord(NamedTuple):
    """A member's epochs, state and partitions; the other fields of the value are not used."""

    group_id: str
    member_id: str
    value: ConsumerGroupMember | None


class RegexRecord(NamedTuple):
    """The topics that a regular expression matches."""

    group_id: str
    regular_expression: str
    value: ResolvedRegex | None


ConsumerGroupRecord = (
    EpochRecord
    | PartitionMetadataRecord
    | MemberRecord
    | TargetEpochRecord
    | TargetRecord
    | CurrentRecord
    | RegexRecord
)

_KEYS: dict[type, tuple[int, type]] = {
    EpochRecord: (3, stored.ConsumerGroupMetadataKey),
    PartitionMetadataRecord: (4, stored.ConsumerGroupPartitionMetadataKey),
    MemberRecord: (5, stored.ConsumerGroupMemberMetadataKey),
    TargetEpochRecord: (6, stored.ConsumerGroupTargetAssignmentMetadataKey),
    TargetRecord: (7, stored.ConsumerGroupTargetAssignmentMemberKey),
    CurrentRecord: (8, stored.ConsumerGroupCurrentMemberAssignmentKey),
    RegexRecord: (16, stored.ConsumerGroupRegularExpressionKey),
}
_KEY_MESSAGES = dict(_KEYS.values())
KEY_TYPES = frozenset(_KEY_MESSAGES)


class EncodedTarget(TargetRecord):
    """A target record whose key and value were encoded in advance."""

    stored: tuple[bytes, bytes | None]

    @classmethod
    def of(cls, group_id: str, member_id: str, partitions: Partitions) -> EncodedTarget:
        """Encode a record."""
        record = cls(group_id, member_id, partitions)
        record.stored = encode_consumer_group_record(TargetRecord(*record))
        return record


def tombstones(group: ConsumerGroup, member_ids: Collection[str]) -> list[ConsumerGroupRecord]:
    """The records that delete a group and its members, without its offsets."""
    group_id = group.group_id
    return [
        *(CurrentRecord(group_id, member_id, None) for member_id in member_ids),
        *(TargetRecord(group_id, member_id, None) for member_id in member_ids),
        TargetEpochRecord(group_id, None),
        *(MemberRecord(group_id, member_id, None) for member_id in member_ids),
        *(RegexRecord(group_id, regex, None) for regex in group.resolved),
        PartitionMetadataRecord(group_id, None),
        EpochRecord(group_id, None),
    ]


def encode_consumer_group_record(record: ConsumerGroupRecord) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a record."""
    if isinstance(record, EncodedTarget):
        return record.stored
    key_type, message = _KEYS[type(record)]
    key = _INT16.pack(key_type) + encode(
        message(**dict(zip(record._fields[:-1], record, strict=False))), 0
    )
    if record.value is None:
        return key, None
    if isinstance(record, PartitionMetadataRecord):
        return key, record.value
    return key, _INT16.pack(VALUE_VERSION) + encode(_value(record), VALUE_VERSION)


def _value(record: ConsumerGroupRecord) -> Any:
    """The message of a record's value."""
    match record:
        case EpochRecord(_, (epoch, metadata_hash)):
            return stored.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
        case TargetEpochRecord(_, (epoch, timestamp_ms)):
            return stored.ConsumerGroupTargetAssignmentMetadataValue(
                assignment_epoch=epoch, assignment_timestamp=timestamp_ms
            )
        case MemberRecord(_, _, ConsumerGroupMember() as member):
            return _member_value(member)
        case TargetRecord(_, _, partitions) if partitions is not None:
            return stored.ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=[
                    stored.TopicPartition(topic_id=topic_id, partitions=sorted(some))
                    for topic_id, some in partitions.items()
                ]
            )
        case CurrentRecord(_, _, ConsumerGroupMember() as member):
            return stored.ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=member.member_epoch,
                previous_member_epoch=member.previous_member_epoch,
                state=member.state,
                assigned_partitions=_with_epochs(member.assigned),
                partitions_pending_revocation=_with_epochs(member.revoking),
            )
        case RegexRecord(_, _, ResolvedRegex() as resolved):
            return stored.ConsumerGroupRegularExpressionValue(
                topics=sorted(resolved.topics),
                version=resolved.version,
                timestamp=resolved.timestamp_ms,
            )
    raise TypeError(f"no value for {record!r}")


def _member_value(member: ConsumerGroupMember) -> stored.ConsumerGroupMemberMetadataValue:
    classic = None
    if member.classic is not None:
        classic = stored.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                stored.ClassicProtocol(name=name, metadata=metadata)
                for name, metadata in member.classic.protocols
            ],
        )
    return stored.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=classic,
    )


def _with_epochs(partitions: PartitionEpochs) -> list[stored.TopicPartitions]:
    return [
        stored.TopicPartitions(
            topic_id=topic_id,
            partitions=(numbers := sorted(some)),
            assignment_epochs=[some[number] for number in numbers],
        )
        for topic_id, some in partitions.items()
    ]


def decode_consumer_group_record(
    key: bytes | memoryview, value: bytes | memoryview | None
) -> ConsumerGroupRecord:
    """Decode a record whose key is one of KEY_TYPES. Errors: WireError if the bytes do not match their version."""
    (key_type,) = _INT16.unpack_from(key)
    message: Any = decode(_KEY_MESSAGES[key_type], key, 0, 2)
    group_id: str = message.group_id
    if key_type == 4:
        return PartitionMetadataRecord(group_id, None if value is None else bytes(value))
    version = 0 if value is None else _INT16.unpack_from(value)[0]
    if key_type == 3:
        if value is None:
            return EpochRecord(group_id, None)
        group = decode(stored.ConsumerGroupMetadataValue, value, version, 2)
        return EpochRecord(group_id, (group.epoch, group.metadata_hash))
    if key_type == 6:
        if value is None:
            return TargetEpochRecord(group_id, None)
        target = decode(stored.ConsumerGroupTargetAssignmentMetadataValue, value, version, 2)
        return TargetEpochRecord(group_id, (target.assignment_epoch, target.assignment_timestamp))
    if key_type == 16:
        return RegexRecord(
            group_id, message.regular_expression, None if value is None else _regex(value, version)
        )
    member_id: str = intern(message.member_id)
    if key_type == 5:
        return MemberRecord(
            group_id, member_id, None if value is None else _member(member_id, value, version)
        )
    if key_type == 7:
        return TargetRecord(group_id, member_id, None if value is None else _target(value, version))
    return CurrentRecord(
        group_id, member_id, None if value is None else _current(member_id, value, version)
    )


def _regex(value: bytes | memoryview, version: int) -> ResolvedRegex:
    message = decode(stored.ConsumerGroupRegularExpressionValue, value, version, 2)
    return ResolvedRegex(frozenset(message.topics), message.version, message.timestamp)


def _member(member_id: str, value: bytes | memoryview, version: int) -> ConsumerGroupMember:
    message = decode(stored.ConsumerGroupMemberMetadataValue, value, version, 2)
    classic = message.classic_member_metadata
    return ConsumerGroupMember(
        member_id,
        instance_id=message.instance_id,
        rack_id=message.rack_id,
        rebalance_timeout_ms=message.rebalance_timeout_ms,
        client_id=message.client_id,
        client_host=message.client_host,
        subscribed_topic_names=frozenset(map(intern, message.subscribed_topic_names)),
        subscribed_topic_regex=message.subscribed_topic_regex,
        server_assignor=message.server_assignor,
        classic=None
        if classic is None
        else ClassicMember(
            classic.session_timeout_ms,
            tuple((row.name, row.metadata) for row in classic.supported_protocols),
        ),
    )


def _target(value: bytes | memoryview, version: int) -> Partitions:
    message = decode(stored.ConsumerGroupTargetAssignmentMemberValue, value, version, 2)
    return {row.topic_id: frozenset(row.partitions) for row in message.topic_partitions}


def _current(member_id: str, value: bytes | memoryview, version: int) -> ConsumerGroupMember:
    message = decode(stored.ConsumerGroupCurrentMemberAssignmentValue, value, version, 2)
    return ConsumerGroupMember(
        member_id,
        message.member_epoch,
        message.previous_member_epoch,
        MemberState(message.state),
        assigned=_epochs(message.assigned_partitions, message.member_epoch),
        revoking=_epochs(message.partitions_pending_revocation, message.member_epoch),
    )


def _epochs(rows: list[stored.TopicPartitions], member_epoch: int) -> PartitionEpochs:
    """Partitions with their epochs; releases before KIP-1251 stored none, so the member's epoch applies."""
    partitions: dict[bytes, dict[int, int]] = {}
    for row in rows:
        epochs = row.assignment_epochs
        if not epochs or len(epochs) != len(row.partitions):
            epochs = [max(member_epoch, 0)] * len(row.partitions)
        partitions[row.topic_id] = dict(zip(row.partitions, epochs, strict=True))
    return partitions
