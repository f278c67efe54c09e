"""Records of magic 2, byte by byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.errors import CorruptRecord
from kwire.records.record import (
    Record,
    find_by_time,
    read_records,
    read_values,
    read_varint,
    read_varlong,
    write_record,
    write_varint,
)

from .samples import T0

# length 19, attributes, timestamp delta 0, offset delta 0, key "key", value "value", one header
RECORD = bytes.fromhex("26 00 00 00 06 6b6579 0a 76616c7565 02 02 68 04 7631")


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_varints_are_javas(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert data == write_varint(value)
    assert (value, len(data)) == read_varlong(data, 0)
    if -(2**31) <= value < 2**31:
        assert (value, len(data)) == read_varint(data, 0)


def test_varint_that_does_not_end_is_corrupt() -> None:
    with pytest.raises(CorruptRecord, match="5 bytes"):
        read_varint(b"\xff" * 20, 3)
    with pytest.raises(CorruptRecord, match="10 bytes") as caught:
        read_varlong(b"\xff" * 20, 3)
    assert caught.value.offset == 3


def test_record_reads_and_writes_as_documented() -> None:
    record = Record(7, T0, b"key", b"value", [("h", b"v1")])
    assert [record] == list(read_records(RECORD, 1, 7, T0))
    assert write_record(0, 0, b"key", b"value", [("h", b"v1")]) == RECORD


def test_header_key_that_is_not_utf8_keeps_its_bytes() -> None:
    data = RECORD.replace(b"\x02h\x04", b"\x02\xff\x04")
    (record,) = read_records(data, 1, 0, T0)
    assert record.headers == [("\udcff", b"v1")]
    assert data == write_record(0, 0, record.key, record.value, record.headers)


def test_every_cut_is_corrupt() -> None:
    for cut in range(len(RECORD)):
        with pytest.raises(CorruptRecord):
            list(read_records(RECORD[:cut], 1, 0, 0))


@pytest.mark.parametrize(
    ("hexed", "words"),
    [
        ("28 00 00 00 06 6b6579 0a 76616c7565 02 02 68 04 7631", "remain"),
        ("24 00 00 00 06 6b6579 0a 76616c7565 02 02 68 04 7631", "fit|value of|fields of"),
        ("01 00 00 00 01 01 00", "record of -1 bytes"),
        ("0a 00 00 00 01 01 00", "record of 5 bytes"),
        ("0c 00 00 00 01 01 01", "headers do not fit"),
        ("0c 00 00 00 01 01 02", "headers do not fit"),
        ("10 00 00 00 01 01 02 01 01", "header key of -1"),
        ("10 00 00 00 01 01 02 08 01", "header key of 4"),
        ("10 00 00 00 01 01 02 00 08", "header value of 4"),
        ("0c 00 00 00 7e 01 00", "cut short"),
        ("0e 00 00 00 01 01 00 00", "fields of"),
        ("ffffffffff 00 00", "5 bytes"),
        ("20 00 ffffffffffffffffffff 00 01 01 00 00 00 00 00", "10 bytes"),
    ],
)
def test_lying_record_is_corrupt_and_says_how(hexed: str, words: str) -> None:
    with pytest.raises(CorruptRecord, match=words):
        list(read_records(bytes.fromhex(hexed), 1, 0, 0))


def test_records_come_one_by_one() -> None:
    data = RECORD * 2 + b"\xff" * len(RECORD)
    records = read_records(data, 3, 0, 0)
    assert next(records).key == b"key"
    assert next(records).key == b"key"
    with pytest.raises(CorruptRecord):
        next(records)


@given(
    deltas=st.lists(
        st.tuples(
            st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)),
            st.integers(0, 300),
            st.binary(max_size=200),
        ),
        max_size=6,
    ),
    base=st.one_of(st.just(1000), st.integers(-(2**63), 2**63 - 1)),
    wanted=st.one_of(st.integers(995, 1005), st.integers(-(2**63), 2**63 - 1)),
    start=st.integers(0, 300),
)
def test_first_record_at_a_time_is_that_of_a_walk(
    deltas: list[tuple[int, int, bytes]], base: int, wanted: int, start: int
) -> None:
    data = b"".join(write_record(offset, delta, None, value) for delta, offset, value in deltas)
    walked = next(
        (
            (record.offset, record.timestamp)
            for record in read_records(data, len(deltas), 5, base)
            if record.timestamp >= wanted and record.offset >= start
        ),
        None,
    )
    assert find_by_time(data, len(deltas), 5, base, wanted, start) == walked


@given(
    records=st.lists(
        st.tuples(
            st.integers(-(2**40), 2**40),
            st.integers(0, 2**31 - 1),
            st.none() | st.binary(max_size=300),
            st.none() | st.binary(max_size=300) | st.just(bytes(20_000)),
            st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
        ),
        max_size=6,
    )
)
def test_values_alone_are_those_of_the_records(
    records: list[tuple[int, int, Any, Any, Any]],
) -> None:
    data = b"".join(
        write_record(offset, delta, key, value, headers)
        for delta, offset, key, value, headers in records
    )
    expected = [b"none" if value is None else value for *_, value, _ in records]
    assert read_values(data, len(records), b"none") == expected


@pytest.mark.parametrize(
    "hexed",
    [
        "28 00 00 00 06 6b6579 0a 76616c7565 02 02 68 04 7631",
        "01 00 00 00 01 01 00",
        "0a 00 00 00 01 01 00",
        "0c 00 00 00 7e 01 00",
        "0c 00 00 00 01 02 00",
        "ffffffffff 00 00",
    ],
)
def test_values_of_lying_records_are_refused(hexed: str) -> None:
    with pytest.raises(CorruptRecord):
        read_values(bytes.fromhex(hexed), 1)
    for cut in range(len(RECORD)):
        with pytest.raises(CorruptRecord):
            read_values(RECORD[:cut], 1)
    with pytest.raises(CorruptRecord, match="after the last record"):
        read_values(RECORD * 2, 1)


def test_search_by_time_in_damaged_records_ends() -> None:
    data = b"".join(write_record(n, n, b"k", b"v" * 70) for n in range(4))
    for cut in range(len(data)):
        with pytest.raises(CorruptRecord):
            find_by_time(data[:cut], 4, 0, 0, 99, 0)
    with pytest.raises(CorruptRecord):
        find_by_time(data + b"x", 4, 0, 0, 99, 0)
    for at in range(len(data)):
        for byte in (0, 1, 0x7F, 0x80, 0xFF):
            try:
                find_by_time(data[:at] + bytes((byte,)) + data[at + 1 :], 4, 0, 0, 99, 0)
            except CorruptRecord:
                pass
