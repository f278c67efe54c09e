"""Searches in batches of any origin. Each search is fed batches in the order of the log.

Errors: CorruptRecord for a damaged batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kwire.records.batch import RecordBatch
from kwire.records.record import Record

from ..client.asking import Asking, fetch
from ..client.visibility import Aborted, Visibility, batches_of, control_of
from .facts import LaterRecord, Marker, StoredRecord

#: The maximum size of a search for a marker, a key or a group's records. Unit: bytes.
SCAN_BYTES = 64 * 1024 * 1024


class OffsetSearch:
    """Finds the record at an offset, or the gap that contains the offset."""

    def __init__(self, offset: int, begin: int) -> None:
        """Shape: `begin` is the lowest offset from which batches will be fed."""
        self.offset = offset
        self.stored: StoredRecord | None = None
        self.key: bytes | None = None
        self.next_offset = offset
        """The offset at which the log continues after the batch that was found."""
        self._before = begin
        self._after: int | None = None

    def feed(self, batch: RecordBatch) -> bool:
        """Process a batch; returns whether the search is over."""
        header = batch.header
        self.next_offset = header.next_offset
        batch.verify_crc()
        for record in batch.records():
            if record.offset < self.offset:
                self._before = record.offset + 1
            elif record.offset == self.offset:
                self.stored = stored(batch, record)
                self.key = record.key
                return True
            else:
                self._after = record.offset - 1
                return True
        return False

    def gap(self, end: int) -> tuple[int, int]:
        """The offsets without records around the given one. Shape: `end` is that of the log."""
        return self._before, end - 1 if self._after is None else self._after


class MarkerSearch:
    """Finds the marker that ended a producer's transaction."""

    def __init__(self, producer_id: int, after: int) -> None:
        self._producer_id = producer_id
        self._after = after
        self.marker: Marker | None = None

    def feed(self, batch: RecordBatch) -> bool:
        header = batch.header
        if (
            header.is_control
            and header.producer_id == self._producer_id
            and header.base_offset > self._after
        ):
            kind = control_of(batch).name
            if kind in ("COMMIT", "ABORT"):
                self.marker = Marker(header.base_offset, kind, header.max_timestamp)
                return True
        return False


class KeySearch:
    """Finds the next record with a key."""

    def __init__(self, key: bytes, after: int) -> None:
        self._key = key
        self._after = after
        self.later: LaterRecord | None = None

    def feed(self, batch: RecordBatch) -> bool:
        if batch.is_control or batch.header.last_offset <= self._after:
            return False
        for record in batch.records():
            if record.offset > self._after and record.key == self._key:
                self.later = LaterRecord(record.offset, record.value is None)
                return True
        return False


class DataSearch:
    """Finds out whether there is a record that readers with read_committed get. Shape: `aborted` as of a Fetch."""

    def __init__(self, begin: int, aborted: Iterable[Aborted]) -> None:
        self._begin = begin
        self._visibility = Visibility(aborted)
        self.next_offset = begin

    def feed(self, batch: RecordBatch) -> bool:
        """Process a batch; returns whether it has such a record."""
        self.next_offset = batch.header.next_offset
        if self._visibility.is_aborted(batch) or batch.is_control:
            return False
        return any(record.offset >= self._begin for record in batch.records())


def scan(
    leader: int,
    topic: str,
    partition: int,
    begin: int,
    end: int,
    feed: Callable[[RecordBatch], bool],
) -> Asking[int | None]:
    """Feed batches until the search is over; returns the offset at which it was given up, None if it was not."""
    at, read = begin, 0
    while at < end:
        if read > SCAN_BYTES:
            return at
        row = yield from fetch(leader, topic, partition, at)
        batches = batches_of(row)
        if row.error_code or not batches:
            return at
        for batch in batches:
            read += batch.header.size
            at = batch.header.next_offset
            if feed(batch):
                return None
    return None


def stored(batch: RecordBatch, record: Record) -> StoredRecord:
    """A batch's content at an offset."""
    header = batch.header
    return StoredRecord(
        timestamp_ms=record.timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        transactional=header.is_transactional,
        control=control_of(batch).name if header.is_control else None,
        key_size=-1 if record.key is None else len(record.key),
        value_size=-1 if record.value is None else len(record.value),
    )
