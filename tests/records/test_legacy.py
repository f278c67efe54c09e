"""Messages of magic 0 and 1, plain and wrapped."""

from __future__ import annotations

import struct
import zlib

import pytest

from kwire.errors import CorruptRecord, TooLarge, UnsupportedCodec
from kwire.records.batch import RecordBatch, iter_batches, read_header, verify_crc
from kwire.records.compression import compress
from kwire.records.legacy import read_message, write_message
from kwire.records.record import Record, TimestampType

from .samples import PLAIN_RECORDS, T0, batch_of

# Written by Apache Kafka 3.9.2.
V0_LZ4 = bytes.fromhex(
    "000000000000135200000062efe5089f0003ffffffff0000005404224d1860401a4500000011000100a1135200"
    "00003c42d5fbaa0f00000200f0202e6265626168686662636366676565636664616120626865616462676864626364"
    "656863646720616764656867646100000000"
)
V1_SNAPPY = bytes.fromhex(
    "000000000000105e0000005dd24b07e701020000018bcfe5e3c6ffffffff0000004782534e4150505900000000"
    "0100000001000000333800001901b02c948be5b201000000018bcfe5e3c6ffffffff00000016ceaeb6e8d592176f"
    "d5271a31ed4ef0e253333abdcefe"
)
V1_SNAPPY_APPEND_TIME = bytes.fromhex(
    "0000000000000af50000007836996d7c010a0000018bcff14631ffffffff0000006282534e4150505900000000"
    "01000000010000004e5200001901f04646f36dcef901080000018bcff14631000000066562636367620000002a20"
    "6562662065656863676163686562656566656162636362206863676361656862616120656765666763"
)


def records_of(data: bytes, limit: int = 1 << 20) -> list[Record]:
    return [record for batch in iter_batches(data) for record in batch.records(limit)]


def wrapper(magic: int, inner: bytes, *, offset: int = 0, codec: int = 1, bits: int = 0) -> bytes:
    value = compress(codec, magic, inner)
    return write_message(magic, offset, codec | bits, T0, None, value)


def test_apache_kafkas_wrappers_are_read() -> None:
    (record,) = records_of(V0_LZ4)
    assert record[:3] == (4946, -1, b"")
    assert record.value == b"bebahhfbccfgeecfdaa bheadbghdbcdehcdg agdehgda"
    (record,) = records_of(V1_SNAPPY)
    assert record[:3] == (4190, 1700000031686, None)
    (record,) = records_of(V1_SNAPPY_APPEND_TIME)
    assert record[:3] == (2805, 1700000777777, b"ebccgb")
    for data in (V0_LZ4, V1_SNAPPY, V1_SNAPPY_APPEND_TIME):
        verify_crc(data)


def test_plain_message_is_one_batch_and_one_record() -> None:
    data = batch_of(PLAIN_RECORDS, 1)
    headers = [batch.header for batch in iter_batches(data)]
    assert [header.records_count for header in headers] == [1] * 4
    assert [header.last_offset for header in headers] == [0, 1, 2, 3]
    assert [r.timestamp for r in PLAIN_RECORDS] == [header.max_timestamp for header in headers]
    assert records_of(data) == PLAIN_RECORDS


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_what_is_built_is_read(magic: int, codec: int) -> None:
    records = [record._replace(offset=100 + 3 * record.offset) for record in PLAIN_RECORDS]
    data = batch_of(records, magic, codec)
    if magic == 0:
        records = [record._replace(timestamp=-1) for record in records]
    assert records == records_of(data)
    for batch in iter_batches(data):
        batch.verify_crc()
        assert codec == batch.codec
    if codec:
        header = read_header(data)
        assert (header.last_offset, header.records_count) == (109, -1)
        assert (-1 if magic == 0 else T0 + 10**9) == header.max_timestamp


