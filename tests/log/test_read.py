"""Reading: whole batches, limits, remembered positions, timestamps."""

from __future__ import annotations

import errno
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.records.batch import iter_batches, rewrite_crc
from kwire.records.layout import INT64, MAX_TIMESTAMP_AT
from server.log import reader
from server.log.file_layer import FileLayer, FileSlice
from server.log.log import Log, LogSlice
from server.log.reader import search_files
from server.log.time_search import Effort, TimeSearch

from .logs import NOW, append, batch, config, open_log, read_bytes


def filled(
    folder: Path, count: int = 60, seed: int = 1
) -> tuple[Log, list[tuple[int, int, bytes]]]:
    """A log of several segments, and (base offset, next offset, bytes) of each batch in it."""
    rng = random.Random(seed)
    log = open_log(folder, config(segment_bytes=2000, index_interval_bytes=150))
    stored = []
    for _ in range(count):
        view = batch(*(rng.randbytes(rng.choice((1, 20, 300))),) * rng.randint(1, 4))
        info = append(log, view)
        stored.append((info.first_offset, info.last_offset + 1, bytes(view)))
    return log, stored


def model_read(
    log: Log, stored: list[tuple[int, int, bytes]], start: int, max_bytes: int, end: int
) -> bytes:
    """The expected result of a fetch, computed batch by batch."""
    bases = [segment.base_offset for segment in log.segments[1:]]
    data = b""
    for base, after, raw in stored:
        if after <= start:
            continue
        if after > end or (data and (base in bases or len(data) + len(raw) > max_bytes)):
            break
        data += raw
    return data


@pytest.mark.parametrize("warm", [True, False])
def test_every_read_is_the_whole_batches_that_fit(tmp_path: Path, warm: bool) -> None:
    log, stored = filled(tmp_path)
    rng = random.Random(2)
    boundaries = [base for base, _, _ in stored] + [log.log_end_offset]
    for _ in range(1500):
        start = rng.randrange(log.log_end_offset)
        end = rng.choice([log.log_end_offset, rng.choice(boundaries)])
        max_bytes = rng.choice([0, 1, 100, 500, 1999, 5000, 1 << 20])
        if not warm:
            log.forget_positions()
        expected = model_read(log, stored, start, max_bytes, end) if start < end else b""
        assert read_bytes(log, start, max_bytes, end) == expected, (start, max_bytes, end)


def test_reading_on_covers_the_log_in_any_piece_size(tmp_path: Path) -> None:
    log, stored = filled(tmp_path)
    everything = b"".join(raw for _, _, raw in stored)
    for max_bytes in (1, 333, 1500, 1 << 20):
        offset, data = 0, b""
        while offset < log.log_end_offset:
            found = log.read(offset, max_bytes, log.log_end_offset)
            assert isinstance(found, LogSlice)
            piece = found.data.read() if isinstance(found.data, FileSlice) else found.data
            assert list(iter_batches(piece))[-1].header.next_offset == found.next_offset
            offset = found.next_offset
            data += piece
        assert data == everything


def test_reads_stay_right_while_the_log_grows(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_bytes=900, index_interval_bytes=100))
    consumers = [0, 0, 0]
    seen: list[list[bytes]] = [[], [], []]
    rng = random.Random(3)
    for n in range(120):
        append(log, batch(b"%03d" % n))
        for number in range(3):
            if rng.random() < 0.5:
                data = read_bytes(log, consumers[number], 200)
                for each in iter_batches(data):
                    seen[number] += [record.value or b"" for record in each.records()]
                    consumers[number] = each.header.next_offset
    for number in range(3):
        assert seen[number] == [b"%03d" % n for n in range(len(seen[number]))]
        assert len(seen[number]) > 50


def test_offsets_outside_the_log_are_out_of_range(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"a", b"b", b"c"))
    assert log.delete_records_before(2) == ErrorCode.NONE
    for offset in (-1, 0, 1, 4, 1 << 40):
        assert log.read(offset, 100, 3) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert read_bytes(log, 2)
    assert read_bytes(log, 3) == b""


def test_without_min_one_batch_a_large_batch_waits(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"x" * 500))
    found = log.read(0, 100, 1, min_one_batch=False)
    assert found == LogSlice(0, b"", 0, 0)
    assert read_bytes(log, 0, 100)


