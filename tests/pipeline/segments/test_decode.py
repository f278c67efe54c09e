"""The decoder for thousands of records at once returns the same as the one that reads them one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.errors import CorruptRecord, RecordError
from kwire.pipeline.segments.columns import RECORD_COLUMNS, BatchRows, RecordRows, record_batch
from kwire.records.batch import BatchBuilder, RecordBatch
from kwire.records.layout import RECORDS_AT
from kwire.records.record import Record, TimestampType

pytestmark = pytest.mark.usefixtures("both_forms")

NAMES = tuple(RECORD_COLUMNS)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TIMES = st.one_of(st.integers(0, 200), st.integers(-(1 << 40), 1 << 40), INT64)
SIZES = st.one_of(st.integers(0, 9), st.sampled_from([50, 63, 64, 127, 128, 8191, 8192, 20000]))
BYTES = st.one_of(
    st.none(), st.builds(lambda size, fill: bytes([fill]) * size, SIZES, st.integers(0, 255))
)
HEADERS = st.lists(st.tuples(st.text(max_size=4), BYTES), max_size=3)
RECORDS = st.lists(
    st.tuples(TIMES, BYTES, BYTES, HEADERS, st.sampled_from([1, 1, 1, 2, 70, 9000])),
    min_size=1,
    max_size=12,
)
TYPES = st.sampled_from(TimestampType)


def build(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]], int]],
    kind: TimestampType = TimestampType.CREATE_TIME,
    base_offset: int = 1000,
) -> RecordBatch:
    builder = BatchBuilder(2, 0, kind, base_offset=base_offset, log_append_time=12345)
    offset = base_offset - 1
    for timestamp, key, value, headers, step in records:
        offset += step
        builder.append(timestamp, key, value, headers, offset=offset)
    return RecordBatch(builder.build())


def by_numpy(*batches: RecordBatch) -> object:
    buffer = bytearray()
    bodies = []
    for batch in batches:
        buffer += batch.view[:RECORDS_AT]  # there are other bytes between bodies
        bodies.append((len(buffer), len(buffer) + len(batch.body())))
        buffer += batch.body()
    rows = BatchRows([batch.header for batch in batches], buffer, bodies)
    return record_batch(rows, NAMES, "t", 0, 0, 1 << 62)


def one_by_one(*batches: RecordBatch) -> object:
    records: list[Record] = []
    types = []
    for batch in batches:
        some = list(batch.records())
        records += some
        types += [int(batch.timestamp_type)] * len(some)
    return record_batch(RecordRows(records, types), NAMES, "t", 0, 0, 1 << 62)


@given(st.lists(st.tuples(RECORDS, TYPES), min_size=1, max_size=3))
def test_any_records_are_decoded_as_one_by_one(
    given_: list[
        tuple[
            list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]], int]],
            TimestampType,
        ]
    ],
) -> None:
    batches = [build(records, kind) for records, kind in given_]
    assert by_numpy(*batches) == one_by_one(*batches)


@given(
    st.lists(
        st.tuples(st.sampled_from([20, 21, 90, 9000]), st.integers(1, 200)), min_size=1, max_size=4
    )
)
def test_runs_of_one_size_are_decoded_as_one_by_one(runs: list[tuple[int, int]]) -> None:
    records = [(0, b"k", b"v" * size, [], 1) for size, count in runs for _ in range(count)]
    batch = build(records)
    assert by_numpy(batch) == one_by_one(batch)


@given(RECORDS, st.data())
def test_damaged_bodies_are_refused_or_read_as_one_by_one(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]], int]],
    data: st.DataObject,
) -> None:
    raw = bytearray(build(records).view)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(RECORDS_AT, min(len(raw) - 1, RECORDS_AT + 200)))
        raw[at] = data.draw(st.integers(0, 255))
    batch = RecordBatch(bytes(raw))
    try:
        expected = one_by_one(batch)
    except (RecordError, UnicodeError):
        with pytest.raises(CorruptRecord):
            by_numpy(batch)
        return
    assert by_numpy(batch) == expected


def test_header_keys_that_are_no_text_are_replaced_as_java_does() -> None:
    batch = build([(0, None, None, [("\udcff", b"x")], 1)])
    (row,) = by_numpy(batch).to_pylist()  # type: ignore[attr-defined]
    assert row["headers"] == [{"key": "\ufffd", "value": b"x"}]


@pytest.mark.parametrize("timestamp_ms", [0, 9223372036854775, -9223372036854775])
def test_timestamps_as_large_as_microseconds_can_hold_are_kept(timestamp_ms: int) -> None:
    found = by_numpy(build([(timestamp_ms, None, b"v", [], 1)]))
    assert found.column("timestamp").cast("int64").to_pylist() == [timestamp_ms * 1000]  # type: ignore[attr-defined]
