"""Retention, DeleteRecords, truncation, flush."""

from __future__ import annotations

from pathlib import Path

import pytest

from kwire.errors import ErrorCode
from server.log.file_layer import FileLayer
from server.log.log import Log, LogSlice
from server.log.log_config import LogConfig
from server.log.retention import (
    SegmentInfo,
    size_breached,
    start_offset_breached,
    time_breached,
)

from .logs import (
    NOW,
    ScarceFileLayer,
    append,
    batch,
    config,
    end_transaction,
    open_log,
    refusal,
    values,
)

HOUR_MS = 3600 * 1000


def infos(*rows: tuple[int, int, int]) -> list[SegmentInfo]:
    """Segments with (size, end offset, largest timestamp); the last one is active."""
    last = len(rows) - 1
    return [SegmentInfo(*row, number == last) for number, row in enumerate(rows)]


def test_time_takes_the_oldest_segments_and_stops_at_a_young_one() -> None:
    segments = infos((10, 5, 100), (10, 9, 900), (10, 15, 100), (10, 20, 950))
    settings = LogConfig(retention_ms=500)
    assert time_breached(segments, 20, settings, 1000) == 1
    assert time_breached(segments, 20, settings, 1401) == 3
    assert time_breached(segments, 20, settings, 1451) == 4
    assert time_breached(segments, 14, settings, 1451) == 2  # not above the high watermark
    assert time_breached(segments, 20, LogConfig(retention_ms=-1), 1 << 60) == 0


def test_size_never_takes_the_log_below_its_limit() -> None:
    segments = infos((100, 5, 0), (50, 9, 0), (30, 15, 0))
    assert size_breached(segments, 15, LogConfig(retention_bytes=80)) == 1
    assert size_breached(segments, 15, LogConfig(retention_bytes=81)) == 0
    assert size_breached(segments, 15, LogConfig(retention_bytes=0)) == 3
    assert size_breached(segments, 15, LogConfig(retention_bytes=-1)) == 0


def test_start_offset_takes_segments_that_end_before_it() -> None:
    segments = infos((10, 5, 0), (10, 9, 0), (10, 15, 0))
    assert [start_offset_breached(segments, 15, at) for at in (4, 5, 8, 9, 15)] == [0, 1, 1, 2, 2]


def test_empty_active_segment_stays() -> None:
    assert time_breached(infos((10, 5, 0), (0, 5, 0)), 5, LogConfig(retention_ms=1), 100) == 1


def fill(folder: Path, settings: LogConfig, count: int = 10) -> Log:
    """Append two batches per segment, one batch per hour."""
    log = open_log(folder, settings)
    for n in range(count):
        append(log, batch(b"%d" % n, timestamp=NOW + n * HOUR_MS, pid=2, sequence=n), epoch=n // 4)
    return log


def names(folder: Path) -> list[str]:
    """Base offsets and suffixes of the existing files."""
    return sorted(path.name for path in (folder / "topic-0").iterdir())


def test_old_segments_are_renamed_at_once_and_removed_later(tmp_path: Path) -> None:
    settings = config(segment_bytes=180, retention_ms=5 * HOUR_MS)
    log = fill(tmp_path, settings)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8]
    now = NOW + 9 * HOUR_MS + 1
    assert log.delete_old_segments(now) == 2
    assert log.log_start_offset == 4
    assert values(log) == [b"%d" % n for n in range(4, 10)]
    assert log.read(3, 100, 10) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert f"{0:020d}.log.deleted" in names(tmp_path)
    assert f"{2:020d}.snapshot.deleted" in names(tmp_path)
    assert log.leader_epoch_cache.entries() == [(1, 4), (2, 8)]
    log.deletes.run(now + 59_999)
    assert f"{0:020d}.log.deleted" in names(tmp_path)
    log.deletes.run(now + 60_000)
    assert not [name for name in names(tmp_path) if name.endswith(".deleted")]
    assert min(int(name[:20]) for name in names(tmp_path) if name[0] == "0") == 4


def test_wholly_expired_log_rolls_and_goes_on_where_it_was(tmp_path: Path) -> None:
    log = fill(tmp_path, config(segment_bytes=180, retention_ms=HOUR_MS))
    assert log.delete_old_segments(NOW + 100 * HOUR_MS) == 5
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    assert values(log) == []
    append(log, batch(b"x", timestamp=NOW + 100 * HOUR_MS))
    reopened = open_log(tmp_path, log.config)
    assert values(reopened) == [b"x"]
    assert (reopened.log_start_offset, reopened.log_end_offset) == (10, 11)


def test_size_retention_keeps_the_newest(tmp_path: Path) -> None:
    log = fill(tmp_path, config(segment_bytes=180, retention_bytes=400, retention_ms=-1))
    log.delete_old_segments(NOW)
    assert 400 <= log.size_bytes < 600
    assert values(log)[-1] == b"9"


def test_compacted_log_loses_only_what_lies_below_its_start(tmp_path: Path) -> None:
    settings = config(
        segment_bytes=180, retention_ms=1, retention_bytes=0, cleanup_policy=frozenset({"compact"})
    )
    log = fill(tmp_path, settings)
    assert log.delete_old_segments(NOW + 1000 * HOUR_MS) == 0
    log.increment_log_start_offset(5)
    assert log.delete_old_segments(NOW) == 2
    assert [segment.base_offset for segment in log.segments] == [4, 6, 8]


