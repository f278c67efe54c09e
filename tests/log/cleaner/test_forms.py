"""Compaction writes the same files with the native module and without it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from kwire.records.batch import BatchBuilder
from kwire.records.record import TimestampType
from server.log.cleaner.plan import CleanerSettings
from server.log.log import AppendInfo, Log
from tests.support.forms import form

from ..logs import NOW, config, open_log, read_batches
from .cleaning import clean, cleaner_of
from .writing import Writer

HOUR_MS = 3_600_000
SEEDS = 200 if os.environ.get("KWIRE_LONG") else 8
WRITTEN = config(segment_bytes=3000, index_interval_bytes=200)
COMPACTED = config(
    segment_bytes=3000,
    index_interval_bytes=200,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.01,
    delete_retention_ms=HOUR_MS,
)


class AllRecords(Writer):
    """Writes null keys and values, gaps in offsets, and all message formats, too."""

    def add_records(self, builder: BatchBuilder, *, transactional: bool) -> int:
        """Add up to eight records."""
        return self.add(builder, b"in a transaction" if transactional else b"key")

    def add(self, builder: BatchBuilder, prefix: bytes, *, gaps: bool = False) -> int:
        """Add up to eight records whose keys begin with `prefix`."""
        chooser = self.chooser
        count = chooser.randrange(1, 9)
        for _ in range(count):
            key = None if chooser.random() < 0.05 else prefix + b"%d" % chooser.randrange(30)
            value = None if chooser.random() < 0.1 else b"v" * chooser.choice((0, 1, 63, 64, 300))
            headers = [("h", b"1")] if chooser.random() < 0.1 and prefix != b"old" else []
            offset = builder.next_offset + (chooser.randrange(4) if gaps else 0)
            builder.append(NOW + chooser.randrange(-500, 500), key, value, headers, offset=offset)
        return count

    def append_other(self) -> None:
        """Append a batch with gaps in its offsets, or messages of magic 0 or 1, as a follower does."""
        chooser = self.chooser
        magic = chooser.choice((0, 1, 2, 2, 2))
        builder = BatchBuilder(
            magic,
            chooser.choice((0, 0, 1, 3)),
            chooser.choice(list(TimestampType)),
            base_offset=self.log.log_end_offset,
            log_append_time=NOW + 7,
        )
        self.add(builder, b"key" if magic == 2 else b"old", gaps=magic == 2)
        info = self.log.append_as_follower(memoryview(bytearray(builder.build())), NOW)
        assert isinstance(info, AppendInfo), info
        self.log.high_watermark = self.log.log_end_offset


def last_of(log: Log) -> dict[bytes, int]:
    """The offset of the last record of each key outside of transactions, without tombstones."""
    found: dict[bytes, int] = {}
    for batch in read_batches(log, log.log_start_offset):
        for record in batch.records() if not batch.is_control else ():
            if record.key is not None and record.key.startswith((b"key", b"old")):
                found[record.key] = record.offset
                if record.value is None:
                    del found[record.key]
    return found


def stored(log: Log) -> dict[str, bytes]:
    """The content of all files of a log."""
    return {path.name: path.read_bytes() for path in sorted(Path(log.dir).iterdir())}


def compact(folder: Path, seed: int) -> list[dict[str, bytes]]:
    """Write and compact a log three times; its files after each time."""
    chooser = random.Random(seed)
    settings = CleanerSettings(
        dedupe_buffer_size=chooser.choice((300, 1500, 1 << 20)),
        io_buffer_size=chooser.choice((100, 1000, 1 << 19)),
    )
    folder.mkdir()
    log = open_log(folder, WRITTEN)
    cleaner = cleaner_of(log, settings)
    found = []
    for step in range(3):
        log.update_config(WRITTEN)
        AllRecords(log, seed * 10 + step, NOW).run(40)
        log.update_config(COMPACTED)
        before = last_of(log)
        assert clean(log, cleaner, now_ms=NOW + step * 2 * HOUR_MS) > 0
        assert last_of(log) == before
        found.append(stored(log))
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_both_forms_write_the_same_files(tmp_path: Path, seed: int) -> None:
    """For every kind of batch, whether or not all keys fit into memory."""
    found = {}
    for name in ("pure", "native"):
        with form(name):
            found[name] = compact(tmp_path / name, seed)
    for pure, native in zip(found["pure"], found["native"], strict=True):
        assert list(native) == list(pure)
        for name in pure:
            assert native[name] == pure[name], name
