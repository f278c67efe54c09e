"""Transactions in a partition: last stable offset, markers, the transaction index."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from kwire.errors import ErrorCode
from server.log.file_layer import FileLayer
from server.log.index.transaction_index import AbortedTransaction, parse
from server.log.log import AppendInfo, AppendOrigin, Log

from .logs import (
    NOW,
    ScarceFileLayer,
    append,
    batch,
    config,
    end_transaction,
    marker,
    open_log,
    refusal,
)


def begin(log: Log, pid: int, sequence: int = 0) -> int:
    """Append one transactional record; return its offset."""
    view = batch(b"%d" % pid, pid=pid, sequence=sequence, transactional=True)
    return append(log, view).first_offset


def test_open_transaction_holds_the_last_stable_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch())
    assert log.last_stable_offset == 1
    begin(log, 5)
    begin(log, 6)
    append(log, batch())
    assert (log.last_stable_offset, log.high_watermark) == (1, 4)
    end_transaction(log, 5, commit=True)
    assert log.last_stable_offset == 2
    end_transaction(log, 6, commit=False)
    assert log.last_stable_offset == log.high_watermark == 6


def test_marker_above_the_high_watermark_is_not_stable(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    begin(log, 5)
    answer = log.append_as_leader(marker(5, commit=True), 0, NOW, origin=AppendOrigin.COORDINATOR)
    assert isinstance(answer, AppendInfo)
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)
    log.high_watermark = 2
    assert log.last_stable_offset == 2


def test_lack_of_descriptors_hides_no_aborted_transaction(tmp_path: Path) -> None:
    class Scarce(FileLayer):
        """Has one descriptor for files of logs and indexes."""

        def open_fd(self, path: str, flags: int) -> int:
            if any(each.opened is not None for each in self._in_use):
                raise OSError(errno.EMFILE, "Too many open files", path)
            return super().open_fd(path, flags)

    log = open_log(tmp_path, layer=Scarce())
    begin(log, 5)
    end_transaction(log, 5, commit=False)
    assert log.aborted_transactions(0, 2) == [(5, 0)]
    log.roll(NOW)
    append(log, batch(b"in the next segment"))
    log.close()
    assert open_log(tmp_path, clean=True).aborted_transactions(0, 2) == [(5, 0)]


@pytest.mark.parametrize("end", ["roll", "flush", "close"])
def test_transaction_aborted_without_descriptors_is_written_down_later(
    tmp_path: Path, end: str
) -> None:
    layer = ScarceFileLayer()
    log = open_log(tmp_path, layer=layer)
    layer.endings = (".txnindex",)
    for sequence in range(2):
        begin(log, 5, sequence)
        end_transaction(log, 5, commit=False)
    assert log.aborted_transactions(0, 4) == [(5, 0), (5, 2)]
    assert not log.offline
    ends: dict[str, Callable[[], None]] = {
        "roll": lambda: log.roll(NOW),
        "flush": lambda: log.flush(NOW),
        "close": log.close,
    }
    with pytest.raises(OSError):
        ends[end]()
    assert log.recovery_point == 0
    assert len(log.segments) == 1
    layer.endings = ()
    ends[end]()
    assert len(parse(Path(log.segments[0].transaction_index.path).read_bytes())) == 2
    if end != "close":
        assert log.aborted_transactions(0, 4) == [(5, 0), (5, 2)]


def test_transaction_aborted_before_the_index_can_be_read_follows_those_before_it(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path)
    begin(log, 5)
    end_transaction(log, 5, commit=False)
    log.close()
    layer = ScarceFileLayer()
    log = open_log(tmp_path, clean=True, recovery_point=2, layer=layer)
    log.active_segment._transaction_index = None  # as in a segment that was sealed
    layer.endings = (".txnindex",)
    begin(log, 5, 1)
    end_transaction(log, 5, commit=False)
    with pytest.raises(OSError):
        log.aborted_transactions(2, 4)
    layer.endings = ()
    assert log.aborted_transactions(0, 4) == [(5, 0), (5, 2)]
    log.close()
    assert open_log(tmp_path, clean=True).aborted_transactions(0, 4) == [(5, 0), (5, 2)]


def test_aborted_transactions_are_found_by_the_range_they_touch(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_bytes=400))
    expected = []
    for n in range(12):
        first = begin(log, 5, n)
        append(log, batch(b"x" * 50))
        info = end_transaction(log, 5, commit=n % 2 == 0)
        if n % 2:
            expected.append((5, first, info.last_offset))
    assert len(log.segments) > 4
    end = log.log_end_offset
    for start in range(end):
        for until in range(start + 1, end + 1):
            wanted = [
                (pid, first) for pid, first, last in expected if last >= start and first < until
            ]
            found = log.aborted_transactions(start, until)
            # As in Apache Kafka, the answer may contain one more, without records in the range.
            assert [each for each in found if each in wanted] == wanted
            assert len(found) <= len(wanted) + 1


def test_index_entry_names_the_stable_offset_after_the_abort(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    begin(log, 5)
    begin(log, 6)
    end_transaction(log, 6, commit=False)
    end_transaction(log, 5, commit=False)
    assert log.active_segment.transaction_index.entries() == [
        AbortedTransaction(6, 1, 2, 0),
        AbortedTransaction(5, 0, 3, 4),
    ]


def test_recovery_rebuilds_the_index_and_the_open_transactions(tmp_path: Path) -> None:
    settings = config(segment_bytes=400)
    log = open_log(tmp_path, settings)
    begin(log, 9)
    for n in range(8):
        begin(log, 5, n)
        append(log, batch(b"x" * 50))
        end_transaction(log, 5, commit=False)
    end = log.log_end_offset
    expected = log.aborted_transactions(0, end)
    indexes = {p.name: p.read_bytes() for p in (tmp_path / "topic-0").glob("*.txnindex")}
    for path in (tmp_path / "topic-0").glob("*.txnindex"):
        path.write_bytes(b"wrong")
    log = open_log(tmp_path, settings)
    assert log.aborted_transactions(0, end) == expected
    assert log.last_stable_offset == 0
    log.close()
    assert {p.name: p.read_bytes() for p in (tmp_path / "topic-0").glob("*.txnindex")} == indexes


def test_marker_of_an_old_epoch_or_coordinator_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    coordinator = AppendOrigin.COORDINATOR
    append(log, batch(pid=5, epoch=3, transactional=True))
    stale = refusal(log, marker(5, 2, commit=True), origin=coordinator)
    assert stale.error == ErrorCode.INVALID_PRODUCER_EPOCH
    answer = log.append_as_leader(
        marker(5, 3, commit=True, coordinator_epoch=4), 0, NOW, origin=coordinator
    )
    assert isinstance(answer, AppendInfo)
    zombie = refusal(log, marker(5, 3, commit=True, coordinator_epoch=3), origin=coordinator)
    assert zombie.error == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_marker_without_a_transaction_aborts_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    end_transaction(log, 5, commit=False)
    assert log.aborted_transactions(0, 10) == []
    assert log.last_stable_offset == 1


def test_truncation_reopens_a_transaction(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    begin(log, 5)
    end_transaction(log, 5, commit=False)
    log.truncate_to(1, NOW)
    log.high_watermark = 1
    assert log.last_stable_offset == 0
    assert log.aborted_transactions(0, 10) == []
