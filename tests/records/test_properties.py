"""Properties of record batches over generated records, damage and noise."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from kwire.errors import RecordError
from kwire.records.batch import RecordBatch, iter_batches, read_header, rewrite_crc, valid_bytes
from kwire.records.compression import Codec, compress, decompress
from kwire.records.convert import down_convert, recompress, up_convert
from kwire.records.layout import CRC_AT
from kwire.records.record import Record, TimestampType
from kwire.records.validation import validate_records

from .samples import batch_of, record_lists

LIMIT = 1 << 16
CODECS = st.sampled_from(list(Codec))
OLD_CODECS = st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])


def records_of(data: bytes) -> list[Record]:
    return [record for batch in iter_batches(data) for record in batch.records(LIMIT)]


@given(record_lists(), CODECS)
def test_batch_of_magic_2_comes_back(records: list[Record], codec: Codec) -> None:
    data = batch_of(records, codec=codec)
    batch = RecordBatch(data)
    batch.verify_crc()
    assert records == [r._replace(headers=list(r.headers)) for r in batch.records()]
    assert batch.header.last_offset == records[-1].offset
    assert batch.header.max_timestamp == max(record.timestamp for record in records)
    summary = validate_records(batch)
    assert (summary.count, summary.max_timestamp) == (len(records), batch.header.max_timestamp)
    times = [record.timestamp for record in records]
    assert summary.index_of_max_timestamp == (times.index(max(times)) if max(times) >= 0 else -1)
    strict = validate_records(batch, compacted=True, min_timestamp=10, max_timestamp=2**40)
    assert [issue.batch_index for issue in strict.issues] == [
        n
        for n, record in enumerate(records)
        if record.key is None or (record.timestamp != -1 and not 10 <= record.timestamp <= 2**40)
    ]
    assert (strict.count, strict.max_timestamp, strict.index_of_max_timestamp) == (
        summary.count,
        summary.max_timestamp,
        summary.index_of_max_timestamp,
    )
    assert summary.consecutive == (
        [r.offset - records[0].offset for r in records] == list(range(len(records)))
    )


@given(record_lists(headers=False), OLD_CODECS, st.booleans())
def test_old_messages_come_back(records: list[Record], codec: Codec, append_time: bool) -> None:
    kind = TimestampType(append_time)
    data = batch_of(records, 1, codec, timestamp_type=kind, log_append_time=77)
    expected = [record._replace(headers=()) for record in records]
    if append_time:
        expected = [record._replace(timestamp=77) for record in expected]
    assert records_of(data) == expected
    assert valid_bytes(data) == len(data)


@given(record_lists(headers=False), OLD_CODECS, st.sampled_from([0, 1]))
def test_down_and_up_again_loses_only_what_old_magics_lack(
    records: list[Record], codec: Codec, magic: int
) -> None:
    data = batch_of(records, codec=codec)
    there = down_convert(data, magic)
    expected = [
        record._replace(headers=(), timestamp=record.timestamp if magic else -1)
        for record in records
    ]
    assert records_of(there) == expected
    back = up_convert(there, base_offset=5)
    renumbered = [record._replace(offset=5 + n) for n, record in enumerate(expected)]
    assert records_of(back) == renumbered


@given(record_lists(), CODECS, CODECS)
def test_recompressing_there_and_back_is_the_same_batch(
    records: list[Record], first: Codec, second: Codec
) -> None:
    data = batch_of(records, codec=first)
    assert recompress(recompress(data, second), first) == data


@given(st.binary(max_size=3000), OLD_CODECS, st.sampled_from([0, 1, 2]))
def test_compression_is_undone(data: bytes, codec: Codec, magic: int) -> None:
    assert decompress(codec, magic, compress(codec, magic, data), len(data)) == data


@given(st.binary(max_size=300), CODECS, st.sampled_from([0, 1, 2]))
def test_noise_never_decompresses_past_the_limit(data: bytes, codec: Codec, magic: int) -> None:
    try:
        assert len(decompress(codec, magic, data, 1000)) <= 1000
    except RecordError:
        pass


def check_everything(data: bytes) -> None:
    """Perform all of a broker's operations on a buffer: only RecordError may be raised, and valid data can be read."""

    def works(work: Callable[[], object]) -> bool:
        try:
            work()
        except RecordError:
            return False
        return True

    works(lambda: [batch.verify_crc() for batch in iter_batches(data)])
    works(lambda: down_convert(data, 1, max_bytes=LIMIT))
    works(lambda: down_convert(data, 0, max_bytes=LIMIT))
    works(lambda: up_convert(data, codec=Codec.NONE, max_bytes=LIMIT))
    works(
        lambda: recompress(data, Codec.LZ4, max_bytes=LIMIT) if read_header(data).magic == 2 else 0
    )
    valid = works(
        lambda: [validate_records(b, compacted=True, max_bytes=LIMIT) for b in iter_batches(data)]
    )
    assert not valid or works(lambda: records_of(data))


@given(st.binary(max_size=200))
def test_noise_raises_nothing_but_record_errors(data: bytes) -> None:
    check_everything(data)


@given(
    record_lists(headers=False),
    st.sampled_from([0, 1, 2]),
    OLD_CODECS,
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_damage_raises_nothing_but_record_errors(
    records: list[Record], magic: int, codec: Codec, damage: list[tuple[int, int]]
) -> None:
    data = bytearray(batch_of(records, magic, codec))
    for position, byte in damage:
        data[position % len(data)] = byte
    check_everything(bytes(data))


@given(
    record_lists(),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_lies_under_a_right_crc_raise_nothing_but_record_errors(
    records: list[Record], damage: list[tuple[int, int]]
) -> None:
    data = bytearray(batch_of(records))
    for position, byte in damage:
        data[CRC_AT + 4 + position % (len(data) - CRC_AT - 4)] = byte
    rewrite_crc(data)
    RecordBatch(data).verify_crc()
    check_everything(bytes(data))
