"""The cost of the log's append and read in Python, compared with the bare system calls. python -m bench.log

Prints microseconds per call, the best of several rounds, for one 16 KiB batch and one 128 KiB batch: `floor` is crc32c
over the batch, two pack_into and one pwrite; `append` is Log.append_as_leader.
"""

from __future__ import annotations

import os
import struct
import sys
import tempfile
import time
from collections.abc import Callable

from kwire.records.batch import BatchBuilder
from kwire.records.crc import crc32c
from server.log.delayed_delete import DelayedDeletes
from server.log.file_layer import FileLayer, FileSlice
from server.log.log import AppendInfo, Log, LogSlice
from server.log.log_config import LogConfig
from server.log.recovery.loader import load_log
from server.metadata.topic_partition import TopicPartition

NOW_MS = 1_700_000_000_000
ROUNDS = 7


def make_batch(size: int, producer_id: int = -1, base_sequence: int = -1) -> bytearray:
    """A batch of 1 KB records with about this size in bytes."""
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=base_sequence,
    )
    while builder.size + 1024 < size:
        builder.append(NOW_MS, None, os.urandom(1000))
    return bytearray(builder.build())


def open_log(folder: str, config: LogConfig | None = None) -> Log:
    """A new log in a folder."""
    layer = FileLayer()
    config = config or LogConfig()
    layer.make_directory(folder)
    loaded = load_log(
        layer, folder, config, clean=True, log_start_offset=0, recovery_point=0, now_ms=NOW_MS
    )
    tp = TopicPartition("bench", 0)
    return Log(tp, folder, config, layer, loaded, DelayedDeletes(layer), now_ms=NOW_MS)


def best(rounds: int, calls: int, run: Callable[[], None]) -> float:
    """Microseconds per call in the fastest round."""
    fastest = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            run()
        fastest = min(fastest, time.perf_counter() - start)
    return fastest / calls * 1e6


def floor(folder: str, size: int, calls: int) -> float:
    """The cost of the operations that cannot be avoided."""
    batch = memoryview(make_batch(size))
    fd = os.open(f"{folder}/floor", os.O_RDWR | os.O_CREAT)
    pack_offset, pack_epoch = struct.Struct(">q").pack_into, struct.Struct(">i").pack_into
    position = 0

    def run() -> None:
        nonlocal position
        crc32c(batch[21:])
        pack_offset(batch, 0, 0)
        pack_epoch(batch, 12, 0)
        position += os.pwrite(fd, batch, position)

    try:
        return best(ROUNDS, calls, run)
    finally:
        os.close(fd)
        os.unlink(f"{folder}/floor")


def append(folder: str, size: int, calls: int, *, idempotent: bool) -> float:
    """The cost of Log.append_as_leader with the same view each time."""
    log = open_log(f"{folder}/append")
    batch = memoryview(make_batch(size, 7, 0) if idempotent else make_batch(size))
    first = bytes(batch[:12])

    def run() -> None:
        batch[:12] = first
        info = log.append_as_leader(batch, 0, NOW_MS)
        assert type(info) is AppendInfo

    def run_idempotent() -> None:
        # The CRC covers the sequence, so the same batch is accepted again only for a new producer.
        log.producers.producers.pop(7, None)
        run()

    try:
        return best(ROUNDS, calls, run_idempotent if idempotent else run)
    finally:
        log.close(flush=False)
        log.layer.remove_tree(f"{folder}/append")


def reads(folder: str) -> dict[str, float]:
    """The cost of reading a log of 16 KiB batches in several ways."""
    log = open_log(f"{folder}/read")
    batch = memoryview(make_batch(16 * 1024))
    first = bytes(batch[:12])
    for _ in range(4000):
        batch[:12] = first
        log.append_as_leader(batch, 0, NOW_MS)
    end = log.log_end_offset
    per_batch = int.from_bytes(batch[57:61], "big")
    offset = 0

    def sequential() -> None:
        nonlocal offset
        found = log.read(offset, 1 << 20, end)
        assert type(found) is LogSlice
        assert isinstance(found.data, FileSlice | bytes)
        offset = found.next_offset if found.next_offset < end else 0

    def tail() -> None:
        found = log.read(end - per_batch, 1 << 20, end)
        assert type(found) is LogSlice and found.size

    def empty() -> None:
        log.read(end, 1 << 20, end)

    position = 0

    def cold() -> None:
        nonlocal position
        position = (position + 7919 * per_batch) % end
        log.forget_positions()
        log.read(position, 1 << 20, end)

    try:
        return {
            "read 1 MiB, one after the other": best(ROUNDS, 2000, sequential),
            "read the last batch (16 KiB)": best(ROUNDS, 2000, tail),
            "read at the end: nothing": best(ROUNDS, 2000, empty),
            "read 1 MiB anywhere": best(ROUNDS, 2000, cold),
        }
    finally:
        log.close(flush=False)
        log.layer.remove_tree(f"{folder}/read")


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        for size in (1024 + 200, 16 * 1024, 128 * 1024):
            calls = 1000 if size > 100_000 else 4000
            bare = floor(folder, size, calls)
            plain = append(folder, size, calls, idempotent=False)
            known = append(folder, size, calls, idempotent=True)
            print(
                f"{size:>7} bytes: floor {bare:6.1f} us  append {plain:6.1f} us (+{plain - bare:.1f})"
                f"  with producer id {known:6.1f} us (+{known - bare:.1f})"
            )
        for name, figure in reads(folder).items():
            print(f"{name:<32} {figure:6.1f} us")


if __name__ == "__main__":
    main()
