"""Per-record checks of produced batches. Cases follow Apache Kafka's LogValidatorTest."""

from __future__ import annotations

import struct

import pytest

from kwire.errors import CorruptRecord, ErrorCode, TooLarge
from kwire.records.batch import RecordBatch
from kwire.records.compression import compress
from kwire.records.layout import RECORDS_AT
from kwire.records.legacy import write_message
from kwire.records.record import TimestampType, write_record
from kwire.records.validation import validate_records

from .samples import PLAIN_RECORDS, RECORDS, T0, batch_of

pytestmark = pytest.mark.usefixtures("both_forms")


def one_batch(records: list[bytes], **changes: int) -> RecordBatch:
    """A magic 2 batch around hand-made records."""
    body = b"".join(records)
    data = bytearray(batch_of(RECORDS[:1]))[:RECORDS_AT] + body
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">i", data, 57, changes.get("count", len(records)))
    return RecordBatch(data)


@pytest.mark.parametrize("codec", range(5))
def test_good_batch_has_no_issues(codec: int) -> None:
    summary = validate_records(RecordBatch(batch_of(RECORDS, codec=codec)))
    assert (summary.count, summary.max_timestamp, summary.index_of_max_timestamp) == (
        4,
        T0 + 10**9,
        3,
    )
    assert summary.consecutive
    assert summary.issues == []
    assert summary.error is ErrorCode.NONE


def test_null_keys_are_refused_for_compacted_topics_only() -> None:
    batch = RecordBatch(batch_of(RECORDS))
    assert validate_records(batch).issues == []
    summary = validate_records(batch, compacted=True)
    assert [(issue.batch_index, issue.error) for issue in summary.issues] == [
        (1, ErrorCode.INVALID_RECORD)
    ]
    assert "without key" in summary.issues[0].message
    assert summary.error is ErrorCode.INVALID_RECORD


def test_timestamps_out_of_bounds_are_named_one_by_one() -> None:
    batch = RecordBatch(batch_of(RECORDS))
    summary = validate_records(
        batch, min_timestamp=T0 - 6999, max_timestamp=T0 + 10**9 - 1, compacted=True
    )
    assert [(issue.batch_index, issue.error) for issue in summary.issues] == [
        (1, ErrorCode.INVALID_RECORD),
        (2, ErrorCode.INVALID_TIMESTAMP),
        (3, ErrorCode.INVALID_TIMESTAMP),
    ]
    assert f"Timestamp {T0 - 7000} of message with offset 2" in summary.issues[1].message
    assert summary.error is ErrorCode.INVALID_TIMESTAMP
    inclusive = validate_records(batch, min_timestamp=T0 - 7000, max_timestamp=T0 + 10**9)
    assert inclusive.issues == []


def test_missing_timestamp_is_within_any_bounds() -> None:
    batch = RecordBatch(batch_of([RECORDS[0]._replace(timestamp=-1)]))
    summary = validate_records(batch, min_timestamp=T0, max_timestamp=T0)
    assert (summary.issues, summary.max_timestamp) == ([], -1)


def test_producer_must_not_say_log_append_time() -> None:
    batch = RecordBatch(
        batch_of(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=T0)
    )
    assert [issue.error for issue in validate_records(batch).issues] == [
        ErrorCode.INVALID_TIMESTAMP
    ] * 4


def test_offset_deltas_that_jump_are_told() -> None:
    records = [record._replace(offset=record.offset * 2) for record in RECORDS]
    assert not validate_records(RecordBatch(batch_of(records))).consecutive
    twice = write_record(0, 0, b"k", b"v")
    summary = validate_records(one_batch([twice, twice]))
    assert not summary.consecutive
    assert summary.issues == []


@pytest.mark.parametrize("count", [1, 3, 0, -1, 2**31 - 1])
def test_count_that_differs_from_the_records_is_corrupt(count: int) -> None:
    records = [write_record(n, 0, b"k", b"v") for n in range(2)]
    with pytest.raises(CorruptRecord):
        validate_records(one_batch(records, count=count))


@pytest.mark.parametrize(
    "hexed",
    [
        "0c 00 00 00 01 01",
        "0a 00 00 00 01 01 00",
        "0e 00 00 00 01 01 00 00",
        "0c 00 00 00 01 01 01",
        "0c 00 00 00 01 01 02",
        "10 00 00 00 01 01 02 01 01",
        "10 00 00 00 01 01 02 08 01",
        "10 00 00 00 01 01 02 00 08",
        "0c 00 00 00 7e 01 00",
        "0c 00 00 00 01 7e 00",
        "ffffffffff 00 00",
        "20 00 ffffffffffffffffffff 00 01 01 00 00 00 00 00",
    ],
)
def test_broken_record_is_corrupt(hexed: str) -> None:
    with pytest.raises(CorruptRecord):
        validate_records(one_batch([bytes.fromhex(hexed)]))


def test_limit_holds() -> None:
    with pytest.raises(TooLarge):
        validate_records(RecordBatch(batch_of(RECORDS, codec=1)), max_bytes=100)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_old_messages_are_checked_too(magic: int, codec: int) -> None:
    records = PLAIN_RECORDS if codec else PLAIN_RECORDS[1:2]
    batch = RecordBatch(batch_of(records, magic, codec, base_offset=0))
    summary = validate_records(batch, compacted=True)
    assert summary.count == len(records)
    assert [issue.error for issue in summary.issues] == [ErrorCode.INVALID_RECORD]


def test_inner_message_that_fails_its_crc_is_corrupt() -> None:
    inner = bytearray(write_message(1, 0, 0, T0, b"k", b"v"))
    inner[-1] ^= 1
    batch = RecordBatch(write_message(1, 0, 1, T0, None, compress(1, 1, inner)))
    assert next(batch.records()).key == b"k"
    with pytest.raises(CorruptRecord, match="CRC"):
        validate_records(batch)


def test_inner_message_of_another_magic_is_corrupt() -> None:
    inner = write_message(0, 0, 0, -1, b"k", b"v")
    batch = RecordBatch(write_message(1, 0, 1, T0, None, compress(1, 1, inner)))
    with pytest.raises(CorruptRecord, match="magic"):
        validate_records(batch)
