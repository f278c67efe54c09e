"""Control records: markers in the log that are not data, each alone in a control batch.

Key: int16 version 0, int16 type. Value of an end-transaction marker: int16 version 0, int32 coordinator epoch. Source:
ControlRecordType, EndTransactionMarker.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from kwire.errors import CorruptRecord
from kwire.records.builder import BatchBuilder

_KEY = Struct(">hh")
_END_TRANSACTION_VALUE = Struct(">hi")
_CURRENT_VERSION = 0


class ControlType(IntEnum):
    """The type of a control record; readers skip types that they do not know."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransactionMarker(NamedTuple):
    """The commit or abort of a producer's transaction in one partition."""

    type: ControlType
    coordinator_epoch: int

    @property
    def is_commit(self) -> bool:
        return self.type is ControlType.COMMIT


def control_type(key: bytes | None) -> ControlType:
    """Return the type in a control record's key; UNKNOWN for types added later.

    Errors: CorruptRecord for a key that is null, too short or has a negative version.
    """
    if key is None or len(key) < _KEY.size:
        raise CorruptRecord("control record key is null or cut short")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecord(f"control record key has version {version}")
    try:
        return ControlType(number)
    except ValueError:
        return ControlType.UNKNOWN


def control_key(kind: ControlType) -> bytes:
    """Return the key of a control record of that type."""
    return _KEY.pack(_CURRENT_VERSION, kind)


def read_end_transaction(key: bytes | None, value: bytes | None) -> EndTransactionMarker:
    """Read the key and value of a commit or abort marker.

    Shape: values of later versions are read as version 0, because they begin with its fields.
    Errors: CorruptRecord for another control type or a value that is cut short.
    """
    kind = control_type(key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        raise CorruptRecord(f"control record {kind.name} is not an end-transaction marker")
    if value is None or len(value) < _END_TRANSACTION_VALUE.size:
        raise CorruptRecord("end-transaction marker value is null or cut short")
    version, epoch = _END_TRANSACTION_VALUE.unpack_from(value)
    if version < 0:
        raise CorruptRecord(f"end-transaction marker has version {version}")
    return EndTransactionMarker(kind, epoch)


def end_transaction_value(coordinator_epoch: int) -> bytes:
    """Return the value of a commit or abort marker."""
    return _END_TRANSACTION_VALUE.pack(_CURRENT_VERSION, coordinator_epoch)


def end_transaction_batch(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
) -> bytes:
    """Return the control batch that ends a producer's transaction in a partition."""
    builder = BatchBuilder(
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        partition_leader_epoch=partition_leader_epoch,
    )
    builder.append(
        timestamp, control_key(marker.type), end_transaction_value(marker.coordinator_epoch)
    )
    return builder.build()
