"""The records of the share coordinator in __share_group_state, as values and as bytes.

    key type 0    ShareSnapshot: the whole state; null deletes it
    key type 1    ShareUpdate: what a write changed since the snapshot

The epoch of a share partition's snapshot is one higher than that of its previous snapshot; updates have the epoch of
their snapshot.
Source: ShareCoordinatorRecordHelpers, ShareCoordinatorRecordSerde.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, NamedTuple

from kwire.messages.internal import decode_key, decode_value, encode_key, encode_value, keys
from kwire.messages.internal import share_state as stored

from .rows import StateBatch

VALUE_VERSION = 0


class ShareKey(NamedTuple):
    """A share partition. Shape: `topic_id` has 16 bytes."""

    group_id: str
    topic_id: bytes
    partition: int


class ShareSnapshot(NamedTuple):
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
    value: ShareSnapshot | Update | None


#: The fields before the batches.
_snapshot_fields = attrgetter(*ShareSnapshot._fields[:-1])
_update_fields = attrgetter(*Update._fields[:-1])

_KEYS = keys([stored.ShareSnapshotKey, stored.ShareUpdateKey])


def encode_record(record: ShareRecord) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a record."""
    value = record.value
    kinds: tuple[type[Any], type[Any]] = stored.ShareSnapshotKey, stored.ShareSnapshotValue
    if isinstance(value, Update):
        kinds = stored.ShareUpdateKey, stored.ShareUpdateValue
    key = encode_key(kinds[0](**record.key._asdict()))
    if value is None:
        return key, None
    fields = value._asdict()
    fields["state_batches"] = [
        stored.StateBatch(
            first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
        )
        for first, last, state, count in value.state_batches
    ]
    return key, encode_value(kinds[1](**fields), VALUE_VERSION)


def decode_record(key: bytes | memoryview, value: bytes | memoryview | None) -> ShareRecord | None:
    """Decode a stored record; None for a key of a later release. Errors: WireError."""
    found = decode_key(key, _KEYS)
    if found is None:
        return None
    share_key = ShareKey(found.group_id, found.topic_id, found.partition)
    if value is None:
        return ShareRecord(share_key, None)
    if isinstance(found, stored.ShareUpdateKey):
        update = decode_value(stored.ShareUpdateValue, value)
        return ShareRecord(share_key, Update._make((*_update_fields(update), _batches(update))))
    snapshot = decode_value(stored.ShareSnapshotValue, value)
    return ShareRecord(
        share_key, ShareSnapshot._make((*_snapshot_fields(snapshot), _batches(snapshot)))
    )


def _batches(
    message: stored.ShareSnapshotValue | stored.ShareUpdateValue,
) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(row.first_offset, row.last_offset, row.delivery_state, row.delivery_count)
        for row in message.state_batches
    )
