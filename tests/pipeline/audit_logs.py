"""Log directories and archives that a test writes itself, with faults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from kwire.pipeline.manifest import Archive, ArchiveFile, ManifestEntry
from kwire.records.batch import BatchBuilder
from kwire.records.control import ControlType, EndTransactionMarker, end_transaction_batch

#: 2026-11-01 12:00 UTC.
NOON_MS = 1_793_534_400_000


def batch(
    first: int,
    count: int,
    *,
    start_ms: int = NOON_MS,
    producer_id: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    mark: bytes = b"",
) -> bytes:
    """Records with key `k<offset>` and value `v<offset>` and a mark, one second apart, from start_ms on."""
    builder = BatchBuilder(
        base_offset=first,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
        is_transactional=transactional,
        partition_leader_epoch=0,
    )
    for offset in range(first, first + count):
        text = str(offset).encode()
        builder.append(start_ms + offset * 1000, b"k" + text, b"v" + text + mark)
    return builder.build()


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    """The control batch that ends a transaction."""
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    return end_transaction_batch(
        EndTransactionMarker(kind, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp=NOON_MS + offset * 1000,
        base_offset=offset,
        partition_leader_epoch=0,
    )


def write_segments(log_dir: Path, partition: str, segments: dict[int, Sequence[bytes]]) -> Path:
    """Write `.log` files, and nothing else: a copy of a partition. Return the first file."""
    folder = log_dir / partition
    folder.mkdir(parents=True, exist_ok=True)
    for base_offset, batches in segments.items():
        (folder / f"{base_offset:020d}.log").write_bytes(b"".join(batches))
    return folder / f"{min(segments):020d}.log"


def flip(path: Path, position: int) -> None:
    """Change one byte."""
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def write_archive(
    path: Path, topic: str, parts: Sequence[tuple[range, Sequence[int]]], *, partition: int = 0
) -> list[Path]:
    """Write an archive of the records that `batch` makes; return its files.

    Shape: each part is the range its entry claims to cover, and the offsets whose records its file has.
    """
    archive = Archive(path)
    archive.create()
    files = []
    for number, (claimed, offsets) in enumerate(parts):
        folder = f"topic={topic}/date=2026-11-01/hour=12"
        name = f"{folder}/{topic}-{partition}-{claimed[0]}-{claimed[-1]}-{number}.parquet"
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        table = pa.table(
            {
                "key": pa.array([f"k{offset}".encode() for offset in offsets], pa.binary()),
                "value": pa.array([f"v{offset}".encode() for offset in offsets], pa.binary()),
                "partition": pa.array([partition] * len(offsets), pa.int32()),
                "offset": pa.array(offsets, pa.int64()),
                "timestamp": pa.array(
                    [(NOON_MS + offset * 1000) * 1000 for offset in offsets],
                    pa.timestamp("us", "UTC"),
                ),
                "timestampType": pa.array([0] * len(offsets), pa.int32()),
                "headers": pa.nulls(
                    len(offsets),
                    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
                ),
            }
        )
        pyarrow.parquet.write_table(table, file)
        described = ArchiveFile(
            name,
            len(claimed),
            file.stat().st_size,
            claimed[0],
            claimed[-1],
            NOON_MS + claimed[0] * 1000,
            NOON_MS + claimed[-1] * 1000,
        )
        entry = ManifestEntry(topic, partition, claimed[0], claimed[-1], len(claimed), (described,))
        archive.commit_batch([entry], number)
        files.append(file)
    return files
