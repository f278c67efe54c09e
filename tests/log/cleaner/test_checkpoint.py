"""The checkpoint of a log's last round, and its change when the log is truncated or deleted."""

from __future__ import annotations

from pathlib import Path

from server.log.cleaner.log_cleaner import LogCleaner
from server.log.file_layer import FileLayer
from server.log.log import Log
from server.log.log_manager import LogManager
from server.metadata.topic_partition import TopicPartition

from ..logs import NOW
from .cleaning import clean, run_round
from .test_log_cleaner import COMPACT, HOUR_MS, contents, put, roll

TP = TopicPartition("topic", 0)
FILE = "cleaner-offset-checkpoint"


def start(folder: Path) -> LogManager:
    """A manager with compacted topics only."""
    manager = LogManager([str(folder)], FileLayer())
    manager.lock()
    manager.load(lambda topic: COMPACT, NOW)
    return manager


def fill(log: Log, count: int, key: bytes = b"key%d") -> None:
    """Seal a segment with this number of records, each with its own key."""
    for number in range(count):
        put(log, (key % number, b"1"))
    roll(log)


def compacted(manager: LogManager, records: int) -> Log:
    """A log that was cleaned up to offset `records` by an earlier cleaner, as after a restart."""
    log = manager.create(TP, None, COMPACT, NOW)
    fill(log, records)
    clean(log, LogCleaner(manager))
    return log


def test_key_deleted_after_a_truncation_below_the_checkpoint_stays_deleted(tmp_path: Path) -> None:
    """A round assumes that everything below the checkpoint is clean.

    With a checkpoint that is too high, it would remove the tombstone and keep the record.
    """
    manager = start(tmp_path)
    log = compacted(manager, 20)
    log.truncate_to(5, NOW)
    put(log, (b"a", b"1"))
    put(log, (b"a", None))
    fill(log, 15)
    assert log.log_end_offset > 20
    cleaner = LogCleaner(manager)
    clean(log, cleaner)
    put(log, (b"later", b"1"))
    roll(log)
    clean(log, cleaner, now_ms=NOW + HOUR_MS)
    assert [record for record in contents(log) if record[1] == b"a"] == []


def test_truncation_lowers_the_checkpoint_on_disk_before_anything_is_cut(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = compacted(manager, 20)
    assert (tmp_path / FILE).read_text() == "0\n1\ntopic 0 20\n"
    log.truncate_to(5, NOW)
    assert (tmp_path / FILE).read_text() == "0\n1\ntopic 0 5\n"
    log.truncate_to(5, NOW)
    assert (tmp_path / FILE).read_text() == "0\n1\ntopic 0 5\n"


def test_log_truncated_below_its_checkpoint_after_a_crash_begins_there(tmp_path: Path) -> None:
    """The recovery point on disk may be older than the cleaner's checkpoint."""
    compacted(start_and_crash := start(tmp_path), 20)
    start_and_crash.unlock()
    manager = start(tmp_path)
    log = manager.get(TP)
    assert log is not None
    assert log.recovery_point < 20
    log.truncate_to(10, NOW)
    fill(log, 30)
    assert LogCleaner(manager).checkpoint_of(TP) == 10


def test_log_made_anew_under_a_name_begins_anew_though_no_cleaner_ran_yet(tmp_path: Path) -> None:
    compacted(first := start(tmp_path), 20)
    first.shutdown(NOW)
    manager = start(tmp_path)
    manager.delete(TP, NOW)
    log = manager.create(TP, None, COMPACT, NOW)
    fill(log, 30)
    assert LogCleaner(manager).checkpoint_of(TP) is None


def test_round_that_ends_after_a_truncation_leaves_no_checkpoint_above_it(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = manager.create(TP, None, COMPACT, NOW)
    fill(log, 20)
    log.flush(NOW)
    cleaner = LogCleaner(manager)
    finish = cleaner.finish

    def cut_first(*arguments: object) -> object:
        log.truncate_to(5, NOW)
        fill(log, 30)
        return finish(*arguments)  # type: ignore[arg-type]

    cleaner.finish = cut_first  # type: ignore[method-assign, assignment]
    round_ = cleaner.next_round(NOW)
    assert round_ is not None
    run_round(cleaner, round_)
    assert (cleaner.checkpoint_of(TP) or 0) <= 5
