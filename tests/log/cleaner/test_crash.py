"""Compaction interrupted at each of its file operations: afterwards the log opens intact."""

from __future__ import annotations

from random import Random

import pytest

from server.log.delayed_delete import DelayedDeletes
from server.log.log import Log
from server.log.recovery.loader import load_log

from ..faults.disk import Disk, DiskFiles, Fault, Stopped
from ..logs import NOW, TP, append, batch, config, end_transaction
from .cleaning import cleaner_of, run_round
from .test_log_cleaner import assert_every_offset_reads_on, clean, contents, put, roll

HOUR_MS = 3_600_000
SETTINGS = config(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=1300,
    index_interval_bytes=100,
    min_cleanable_dirty_ratio=0.01,
    delete_retention_ms=0,
)
FOLDER = f"/disk/{TP}"
NEVER = 1 << 30


def opened(disk: Disk, fault: Fault | None = None, *, is_clean: bool = True) -> Log:
    """The log on the disk, opened as by the log manager, with everything committed."""
    layer = DiskFiles(disk, Random(0))
    layer.make_directory(FOLDER)
    loaded = load_log(
        layer,
        FOLDER,
        SETTINGS,
        clean=is_clean,
        log_start_offset=0,
        recovery_point=0,
        now_ms=NOW,
    )
    log = Log(TP, FOLDER, SETTINGS, layer, loaded, DelayedDeletes(layer), now_ms=NOW)
    log.high_watermark = log.log_end_offset
    layer.fault = fault
    return log


def make() -> tuple[Disk, Log]:
    """Keys written repeatedly, an expired tombstone, committed and aborted transactions."""
    disk = Disk(("/disk",))
    log = opened(disk)
    for number in range(8):
        put(log, (b"%d" % (number % 5), b"first %d" % number))
    put(log, (b"4", None))
    append(log, batch(b"never", key=b"0", pid=5, transactional=True))
    end_transaction(log, 5, commit=False)
    roll(log)
    clean(log)  # sets the horizon
    append(log, batch(b"aborted", key=b"1", pid=7, transactional=True))
    append(log, batch(b"committed", key=b"2", pid=6, transactional=True))
    end_transaction(log, 7, commit=False)
    for number in range(8):
        put(log, (b"%d" % (number % 4), b"second %d" % number))
    end_transaction(log, 6, commit=True)
    roll(log)
    put(log, (b"tail", b"not cleaned"))
    log.close()
    return disk.copy(), log


def run_cut_off(disk: Disk, fault: Fault) -> bool:
    """Open and clean; return whether that was interrupted."""
    log = opened(disk, fault)
    cleaner = cleaner_of(log)
    try:
        round_ = cleaner.next_round(NOW)
        assert round_ is not None
        run_round(cleaner, round_)
    except Stopped:
        return True
    except (OSError, AssertionError):
        assert fault.kind == "EIO"
        return True
    return False


def last_values(log: Log) -> dict[bytes | None, bytes | None]:
    """The table that a consumer builds from the records."""
    return {key: value for _, key, value in contents(log) if value not in (b"aborted", b"never")}


def newest(log: Log) -> dict[bytes | None, bytes]:
    """The same without the deleted keys."""
    return {key: value for key, value in last_values(log).items() if value is not None}


@pytest.mark.parametrize("ending", ["killed", "power cut", "EIO"])
def test_log_opens_with_the_right_content_wherever_compaction_was_cut_off(ending: str) -> None:
    disk, original = make()
    before, table = contents(original), newest(original)
    kind = "EIO" if ending == "EIO" else "stop"
    uncounted = Fault(kind, NEVER)
    whole = disk.copy()
    assert not run_cut_off(whole, uncounted)
    log = opened(whole)
    after = contents(log)
    assert len(after) < len(before) and newest(log) == table
    assert uncounted.calls > 30, uncounted.calls

    for at in range(1, uncounted.calls + 1, 5 if ending == "EIO" else 1):
        cut = disk.copy()
        assert run_cut_off(cut, Fault(kind, at, sticky=ending != "EIO")), at
        if ending == "power cut":
            cut.lose_power(Random(at))
        for is_clean in (True, False):
            log = opened(cut, is_clean=is_clean)
            found = contents(log)
            assert newest(log) == table, at
            assert set(after) <= set(found) <= set(before), at
            assert found == sorted(found), at
            assert log.log_end_offset == original.log_end_offset
            names = log.layer.list_directory(FOLDER)
            assert not [n for n in names if n.endswith((".cleaned", ".swap", ".deleted"))], at
        assert_every_offset_reads_on(log)
        clean(log)
        assert contents(log) == after, at
