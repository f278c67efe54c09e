"""Bytes in __transaction_state."""

from __future__ import annotations

import pytest

from kwire.codec import encode
from kwire.errors import CorruptRecord, Truncated
from kwire.messages.internal.transaction_log import PartitionsSchema, TransactionLogValue
from server.coordinator.transaction.records import (
    TransactionRecord,
    decode_record,
    encode_record,
)
from server.coordinator.transaction.state import TransactionMetadata, TransactionState
from tests.coordinator.transaction.machine import A0, A1, B0

KEY = bytes.fromhex("0000 0002 6964")
ONGOING = TransactionMetadata(
    5, 3, 60_000, TransactionState.ONGOING, frozenset({A1, A0, B0}), 1_000, 500
)
ONGOING_VALUE = bytes.fromhex(
    "0000 0000000000000005 0003 0000ea60 01"
    "00000002 0001 61 00000002 00000000 00000001 0001 62 00000001 00000000"
    "00000000000003e8 00000000000001f4"
)


def test_open_transaction_is_stored_with_its_partitions_in_order() -> None:
    assert encode_record(TransactionRecord("id", ONGOING)) == (KEY, ONGOING_VALUE)
    assert decode_record(KEY, ONGOING_VALUE) == TransactionRecord("id", ONGOING)


@pytest.mark.parametrize("state", list(TransactionState)[:6])
def test_every_stored_state_comes_back(state: TransactionState) -> None:
    value = ONGOING._replace(state=state, partitions=frozenset())
    assert decode_record(*encode_record(TransactionRecord("ä", value))) == ("ä", value)


def test_partitions_are_null_only_where_the_state_is_empty() -> None:
    empty = ONGOING._replace(state=TransactionState.EMPTY, partitions=frozenset())
    complete = empty._replace(state=TransactionState.COMPLETE_COMMIT)
    counts = [
        (encode_record(TransactionRecord("id", v))[1] or b"")[17:21] for v in (empty, complete)
    ]
    assert counts == [b"\xff\xff\xff\xff", b"\0\0\0\0"]


def test_tombstone_has_no_value() -> None:
    assert encode_record(TransactionRecord("id", None)) == (KEY, None)
    assert decode_record(KEY, None) == ("id", None)


def test_value_of_version_1_has_what_version_2_of_the_protocol_needs() -> None:
    message = TransactionLogValue(
        producer_id=5,
        previous_producer_id=4,
        producer_epoch=3,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=[
            PartitionsSchema(topic="a", partition_ids=[0, 1]),
            PartitionsSchema(topic="b", partition_ids=[0]),
        ],
        transaction_last_update_timestamp_ms=1_000,
        transaction_start_timestamp_ms=500,
        client_transaction_version=2,
    )
    stored = ONGOING._replace(previous_producer_id=4, client_version=2)
    value = b"\0\1" + encode(message, 1)
    assert decode_record(KEY, value) == ("id", stored)
    assert encode_record(TransactionRecord("id", stored), 1) == (KEY, value)


def test_key_of_another_type_is_passed_over() -> None:
    assert decode_record(b"\0\1" + KEY[2:], ONGOING_VALUE) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"\0", None), (KEY, b"\0"), (KEY, ONGOING_VALUE[:16] + b"\x63" + ONGOING_VALUE[17:])],
)
def test_what_cannot_be_read_is_corrupt(key: bytes, value: bytes | None) -> None:
    with pytest.raises((CorruptRecord, Truncated)):
        decode_record(key, value)
