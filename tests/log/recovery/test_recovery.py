"""Recovery begins at the recovery point: it reads little, with the same result as reading everything."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from kwire.records.batch import BatchBuilder
from server.log.checkpoint import format_checkpoint
from server.log.file_layer import FileLayer
from server.log.loaded_log import LoadedLog
from server.log.log import Log
from server.log.log_config import LogConfig
from server.log.recovery.loader import load_log

from ..logs import NOW, TP, append, batch, config, end_transaction, open_log, values

SETTINGS = config(index_interval_bytes=200)


def load(folder: Path, recovery_point: int, layer: FileLayer | None = None) -> LoadedLog:
    """Open the logs of a killed broker."""
    return load_log(
        layer or FileLayer(),
        str(folder / str(TP)),
        SETTINGS,
        clean=False,
        log_start_offset=0,
        recovery_point=recovery_point,
        now_ms=NOW,
    )


def state(loaded: LoadedLog) -> dict[str, Any]:
    """All state that must not depend on where reading began."""
    return {
        "end": loaded.log_end_offset,
        "sizes": [segment.size for segment in loaded.segments],
        "offset index": [segment.offset_index.content() for segment in loaded.segments],
        "time index": [segment.time_index.content() for segment in loaded.segments],
        "aborted": [segment.transaction_index.entries() for segment in loaded.segments],
        "epochs": loaded.leader_epoch_cache.entries(),
        # Only these fields of a batch are in a snapshot.
        "producers": {
            entry.producer_id: (
                entry.producer_epoch,
                entry.current_txn_first_offset,
                *entry.batches[-1][:4],
            )
            for entry in loaded.producers.producers.values()
            if entry.batches
        },
        "ongoing": loaded.producers.ongoing,
        "at": loaded.producers.last_map_offset,
    }


def write_some(log: Log, chance: random.Random, count: int, sequences: dict[int, int]) -> None:
    """Append batches of plain, idempotent and transactional producers; some transactions end."""
    for _ in range(count):
        pid = chance.choice([-1, 1, 2, 3])
        epoch = log.log_end_offset // 40
        transactional = pid == 3
        if transactional and sequences.get(-3) and chance.random() < 0.5:
            end_transaction(log, 3, commit=chance.random() < 0.5, epoch=epoch)
            sequences[-3] = 0
            continue
        records = [b"v" * chance.randrange(1, 90) for _ in range(chance.randrange(1, 4))]
        append(
            log,
            batch(
                *records,
                timestamp=NOW + chance.randrange(10_000),
                pid=pid,
                sequence=sequences.get(pid, 0) if pid >= 0 else 0,
                transactional=transactional,
            ),
            epoch=epoch,
        )
        if pid >= 0:
            sequences[pid] = sequences.get(pid, 0) + len(records)
        if transactional:
            sequences[-3] = 1


@pytest.mark.parametrize("seed", range(40))
def test_reading_from_the_recovery_point_finds_what_reading_everything_finds(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    settings = config(index_interval_bytes=200, segment_bytes=chance.choice([2_000, 1 << 20]))
    log = open_log(tmp_path, settings)
    sequences: dict[int, int] = {}
    write_some(log, chance, chance.randrange(5, 60), sequences)
    if chance.random() < 0.5:  # a clean stop and start leaves a snapshot at the recovery point
        log.close()
        log = open_log(tmp_path, settings, clean=True, recovery_point=log.log_end_offset)
    else:
        log.flush(NOW)
    point = log.recovery_point
    write_some(log, chance, chance.randrange(30), sequences)
    torn = chance.randrange(100)
    if torn:
        with Path(log.active_segment.log.path).open("ab") as file:
            file.write(chance.randbytes(torn))
    shutil.copytree(tmp_path / str(TP), tmp_path / "copy" / str(TP))
    assert state(load(tmp_path, point)) == state(load(tmp_path / "copy", 0)), f"seed {seed}"


def fill(folder: Path, settings: LogConfig = SETTINGS, count: int = 300) -> Log:
    """One segment of many batches."""
    log = open_log(folder, settings)
    for n in range(count):
        append(log, batch(b"%d" % n * 20, pid=3, sequence=n, timestamp=NOW + n))
    return log


class Watching(FileLayer):
    """Counts the bytes that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0

    def pread(self, fd: int, size: int, position: int) -> bytes:  # type: ignore[override]
        data = super().pread(fd, size, position)
        self.bytes_read += len(data)
        return data


