"""The records of the share coordinator in __share_group_state, as values and as bytes.

    key  int16, group id, topic id, partition    value  int16 0, then the fields
     0                                            ShareSnapshot: the whole state; null deletes it
     1                                            ShareUpdate: what a write changed since the snapshot

The epoch of a share partition's snapshot is one higher than that of its previous snapshot; updates have the epoch of
their snapshot.
Source: ShareCoordinatorRecordHelpers, ShareCoordinatorRecordSerde.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple

from kwire.codec import decode, encode
from kwire.errors import CorruptRecord
from kwire.messages.internal import share_state as stored

from .rows import StateBatch

SNAPSHOT, UPDATE = 0, 1
VALUE_VERSION = 0

_INT16 = Struct(">h")


class ShareKey(NamedTuple):
    """A share partition. Shape: `topic_id` has 16 bytes."""

    group_id: str
    topic_id: bytes
    partition: int


class Snapshot(NamedTuple):
    """The whole state of a share partition. Units: times in ms since the epoch."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_timestamp: int
    write_timestamp: int
    state_batches: tuple[StateBatch, ...] = ()


class Update(NamedTuple):
    """The changes of a write.

    Shape: a start offset of -1 means no change; batches replace earlier ones.
    """

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: tuple[StateBatch, ...] = ()


class ShareRecord(NamedTuple):
    """A record of one share partition; None deletes its state."""

    key: ShareKey
    value: Snapshot | Update | None


_KEYS: dict[int, type[Any]] = {SNAPSHOT: stored.ShareSnapshotKey, UPDATE: stored.ShareUpdateKey}


def encode_record(record: ShareRecord) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a record."""
    value = record.value
    kind = UPDATE if isinstance(value, Update) else SNAPSHOT
    key = _INT16.pack(kind) + encode(_KEYS[kind](**record.key._asdict()), 0)
    if value is None:
        return key, None
    fields = value._asdict()
    fields["state_batches"] = [
        stored.StateBatch(
            first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
        )
        for first, last, state, count in value.state_batches
    ]
    message = (stored.ShareUpdateValue if kind == UPDATE else stored.ShareSnapshotValue)(**fields)
    return key, _INT16.pack(VALUE_VERSION) + encode(message, VALUE_VERSION)


def decode_key(key: bytes | memoryview) -> tuple[int, ShareKey] | None:
    """Return the type and the share partition of a key; None for a key of a later release.

    Errors: WireError.
    """
    kind = _version(key)
    if kind not in _KEYS:
        return None
    message = decode(_KEYS[kind], key, 0, _INT16.size)
    return kind, ShareKey(message.group_id, message.topic_id, message.partition)


def decode_record(key: bytes | memoryview, value: bytes | memoryview | None) -> ShareRecord | None:
    """Decode a stored record; None for a key of a later release. Errors: WireError."""
    found = decode_key(key)
    if found is None:
        return None
    kind, share_key = found
    if value is None:
        return ShareRecord(share_key, None)
    message: Any
    if kind == UPDATE:
        message = decode(stored.ShareUpdateValue, value, _version(value), _INT16.size)
        return ShareRecord(
            share_key,
            Update(
                message.snapshot_epoch,
                message.leader_epoch,
                message.start_offset,
                message.delivery_complete_count,
                _batches(message),
            ),
        )
    message = decode(stored.ShareSnapshotValue, value, _version(value), _INT16.size)
    return ShareRecord(
        share_key,
        Snapshot(
            message.snapshot_epoch,
            message.state_epoch,
            message.leader_epoch,
            message.start_offset,
            message.delivery_complete_count,
            message.create_timestamp,
            message.write_timestamp,
            _batches(message),
        ),
    )


def _batches(message: Any) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(row.first_offset, row.last_offset, row.delivery_state, row.delivery_count)
        for row in message.state_batches
    )


def _version(data: bytes | memoryview) -> int:
    if len(data) < _INT16.size:
        raise CorruptRecord(f"{len(data)} bytes have no room for a version")
    version: int = _INT16.unpack_from(data)[0]
    return version
