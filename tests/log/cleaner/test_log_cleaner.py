"""Compaction: kept and removed records, and readers find the same log."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.records.batch import BatchBuilder, RecordBatch, rewrite_crc
from kwire.records.record import Record
from server.log.cleaner.plan import CleanerSettings, Uncleanable
from server.log.cleaner.worker import CleanSession
from server.log.file_layer import FileSlice
from server.log.log import AppendInfo, Log, LogSlice

from ..logs import NOW, append, batch, config, end_transaction, open_log, read_batches
from .cleaning import clean, cleaner_of, run_round, unthrottled

pytestmark = pytest.mark.usefixtures("both_forms")

HOUR_MS = 3_600_000
COMPACT = config(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=2000,
    index_interval_bytes=200,
    min_cleanable_dirty_ratio=0.01,
    delete_retention_ms=HOUR_MS,
)


def put(log: Log, *records: tuple[bytes, bytes | None], codec: int = 0, now_ms: int = NOW) -> None:
    """Append one batch with these keys and values."""
    builder = BatchBuilder(2, codec)
    for number, (key, value) in enumerate(records):
        builder.append(now_ms + number, key, value)
    append(log, memoryview(bytearray(builder.build())), now_ms=now_ms)


def roll(log: Log) -> None:
    """Seal the active segment, and force it to the device, as the broker does."""
    log.roll(NOW)
    log.flush(NOW)


def records_of(log: Log) -> list[Record]:
    """All data records, as returned by fetches."""
    return [
        record
        for each in read_batches(log, log.log_start_offset, max_bytes=700)
        if not each.is_control
        for record in each.records()
    ]


def contents(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of all data records."""
    return [(record.offset, record.key, record.value) for record in records_of(log)]


def expected_after(
    before: list[tuple[int, bytes | None, bytes | None]], end_offset: int
) -> list[tuple[int, bytes | None, bytes | None]]:
    """The records that compaction up to end_offset keeps, while no tombstone has expired."""
    last = {key: offset for offset, key, _ in before if offset < end_offset}
    return [each for each in before if each[0] >= end_offset or last[each[1]] <= each[0]]


# -- against a model -------------------------------------------------------------------------------

ROUND = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.integers(0, 12), st.one_of(st.none(), st.integers(0, 200))),
            min_size=1,
            max_size=6,
        ),
        st.sampled_from([0, 0, 1, 3]),
        st.booleans(),
    ),
    max_size=12,
)


@given(rounds=st.lists(ROUND, min_size=1, max_size=3), memory=st.sampled_from([64, 400, 1 << 20]))
def test_compacted_log_has_last_record_of_each_key(
    tmp_path_factory: pytest.TempPathFactory, rounds: list, memory: int
) -> None:
    """Offsets, order and the tail are kept, even if not all keys fit into memory at once."""
    log = open_log(tmp_path_factory.mktemp("model"), COMPACT)
    cleaner = cleaner_of(log, CleanerSettings(dedupe_buffer_size=memory))
    for appends in rounds:
        for records, codec, rolls in appends:
            put(
                log,
                *((b"key%d" % k, None if v is None else b"v" * v) for k, v in records),
                codec=codec,
            )
            if rolls:
                roll(log)
        before = contents(log)
        times = {record.offset: record.timestamp for record in records_of(log)}
        end_offset, log_end = log.active_segment.base_offset, log.log_end_offset
        clean(log, cleaner)
        assert contents(log) == expected_after(before, end_offset)
        assert all(times[record.offset] == record.timestamp for record in records_of(log))
        assert log.log_end_offset == log_end
        assert_every_offset_reads_on(log)
    reopened = open_log(Path(log.dir).parent, COMPACT, clean=True)
    assert contents(reopened) == contents(log)
    assert reopened.log_end_offset == log.log_end_offset


