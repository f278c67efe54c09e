"""Headers, the walk over batches, checksums and the in-place patches of a leader."""

from __future__ import annotations

import struct

import pytest

from kwire.errors import CorruptRecord, RecordError, TooLarge, UnsupportedCodec, WireError
from kwire.records import batch as b
from kwire.records.batch import BatchBuilder, RecordBatch
from kwire.records.layout import ATTRIBUTES_AT, RECORDS_COUNT_AT
from kwire.records.record import TimestampType

from .samples import RECORDS, T0, batch_of

# From Apache Kafka 3.9.2: an abort marker, and the bare header that compaction leaves.
COMMIT = bytes.fromhex(
    "000000000000fc700000004200000001026c2d538c0030000000000000018bcfe56a460000018bcfe56a46"
    "00000000000003df0024ffffffff000000012000000008000000010c00000000002b00"
)
EMPTY = bytes.fromhex(
    "0000000000000064000000310000000502960f5ad6001000000014ffffffffffffffff0000018bcfe56800"
    "000000000000002a00030000001100000000"
)


def test_header_of_a_control_batch_says_all_its_fields() -> None:
    header = b.read_header(COMMIT)
    assert header[:5] == (64624, 66, 1, 2, 0x6C2D538C)
    assert 78 == header.size == len(COMMIT)
    assert header.is_control and header.is_transactional and header.has_producer_id
    assert header[9:] == (991, 36, -1, 1)
    assert header.last_sequence == -1
    assert header.delete_horizon_ms is None
    b.verify_crc(COMMIT)


def test_header_of_an_emptied_batch_keeps_offsets_and_sequences() -> None:
    batch = RecordBatch(EMPTY)
    assert (
        batch.header.base_offset,
        batch.header.last_offset,
        batch.header.next_offset,
    ) == (100, 120, 121)
    assert batch.header.last_sequence == 37
    assert list(batch.records()) == []


def test_sequence_after_the_highest_is_zero() -> None:
    assert b.increment_sequence(2**31 - 1, 1) == 0
    assert b.increment_sequence(2**31 - 2, 4) == 2
    batch = RecordBatch(batch_of(RECORDS, producer_id=9, producer_epoch=1, base_sequence=2**31 - 2))
    assert [batch.sequence_of(r.offset) for r in RECORDS] == [2**31 - 2, 2**31 - 1, 0, 1]
    assert batch.header.last_sequence == 1


def test_walk_ends_quietly_before_a_cut_batch() -> None:
    data = COMMIT + EMPTY
    assert [position for position, _ in b.iter_batch_headers(data)] == [0, 78]
    assert len(data) == b.valid_bytes(data)
    for cut in range(len(EMPTY)):
        partial = data[: len(COMMIT) + cut]
        assert [position for position, _ in b.iter_batch_headers(partial)] == [0]
        assert len(COMMIT) == b.valid_bytes(partial)


def test_walk_between_bounds_sees_only_what_lies_there() -> None:
    data = b"\x07" * 5 + COMMIT + EMPTY
    found = list(b.iter_batch_headers(data, 5, 5 + len(COMMIT) + 60))
    assert [position for position, _ in found] == [5]
    assert len(list(b.iter_batches(data, 5))) == 2


@pytest.mark.parametrize("length", [-1, 0, 13, -(2**31)])
def test_length_below_any_message_is_corrupt(length: int) -> None:
    data = bytearray(COMMIT)
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(CorruptRecord) as caught:
        list(b.iter_batch_headers(data))
    assert caught.value.offset == 8


@pytest.mark.parametrize(("magic", "length"), [(2, 48), (1, 21), (0, 13)])
def test_length_below_the_magics_smallest_is_corrupt(magic: int, length: int) -> None:
    data = bytearray(COMMIT)
    data[16] = magic
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(CorruptRecord):
        b.read_header(data)


@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_unknown_magic_is_corrupt(magic: int) -> None:
    data = bytearray(COMMIT)
    data[16] = magic
    with pytest.raises(CorruptRecord) as caught:
        b.read_header(data)
    assert caught.value.offset == 16
    with pytest.raises(CorruptRecord):
        b.valid_bytes(data)


def test_header_cut_short_is_corrupt() -> None:
    for cut in range(61):
        with pytest.raises(CorruptRecord):
            b.read_header(COMMIT[:cut])


def test_batch_cut_short_is_no_record_batch() -> None:
    with pytest.raises(CorruptRecord):
        RecordBatch(COMMIT[:-1])
    with pytest.raises(CorruptRecord):
        b.verify_crc(COMMIT[:-1])


def test_any_changed_byte_behind_the_crc_is_noticed() -> None:
    data = batch_of(RECORDS)
    for position in range(b.CRC_AT, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptRecord) as caught:
            b.verify_crc(damaged)
        assert caught.value.offset == b.CRC_AT


