"""When `leader-epoch-checkpoint` is written, and what is restored if it was not written."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.log.log import Log

from .cleaner.cleaning import clean
from .logs import NOW, TP, append, batch, config, open_log, values

FILE = "leader-epoch-checkpoint"


def written(folder: Path) -> list[tuple[int, int]]:
    """The entries of the file."""
    path = folder / str(TP) / FILE
    rows = path.read_text().split("\n")[2:-1] if path.exists() else []
    return [(int(epoch), int(start)) for epoch, start in (row.split() for row in rows)]


def two_epochs(folder: Path) -> Log:
    """A log with the batches of epochs 2 and 5, and epoch 7 without any."""
    log = open_log(folder)
    for epoch in (2, 5):
        log.leader_epoch_cache.assign(epoch, log.log_end_offset)
        append(log, batch(b"a", b"b"), epoch=epoch)
    log.leader_epoch_cache.assign(7, log.log_end_offset)
    return log


def test_epoch_that_begins_writes_no_file(tmp_path: Path) -> None:
    """A broker may become the leader of thousands of partitions at once."""
    log = two_epochs(tmp_path)
    assert written(tmp_path) == []
    assert log.leader_epoch_cache.entries() == [(2, 0), (5, 2), (7, 4)]


def test_flush_has_the_file_written_and_forced_to_the_device_before_the_recovery_point_moves(
    tmp_path: Path,
) -> None:
    log = two_epochs(tmp_path)
    task = log.prepare_flush()
    assert log.recovery_point == 0
    assert written(tmp_path) == [(2, 0), (5, 2), (7, 4)]
    assert str(tmp_path / str(TP) / FILE) in task.paths


@pytest.mark.parametrize("flush", [True, False])
def test_log_that_is_closed_has_the_file_written(tmp_path: Path, flush: bool) -> None:
    log = two_epochs(tmp_path)
    log.close(flush=flush)
    assert written(tmp_path) == [(2, 0), (5, 2), (7, 4)]


@pytest.mark.parametrize("recovery_point", [0, 2])
def test_log_that_was_killed_finds_its_epochs_in_the_batches(
    tmp_path: Path, recovery_point: int
) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"a", b"b"), epoch=2)
    if recovery_point:
        log.flush(NOW)
    append(log, batch(b"c", b"d"), epoch=5)
    log.leader_epoch_cache.assign(7, 4)
    assert (5, 2) not in written(tmp_path)
    again = open_log(tmp_path, recovery_point=recovery_point)
    assert again.leader_epoch_cache.entries() == [(2, 0), (5, 2)]
    assert written(tmp_path) == [(2, 0), (5, 2)]


def test_epoch_whose_batches_were_compacted_away_is_found_after_a_kill(tmp_path: Path) -> None:
    settings = config(cleanup_policy=frozenset(["compact"]))
    log = open_log(tmp_path, settings)
    for epoch in (2, 4, 5):
        append(log, batch(b"%d" % epoch), epoch=epoch)
    log.roll(NOW)
    append(log, batch(b"last"), epoch=6)
    clean(log)
    assert values(log) == [b"5", b"last"]
    again = open_log(tmp_path, settings)
    assert again.leader_epoch_cache.entries() == [(2, 0), (4, 1), (5, 2), (6, 3)]


def test_epoch_without_a_batch_is_forgotten_and_its_file_left_alone_at_a_start(
    tmp_path: Path,
) -> None:
    two_epochs(tmp_path).close()
    again = open_log(tmp_path, clean=True)
    assert again.leader_epoch_cache.entries() == [(2, 0), (5, 2)]
    assert written(tmp_path) == [(2, 0), (5, 2), (7, 4)]
    append(again, batch(b"c"), epoch=8)
    again.close()
    assert written(tmp_path) == [(2, 0), (5, 2), (8, 4)]


def test_epoch_beyond_a_lost_end_does_not_come_back(tmp_path: Path) -> None:
    """The file belongs to a longer log, whose tail was lost and then overwritten."""
    two_epochs(tmp_path).close()
    log = open_log(tmp_path, clean=True)
    append(log, batch(b"c", b"d", b"e"), epoch=9)
    again = open_log(tmp_path)
    assert again.leader_epoch_cache.entries() == [(2, 0), (5, 2), (9, 4)]
