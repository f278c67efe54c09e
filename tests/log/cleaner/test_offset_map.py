"""The key map in both of its forms, and the reading of records' heads."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.errors import CorruptRecord
from kwire.records.batch import BatchBuilder, RecordBatch
from kwire.records.record import read_records
from server import native
from server.log.cleaner.offset_map import offset_map
from server.log.cleaner.record_filter import USUAL_ATTRIBUTES
from server.log.cleaner.record_spans import (
    RecordSpan,
    keys_and_ends,
    record_spans,
    some_records,
    with_timestamp_delta,
)
from server.log.cleaner.worker import IoThrottle
from tests.support.forms import form

pytestmark = pytest.mark.usefixtures("both_forms")


@pytest.mark.parametrize("max_bytes", [1 << 20, 20_000])
def test_map_gives_last_offset_of_each_key(max_bytes: int) -> None:
    """Also after it was converted from a dict."""
    chooser = random.Random(1)
    keys = offset_map(max_bytes)
    model: dict[bytes, int] = {}
    for offset in range(2000):
        key = b"%d" % chooser.randrange(400)
        keys.put(key, offset)
        model[key] = offset
    assert keys.is_exact == (max_bytes > 100_000 and native.KeyTable is None)
    assert not keys.is_full and len(keys) == len(model)
    assert {key: keys.get(key) for key in model} == model
    assert keys.get(b"never") == -1
    assert keys.latest_offset == 1999


@pytest.mark.parametrize("max_bytes", [1 << 20, 20_000])
def test_many_keys_at_once_are_as_one_after_the_other(max_bytes: int) -> None:
    """In both forms; and the marks are exactly the last offsets of the keys."""
    chooser = random.Random(2)
    one, many = offset_map(max_bytes), offset_map(max_bytes)
    offset = 1000
    while offset < 4000:
        count = chooser.randrange(1, 30)
        keys = [b"%d" % chooser.randrange(400) for _ in range(count)]
        offsets = sorted(chooser.sample(range(offset, offset + 2 * count), count))
        offset += 2 * count
        for key, each in zip(keys, offsets, strict=True):
            one.put(key, each)
        if not many.put_all(keys, offsets):
            for key, each in zip(keys, offsets, strict=True):
                many.put(key, each)
    every = [b"%d" % number for number in range(420)]
    expected = [one.get(key) for key in every]
    assert many.last_offsets(every) == one.last_offsets(every) == expected
    assert (len(many), many.latest_offset, many.is_exact) == (
        len(one),
        one.latest_offset,
        one.is_exact,
    )
    for keys_read in (one, many):
        marks = keys_read.marks(1000, 10_000)
        if native.KeyTable is not None:
            assert marks is None
            continue
        assert marks is not None and len(marks) == one.latest_offset - 999
        found = {1000 + at for at, mark in enumerate(marks) if mark}
        assert found == set(expected) - {-1}
    assert many.marks(1000, 100) is None


def test_keys_that_may_not_all_fit_are_not_put_at_once() -> None:
    keys = offset_map(32_000, 0.9)
    assert not keys.put_all([b"%d" % n for n in range(901)], range(901))
    assert len(keys) == 0
    assert keys.put_all([b"key"] * 100, range(100)) and len(keys) == 1


def test_map_is_full_at_as_many_keys_as_fit() -> None:
    keys = offset_map(32_000, 0.9)
    for offset in range(10_000):
        if keys.is_full:
            break
        keys.put(b"key %d" % offset, offset)
    assert len(keys) == keys.max_keys == 900
    assert keys.latest_offset == 899
    keys.put(b"key 7", 10_000)
    assert keys.get(b"key 7") == 10_000 and len(keys) == 900


def test_map_has_room_for_as_many_keys_as_there_are_offsets() -> None:
    keys = offset_map(32_000, 0.9, offsets=10)
    for offset in range(10):
        assert not keys.is_full
        keys.put(b"key %d" % offset, offset)
    assert keys.is_full and keys.get(b"key 3") == 3


def test_small_map_takes_little_memory() -> None:
    tracemalloc.start()
    keys = offset_map(128 << 20, 0.9, offsets=1000)
    keys.put(b"key", 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000


def test_keys_that_look_alike_are_different() -> None:
    """Also those that differ in zero bytes at an end, or in one bit."""
    alike = {bytes(size) for size in range(40)} | {bytes(size) + b"k" for size in range(40)}
    alike |= {b"k" + bytes(size) for size in range(40)}
    alike |= {(1 << bit).to_bytes(16, "big") for bit in range(128)}
    alike |= {b"%d" % number for number in range(2000)}
    keys = offset_map(1 << 20)
    for offset, key in enumerate(sorted(alike)):
        keys.put(key, offset)
    assert len(keys) == len(alike)
    assert [keys.get(key) for key in sorted(alike)] == list(range(len(alike)))
    assert keys.get(b"\0" * 50) == -1


def test_native_table_refuses_more_keys_than_it_has_entries() -> None:
    with form("native"):
        keys = offset_map(32_000, 0.9, offsets=3)
        with pytest.raises(OverflowError):
            for offset in range(10):
                keys.put(b"key %d" % offset, offset)
        assert keys.get(b"key 0") == 0
        assert keys.get(b"key 9") == -1


def test_native_table_notes_and_filters_whole_batches() -> None:
    """Up to one whose attributes are not usual, that is damaged, or that is cut short."""
    builder = BatchBuilder(base_offset=5)
    for number in range(4):
        builder.append(number, b"key %d" % (number % 3), b"value")
    plain = builder.build()
    marked = bytearray(plain)
    marked[40] ^= 1
    with form("native"):
        for window, taken in (
            (plain + plain, 2),
            (plain + plain[:-1], 1),
            (plain + marked, 1),
            (
                plain
                + BatchBuilder(
                    producer_id=1, producer_epoch=1, base_sequence=1, is_transactional=True
                ).build(),
                1,
            ),
            (plain[:60], 0),
            (b"", 0),
        ):
            keys = offset_map(32_000)
            view = memoryview(window)
            assert keys.note_batches(view, 0, USUAL_ATTRIBUTES, 0) == taken * len(plain)
            assert keys.latest_offset == (8 if taken else -1)
            end, rows = keys.filter_batches(view, 0, USUAL_ATTRIBUTES, 0)
            assert end == taken * len(plain)
            assert [row[1:] for row in rows] == [(len(plain), 8, 4, 3)] * taken
            for left, *_ in rows:
                assert left is not None
                assert [r.offset for r in RecordBatch(left).records()] == [6, 7, 8]
        assert keys.note_batches(memoryview(plain), -1, USUAL_ATTRIBUTES, 0) == -1
        assert keys.note_batches(memoryview(plain), 1000, USUAL_ATTRIBUTES, 0) == 1000


@pytest.mark.parametrize("key_size", [8, 300])
def test_map_stays_within_its_memory(key_size: int) -> None:
    """From the first key to the last, and during the conversion."""
    max_bytes = 1 << 19
    tracemalloc.start()
    keys = offset_map(max_bytes, 1.0)
    offset = 0
    while not keys.is_full:
        keys.put(b"%0*d" % (key_size, offset), offset)
        offset += 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < max_bytes * 1.15
    assert offset >= max_bytes // 32


HEADERS = st.lists(
    st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=3))), max_size=2
)
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 200),
        st.integers(-(1 << 40), 1 << 40),
        st.one_of(st.none(), st.binary(max_size=200)),
        st.one_of(st.none(), st.binary(max_size=300)),
        HEADERS,
    ),
    min_size=1,
    max_size=8,
)


@given(records=RECORDS, other=st.integers(-(1 << 62), 1 << 62))
def test_spans_are_the_records(records: list, other: int) -> None:  # type: ignore[type-arg]
    """Each copied span is read as the original record, also with another timestamp delta."""
    builder = BatchBuilder()
    offset = -1
    for gap, timestamp, key, value, headers in records:
        offset += 1 + gap
        builder.append(timestamp, key, value, headers, offset=offset)
    batch = RecordBatch(builder.build())
    body, base = batch.body(), batch.header.base_timestamp
    expected = list(batch.records())
    spans = record_spans(body, len(expected), batch.header.last_offset_delta)
    assert len(spans) == len(expected)
    for (start, end, time, delta, key, has_value), record in zip(spans, expected, strict=True):
        assert (delta, base + time, key) == (record.offset, record.timestamp, record.key)
        assert has_value == (record.value is not None)
        assert next(read_records(body[start:end], 1, 0, base)) == record
        moved = with_timestamp_delta(body, start, end, record.timestamp - other)
        assert next(read_records(moved, 1, 0, other)) == record
    assert heads_of(body, len(spans), batch.header.last_offset_delta) == spans


def heads_of(body: bytes, count: int, last_offset_delta: int) -> list[RecordSpan] | None:
    """The results of `keys_and_ends` and `some_records`, combined as `record_spans` returns them."""
    heads = keys_and_ends(body, count, last_offset_delta)
    every = some_records(body, list(range(count)))
    if heads is None:
        return None
    assert every is not None
    third = some_records(body, list(range(2, count, 3)))
    assert third == every[2::3]
    ends, keys, deltas, nulls = heads
    assert [span[:2] for span in every] == list(zip([0, *ends[:-1]], ends, strict=True))
    assert [number for number, span in enumerate(every) if not span[5]] == nulls
    return [
        (start, end, time, delta, key, has_value)
        for (start, end, time, _, _, has_value), delta, key in zip(every, deltas, keys, strict=True)
    ]


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("size", [0, 40, 60, 130, 8100, 20_000])
def test_heads_of_many_and_of_large_records_are_the_spans(count: int, size: int) -> None:
    """With lengths and offset deltas that need one more byte."""
    builder = BatchBuilder()
    for number in range(count):
        value = None if number % 7 == 3 else b"v" * (size + number % 5)
        builder.append(1000 + number * 40, b"k" * (number % 3 + size // 100), value)
    batch = RecordBatch(builder.build())
    spans = record_spans(batch.body(), count, count - 1)
    assert heads_of(batch.body(), count, count - 1) == spans


@given(
    damage=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=3)
)
def test_damaged_body_is_refused_or_walked_to_its_end(damage: list[tuple[int, int]]) -> None:
    builder = BatchBuilder()
    for number in range(4):
        builder.append(number, b"key", b"value" * 20)
    batch = RecordBatch(builder.build())
    body = bytearray(batch.body())
    for position, byte in damage:
        body[position % len(body)] = byte
    try:
        spans = record_spans(bytes(body), 4, 3)
    except CorruptRecord:
        assert keys_and_ends(bytes(body), 4, 3) is None
        some_records(bytes(body), [1, 3])  # the call returns for all bytes
        return
    assert keys_and_ends(bytes(body), 4, 3) is None or heads_of(bytes(body), 4, 3) == spans
    assert [span[0] for span in spans[1:]] == [span[1] for span in spans[:-1]]
    assert spans[-1][1] == len(body)
    assert [span[3] for span in spans] == sorted({span[3] for span in spans})


def test_throttle_pauses_as_long_as_the_rate_asks() -> None:
    now = 0.0
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        nonlocal now
        pauses.append(seconds)
        now += seconds

    throttle = IoThrottle(1000.0, lambda: now, pause)
    for _ in range(100):
        throttle.used(50)
        now += 0.001
    assert now == pytest.approx(5.0, rel=0.1)
    assert max(pauses) <= 0.35