@pytest.mark.parametrize("how", ["flushed", "closed"])
def test_killed_broker_reads_what_was_unflushed_not_what_is_stored(
    tmp_path: Path, how: str
) -> None:
    log = fill(tmp_path)
    if how == "closed":
        log.close()
        log = open_log(tmp_path, SETTINGS, clean=True)
    else:
        log.snapshots.take(log.producers)
        log.flush(NOW)
    assert log.recovery_point == 300
    append(log, batch(b"after", pid=3, sequence=300))
    layer = Watching()
    loaded = load(tmp_path, 300, layer)
    assert loaded.log_end_offset == 301
    assert loaded.producers.producers[3].last_sequence == 300
    assert loaded.recovered_bytes < 1000
    assert layer.bytes_read < log.size_bytes / 4


def test_flush_writes_the_index_entries_of_what_it_covers(tmp_path: Path) -> None:
    log = fill(tmp_path)
    index = Path(log.active_segment.offset_index.path)
    assert index.stat().st_size == 0
    task = log.prepare_flush()
    assert index.stat().st_size == 8 * len(log.active_segment.offset_index)
    assert str(index) in task.paths


def spoil_zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def spoil_empty(path: Path) -> None:
    path.write_bytes(b"")


def spoil_last(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def spoil_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    middle = len(data) // 24 * 12 - len(data) // 24 * 12 % 24  # an entry's first byte, either width
    data[middle : middle + 24] = bytes(24)
    path.write_bytes(data)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("spoil", [spoil_zero, spoil_empty, spoil_last, spoil_middle])
def test_index_that_the_power_cut_spoilt_is_not_believed(
    tmp_path: Path, suffix: str, spoil: Any
) -> None:
    log = fill(tmp_path)
    log.close()
    shutil.copytree(tmp_path / str(TP), tmp_path / "copy" / str(TP))
    spoil(tmp_path / str(TP) / f"{0:020d}{suffix}")
    expected = state(load(tmp_path / "copy", 0))
    assert state(load(tmp_path, 300)) == expected


def test_damage_of_what_was_flushed_ends_the_log_and_the_producers_state_there(
    tmp_path: Path,
) -> None:
    log = fill(tmp_path)
    log.close()
    path = Path(log.active_segment.log.path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    reopened = open_log(tmp_path, SETTINGS, recovery_point=300)
    assert reopened.log_end_offset == 299
    assert len(values(reopened)) == 299
    append(reopened, batch(b"again", pid=3, sequence=299))


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        # Compaction removed the first records of epochs 0 and 4, and everything of epoch 2.
        ([(0, 0), (2, 12), (4, 20)], [(0, 0), (2, 12), (4, 20)]),
        # In the middle of epoch 0, and after the first batch of epoch 4.
        ([(0, 0), (2, 7), (4, 27)], [(0, 0), (4, 25)]),
        ([(0, 0), (2, 12), (3, 12)], [(0, 0), (3, 12), (4, 25)]),
        # Epochs and offsets beyond the log.
        ([(0, 0), (4, 25), (9, 70)], [(0, 0), (4, 25)]),
        # A log whose older batches have no epoch.
        ([(4, 22)], [(0, 5), (4, 22)]),
    ],
)
def test_epochs_begin_where_they_were_known_to_as_far_as_the_batches_agree(
    tmp_path: Path, stored: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    """Followers truncate by these offsets: a later one would keep records of an older leader."""
    folder = tmp_path / str(TP)
    folder.mkdir()
    segment = b""
    for base_offset, epoch in ((5, 0), (25, 4), (30, 4)):
        builder = BatchBuilder(base_offset=base_offset, partition_leader_epoch=epoch)
        for _ in range(5):
            builder.append(NOW, b"key", b"value")
        segment += builder.build()
    (folder / f"{0:020d}.log").write_bytes(segment)
    (folder / "leader-epoch-checkpoint").write_bytes(format_checkpoint(stored))
    loaded = load(tmp_path, 0)
    assert loaded.log_end_offset == 35
    assert loaded.leader_epoch_cache.entries() == expected
    assert load(tmp_path, 0).leader_epoch_cache.entries() == expected
