"""The metadata of a KRaft cluster as it lies in a log directory: `__cluster_metadata-0`; read, never changed.

<offset>-<epoch>.checkpoint   a snapshot: record batches with all that counts below the offset; a control record
                              begins it and another one ends it, without which it is incomplete
<offset>.log                  segments: the changes after the snapshot

The last records of a voter that is not the leader may be uncommitted; nothing in the directory tells which.
Source: KafkaMetadataLog, Snapshots, RecordsSnapshotReader; KIP-630.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from kwire.errors import CorruptRecord
from kwire.records.batch import BatchHeader, RecordBatch, batch_size, iter_batches
from kwire.records.control import ControlType, control_type

from ..metadata.internal_topics import CLUSTER_METADATA_TOPIC
from .file_layer import FileLayer
from .segment import LOG_SUFFIX, LogSegment, offset_of

DIRECTORY = f"{CLUSTER_METADATA_TOPIC}-0"

_CHECKPOINT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class BadMetadataLog(Exception):
    """There is no metadata of a KRaft cluster here, or it cannot be read; the message names the file."""


class MetadataRecord(NamedTuple):
    """A record that is not a control record, and where it lies."""

    value: bytes
    offset: int
    path: str


class Snapshot(NamedTuple):
    """A snapshot's file; it has everything below `end_offset`."""

    path: str
    end_offset: int
    epoch: int


def snapshot_of(name: str) -> tuple[int, int] | None:
    """The end offset and epoch in the name of a snapshot; None for other files."""
    match = _CHECKPOINT.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))


class MetadataLog:
    """The records of a metadata log: those of its newest complete snapshot, then those of its segments.

    Shape: `end_offset` and `epoch` are those of what was read so far; `snapshot` is None without one; `damaged` says which
    newer snapshots were not read, and why; `torn` is the file whose end was cut short, None if there is none.
    """

    def __init__(self, layer: FileLayer, log_dir: str) -> None:
        """Errors: BadMetadataLog if the directory has none."""
        self.directory = f"{log_dir}/{DIRECTORY}"
        self.end_offset = 0
        self.epoch = 0
        self.snapshot: Snapshot | None = None
        self.damaged: list[str] = []
        self.torn: str | None = None
        self._layer = layer
        try:
            self._files = layer.list_directory(self.directory)
        except FileNotFoundError:
            raise BadMetadataLog(
                f"{log_dir} has no {DIRECTORY}: name the directory in which a broker or controller of a KRaft cluster"
                " keeps its metadata (metadata.log.dir, or the first of log.dirs)"
            ) from None

    def records(self) -> Iterator[MetadataRecord]:
        """Yield all records in order. Errors: BadMetadataLog, OSError."""
        found = self._newest_snapshot()
        if found is not None:
            self.snapshot, records = found
            self.end_offset, self.epoch = self.snapshot.end_offset, self.snapshot.epoch
            yield from records
        yield from self._segments()

    def _newest_snapshot(self) -> tuple[Snapshot, list[MetadataRecord]] | None:
        for snapshot in sorted(
            (
                Snapshot(f"{self.directory}/{name}", *found)
                for name in self._files
                if (found := snapshot_of(name))
            ),
            key=lambda each: (each.end_offset, each.epoch),
            reverse=True,
        ):
            try:
                return snapshot, self._snapshot_records(snapshot.path)
            except CorruptRecord as error:
                # Apache Kafka continues without it, too, and deletes it.
                self.damaged.append(f"{snapshot.path}: {error}")
        return None

    def _snapshot_records(self, path: str) -> list[MetadataRecord]:
        # Errors: CorruptRecord, also without the record at its end.
        records: list[MetadataRecord] = []
        complete = False
        for batch in iter_batches(self._layer.read_file(path)):
            batch.verify_crc()
            for record in batch.records():
                if batch.is_control:
                    complete |= control_type(record.key) is ControlType.SNAPSHOT_FOOTER
                elif record.value is not None:
                    records.append(MetadataRecord(record.value, record.offset, path))
        if not complete:
            raise CorruptRecord("it has no end")
        return records

    def _segments(self) -> Iterator[MetadataRecord]:
        names = sorted(name for name in self._files if name.endswith(LOG_SUFFIX))
        bases = [base for name in names if (base := offset_of(name)) is not None]
        start = self.end_offset
        # A segment that ends before the snapshot is still there until Apache Kafka deletes it.
        needed = [
            base
            for base, following in zip(bases, [*bases[1:], None], strict=True)
            if following is None or following > start
        ]
        if needed and needed[0] > start:
            why = "".join(f"; {each}" for each in self.damaged)
            raise BadMetadataLog(
                f"{self.directory}: the changes from offset {start} to {needed[0]} are missing, and no complete"
                f" snapshot has them{why}"
            )
        for base in needed:
            yield from self._segment(base, is_last=base == needed[-1])

    def _segment(self, base: int, *, is_last: bool) -> Iterator[MetadataRecord]:
        path = f"{self.directory}/{base:020d}{LOG_SUFFIX}"
        file = self._layer.open_read_only(path)
        try:
            segment = LogSegment(self._layer, self.directory, base, file.size(), created_ms=0)
            segment.log = file
            position = 0
            try:
                for position, header in segment.headers(0):
                    batch = RecordBatch(file.read_at(header.size, position))
                    batch.verify_crc()
                    yield from self._batch(batch, header, path)
                    position += header.size
            except CorruptRecord as error:
                self._damaged(error, path, position, segment.size, is_last)
            else:
                if position < segment.size:
                    self._damaged(None, path, position, segment.size, is_last)
        finally:
            file.close()

    def _batch(
        self, batch: RecordBatch, header: BatchHeader, path: str
    ) -> Iterator[MetadataRecord]:
        if header.next_offset <= self.end_offset:
            return
        if header.base_offset > self.end_offset:
            raise BadMetadataLog(
                f"{path}: offset {header.base_offset} follows {self.end_offset - 1}; what lies between is missing"
            )
        for record in batch.records():
            if (
                not batch.is_control
                and record.value is not None
                and record.offset >= self.end_offset
            ):
                yield MetadataRecord(record.value, record.offset, path)
        self.end_offset = header.next_offset
        self.epoch = max(self.epoch, header.partition_leader_epoch)

    def _damaged(
        self, error: CorruptRecord | None, path: str, position: int, size: int, is_last: bool
    ) -> None:
        # Data at the very end, left by a killed broker or in a copy of a running one, was not acknowledged.
        rest = self._layer.read_file(path)[position:] if is_last else b""
        if not (is_last and _is_last_batch(rest)):
            raise BadMetadataLog(
                f"{path} is damaged at position {position}: {error or 'it is cut short'}"
            )
        self.torn = path


def _is_last_batch(rest: bytes) -> bool:
    """Whether damaged bytes are one batch at most, or nothing but zeros."""
    try:
        size = batch_size(rest)
    except CorruptRecord:
        return not any(rest)
    return size is None or size == len(rest)