def assert_every_offset_reads_on(log: Log) -> None:
    """From each offset a fetch returns the next remaining record, or gets past the gap."""
    offsets = [record.offset for record in records_of(log)]
    for start in range(log.log_start_offset, log.log_end_offset):
        found = log.read(start, 1, log.high_watermark)
        assert isinstance(found, LogSlice)
        assert found.size > 0 and found.next_offset > start
        data = found.data.read() if isinstance(found.data, FileSlice) else found.data
        header = RecordBatch(data).header
        assert header.last_offset >= start
        skipped = [o for o in offsets if start <= o < header.base_offset]
        assert skipped == []


@pytest.mark.parametrize("seed", range(3))
def test_log_reopened_after_crash_equals_compacted_log(tmp_path: Path, seed: int) -> None:
    """Recovery reads compacted segments from the start and finds nothing to truncate."""
    chooser = random.Random(seed)
    log = open_log(tmp_path, COMPACT)
    for number in range(200):
        put(log, (b"%d" % chooser.randrange(30), b"%d" % number), codec=chooser.choice([0, 3]))
    clean(log)
    found = contents(log)
    assert len(found) < 120
    again = open_log(tmp_path, COMPACT, clean=False)
    assert contents(again) == found
    assert again.log_end_offset == log.log_end_offset


# -- tombstones ------------------------------------------------------------------------------------


def test_tombstone_goes_after_delete_retention(tmp_path: Path) -> None:
    """The first round writes the horizon into the batch; a round after that time removes the record."""
    log = open_log(tmp_path, COMPACT)
    cleaner = cleaner_of(log)
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"x", b"1"), (b"a", None), (b"y", b"1"))
    roll(log)
    clean(log, cleaner)
    assert contents(log) == [(1, b"b", b"1"), (2, b"x", b"1"), (3, b"a", None), (4, b"y", b"1")]
    header = read_batches(log)[-1].header
    assert header.delete_horizon_ms == NOW + HOUR_MS
    assert [record.timestamp for record in records_of(log)][1:] == [NOW, NOW + 1, NOW + 2]
    assert header.max_timestamp == NOW + 2

    put(log, (b"c", b"1"))
    roll(log)
    clean(log, cleaner, now_ms=NOW + HOUR_MS - 1)
    assert (3, b"a", None) in contents(log)
    put(log, (b"d", b"1"))
    roll(log)
    clean(log, cleaner, now_ms=NOW + HOUR_MS)
    assert [key for _, key, _ in contents(log)] == [b"b", b"x", b"y", b"c", b"d"]
    assert [record.timestamp for record in records_of(log)][1:3] == [NOW, NOW + 2]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_horizon_keeps_codec_and_everything_else(tmp_path: Path, codec: int) -> None:
    log = open_log(tmp_path, COMPACT)
    put(log, (b"a", None), (b"b", b"value" * 20), codec=codec)
    before = read_batches(log)[0].header
    roll(log)
    clean(log)
    after = read_batches(log)[0]
    after.verify_crc()
    assert after.header.codec == codec
    assert after.header.attributes == before.attributes | 0x40
    unchanged = ("base_offset", "last_offset_delta", "max_timestamp", "records_count", "magic")
    for name in unchanged:
        assert getattr(after.header, name) == getattr(before, name), name
    assert contents(log) == [(0, b"a", None), (1, b"b", b"value" * 20)]


def test_record_without_key_goes(tmp_path: Path) -> None:
    """It was written before the topic became compacted."""
    log = open_log(tmp_path, config(segment_bytes=2000))
    put(log, (b"a", b"1"))
    append(log, batch(b"no key", key=None))
    put(log, (b"b", b"1"))
    roll(log)
    log.update_config(COMPACT)
    clean(log)
    assert contents(log) == [(0, b"a", b"1"), (2, b"b", b"1")]


# -- batches ---------------------------------------------------------------------------------------


