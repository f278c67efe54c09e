"""Conversion between magics, recompression. Cases follow MemoryRecordsBuilderTest,
FileRecordsTest and LogValidatorTest of Apache Kafka."""

from __future__ import annotations

import struct

import pytest

from kwire.errors import CorruptRecord, TooLarge, UnsupportedCodec
from kwire.records.batch import RecordBatch, iter_batches, read_header
from kwire.records.compression import Codec
from kwire.records.convert import convert, down_convert, recompress, up_convert
from kwire.records.record import Record, TimestampType

from .samples import PLAIN_RECORDS, RECORDS, T0, batch_of
from .test_batch import COMMIT, EMPTY


def records_of(data: bytes) -> list[Record]:
    records = []
    for batch in iter_batches(data):
        batch.verify_crc()
        records += batch.records()
    return records


def at(base: int, records: list[Record] = RECORDS) -> list[Record]:
    return [record._replace(offset=base + record.offset) for record in records]


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
@pytest.mark.parametrize("to_magic", [0, 1])
def test_down_converting_keeps_offsets_and_codec_and_loses_headers(
    codec: int, to_magic: int
) -> None:
    data = batch_of(at(50), codec=codec)
    converted = down_convert(data, to_magic)
    expected = at(50, PLAIN_RECORDS)
    if to_magic == 0:
        expected = [record._replace(timestamp=-1) for record in expected]
    assert records_of(converted) == expected
    batches = list(iter_batches(converted))
    assert {(batch.magic, batch.codec) for batch in batches} == {(to_magic, codec)}
    assert len(batches) == (1 if codec else 4)
    assert convert(data, to_magic) == converted


def test_down_converted_wrapper_of_magic_1_holds_relative_offsets() -> None:
    (batch,) = iter_batches(down_convert(batch_of(at(50), codec=1), 1))
    assert batch.header.base_offset == 53
    stored = batch.view[34:]
    import gzip

    inner = gzip.decompress(stored)
    assert struct.unpack_from(">q", inner)[0] == 0


def test_down_converting_drops_control_batches_and_keeps_what_is_old_enough() -> None:
    old = batch_of(PLAIN_RECORDS, 1, 2)
    data = old + COMMIT + EMPTY + batch_of(at(70000), codec=3)
    converted = down_convert(data, 1)
    assert converted[: len(old)] == old
    assert records_of(converted) == PLAIN_RECORDS + at(70000, PLAIN_RECORDS)
    assert down_convert(COMMIT, 1) == b""
    assert down_convert(COMMIT, 2) == COMMIT


def test_down_converting_starts_at_the_first_offset_asked_for_unless_compressed() -> None:
    for codec, expected in ((0, [52, 53]), (1, [50, 51, 52, 53])):
        converted = down_convert(batch_of(at(50), codec=codec), 1, first_offset=52)
        assert [record.offset for record in records_of(converted)] == expected


def test_down_converting_from_1_to_0_makes_offsets_absolute_and_breaks_the_lz4_checksum() -> None:
    converted = down_convert(batch_of(at(50, PLAIN_RECORDS), 1, 3), 0)
    assert [record.offset for record in records_of(converted)] == [50, 51, 52, 53]
    assert converted[26:33].hex() == "04224d1860401a"


def test_down_converting_keeps_the_append_time() -> None:
    data = batch_of(
        RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=T0 + 3, codec=1
    )
    converted = down_convert(data, 1)
    assert read_header(converted).is_log_append_time
    assert {record.timestamp for record in records_of(converted)} == {T0 + 3}


def test_zstd_cannot_go_down() -> None:
    with pytest.raises(UnsupportedCodec):
        down_convert(batch_of(RECORDS, codec=4), 1)


def test_zstd_batch_ends_what_goes_down() -> None:
    """As Apache Kafka converts lazily, only a first batch of zstd is an error."""
    data = batch_of(RECORDS) + batch_of(RECORDS, codec=4)
    assert records_of(down_convert(data, 1)) == PLAIN_RECORDS


def test_cut_last_batch_is_left_out() -> None:
    data = batch_of(RECORDS)
    assert records_of(down_convert(data + data[:-1], 1)) == PLAIN_RECORDS


