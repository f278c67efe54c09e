"""Log directories are read while they change: their logs, segments and batches."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kwire.errors import CorruptRecord
from kwire.records.batch import BatchBuilder
from kwire.records.layout import BATCH_LENGTH_AT
from server.log import stored_logs as module
from server.log.stored_logs import logs_at, logs_in, segment_files, stored_batches


def batch(offset: int, size: int = 10) -> bytes:
    builder = BatchBuilder(base_offset=offset, partition_leader_epoch=0)
    builder.append(0, None, bytes(size))
    return builder.build()


def found(path: Path) -> list[tuple[int, int]]:
    return [(position, one.header.base_offset) for position, one in stored_batches(path)]


@pytest.mark.parametrize("window", [61, 62, 100, 1000, 1 << 20])
def test_batches_are_found_whatever_the_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    monkeypatch.setattr(module, "WINDOW", window)
    parts = [batch(0), batch(1, 500), batch(2, 3), batch(3, 90)]
    path = tmp_path / "0.log"
    path.write_bytes(b"".join(parts))
    expected = [(sum(map(len, parts[:number])), number) for number in range(4)]
    assert found(path) == expected
    for cut in (1, 10, 16, 60, len(parts[3]) - 1):
        path.write_bytes(b"".join(parts[:3]) + parts[3][:cut])
        assert found(path) == expected[:3]
    damaged = bytearray(b"".join(parts))
    at = expected[2][0] + BATCH_LENGTH_AT
    damaged[at : at + 4] = bytes(4)
    path.write_bytes(damaged)
    with pytest.raises(CorruptRecord, match=f"at byte {at}: batch length 0"):
        found(path)


@pytest.mark.parametrize("size", [0, 30, 150])
def test_batches_stay_valid_when_the_file_is_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(module, "WINDOW", 100)
    path = tmp_path / "0.log"
    path.write_bytes(b"".join(batch(number) for number in range(5)))
    batches = stored_batches(path)
    _, first = next(batches)
    os.truncate(path, size)
    rest = [one.header.base_offset for _, one in batches]
    assert rest in ([], [1])
    first.verify_crc()
    assert [record.offset for record in first.records()] == [0]


def test_logs_and_segments_are_those_of_their_names(tmp_path: Path) -> None:
    log = tmp_path / "orders-1"
    log.mkdir()
    for name in ("orders-10", "orders-2.0a1b-delete", "orders", "kept-0"):
        (tmp_path / name).mkdir()
    (tmp_path / "file-0").touch()
    assert logs_at(log) == {}  # it has no segment, so it may be a log directory of such a name
    for name in (f"{9:020d}.log", f"{0:020d}.log", f"{5:020d}.log.deleted", "x.log", "a.index"):
        (log / name).touch()
    os.mkfifo(log / f"{7:020d}.log")  # whoever reads it waits for ever
    assert [f"{tp}" for tp in logs_in(tmp_path)] == ["kept-0", "orders-1", "orders-10"]
    assert logs_at(tmp_path) == logs_in(tmp_path)
    assert logs_at(log) == {("orders", 1): log}
    assert [path.name for path in segment_files(log)] == [f"{0:020d}.log", f"{9:020d}.log"]
    assert [path.name for path in segment_files(log, ".log.deleted")] == [f"{5:020d}.log.deleted"]
