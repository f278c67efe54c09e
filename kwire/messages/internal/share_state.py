"""Keys and values of share partitions in __share_group_state (KIP-932)."""

from __future__ import annotations

from kwire.schema import field, message, struct
from kwire.types import Array, Int8, Int16, Int32, Int64, String, Uuid


@message(kind="coordinator-key", key_type=0, versions="0")
class ShareSnapshotKey:
    """Key of the whole state of a share partition. Source: ShareSnapshotKey.json."""

    group_id: str = field(String)
    topic_id: bytes = field(Uuid)
    partition: int = field(Int32)


@struct
class StateBatch:
    first_offset: int = field(Int64)
    last_offset: int = field(Int64)
    delivery_state: int = field(Int8)
    delivery_count: int = field(Int16)


@message(kind="coordinator-value", key_type=0, versions="0", flexible="0+")
class ShareSnapshotValue:
    """The whole state of a share partition. Source: ShareSnapshotValue.json."""

    snapshot_epoch: int = field(Int32)
    state_epoch: int = field(Int32)
    leader_epoch: int = field(Int32)
    start_offset: int = field(Int64)
    delivery_complete_count: int = field(Int32, tag=0, default=-1)
    create_timestamp: int = field(Int64)
    write_timestamp: int = field(Int64)
    state_batches: list[StateBatch] = field(Array(StateBatch))


@message(kind="coordinator-key", key_type=1, versions="0")
class ShareUpdateKey:
    """Key of the changes in a share partition since its snapshot. Source: ShareUpdateKey.json."""

    group_id: str = field(String)
    topic_id: bytes = field(Uuid)
    partition: int = field(Int32)


@message(kind="coordinator-value", key_type=1, versions="0", flexible="0+")
class ShareUpdateValue:
    """The changes in a share partition since its snapshot. Source: ShareUpdateValue.json."""

    snapshot_epoch: int = field(Int32)
    leader_epoch: int = field(Int32)
    start_offset: int = field(Int64)
    delivery_complete_count: int = field(Int32, tag=0, default=-1)
    state_batches: list[StateBatch] = field(Array(StateBatch))
