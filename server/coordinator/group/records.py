"""The records of classic groups and of offsets in __consumer_offsets, as values and as bytes.

    key   int16 0 or 1 (1 is written), group, topic, partition     value  OffsetCommitValue 0-4
    key   int16 2, group                                            value  GroupMetadataValue 0-4
    value int16 version, then the fields; 3 is written, or 4 for an offset with the id of its topic
          (as in Apache Kafka 4), or 1 for one with its own expire time, which only that version
          has. A null value is a tombstone.

Source: GroupMetadataManager.scala.
"""

from __future__ import annotations

from struct import Struct
from sys import intern
from typing import NamedTuple

from kwire.codec import decode, encode
from kwire.messages.internal.group_metadata import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from kwire.messages.internal.offset_commit import OffsetCommitKey, OffsetCommitValue
from kwire.records.layout import NO_TIMESTAMP

from ...metadata.topic_partition import TopicPartition
from .offset_store import OffsetAndMetadata
from .state import Group, GroupState, Member

OFFSET_KEY_TYPE = 1
GROUP_KEY_TYPE = 2
CLASSIC_KEY_TYPES = range(GROUP_KEY_TYPE + 1)
OFFSET_VALUE_VERSION = 3
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
OFFSET_VALUE_VERSION_WITH_TOPIC_ID = 4
GROUP_VALUE_VERSION = 3

_INT16 = Struct(">h")
_OFFSET_KEY_PREFIX = _INT16.pack(OFFSET_KEY_TYPE)
_GROUP_KEY_PREFIX = _INT16.pack(GROUP_KEY_TYPE)


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
        key = GroupMetadataKey(group=record.group_id)
        return _GROUP_KEY_PREFIX + encode(key, 0), record.value
    tp = record.tp
    offset_key = OffsetCommitKey(group=record.group_id, topic=tp.topic, partition=tp.partition)
    key_bytes = _OFFSET_KEY_PREFIX + encode(offset_key, 0)
    return key_bytes, None if record.value is None else encode_offset(record.value)


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
    return _INT16.pack(version) + encode(message, version)


def decode_classic_record(
    key: bytes | memoryview, value: bytes | memoryview | None
) -> ClassicRecord:
    """Decode a record whose key is one of CLASSIC_KEY_TYPES. Errors: WireError if the bytes do not match their version."""
    (key_type,) = _INT16.unpack_from(key)
    if key_type == GROUP_KEY_TYPE:
        group_key = decode(GroupMetadataKey, key, 0, 2)
        return GroupRecord(group_key.group, None if value is None else bytes(value))
    offset_key = decode(OffsetCommitKey, key, 0, 2)  # that of version 0 has the same fields
    tp = TopicPartition(intern(offset_key.topic), offset_key.partition)
    return OffsetRecord(offset_key.group, tp, None if value is None else decode_offset(value))


def decode_offset(value: bytes | memoryview) -> OffsetAndMetadata:
    """Decode an OffsetCommitValue."""
    (version,) = _INT16.unpack_from(value)
    message = decode(OffsetCommitValue, value, version, 2)
    return OffsetAndMetadata(
        message.offset,
        message.leader_epoch,
        message.metadata,
        message.commit_timestamp,
        message.expire_timestamp,
        message.topic_id if version >= OFFSET_VALUE_VERSION_WITH_TOPIC_ID else None,
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
    value = _INT16.pack(GROUP_VALUE_VERSION) + encode(message, GROUP_VALUE_VERSION)
    return GroupRecord(group.group_id, value)


def restore_group(group: Group, value: bytes) -> None:
    """Set an empty group's soft state from a GroupMetadataValue.

    Shape: the group becomes EMPTY or STABLE. The state time is known only if version 2 or later
    stored it; otherwise it is -1. Errors: WireError if the bytes do not match their version.
    """
    (version,) = _INT16.unpack_from(value)
    message = decode(GroupMetadataValue, value, version, 2)
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
