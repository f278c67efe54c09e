"""Control records and the markers that end transactions."""

from __future__ import annotations

import pytest

from kwire.errors import CorruptRecord
from kwire.records.batch import RecordBatch
from kwire.records.control import (
    ControlType,
    EndTransactionMarker,
    control_key,
    control_type,
    end_transaction_batch,
    end_transaction_value,
    read_end_transaction,
)

from .test_batch import COMMIT


def test_commit_marker_is_written_as_apache_kafka_does() -> None:
    built = end_transaction_batch(
        EndTransactionMarker(ControlType.COMMIT, 43),
        producer_id=991,
        producer_epoch=36,
        timestamp=1700000000582,
        base_offset=64624,
        partition_leader_epoch=1,
    )
    assert built == COMMIT


def test_commit_marker_is_read() -> None:
    (record,) = RecordBatch(COMMIT).records()
    marker = read_end_transaction(record.key, record.value)
    assert marker == EndTransactionMarker(ControlType.COMMIT, 43)
    assert marker.is_commit
    assert not EndTransactionMarker(ControlType.ABORT, 1).is_commit


def test_types_of_the_future_are_unknown() -> None:
    assert control_type(b"\x00\x00\x00\x63") is ControlType.UNKNOWN
    assert control_type(b"\x00\x09\x00\x01more") is ControlType.COMMIT


def test_value_of_a_later_version_is_read_as_version_0() -> None:
    value = b"\x00\x07" + end_transaction_value(9)[2:] + b"more"
    assert read_end_transaction(control_key(ControlType.ABORT), value).coordinator_epoch == 9


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x01"])
def test_key_that_is_none_is_corrupt(key: bytes | None) -> None:
    with pytest.raises(CorruptRecord):
        control_type(key)


@pytest.mark.parametrize("value", [None, b"", b"\x00" * 5, b"\xff\xff\x00\x00\x00\x01"])
def test_marker_without_a_value_is_corrupt(value: bytes | None) -> None:
    with pytest.raises(CorruptRecord):
        read_end_transaction(control_key(ControlType.COMMIT), value)


def test_other_control_record_is_no_marker() -> None:
    with pytest.raises(CorruptRecord, match="LEADER_CHANGE"):
        read_end_transaction(control_key(ControlType.LEADER_CHANGE), end_transaction_value(1))