def test_delete_records_moves_the_start_and_frees_whole_segments(tmp_path: Path) -> None:
    log = fill(tmp_path, config(segment_bytes=180, retention_ms=-1))
    assert log.delete_records_before(11) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records_before(5) == ErrorCode.NONE
    assert log.delete_records_before(3) == ErrorCode.NONE  # never back
    assert log.log_start_offset == 5
    assert log.delete_old_segments(NOW) == 2
    found = log.read(5, 1 << 20, 10)
    assert isinstance(found, LogSlice) and found.size
    reopened = open_log(tmp_path, log.config, log_start_offset=5)
    assert reopened.log_start_offset == 5


@pytest.mark.parametrize("offset", range(11))
def test_truncation_keeps_exactly_what_lies_below(tmp_path: Path, offset: int) -> None:
    log = fill(tmp_path, config(segment_bytes=180, index_interval_bytes=1))
    log.truncate_to(offset, NOW)
    assert log.log_end_offset == offset
    assert log.high_watermark <= offset
    log.high_watermark = offset
    assert values(log) == [b"%d" % n for n in range(offset)]
    append(log, batch(b"new", pid=2, sequence=offset), epoch=9)
    assert values(log) == [*(b"%d" % n for n in range(offset)), b"new"]
    reopened = open_log(tmp_path, log.config)
    assert values(reopened) == values(log)
    assert reopened.leader_epoch_cache.entries() == log.leader_epoch_cache.entries()
    assert reopened.max_timestamp_offset() == log.max_timestamp_offset()


def with_aborted_transactions(tmp_path: Path) -> tuple[Log, ScarceFileLayer]:
    """A log of two aborted transactions, opened without descriptors in use."""
    log = open_log(tmp_path)
    for sequence in range(2):
        append(log, batch(b"v", pid=5, sequence=sequence, transactional=True))
        end_transaction(log, 5, commit=False)
    log.close()
    layer = ScarceFileLayer()
    return open_log(tmp_path, clean=True, recovery_point=4, layer=layer), layer


def size_of_file(log: Log) -> int:
    return Path(log.active_segment.log.path).stat().st_size


@pytest.mark.parametrize("ending", [".log", ".timeindex"])
def test_truncation_without_descriptors_changes_nothing(tmp_path: Path, ending: str) -> None:
    log, layer = with_aborted_transactions(tmp_path)
    before = log.size_bytes
    log.active_segment.log.close()
    layer.endings = (ending,)
    with pytest.raises(OSError) as caught:
        log.truncate_to(1, NOW)
    log.on_io_error(caught.value)
    assert not log.offline
    layer.endings = ()
    assert (log.size_bytes, size_of_file(log), log.log_end_offset) == (before, before, 4)
    assert log.aborted_transactions(0, 4) == [(5, 0), (5, 2)]
    log.truncate_to(1, NOW)
    assert log.size_bytes == size_of_file(log) < before
    assert (log.log_end_offset, log.aborted_transactions(0, 1)) == (1, [])
    append(log, batch(b"next"))
    assert values(log) == [b"v", b"next"]


def test_log_that_is_cut_in_part_goes_offline(tmp_path: Path) -> None:
    log, layer = with_aborted_transactions(tmp_path)
    layer.endings = (".txnindex.tmp",)
    with pytest.raises(OSError) as caught:
        log.truncate_to(3, NOW)
    assert log.size_bytes == size_of_file(log)
    log.on_io_error(caught.value)
    assert log.offline
    layer.endings = ()
    recovered = open_log(tmp_path)
    assert recovered.aborted_transactions(0, 3) == [(5, 0)]
    end_transaction(recovered, 5, commit=False)
    assert recovered.aborted_transactions(0, 4) == [(5, 0), (5, 2)]


def test_log_that_cannot_start_again_goes_offline(tmp_path: Path) -> None:
    log, layer = with_aborted_transactions(tmp_path)
    layer.endings = (".log",)
    with pytest.raises(OSError) as caught:
        log.truncate_fully_and_start_at(9, NOW)
    log.on_io_error(caught.value)
    assert log.offline


def test_truncation_of_everything_starts_at_any_offset(tmp_path: Path) -> None:
    log = fill(tmp_path, config(segment_bytes=180))
    log.truncate_fully_and_start_at(500, NOW)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (500, 500, 500)
    append(log, batch(b"x"))
    assert values(log) == [b"x"]
    assert [name for name in names(tmp_path) if name.endswith(".log")] == [f"{500:020d}.log"]


def test_flush_moves_the_recovery_point_to_what_it_covered(tmp_path: Path) -> None:
    synced: list[int] = []

    class Watching(FileLayer):
        def fsync(self, fd: int) -> None:
            synced.append(fd)

    log = open_log(tmp_path, config(segment_bytes=180), layer=Watching())
    for n in range(6):
        append(log, batch(b"%d" % n))
    assert log.flush_state.wanted  # a new segment was rolled
    task = log.prepare_flush()
    assert not log.flush_state.wanted
    append(log, batch(b"later"))
    task.run()
    log.complete_flush(task, NOW)
    assert log.recovery_point == 6
    assert len(synced) >= 3
    synced.clear()
    log.flush(NOW)
    assert log.recovery_point == 7
    synced.clear()
    log.prepare_flush().run()
    assert synced == []


def test_flush_messages_asks_for_a_flush(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(flush_messages=3))
    append(log, batch(b"a", b"b"))
    assert not log.flush_state.wanted
    append(log, batch(b"c"))
    assert log.flush_state.wanted


def test_changed_settings_count_from_the_next_append(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"x" * 500))
    log.update_config(config(max_message_bytes=300, segment_bytes=300))
    assert refusal(log, batch(b"x" * 500)).error == ErrorCode.MESSAGE_TOO_LARGE
    append(log, batch(b"y"))
    assert len(log.segments) == 2