@pytest.mark.parametrize("after_a_read", [True, False])
def test_a_batch_for_which_others_leave_too_few_bytes_is_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_a_read: bool
) -> None:
    log = open_log(tmp_path)
    for _ in range(3):
        append(log, batch(b"x" * 500))
    first = int(after_a_read)
    if after_a_read:  # which stopped before the second batch, and so has seen its header
        assert len(read_bytes(log, 0, 700)) < 700
    else:
        assert log.read(first, 100, 3, min_one_batch=False) == LogSlice(first, b"", first, 0)
    with monkeypatch.context() as patch:
        patch.setattr(log.layer, "pread", None)
        assert log.read(first, 100, 3, min_one_batch=False) == LogSlice(first, b"", first, 0)
    whole = log.read(first, 700, 3, min_one_batch=False)
    assert isinstance(whole, LogSlice)
    assert whole.next_offset == first + 1
    log.truncate_to(1, NOW)
    append(log, batch(b"x"))
    assert read_bytes(log, 1, 100)


def test_nothing_beyond_the_end_offset_is_read(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    first = bytes(batch(b"a", b"b"))
    append(log, batch(b"a", b"b"))
    append(log, batch(b"c"))
    assert len(read_bytes(log, 0, end=2)) == len(first)
    assert read_bytes(log, 0, end=0) == b""
    assert read_bytes(log, 0, end=1) == b""  # the batch extends beyond it


def test_large_reads_are_slices_and_small_ones_bytes(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"x" * reader.SMALL_READ_BYTES))
    append(log, batch(b"y"))
    large = log.read(0, 1 << 20, 2)
    small = log.read(1, 1 << 20, 2)
    assert isinstance(large, LogSlice) and isinstance(large.data, FileSlice)
    assert isinstance(small, LogSlice) and isinstance(small.data, bytes)
    assert len(large.data) == large.size
    assert large.data.read()[-len(small.data) :] == small.data


def test_slice_outlives_eviction_deletion_and_unlink(tmp_path: Path) -> None:
    layer = FileLayer(max_open_files=64)
    log = open_log(tmp_path, config(segment_bytes=40_000, retention_bytes=0), layer=layer)
    for n in range(6):
        append(log, batch(b"%d" % n * 30_000))
    found = log.read(0, 1 << 20, 1)
    assert isinstance(found, LogSlice) and isinstance(found.data, FileSlice)
    assert log.delete_old_segments(NOW) > 0
    log.deletes.run(NOW + 60_000)
    assert not list((tmp_path / "topic-0").glob("*.deleted"))
    (stored,) = iter_batches(found.data.read())
    assert next(stored.records()).value == b"0" * 30_000
    found.data.close()
    with pytest.raises(ValueError, match="closed"):
        found.data.fileno()


def test_descriptors_stay_within_the_limit(tmp_path: Path) -> None:
    layer = FileLayer(max_open_files=4)
    log = open_log(tmp_path, config(segment_bytes=200), layer=layer)
    for n in range(40):
        append(log, batch(b"%d" % n * 60))
    for offset in random.Random(4).choices(range(40), k=200):
        assert read_bytes(log, offset, 1)
        opened = sum(segment.log.opened is not None for segment in log.segments)
        assert opened <= 4


def test_lack_of_descriptors_closes_files_and_takes_nothing_offline(tmp_path: Path) -> None:
    class Scarce(FileLayer):
        free = 8

        def open_fd(self, path: str, flags: int) -> int:
            opened = sum(segment.log.opened is not None for segment in log.segments)
            if opened >= self.free:
                raise OSError(errno.EMFILE, "Too many open files", path)
            return super().open_fd(path, flags)

    log = open_log(tmp_path, config(segment_bytes=200))
    layer = log.layer
    for n in range(30):
        append(log, batch(b"%d" % n * 60))
    layer.__class__ = Scarce
    for segment in log.segments:
        segment.log.close()
    for offset in range(30):
        assert read_bytes(log, offset, 1)
    layer.free = 0  # type: ignore[attr-defined]
    for segment in log.segments:
        segment.log.close()
    assert log.read(3, 1, 30) == ErrorCode.KAFKA_STORAGE_ERROR
    layer.free = 8  # type: ignore[attr-defined]
    assert read_bytes(log, 3, 1)


