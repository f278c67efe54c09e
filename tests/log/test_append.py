"""Accepted, refused, stored and returned data of a leader's log."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.errors import ErrorCode
from kwire.records.batch import RecordBatch, iter_batches, rewrite_crc
from kwire.records.compression import Codec
from server.log.file_layer import FileLayer
from server.log.log import AppendError, AppendInfo, AppendOrigin
from server.log.log_config import LogConfig
from server.log.validator import (
    INLINE_GZIP_BYTES,
    INLINE_READ_BYTES,
    INLINE_REWRITE_BYTES,
    TOO_MUCH_HERE,
    needs_rewrite,
    prepare,
)
from tests.support.forms import form

from .logs import (
    NOW,
    ScarceFileLayer,
    append,
    batch,
    config,
    marker,
    open_log,
    read_batches,
    read_bytes,
    refusal,
    values,
)

pytestmark = pytest.mark.usefixtures("both_forms")


def test_appended_batch_gets_offsets_and_leader_epoch_where_it_lies(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"a", b"b", b"c"))
    view = batch(b"d")
    info = append(log, view, epoch=5)
    assert info == AppendInfo(3, 3, -1, 0, NOW, len(view))
    assert read_bytes(log, 3) == bytes(view)
    header = RecordBatch(view).header
    assert (header.base_offset, header.partition_leader_epoch) == (3, 5)
    RecordBatch(view).verify_crc()
    assert values(log) == [b"a", b"b", b"c", b"d"]


def test_read_only_buffer_is_left_as_it_is(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch())
    data = bytes(batch(b"x"))
    append(log, memoryview(data))
    assert data == bytes(batch(b"x"))
    assert values(log) == [b"value", b"x"]


@pytest.mark.parametrize(
    ("size", "refused"),
    [(INLINE_GZIP_BYTES - 1000, False), (INLINE_GZIP_BYTES + 1000, True)],
)
def test_much_gzip_data_is_not_read_in_the_loop(tmp_path: Path, size: int, refused: bool) -> None:
    """Even if it decompresses to little."""
    with form("native"):
        log = open_log(tmp_path, config(validation="deep"))
        assert log.reads_natively
        records = memoryview(bytearray(batch(random.Random(1).randbytes(size), codec=Codec.GZIP)))
        result = log.append_as_leader(records, 0, NOW, max_bytes=INLINE_READ_BYTES)
        assert (result is TOO_MUCH_HERE) is refused


@pytest.mark.parametrize("max_bytes", [0, INLINE_READ_BYTES])
def test_large_batch_is_not_read_without_time_for_it(tmp_path: Path, max_bytes: int) -> None:
    with form("native"):
        log = open_log(tmp_path, config(validation="deep"))
        assert log.reads_natively
        records = memoryview(bytearray(batch(bytes(INLINE_REWRITE_BYTES))))
        result = log.append_as_leader(records, 0, NOW, max_bytes=max_bytes)
        assert (result is TOO_MUCH_HERE) is not bool(max_bytes)


def test_several_batches_are_one_write_and_follow_each_other(tmp_path: Path) -> None:
    writes = []

    class Counting(FileLayer):
        def pwrite(self, fd: int, data: bytes, position: int) -> int:  # type: ignore[override]
            writes.append(len(data))
            return super().pwrite(fd, data, position)

    log = open_log(tmp_path, layer=Counting())
    both = memoryview(bytearray(bytes(batch(b"a", b"b")) + bytes(batch(b"c"))))
    writes.clear()
    info = log.append_as_leader(both, -1, NOW, origin=AppendOrigin.COORDINATOR)
    assert isinstance(info, AppendInfo)
    assert (info.first_offset, info.last_offset) == (0, 2)
    assert writes == [len(both)]
    log.high_watermark = 3
    assert values(log) == [b"a", b"b", b"c"]


def test_damaged_byte_is_refused_as_corrupt(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    good = bytes(batch(b"some value"))
    for at in range(17, len(good)):
        bad = bytearray(good)
        bad[at] ^= 0x10
        answer = log.append_as_leader(memoryview(bad), 0, NOW)
        assert isinstance(answer, AppendError)
        assert answer.error == ErrorCode.CORRUPT_MESSAGE, at
    assert log.log_end_offset == 0


@given(st.binary(max_size=300))
def test_any_bytes_are_an_error_and_never_an_exception(data: bytes) -> None:
    settings = LogConfig(compression_type="lz4")
    answer = prepare(memoryview(data), settings, "t-0", NOW)
    assert isinstance(answer, AppendError)
    assert answer.error in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
    needs_rewrite(memoryview(data), settings)


@given(st.integers(12, 60), st.binary(min_size=1, max_size=4))
def test_any_header_with_a_right_crc_is_an_answer(at: int, change: bytes) -> None:
    view = batch(b"a", b"b")
    view[at : at + len(change)] = change
    rewrite_crc(view)
    for settings in (LogConfig(), LogConfig(validation="deep"), LogConfig(compression_type="gzip")):
        answer = prepare(view, settings, "t-0", NOW)
        assert isinstance(answer, bytes | memoryview | AppendError)


@pytest.mark.parametrize("size", [1, 11, 12, 16, 17, 60])
def test_cut_header_is_refused(tmp_path: Path, size: int) -> None:
    log = open_log(tmp_path)
    assert refusal(log, batch()[:size]).error == ErrorCode.CORRUPT_MESSAGE


def test_cut_batch_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert refusal(log, batch()[:-1]).error == ErrorCode.CORRUPT_MESSAGE


def test_batch_larger_than_max_message_bytes_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(max_message_bytes=100))
    assert refusal(log, batch(b"x" * 100)).error == ErrorCode.MESSAGE_TOO_LARGE


def test_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_bytes=100))
    assert refusal(log, batch(b"x" * 100)).error == ErrorCode.RECORD_LIST_TOO_LARGE


def test_client_base_offset_other_than_zero_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert refusal(log, batch(base_offset=7)).error == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (57, b"\0\0\0\0"),  # no records
        (57, b"\xff\xff\xff\xff"),
        (57, b"\0\0\0\x02"),  # more records than offsets
        (23, b"\xff\xff\xff\xff"),  # a negative last offset
        (23, b"\0\0\0\x05"),
    ],
)
def test_offsets_that_contradict_the_count_are_refused(
    tmp_path: Path, at: int, data: bytes
) -> None:
    log = open_log(tmp_path)
    view = batch()
    view[at : at + len(data)] = data
    rewrite_crc(view)
    assert refusal(log, view).error == ErrorCode.INVALID_RECORD


def test_unassigned_codec_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    view = batch()
    view[22] |= 5
    rewrite_crc(view)
    assert refusal(log, view).error == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_control_batch_from_a_client_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert refusal(log, marker(1, commit=True)).error == ErrorCode.INVALID_RECORD


def test_producer_id_without_sequence_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    view = batch(pid=4)
    view[53:57] = b"\xff\xff\xff\xff"
    rewrite_crc(view)
    assert refusal(log, view).error == ErrorCode.INVALID_RECORD


def test_timestamps_out_of_bounds_are_refused_record_by_record(tmp_path: Path) -> None:
    settings = config(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=10)
    log = open_log(tmp_path, settings)
    answer = refusal(log, batch(b"a", b"b", b"c", timestamp=NOW + 9))
    assert answer.error == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in answer.record_errors] == [2]
    assert f"[{NOW - 1000}, {NOW + 10}]" in answer.record_errors[0][1]
    answer = refusal(log, batch(b"a", b"b", timestamp=NOW - 1001))
    assert [index for index, _ in answer.record_errors] == [0]
    append(log, batch(timestamp=NOW - 1000))
    append(log, batch(timestamp=NOW + 10))
    append(log, batch(timestamp=-1))  # a missing timestamp is not a wrong one


def test_log_append_time_stamps_markers_too(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(message_timestamp_type="LogAppendTime"))
    info = log.append_as_leader(
        marker(7, commit=True), 0, NOW + 77, origin=AppendOrigin.COORDINATOR
    )
    assert isinstance(info, AppendInfo)
    log.high_watermark = log.log_end_offset
    (stored,) = read_batches(log)
    assert stored.header.is_control and stored.header.is_log_append_time
    assert stored.header.max_timestamp == NOW + 77
    stored.verify_crc()


@pytest.mark.parametrize("compression_type", ["producer", "gzip"])
def test_compressed_message_beside_a_plain_one_is_refused(
    tmp_path: Path, compression_type: str
) -> None:
    log = open_log(tmp_path, config(compression_type=compression_type))
    plain, packed = (bytes(batch(b"a", magic=0, codec=codec)) for codec in (0, 2))
    refused = refusal(log, memoryview(bytearray(plain + packed)))
    assert refused.error == ErrorCode.INVALID_RECORD


def test_log_append_time_stamps_the_batch_and_keeps_its_crc_right(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(message_timestamp_type="LogAppendTime"))
    info = append(log, batch(b"a", b"b", timestamp=5), now_ms=NOW + 77)
    assert info.log_append_time_ms == NOW + 77
    (stored,) = read_batches(log)
    stored.verify_crc()
    assert [record.timestamp for record in stored.records()] == [NOW + 77] * 2
    assert log.max_timestamp_offset() == (0, NOW + 77, 0)


def test_null_key_takes_precedence_over_a_wrong_timestamp(tmp_path: Path) -> None:
    compact = frozenset({"compact"})
    settings = config(cleanup_policy=compact, message_timestamp_before_max_ms=1000)
    log = open_log(tmp_path, settings)
    keyless = batch(b"a", b"b", timestamp=5, key=None)
    answer = refusal(log, keyless)
    assert answer.error == ErrorCode.INVALID_RECORD
    assert [index for index, _ in answer.record_errors] == [0, 1]
    assert refusal(log, batch(b"a", timestamp=5)).error == ErrorCode.INVALID_TIMESTAMP


def test_first_wrong_message_of_magic_1_says_why_all_are_refused(tmp_path: Path) -> None:
    compact = frozenset({"compact"})
    log = open_log(tmp_path, config(cleanup_policy=compact, message_timestamp_before_max_ms=1000))
    keyless, late = bytes(batch(magic=1, key=None)), bytes(batch(magic=1, timestamp=5))
    assert refusal(log, memoryview(keyless + late)).error == ErrorCode.INVALID_RECORD
    assert refusal(log, memoryview(late + keyless)).error == ErrorCode.INVALID_TIMESTAMP


def test_two_batches_of_magic_2_from_a_client_are_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    both = memoryview(bytearray(bytes(batch(b"a")) + bytes(batch(b"b"))))
    assert refusal(log, both).error == ErrorCode.INVALID_RECORD


def test_log_append_time_without_a_time_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    view = batch(timestamp=-1)
    view[22] |= 8
    rewrite_crc(view)
    assert refusal(log, view).error == ErrorCode.INVALID_TIMESTAMP


def test_client_that_stamps_log_append_time_is_refused_there(tmp_path: Path) -> None:
    view = batch()
    view[22] |= 8
    rewrite_crc(view)
    log = open_log(tmp_path, config(message_timestamp_type="LogAppendTime"))
    assert refusal(log, view).error == ErrorCode.INVALID_TIMESTAMP


def test_create_time_topic_takes_the_wrong_attribute_off(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    view = batch()
    view[22] |= 8
    rewrite_crc(view)
    append(log, view)
    (stored,) = read_batches(log)
    stored.verify_crc()
    assert not stored.header.is_log_append_time


def test_wrong_attribute_counts_for_the_records_if_they_are_compressed_anew(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(compression_type="gzip"))
    view = batch(b"a", b"b", b"c")
    view[22] |= 8
    rewrite_crc(view)
    append(log, view)
    (stored,) = read_batches(log)
    assert not stored.header.is_log_append_time
    assert [record.timestamp for record in stored.records()] == [NOW + 2] * 3


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_compression_type_of_the_topic_is_what_is_stored(
    tmp_path: Path, codec: Codec, wanted: str
) -> None:
    log = open_log(tmp_path, config(compression_type=wanted))
    names = {"uncompressed": Codec.NONE} | {each.config_name: each for each in Codec}
    view = batch(b"a" * 500, b"b" * 500, codec=codec, pid=9, sequence=3)
    assert log.needs_rewrite(view) == (names[wanted] != codec)
    append(log, view)
    (stored,) = read_batches(log)
    stored.verify_crc()
    header = stored.header
    assert header.codec == names[wanted]
    assert (header.producer_id, header.base_sequence) == (9, 3)
    assert [record.value for record in stored.records()] == [b"a" * 500, b"b" * 500]


def test_prepared_records_are_appended_without_another_look(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(compression_type="gzip"))
    ready = log.prepare(batch(b"a" * 300), NOW)
    assert not isinstance(ready, AppendError)
    info = log.append_as_leader(memoryview(ready), 0, NOW, prepared=True)
    assert isinstance(info, AppendInfo)
    log.high_watermark = 1
    assert values(log) == [b"a" * 300]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_old_messages_become_one_batch_of_magic_two(
    tmp_path: Path, magic: int, codec: Codec
) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"first"))
    info = append(log, batch(b"a", b"b", b"c", magic=magic, codec=codec))
    assert (info.first_offset, info.last_offset) == (1, 3)
    stored = read_batches(log, 1)
    assert [each.magic for each in stored] == [2]
    assert values(log, 1) == [b"a", b"b", b"c"]


def test_compacted_topic_refuses_records_without_key(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(cleanup_policy=frozenset({"compact"})))
    answer = refusal(log, batch(b"a", b"b", key=None))
    assert answer.error == ErrorCode.INVALID_RECORD
    assert answer.record_errors == [
        (n, "Compacted topic cannot accept message without key in topic partition topic-0")
        for n in range(2)
    ]
    append(log, batch(b"a"))


def test_record_errors_with_a_wrong_timestamp_are_told_as_that(tmp_path: Path) -> None:
    settings = config(cleanup_policy=frozenset({"compact"}), message_timestamp_after_max_ms=0)
    log = open_log(tmp_path, settings)
    assert refusal(log, batch(timestamp=NOW + 1)).error == ErrorCode.INVALID_TIMESTAMP


def test_recompressed_batch_is_checked_for_its_timestamps_too(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(compression_type="gzip", message_timestamp_after_max_ms=0))
    answer = log.prepare(batch(timestamp=NOW + 1), NOW)
    assert isinstance(answer, AppendError)
    assert answer.error == ErrorCode.INVALID_TIMESTAMP
    assert refusal(log, batch(timestamp=NOW + 1)).error == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("prepared", [True, False])
def test_old_messages_get_the_brokers_time_where_the_topic_says_so(
    tmp_path: Path, prepared: bool
) -> None:
    log = open_log(tmp_path, config(message_timestamp_type="LogAppendTime"))
    view = batch(b"a", b"b", magic=1, timestamp=5)
    if prepared:
        ready = log.prepare(view, NOW)
        assert not isinstance(ready, AppendError)
        view = memoryview(ready)
    info = log.append_as_leader(view, 0, NOW + 3, prepared=prepared)
    assert isinstance(info, AppendInfo)
    log.high_watermark = 2
    (stored,) = read_batches(log)
    stored.verify_crc()
    assert [record.timestamp for record in stored.records()] == [NOW + 3] * 2


def lying_batch() -> memoryview:
    """A batch with a valid header whose body does not contain records."""
    view = batch(b"a" * 50, b"b" * 50)
    view[61:] = bytes(len(view) - 61)
    rewrite_crc(view)
    return view


def test_lying_body_is_refused_only_by_deep_validation(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(validation="deep"))
    assert refusal(log, lying_batch()).error == ErrorCode.INVALID_RECORD
    log.update_config(LogConfig())
    append(log, lying_batch())
    append(log, batch(b"next"))
    assert log.offset_for_timestamp(NOW) is not None  # and the log can still be used
    assert [each.header.base_offset for each in read_batches(log)] == [0, 2]


def test_deep_validation_mends_a_wrong_largest_timestamp(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(validation="deep"))
    view = batch(b"a", b"b")
    view[35:43] = (NOW - 5).to_bytes(8, "big")
    rewrite_crc(view)
    append(log, view)
    (stored,) = read_batches(log)
    assert stored.header.max_timestamp == NOW + 1


def test_coordinator_may_append_control_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(cleanup_policy=frozenset({"compact"})))
    answer = log.append_as_leader(marker(3, commit=True), 0, NOW, origin=AppendOrigin.COORDINATOR)
    assert isinstance(answer, AppendInfo)
    assert log.log_end_offset == 1


def test_disk_error_takes_the_log_offline_and_is_told_once(tmp_path: Path) -> None:
    told = []

    class Full(FileLayer):
        full = False

        def pwrite(self, fd: int, data: bytes, position: int) -> int:  # type: ignore[override]
            if self.full:
                raise OSError(28, "No space left on device")
            return super().pwrite(fd, data, position)

    layer = Full()
    log = open_log(tmp_path, layer=layer)
    log._io_error = told.append
    append(log, batch(b"a"))
    layer.full = True
    assert refusal(log, batch(b"b")).error == ErrorCode.KAFKA_STORAGE_ERROR
    layer.full = False
    assert refusal(log, batch(b"c")).error == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(told) == 1
    assert values(open_log(tmp_path)) == [b"a"]


def test_lack_of_descriptors_for_an_index_leaves_the_segment_as_it_was(tmp_path: Path) -> None:
    settings = config(index_interval_bytes=1)
    log = open_log(tmp_path, settings)
    for value in (b"0", b"1", b"2"):
        append(log, batch(value))
    log.close()
    layer = ScarceFileLayer()
    log = open_log(tmp_path, settings, clean=True, layer=layer)
    append(log, batch(b"3"))
    layer.endings = ("index",)
    assert refusal(log, batch(b"lost")).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.offline
    layer.endings = ()
    append(log, batch(b"4"))
    assert values(log) == [b"0", b"1", b"2", b"3", b"4"]


def test_short_writes_are_completed(tmp_path: Path) -> None:
    class Stuttering(FileLayer):
        def pwrite(self, fd: int, data: bytes, position: int) -> int:  # type: ignore[override]
            return super().pwrite(fd, memoryview(data)[:7], position)

    log = open_log(tmp_path, layer=Stuttering())
    for n in range(5):
        append(log, batch(b"%d" % n))
    assert values(log) == [b"0", b"1", b"2", b"3", b"4"]


def test_follower_keeps_offsets_and_epochs_and_drops_a_cut_batch(tmp_path: Path) -> None:
    leader = open_log(tmp_path / ".", config())
    append(leader, batch(b"a", b"b"), epoch=1)
    append(leader, batch(b"c"), epoch=4)
    data = read_bytes(leader, 0)
    (tmp_path / "follower").mkdir()
    follower = open_log(tmp_path / "follower")
    info = follower.append_as_follower(memoryview(data + data[:40]), NOW)
    assert isinstance(info, AppendInfo)
    assert (info.first_offset, info.last_offset, info.size) == (0, 2, len(data))
    assert read_bytes(follower, 0, end=3) == data
    assert follower.leader_epoch_cache.entries() == [(1, 0), (4, 2)]
    again = follower.append_as_follower(memoryview(data), NOW)
    assert isinstance(again, AppendError)
    assert again.error == ErrorCode.OFFSET_OUT_OF_RANGE
    bad = bytearray(data)
    bad[30] ^= 1
    corrupt = follower.append_as_follower(memoryview(bad), NOW)
    assert isinstance(corrupt, AppendError)
    assert corrupt.error == ErrorCode.CORRUPT_MESSAGE


def test_segments_roll_by_size(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_bytes=300))
    for n in range(6):
        append(log, batch(b"%d" % n * 50))
    sizes = [segment.size for segment in log.segments]
    assert len(log.segments) == 3
    assert all(size <= 300 for size in sizes)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    assert len(values(log)) == 6


def test_segments_roll_by_record_time(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_ms=1000))
    for offset in (0, 1000, 1001, 1500, 2002):
        append(log, batch(timestamp=NOW + offset))
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]


def test_segments_without_timestamps_roll_by_their_age(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_ms=1000))
    for after in (0, 1000, 1001):
        append(log, batch(timestamp=-1), now_ms=NOW + after)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_segments_roll_when_an_index_is_full(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(index_interval_bytes=0, segment_index_bytes=48))
    for n in range(12):
        append(log, batch(timestamp=NOW + n))
    # 48 bytes are four entries of the time index, one of which is kept free.
    assert [segment.base_offset for segment in log.segments] == [0, 4, 8]


def test_jitter_makes_a_segment_roll_earlier(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_ms=1000, segment_jitter_ms=900))
    jitter = log.active_segment.jitter_ms
    assert 0 < jitter < 900
    append(log, batch())
    append(log, batch(timestamp=NOW + 1000 - jitter))
    assert len(log.segments) == 1
    append(log, batch(timestamp=NOW + 1001 - jitter))
    assert len(log.segments) == 2


def test_batches_read_back_are_whole_and_in_order(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_bytes=1000, index_interval_bytes=100))
    for n in range(50):
        append(log, batch(*(b"%d" % n,) * (n % 4 + 1)))
    data = b"".join(read_bytes(log, s.base_offset) for s in log.segments)
    offsets = [each.header.base_offset for each in iter_batches(data)]
    assert offsets == sorted(offsets)
    assert list(iter_batches(data))[-1].header.next_offset == log.log_end_offset