def test_batch_that_lost_records_keeps_offsets_and_producer(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    builder = BatchBuilder(producer_id=7, producer_epoch=2, base_sequence=0)
    for key in (b"a", b"b", b"c"):
        builder.append(NOW, key, b"old")
    append(log, memoryview(bytearray(builder.build())), epoch=5)
    put(log, (b"a", b"new"), (b"c", b"new"))
    roll(log)
    clean(log)
    header = read_batches(log)[0].header
    assert (header.base_offset, header.last_offset, header.records_count) == (0, 2, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 0)
    assert header.last_sequence == 2
    assert contents(log)[0] == (1, b"b", b"old")


def test_last_batch_of_known_producer_stays_empty(tmp_path: Path) -> None:
    """After a crash, the producer's next sequence number is still known, and a duplicate is
    still recognised."""
    log = open_log(tmp_path, COMPACT)
    append(log, batch(b"1", key=b"a", pid=7, sequence=0))
    append(log, batch(b"2", key=b"a", pid=7, sequence=1))
    put(log, (b"a", b"new"))
    roll(log)
    clean(log)
    headers = [each.header for each in read_batches(log)]
    assert [(h.base_offset, h.records_count, h.base_sequence) for h in headers] == [
        (1, 0, 1),
        (2, 1, -1),
    ]
    assert headers[0].size == 61
    again = open_log(tmp_path, COMPACT, clean=False)
    (producer,) = again.active_producers()
    assert producer.last_sequence == 1
    duplicate = again.append_as_leader(batch(b"2", key=b"a", pid=7, sequence=1), 0, NOW)
    assert isinstance(duplicate, AppendInfo) and duplicate.duplicate
    append(again, batch(b"3", key=b"a", pid=7, sequence=2))


def test_forgotten_producers_batch_goes(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    append(log, batch(b"1", key=b"a", pid=7, sequence=0))
    put(log, (b"a", b"new"))
    roll(log)
    list(log.producers.remove_expired(NOW + 365 * 24 * HOUR_MS))
    clean(log)
    assert [each.header.base_offset for each in read_batches(log)] == [1]


def test_reader_gets_past_what_is_missing_before_an_empty_active_segment(tmp_path: Path) -> None:
    """The round's last batch is kept as a header; otherwise readers would not reach the log's end."""
    log = open_log(tmp_path, config(segment_bytes=2000))
    put(log, (b"a", b"1"))
    append(log, batch(b"no key", key=None))
    roll(log)
    log.update_config(COMPACT)
    clean(log)
    assert contents(log) == [(0, b"a", b"1")]
    assert_every_offset_reads_on(log)
    assert [each.header.base_offset for each in read_batches(log)] == [0, 1]


def test_untouched_batch_stays_byte_for_byte(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    put(log, (b"a", b"1"), (b"b", b"1"), codec=3)
    stored = bytes(read_batches(log)[0].view)
    put(log, (b"c", b"1"))
    put(log, (b"c", b"2"))
    roll(log)
    clean(log)
    assert bytes(read_batches(log)[0].view) == stored


def test_indexes_of_cleaned_segment_find_everything(tmp_path: Path) -> None:
    """Offsets and timestamps are found, also after the index files were read again."""
    log = open_log(tmp_path, COMPACT)
    for number in range(300):
        put(log, (b"%d" % (number % 60), b"value %d" % number), now_ms=NOW + number * 1000)
    clean(log)
    log = open_log(tmp_path, COMPACT, clean=True)
    assert max(len(s.offset_index) for s in log.segments[:-1]) > 3
    assert max(len(s.time_index) for s in log.segments[:-1]) > 3
    stored = {record.timestamp: record.offset for record in records_of(log)}
    for number in range(0, 300, 7):
        wanted = NOW + number * 1000
        expected = min(offset for time, offset in stored.items() if time >= wanted)
        found = log.offset_for_timestamp(wanted)
        assert found is not None and found[0] == expected
    assert log.max_timestamp_offset() == (299, NOW + 299_000, 0)


# -- transactions ----------------------------------------------------------------------------------


def txn(log: Log, pid: int, key: bytes, value: bytes | None, sequence: int = 0) -> None:
    """Append one record in a transaction."""
    append(log, batch(value, key=key, pid=pid, sequence=sequence, transactional=True))  # type: ignore[arg-type]


def markers(log: Log) -> list[int]:
    """Base offsets of the control batches that have a record."""
    return [
        each.header.base_offset
        for each in read_batches(log)
        if each.is_control and each.header.records_count
    ]


def test_aborted_records_go_and_do_not_hide_older_ones(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    put(log, (b"a", b"committed"))
    txn(log, 9, b"a", b"aborted")
    end_transaction(log, 9, commit=False)
    put(log, (b"z", b"1"))
    roll(log)
    assert log.aborted_transactions(0, 9) == [(9, 1)]
    clean(log)
    assert contents(log) == [(0, b"a", b"committed"), (3, b"z", b"1")]
    assert markers(log) == [2], "the marker outlives its records by one round"
    assert log.aborted_transactions(0, 9) == [(9, 1)], "an emptied batch of it is still there"


def test_marker_goes_once_its_records_are_gone_and_its_time_is_over(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    cleaner = cleaner_of(log)
    txn(log, 9, b"a", b"1")
    end_transaction(log, 9, commit=True)
    txn(log, 9, b"a", b"2", sequence=1)
    end_transaction(log, 9, commit=True)
    put(log, (b"a", b"3"))

    def next_round(now_ms: int) -> list[int]:
        put(log, (b"filler %d" % log.log_end_offset, b""))
        roll(log)
        assert clean(log, cleaner, now_ms=now_ms) == 1
        return markers(log)

    assert next_round(NOW) == [1, 3]
    assert next_round(NOW) == [1, 3], "now without records: the horizon is set"
    horizons = [each.header.delete_horizon_ms for each in read_batches(log) if each.is_control]
    assert horizons == [NOW + HOUR_MS, None], "the second has its producer's emptied batch"
    assert next_round(NOW + HOUR_MS - 1) == [1, 3]
    assert next_round(NOW + HOUR_MS) == [3]
    assert contents(log)[0] == (4, b"a", b"3")


def test_open_transaction_bounds_the_round(tmp_path: Path) -> None:
    """Nothing from the last stable offset's segment on is changed."""
    log = open_log(tmp_path, COMPACT)
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    roll(log)
    txn(log, 9, b"a", b"open")
    put(log, (b"a", b"3"))
    roll(log)
    put(log, (b"a", b"4"))
    roll(log)
    clean(log)
    assert [value for _, _, value in contents(log)] == [b"2", b"open", b"3", b"4"]
    end_transaction(log, 9, commit=True)
    roll(log)
    clean(log)
    assert [value for _, _, value in contents(log)] == [b"4"]


def test_transaction_aborted_later_than_the_round_reaches_is_known(tmp_path: Path) -> None:
    """The marker, and therefore the index entry, is in the active segment."""
    log = open_log(tmp_path, COMPACT)
    put(log, (b"a", b"committed"))
    txn(log, 9, b"a", b"aborted")
    put(log, (b"b", b"1"))
    roll(log)
    end_transaction(log, 9, commit=False)
    clean(log)
    assert contents(log) == [(0, b"a", b"committed"), (2, b"b", b"1")]
    assert log.aborted_transactions(0, 4) == [(9, 1)]


# -- what may be cleaned, and in which order -------------------------------------------------------


def fill(log: Log, count: int, now_ms: int = NOW) -> None:
    for number in range(count):
        put(log, (b"key", b"%d" % number), now_ms=now_ms)
    roll(log)


def test_log_is_due_above_its_dirty_ratio(tmp_path: Path) -> None:
    settings = config(
        cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.5, segment_bytes=1 << 20
    )
    log = open_log(tmp_path, settings)
    cleaner = cleaner_of(log)
    for number in range(20):
        put(log, (b"%d" % number, b"v" * 40))
    roll(log)
    assert clean(log, cleaner) == 1, "all of it is dirty"
    for number in range(15):
        put(log, (b"%d" % number, b"w" * 40))
    roll(log)
    assert clean(log, cleaner) == 0, "15 of 35"
    for number in range(15):
        put(log, (b"%d" % number, b"x" * 40))
    roll(log)
    assert clean(log, cleaner) == 1, "30 of 50"
    assert clean(log, cleaner) == 0


def test_record_younger_than_min_lag_is_not_touched(tmp_path: Path) -> None:
    settings = config(
        cleanup_policy=frozenset({"compact"}),
        min_cleanable_dirty_ratio=0.01,
        min_compaction_lag_ms=HOUR_MS,
    )
    log = open_log(tmp_path, settings)
    fill(log, 3, NOW - 2 * HOUR_MS)
    fill(log, 3, NOW - HOUR_MS // 2)
    cleaner = cleaner_of(log)
    assert clean(log, cleaner) == 1
    assert [offset for offset, _, _ in contents(log)] == [2, 3, 4, 5]
    assert cleaner.checkpoint_of(log.tp) == 3
    assert clean(log, cleaner, now_ms=NOW + HOUR_MS) == 1
    assert [offset for offset, _, _ in contents(log)] == [5]


def test_record_older_than_max_lag_makes_log_due(tmp_path: Path) -> None:
    settings = config(
        cleanup_policy=frozenset({"compact"}),
        min_cleanable_dirty_ratio=1.0,
        max_compaction_lag_ms=HOUR_MS,
    )
    log = open_log(tmp_path, settings)
    fill(log, 3)
    cleaner = cleaner_of(log)
    assert clean(log, cleaner, now_ms=NOW + HOUR_MS) == 0
    assert clean(log, cleaner, now_ms=NOW + HOUR_MS + 1) == 1


def test_max_lag_seals_segments(tmp_path: Path) -> None:
    """Otherwise overdue records would stay in the active segment for segment.ms."""
    settings = config(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=HOUR_MS)
    log = open_log(tmp_path, settings)
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"), now_ms=NOW + HOUR_MS)
    assert len(log.segments) == 1
    put(log, (b"a", b"3"), now_ms=NOW + HOUR_MS + 1)
    assert len(log.segments) == 2


def test_checkpoint_is_where_the_next_start_goes_on(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    fill(log, 3)
    clean(log)
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\ntopic 0 3\n"
    assert cleaner_of(log).next_round(NOW) is None
    cleaner_of(log)._manager.directories[0].forget_cleaned_to(log.tp)
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n0\n"


@pytest.mark.parametrize("offset", [7, 99])
def test_checkpoint_outside_the_log_is_ignored(tmp_path: Path, offset: int) -> None:
    log = open_log(tmp_path, COMPACT)
    fill(log, 10)
    log.delete_records_before(8)
    (tmp_path / "cleaner-offset-checkpoint").write_text(f"0\n1\ntopic 0 {offset}\n")
    round_ = cleaner_of(log).next_round(NOW)
    assert round_ is not None
    assert round_.plan.first_dirty_offset == 8


def test_topic_that_only_deletes_is_left_alone(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_bytes=2000))
    fill(log, 3)
    assert cleaner_of(log).next_round(NOW) is None


def test_small_segments_become_large_ones(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    for number in range(200):
        put(log, (b"%d" % number, b"value"))
        if number % 4 == 3:
            roll(log)
    before = contents(log)
    log.update_config(config(cleanup_policy=frozenset({"compact"}), segment_bytes=1 << 20))
    clean(log, cleaner := cleaner_of(log))
    assert len(log.segments) == 2
    assert contents(log) == before
    assert cleaner.checkpoint_of(log.tp) == 200


# -- what goes wrong -------------------------------------------------------------------------------


def lying_batch() -> memoryview:
    """A batch with a valid header and an invalid body, which standard validation accepts."""
    lie = batch(b"value", key=b"a")
    lie[65] = 0x7E  # the key's length
    rewrite_crc(lie)
    return lie


def test_batch_with_a_lying_body_makes_the_log_uncleanable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path, config(segment_bytes=2000))
    append(log, lying_batch())
    roll(log)
    log.update_config(COMPACT)
    stored = (Path(log.dir) / f"{0:020d}.log").read_bytes()
    cleaner = cleaner_of(log)
    round_ = cleaner.next_round(NOW)
    assert round_ is not None
    with pytest.raises(Uncleanable) as raised:
        run_round(cleaner, round_)
    cleaner.fail(round_, raised.value, NOW)
    assert "offsets 0 to 0" in cleaner.uncleanable[log.tp]
    assert "cannot be compacted" in caplog.text
    assert cleaner.next_round(NOW) is None
    assert (Path(log.dir) / f"{0:020d}.log").read_bytes() == stored
    assert not list(Path(log.dir).glob("*.cleaned"))


def test_batch_of_wrong_crc_makes_the_log_uncleanable(tmp_path: Path) -> None:
    """Otherwise the damaged batch would get a valid CRC."""
    log = open_log(tmp_path, COMPACT)
    fill(log, 5)
    path = Path(log.dir) / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    cleaner = cleaner_of(log)
    round_ = cleaner.next_round(NOW)
    assert round_ is not None
    with pytest.raises(Uncleanable, match="CRC"):
        run_round(cleaner, round_)


def test_slice_taken_before_the_swap_reads_on(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_bytes=1 << 20))
    for number in range(20):
        append(log, batch(b"%d" % number * 2000, key=b"a"))
    roll(log)
    log.update_config(COMPACT)
    found = log.read(0, 1 << 20, log.high_watermark)
    assert isinstance(found, LogSlice) and isinstance(found.data, FileSlice)
    clean(log)
    log.deletes.run(NOW + 24 * HOUR_MS)
    assert len(found.data.read()) == found.size
    assert not list(Path(log.dir).glob("*.deleted"))
    assert [offset for offset, _, _ in contents(log)] == [19]


def test_round_over_a_log_that_changed_is_given_up(tmp_path: Path) -> None:
    """Retention deleted a segment of the group while the worker was busy with it."""
    settings = config(
        cleanup_policy=frozenset({"compact", "delete"}),
        min_cleanable_dirty_ratio=0.01,
        segment_bytes=2000,
        retention_ms=HOUR_MS,
    )
    log = open_log(tmp_path, settings)
    fill(log, 3)
    fill(log, 3, NOW + HOUR_MS)
    before = contents(log)
    cleaner = cleaner_of(log)
    round_ = cleaner.next_round(NOW)
    assert round_ is not None
    session = CleanSession(round_.plan, log.layer, unthrottled())
    cleaner.keys_read(round_, session.read_keys().end_offset)
    (sources,) = round_.groups
    cleaned = session.clean(cleaner.group(round_, sources))
    assert log.delete_old_segments(NOW + HOUR_MS + 10) == 1
    assert not cleaner.swap(round_, sources, cleaned, NOW)
    assert contents(log) == before[3:]
    assert not list(Path(log.dir).glob("*.cleaned"))
    assert clean(log, cleaner) == 1
    assert [offset for offset, _, _ in contents(log)] == [5]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 3])
def test_old_messages_are_compacted_in_their_own_format(
    tmp_path: Path, magic: int, codec: int
) -> None:
    log = open_log(tmp_path, config(segment_bytes=1 << 20))
    offset = 0
    for number in range(10):
        builder = BatchBuilder(magic, codec, base_offset=offset)
        for key in (b"%d" % (number % 3), b"only %d" % number):
            builder.append(NOW + number, key, b"%d" % number)
        records = memoryview(bytearray(builder.build()))
        info = log.append_as_follower(records, NOW)
        assert isinstance(info, AppendInfo), info
        offset = log.log_end_offset
    log.high_watermark = offset
    roll(log)
    log.update_config(COMPACT)
    before = contents(log)
    clean(log)
    assert contents(log) == expected_after(before, offset)
    assert len(contents(log)) == 13
    assert {each.magic for each in read_batches(log)} == {magic}
    for each in read_batches(log):
        each.verify_crc()