def test_offsets_that_do_not_rise_cannot_go_down() -> None:
    data = bytearray(batch_of(RECORDS[:2]))
    body = RecordBatch(data).body()
    at_second = len(data) - len(body) + body[0] // 2 + 1
    assert (
        data[at_second + 3] == 2
    )  # the second record's offset delta, after length, attributes, timestamp
    data[at_second + 3] = 0
    with pytest.raises(CorruptRecord):
        down_convert(data, 1)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
@pytest.mark.parametrize("target", [None, *Codec])
def test_up_converting_makes_one_batch_with_new_offsets(
    magic: int, codec: int, target: int | None
) -> None:
    data = batch_of(at(7, PLAIN_RECORDS), magic, codec)
    converted = up_convert(data, codec=target, base_offset=1000, partition_leader_epoch=4)
    header = read_header(converted)
    assert header.size == len(converted)
    assert (header.base_offset, header.last_offset, header.records_count) == (1000, 1003, 4)
    assert header.codec == (codec if target is None else target)
    assert header.partition_leader_epoch == 4
    expected = at(1000, PLAIN_RECORDS)
    if magic == 0:
        expected = [record._replace(timestamp=-1) for record in expected]
    assert records_of(converted) == expected
    assert header.max_timestamp == max(record.timestamp for record in expected)


def test_up_converting_magic_2_renumbers_and_keeps_the_producer() -> None:
    records = [record._replace(offset=record.offset * 5) for record in RECORDS]
    data = batch_of(
        records, producer_id=5, producer_epoch=1, base_sequence=10, is_transactional=True
    )
    header = read_header(up_convert(data, codec=4))
    assert header[9:] == (5, 1, 10, 4)
    assert header.is_transactional
    assert (header.base_offset, header.last_offset) == (0, 3)


def test_up_converting_can_stamp_the_append_time() -> None:
    converted = convert(batch_of(PLAIN_RECORDS, 0, 1), 2)
    assert {record.timestamp for record in records_of(converted)} == {-1}
    converted = up_convert(
        batch_of(PLAIN_RECORDS, 0, 1),
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        log_append_time=T0,
    )
    assert {record.timestamp for record in records_of(converted)} == {T0}


@pytest.mark.parametrize("data", [b"", EMPTY, batch_of(RECORDS)[:-1], COMMIT])
def test_up_converting_nothing_or_control_batches_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptRecord):
        up_convert(data)


def test_budget_of_bytes_holds_for_all_batches_together() -> None:
    data = batch_of(RECORDS, codec=1)
    size = len(RecordBatch(data).body())
    for function in (
        up_convert,
        lambda buffer, max_bytes: down_convert(buffer, 1, max_bytes=max_bytes),
    ):
        function(data * 3, max_bytes=3 * size + 100)
        with pytest.raises(TooLarge):
            function(data * 3, max_bytes=2 * size)


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", list(Codec))
def test_recompressing_keeps_all_but_codec_length_and_crc(source: Codec, target: Codec) -> None:
    data = batch_of(
        at(9), codec=source, producer_id=5, producer_epoch=1, base_sequence=10, delete_horizon_ms=T0
    )
    done = RecordBatch(recompress(data, target))
    done.verify_crc()
    assert done.codec is target
    assert done.body() == RecordBatch(data).body()
    same = {"crc": 0, "batch_length": 0, "attributes": 0}
    assert done.header._replace(**same) == read_header(data)._replace(**same)
    assert done.header.attributes & ~7 == read_header(data).attributes & ~7


def test_control_and_empty_batches_are_not_recompressed() -> None:
    assert recompress(COMMIT, Codec.GZIP) == COMMIT
    assert recompress(EMPTY, Codec.GZIP) == EMPTY


def test_recompressing_refuses_what_it_must_not_touch() -> None:
    with pytest.raises(ValueError, match="converted"):
        recompress(batch_of(PLAIN_RECORDS, 1), Codec.GZIP)
    with pytest.raises(TooLarge):
        recompress(batch_of(RECORDS, codec=1), Codec.NONE, max_bytes=100)
    lying = bytearray(batch_of(RECORDS))
    struct.pack_into(">i", lying, 57, 10_000)
    with pytest.raises(CorruptRecord):
        recompress(lying, Codec.GZIP)