def test_leaders_patch_leaves_the_crc_right() -> None:
    data = bytearray(b"......" + batch_of(RECORDS))
    b.set_offset_and_epoch(memoryview(data), 6, 77, 5)
    batch = RecordBatch(data, 6)
    batch.verify_crc()
    assert (batch.header.base_offset, batch.header.partition_leader_epoch) == (77, 5)
    assert [record.offset for record in batch.records()] == [77, 78, 79, 80]


def test_log_append_time_stands_for_every_record() -> None:
    data = bytearray(batch_of(RECORDS))
    b.set_log_append_time(data, 0, T0 + 99)
    batch = RecordBatch(data)
    batch.verify_crc()
    assert TimestampType.LOG_APPEND_TIME is batch.timestamp_type
    assert {T0 + 99} == {record.timestamp for record in batch.records()}


def test_patches_refuse_a_readonly_buffer() -> None:
    with pytest.raises(TypeError):
        b.set_offset_and_epoch(memoryview(COMMIT), 0, 1, 1)


def test_body_beyond_the_limit_is_too_large() -> None:
    data = batch_of(RECORDS, codec=1)
    size = len(RecordBatch(data).body())
    assert len(list(RecordBatch(data).records(size))) == 4
    with pytest.raises(TooLarge):
        RecordBatch(data).records(size - 1)


@pytest.mark.parametrize("count", [-1, -(2**31), 2**31 - 1, 5])
def test_count_that_lies_is_corrupt(count: int) -> None:
    data = bytearray(batch_of(RECORDS))
    struct.pack_into(">i", data, RECORDS_COUNT_AT, count)
    with pytest.raises(CorruptRecord):
        list(RecordBatch(data).records())


def test_count_too_low_leaves_bytes_over() -> None:
    data = bytearray(batch_of(RECORDS))
    struct.pack_into(">i", data, RECORDS_COUNT_AT, 3)
    with pytest.raises(CorruptRecord, match="after the last record"):
        list(RecordBatch(data).records())


def test_unassigned_codec_is_unsupported() -> None:
    data = bytearray(batch_of(RECORDS))
    data[ATTRIBUTES_AT + 1] |= 5
    with pytest.raises(UnsupportedCodec):
        RecordBatch(data).records()
    with pytest.raises(UnsupportedCodec):
        _ = RecordBatch(data).codec


def test_base_offset_at_the_edge_of_int64_is_corrupt() -> None:
    data = bytearray(batch_of(RECORDS))
    struct.pack_into(">q", data, 0, 2**63 - 1)
    with pytest.raises(CorruptRecord, match="leaves no room"):
        list(RecordBatch(data).records())


def test_timestamps_wrap_as_java_longs_do() -> None:
    records = [RECORDS[0]._replace(timestamp=2**63 - 1), RECORDS[1]._replace(timestamp=-(2**63))]
    assert [record.timestamp for record in RecordBatch(batch_of(records)).records()] == [
        2**63 - 1,
        -(2**63),
    ]


def test_record_errors_are_wire_errors() -> None:
    for kind in (CorruptRecord, TooLarge, UnsupportedCodec):
        assert issubclass(kind, RecordError) and issubclass(kind, WireError)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"is_transactional": True}, "producer id"),
        ({"producer_id": 1}, "epoch"),
        ({"producer_id": 1, "producer_epoch": 0}, "sequence"),
    ],
)
def test_builder_refuses_half_a_producer(fields: dict[str, int], words: str) -> None:
    builder = BatchBuilder(**fields)  # type: ignore[arg-type]
    builder.append(T0, b"k", b"v")
    with pytest.raises(ValueError, match=words):
        builder.build()


def test_builder_refuses_offsets_that_do_not_rise() -> None:
    builder = BatchBuilder(base_offset=10)
    builder.append(T0, None, None, offset=12)
    for offset in (11, 12, 9, 10 + 2**31):
        with pytest.raises(ValueError, match="offset"):
            builder.append(T0, None, None, offset=offset)
    assert (builder.count, builder.next_offset, builder.max_timestamp) == (1, 13, T0)


def test_builder_knows_its_size() -> None:
    builder = BatchBuilder()
    assert builder.size == 61
    for record in RECORDS:
        builder.append_record(record)
    assert builder.size == len(builder.build())


def test_builder_of_old_magic_refuses_what_it_cannot_carry() -> None:
    with pytest.raises(ValueError, match="headers"):
        batch_of(RECORDS, 1)
    with pytest.raises(ValueError, match="no producers"):
        BatchBuilder(1, producer_id=5)
    with pytest.raises(UnsupportedCodec):
        BatchBuilder(1, 4)
    with pytest.raises(ValueError, match="unknown"):
        BatchBuilder(3)


def test_header_functions_import_no_codec() -> None:
    import subprocess
    import sys

    program = (
        "import sys; import kwire.records.batch; import kwire.records.convert;"
        "print([m for m in ('lz4', 'snappy', 'cramjam', 'zstandard', 'argparse', 'email')"
        " if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