def test_timestamp_finds_the_first_record_that_is_not_earlier(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_bytes=700, index_interval_bytes=100))
    stamps = []
    rng = random.Random(5)
    for n in range(80):
        timestamp = NOW + n * 10 + rng.randint(-60, 60)  # not in order
        count = rng.randint(1, 3)
        append(log, batch(*(b"v",) * count, timestamp=timestamp), epoch=n // 40)
        stamps += [timestamp + k for k in range(count)]
    for wanted in range(NOW - 100, NOW + 1000, 7):
        expected = next(((o, t) for o, t in enumerate(stamps) if t >= wanted), None)
        found = log.offset_for_timestamp(wanted)
        assert (None if found is None else found[:2]) == expected
    newest = max(stamps)
    assert log.max_timestamp_offset() == (stamps.index(newest), newest, 1)


def test_timestamps_below_the_log_start_do_not_count(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"a", b"b", b"c"))
    log.delete_records_before(2)
    assert log.offset_for_timestamp(0) == (2, NOW + 2, 0)


def test_largest_timestamp_may_be_below_the_log_start(tmp_path: Path) -> None:
    """As in Apache Kafka 3.9.2."""
    log = open_log(tmp_path)
    append(log, batch(b"a", b"b", timestamp=NOW))
    append(log, batch(b"c", timestamp=NOW - 5))
    log.delete_records_before(2)
    assert log.max_timestamp_offset() == (1, NOW + 1, 0)


def test_records_without_a_timestamp_have_a_largest_one(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"a", timestamp=-1))
    assert log.max_timestamp_offset() == (0, -1, 0)


def test_empty_log_has_no_timestamps(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp_offset() is None


def test_timestamps_are_found_after_reopening(tmp_path: Path) -> None:
    log, _ = filled(tmp_path)
    expected = [log.offset_for_timestamp(NOW), log.max_timestamp_offset()]
    log.close()
    log = open_log(tmp_path, log.config, clean=True)
    assert [log.offset_for_timestamp(NOW), log.max_timestamp_offset()] == expected


def test_search_in_files_finds_what_a_search_at_once_finds(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_bytes=900, index_interval_bytes=100))
    rng = random.Random(7)
    for n in range(60):
        timestamp = NOW + n * 10 + rng.randint(-80, 80)
        values = (b"v",) * rng.randint(1, 3)
        records = batch(*values, timestamp=timestamp, codec=rng.choice([0, 0, 1, 3, 4]))
        if n % 7 == 0:  # a header that promises too much
            records = with_max_timestamp(records, NOW + rng.randint(0, 900))
        append(log, records)
    log.delete_records_before(20)
    searches = 0
    for wanted in [*range(NOW - 100, NOW + 1000, 7), None]:
        expected = look(log, wanted)
        for effort in (
            Effort(headers=0, records=9, bytes=9),
            Effort(headers=9, records=3, bytes=40),
        ):
            found = look(log, wanted, effort)
            if isinstance(found, TimeSearch):
                searches += 1
                found = search_files(pickle.loads(pickle.dumps(found)))
            assert found == expected
        assert look(log, wanted, Effort(headers=999, records=999, bytes=9999)) == expected
    assert searches > 200


def test_search_takes_headers_at_their_word_when_it_has_taken_long(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, with_max_timestamp(batch(b"a"), NOW + 90))
    append(log, batch(b"b", timestamp=NOW + 90))
    search = log.offset_for_timestamp(NOW + 50, Effort(headers=0, records=0, bytes=0))
    assert isinstance(search, TimeSearch)
    assert search_files(search) == (1, NOW + 90, 0)
    assert search_files(search, lambda: True) == (0, NOW + 90, 0)


def test_search_in_a_log_that_has_changed_says_so(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"a"))
    search = log.offset_for_timestamp(0, Effort(headers=0, records=0, bytes=0))
    assert isinstance(search, TimeSearch)
    Path(log.active_segment.log.path).unlink()
    with pytest.raises(FileNotFoundError):
        search_files(search)


def look(log: Log, wanted: int | None, effort: Effort | None = None) -> Any:
    """Search for a time, or with None for the largest."""
    if wanted is None:
        return log.max_timestamp_offset(effort)
    return log.offset_for_timestamp(wanted, effort)


def with_max_timestamp(records: memoryview, timestamp: int) -> memoryview:
    """A batch whose header lies about its largest timestamp."""
    changed = bytearray(records)
    INT64.pack_into(changed, MAX_TIMESTAMP_AT, timestamp)
    rewrite_crc(changed)
    return memoryview(changed)
