"""The records of classic groups and of offsets in __consumer_offsets, as values and as bytes.

    key type 0 or 1 (1 is written)    value  OffsetCommitValue 0-4
    key type 2                        value  GroupMetadataValue 0-4

Version 3 of the values is written, or 4 for an offset with the id of its topic (as in Apache Kafka 4), or 1 for one with
its own expire time, which only that version has. A null value is a tombstone.

Source: GroupMetadataManager.scala.
"""

from __future__ import annotations

from sys import intern
from typing import NamedTuple

from kwire.messages.internal import decode_value, encode_key, encode_value, number_of
from kwire.messages.internal.group_metadata import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from kwire.messages.internal.offset_commit import (
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kwire.records.layout import NO_TIMESTAMP

from ...metadata.topic_partition import TopicPartition
from .offset_store import OffsetAndMetadata
from .state import Group, GroupState, Member

OFFSET_VALUE_VERSION = 3
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
OFFSET_VALUE_VERSION_WITH_TOPIC_ID = 4
GROUP_VALUE_VERSION = 3

CLASSIC_KEYS = (LegacyOffsetCommitKey, OffsetCommitKey, GroupMetadataKey)


class OffsetRecord(NamedTuple):
    """A group's offset for one partition; None if it was removed."""

    group_id: str
    tp: TopicPartition
    value: OffsetAndMetadata | None


class GroupRecord(NamedTuple):
    """A group's generation, as the bytes of a GroupMetadataValue; None if it was removed."""

    group_id: str
    value: bytes | None


ClassicRecord = OffsetRecord | GroupRecord


def encode_classic_record(record: ClassicRecord) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a record."""
    if isinstance(record, GroupRecord):
        return encode_key(GroupMetadataKey(group=record.group_id)), record.value
    tp = record.tp
    key = OffsetCommitKey(group=record.group_id, topic=tp.topic, partition=tp.partition)
    return encode_key(key), None if record.value is None else encode_offset(record.value)


def encode_offset(value: OffsetAndMetadata) -> bytes:
    """Return the bytes of an OffsetCommitValue."""
    version = OFFSET_VALUE_VERSION
    message = OffsetCommitValue(
        offset=value.offset,
        metadata=value.metadata,
        commit_timestamp=value.commit_timestamp_ms,
        leader_epoch=value.leader_epoch,
    )
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        version = OFFSET_VALUE_VERSION_WITH_EXPIRY
        message.leader_epoch = -1  # version 1 has no field for it
        message.expire_timestamp = value.expire_timestamp_ms
    elif value.topic_id is not None:
        version = OFFSET_VALUE_VERSION_WITH_TOPIC_ID
        message.topic_id = value.topic_id
    return encode_value(message, version)


def decode_classic_record(
    key: LegacyOffsetCommitKey | OffsetCommitKey | GroupMetadataKey,
    value: bytes | memoryview | None,
) -> ClassicRecord:
    """Decode a record with one of CLASSIC_KEYS. Errors: WireError if the bytes do not match their version."""
    if isinstance(key, GroupMetadataKey):
        return GroupRecord(key.group, None if value is None else bytes(value))
    tp = TopicPartition(intern(key.topic), key.partition)
    return OffsetRecord(key.group, tp, None if value is None else decode_offset(value))


def decode_offset(value: bytes | memoryview) -> OffsetAndMetadata:
    """Decode an OffsetCommitValue."""
    message = decode_value(OffsetCommitValue, value)
    return OffsetAndMetadata(
        message.offset,
        message.leader_epoch,
        message.metadata,
        message.commit_timestamp,
        message.expire_timestamp,
        message.topic_id if number_of(value) >= OFFSET_VALUE_VERSION_WITH_TOPIC_ID else None,
    )


def group_record(group: Group, assignment: dict[str, bytes]) -> GroupRecord:
    """Return the record of a group's generation with its members' assignments.

    Shape: a member that is not in `assignment` has none.
    """
    name = group.protocol_name
    message = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=name,
        leader=group.leader_id,
        current_state_timestamp=group.state_timestamp_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(name) if name is not None else b"",
                assignment=assignment.get(member.member_id, b""),
            )
            for member in group.members.values()
        ],
    )
    return GroupRecord(group.group_id, encode_value(message, GROUP_VALUE_VERSION))


def restore_group(group: Group, value: bytes) -> None:
    """Set an empty group's soft state from a GroupMetadataValue.

    Shape: the group becomes EMPTY or STABLE. The state time is known only if version 2 or later
    stored it; otherwise it is -1. Errors: WireError if the bytes do not match their version.
    """
    message = decode_value(GroupMetadataValue, value)
    group.state = GroupState.STABLE if message.members else GroupState.EMPTY
    group.generation_id = message.generation
    group.protocol_type = message.protocol_type or None
    group.protocol_name = message.protocol
    group.leader_id = message.leader
    group.state_timestamp_ms = message.current_state_timestamp
    for stored in message.members:
        timeout_ms = stored.rebalance_timeout
        member = Member(
            stored.member_id,
            group_instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            # Version 0 has one timeout for both.
            rebalance_timeout_ms=stored.session_timeout if timeout_ms == -1 else timeout_ms,
            session_timeout_ms=stored.session_timeout,
            protocol_type=message.protocol_type,
            protocols=[(message.protocol or "", stored.subscription)],
            assignment=stored.assignment,
        )
        group.add(member, None)
    group.subscribed_topics = group.compute_subscribed_topics()