def test_offsets_in_a_wrapper_of_magic_1_are_relative_to_its_last() -> None:
    inner = b"".join(write_message(1, n, 0, T0 + n, None, b"v") for n in (0, 1, 4))
    assert [r.offset for r in records_of(wrapper(1, inner, offset=100))] == [96, 97, 100]
    # Some librdkafka versions produce with an outer offset of 0.
    assert [r.offset for r in records_of(wrapper(1, inner, offset=0))] == [0, 1, 4]
    with pytest.raises(CorruptRecord, match="below its last"):
        records_of(wrapper(1, inner, offset=3))


def test_offsets_in_a_wrapper_of_magic_0_are_absolute() -> None:
    inner = b"".join(write_message(0, n, 0, -1, None, b"v") for n in (7, 9))
    assert [record.offset for record in records_of(wrapper(0, inner, offset=9))] == [7, 9]


def test_append_time_of_a_wrapper_holds_for_all_inside() -> None:
    inner = b"".join(write_message(1, n, 0, 5 + n, None, b"v") for n in range(3))
    assert {T0} == {record.timestamp for record in records_of(wrapper(1, inner, bits=8))}
    assert [record.timestamp for record in records_of(wrapper(1, inner))] == [5, 6, 7]
    data = batch_of(
        PLAIN_RECORDS, 1, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=T0 + 1
    )
    assert {T0 + 1} == {record.timestamp for record in records_of(data)}


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        (b"", "no messages"),
        (write_message(1, 0, 1, T0, None, b"v"), "inside a compressed"),
        (write_message(1, 0, 0, T0, None, b"v")[:-1], "remain"),
        (write_message(1, 0, 0, T0, None, b"v") + b"\x00" * 5, "cut short"),
        (batch_of(PLAIN_RECORDS, 2), "magic 2"),
    ],
)
def test_wrapper_of_nonsense_is_corrupt(inner: bytes, words: str) -> None:
    with pytest.raises(CorruptRecord, match=words):
        records_of(wrapper(1, inner))


def test_wrapper_without_a_value_is_corrupt() -> None:
    with pytest.raises(CorruptRecord, match="null value"):
        records_of(write_message(1, 0, 1, T0, None, None))


def test_zstd_and_unassigned_codecs_are_unsupported_in_old_magics() -> None:
    for codec in (4, 5, 7):
        with pytest.raises(UnsupportedCodec):
            records_of(write_message(1, 0, codec, T0, None, b"v"))


def test_wrapper_beyond_the_limit_is_too_large() -> None:
    inner = write_message(1, 0, 0, T0, None, bytes(5000))
    assert len(records_of(wrapper(1, inner), 6000)) == 1
    with pytest.raises(TooLarge):
        records_of(wrapper(1, inner), 5000)


@pytest.mark.parametrize(("at", "length"), [(26, 2), (26, 2**31 - 1), (30, 6), (30, 2**31 - 1)])
def test_field_length_that_lies_is_corrupt(at: int, length: int) -> None:
    data = bytearray(write_message(1, 0, 0, T0, b"", b"value"))
    struct.pack_into(">i", data, at, length)
    with pytest.raises(CorruptRecord):
        list(RecordBatch(data).records())


def test_bytes_after_the_value_are_corrupt() -> None:
    data = bytearray(write_message(0, 0, 0, -1, b"k", b"value"))
    struct.pack_into(">i", data, len(data) - 9, 4)
    with pytest.raises(CorruptRecord, match="after the value"):
        read_message(data, 0)


def test_crc_covers_magic_to_value() -> None:
    data = write_message(1, 5, 0, T0, b"k", b"v")
    assert zlib.crc32(data[16:]) == read_header(data).crc
    assert read_message(data, 0, check_crc=True).crc_ok
    damaged = data[:-1] + b"w"
    assert not read_message(damaged, 0, check_crc=True).crc_ok
    with pytest.raises(CorruptRecord) as caught:
        verify_crc(damaged)
    assert caught.value.offset == 12
