"""Brings the records of any number of streams in order of offset, within bounded memory and with few open files.

Streams are read one after the other. What fits into memory is sorted and written to a temporary file, a run; whenever there are
FAN_IN runs of a level, they are merged into one of the next level, and in the end the remaining ones are merged into the result.
So each record is written once for each level, of which there are hardly ever more than two, and no more than FAN_IN files are open.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

#: The maximum number of files that are open at a time.
FAN_IN = 64
#: Bytes of records that are sorted in memory.
RUN_BYTES = 64 << 20
#: Bytes of a batch in a run; while runs are merged, one batch of each is in memory.
BATCH_BYTES = 1 << 20


def sorted_by_offset(
    streams: Iterable[Iterator[pa.RecordBatch]], run_bytes: int = RUN_BYTES, fan_in: int = FAN_IN
) -> Iterator[pa.RecordBatch]:
    """The records of streams, each sorted by offset, as one sorted stream.

    Raises OSError if the temporary files cannot be written, and what the streams raise.
    """
    with tempfile.TemporaryDirectory(prefix="kwire-replay-", dir=_place()) as folder:
        runs = _Runs(Path(folder), fan_in)
        waiting: list[pa.RecordBatch] = []
        size = 0
        for stream in streams:
            for batch in stream:
                waiting.append(batch)
                size += batch.nbytes
                if size >= run_bytes:
                    runs.add(_sorted(waiting))
                    waiting, size = [], 0
        rest = [iter(_sorted(waiting))] if waiting else []
        yield from merged([*runs.last(), *rest])


def merged(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Merge several streams, each sorted by offset, into one."""
    heads = [(batch, stream) for stream in streams if (batch := next(stream, None)) is not None]
    while heads:
        # No stream has more records below the smallest of the last offsets, so everything up to there is complete.
        bound = min(batch.column("offset")[-1].as_py() for batch, _ in heads)
        ready: list[pa.RecordBatch] = []
        left: list[tuple[pa.RecordBatch, Iterator[pa.RecordBatch]]] = []
        for batch, stream in heads:
            count = pc.sum(pc.less_equal(batch.column("offset"), bound)).as_py()
            ready.append(batch.slice(0, count))
            rest = batch.slice(count) if count < batch.num_rows else next(stream, None)
            if rest is not None:
                left.append((rest, stream))
        heads = left
        table = pa.Table.from_batches(ready).combine_chunks()
        yield from table.sort_by("offset").combine_chunks().to_batches()


class _Runs:
    """The runs that were written, by level: how often their records were merged."""

    def __init__(self, folder: Path, fan_in: int) -> None:
        self._folder = folder
        self._fan_in = fan_in
        self._levels: list[list[Path]] = [[]]
        self._numbers = count()

    def add(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write a run, and merge those of each level that is full now."""
        self._levels[0].append(self._written(batches))
        for level, runs in enumerate(self._levels):
            if len(runs) < self._fan_in:
                return
            self._levels[level] = []
            if level + 1 == len(self._levels):
                self._levels.append([])
            self._levels[level + 1].append(self._joined(runs))

    def last(self) -> list[Iterator[pa.RecordBatch]]:
        """The runs to be merged in the end; one less than may be open, because another stream is in memory."""
        left = [path for level in self._levels for path in level]
        while len(left) >= self._fan_in:
            # The first ones are the shortest.
            left = [*left[self._fan_in :], self._joined(left[: self._fan_in])]
        return [_read(path) for path in left]

    def _joined(self, paths: Sequence[Path]) -> Path:
        path = self._written(merged([_read(each) for each in paths]))
        for each in paths:
            each.unlink()
        return path

    def _written(self, batches: Iterable[pa.RecordBatch]) -> Path:
        path = self._folder / f"{next(self._numbers)}.arrow"
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        writer = None
        with pa.OSFile(str(path), "wb") as file:
            for batch in batches:
                writer = writer or pa.ipc.new_stream(file, batch.schema, options=options)
                writer.write_batch(batch)
            if writer is not None:
                writer.close()
        return path


def _read(path: Path) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as reader:
        yield from reader


def _place() -> str | None:
    """Where temporary files belong: where Spark has its own, if this is one of its tasks."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None


def _sorted(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    table = pa.Table.from_batches(batches).combine_chunks()
    table = table.sort_by("offset").combine_chunks()
    rows = max(1, table.num_rows * BATCH_BYTES // max(table.nbytes, 1))
    found: list[pa.RecordBatch] = table.to_batches(max_chunksize=rows)
    return found
