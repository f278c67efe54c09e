"""The rules of compaction: what is kept of each batch. Works on bytes and does not use files.

A record is kept if no later record has its key, unless it is an expired tombstone. When a tombstone
is first found, its batch gets a delete horizon (KIP-534): attribute bit 6 is set, and the base
timestamp is replaced by now + delete.retention.ms; the tombstone is removed after that time.
Markers of transactions are removed in the same way once no batch of their transaction is left.
Records of aborted transactions are removed at once. A batch keeps its offsets, sequences and epochs
whatever is removed from it. A batch of which nothing is left is removed entirely, unless it is the
last one of a known producer (whose sequence would be lost) or the last one of the round (so that
readers get past the gap): then its header is kept, without records.

The resulting bytes differ from Apache Kafka's in two ways, without a difference in meaning. A batch
that lost records keeps its base timestamp, so that the deltas need not be rewritten. Batches of
magic
0 and 1 are filtered in their own format, as in Apache Kafka, but if the last one loses all its
records, it becomes a header of magic 2.
Source: Cleaner.cleanInto, CleanedTransactionMetadata, MemoryRecords.filterTo.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop
from operator import ge
from typing import cast

from kwire.records.batch import (
    MAX_DECOMPRESSED_BYTES,
    BatchBuilder,
    BatchHeader,
    RecordBatch,
    read_header,
)
from kwire.records.builder import write_batch
from kwire.records.compression import compress
from kwire.records.control import ControlType, control_type
from kwire.records.layout import (
    CODEC_MASK,
    DELETE_HORIZON_MASK,
    HEADER_SIZE,
    INT64,
    MAX_TIMESTAMP_AT,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from kwire.records.legacy import inner_messages, read_message
from kwire.records.record import Record, TimestampType

from ..index.transaction_index import AbortedTransaction
from .offset_map import OffsetMap
from .plan import LastRecord
from .record_spans import (
    RecordSpan,
    keys_and_ends,
    record_spans,
    some_records,
    timestamp_delta,
    with_timestamp_delta,
)
from .rewriting import Buffer, with_records

_ATTRIBUTES_OF_EMPTY = 0x38  # timestamp type, transactional, control
USUAL_ATTRIBUTES = CODEC_MASK | TIMESTAMP_TYPE_MASK | DELETE_HORIZON_MASK
"""The attributes of batches that need no other attention than their records."""


class CleanedTransactions:
    """Follows transactions from batch to batch. Source: CleanedTransactionMetadata."""

    __slots__ = ("_aborted", "_ongoing_aborted", "_ongoing_committed", "retained")

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Shape: the aborted transactions that overlap the range to be read, in any order."""
        self._aborted = [(entry.first_offset, entry) for entry in set(aborted)]
        heapify(self._aborted)
        self._ongoing_aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._ongoing_committed: set[int] = set()
        self.retained: list[AbortedTransaction] = []
        """Index entries of the transactions whose batches were read, in order of their markers."""

    def _begin_up_to(self, offset: int) -> None:
        aborted = self._aborted
        while aborted and aborted[0][0] <= offset:
            _, entry = heappop(aborted)
            self._ongoing_aborted.setdefault(entry.producer_id, (entry, False))

    def on_data(self, header: BatchHeader) -> bool:
        """Record a data batch; True if it belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        known = self._ongoing_aborted.get(header.producer_id)
        if known is None:
            self._ongoing_committed.add(header.producer_id)
            return False
        self._ongoing_aborted[header.producer_id] = (known[0], True)
        return True

    def on_control(self, header: BatchHeader, view: memoryview) -> bool:
        """Record a control batch; True if no batch of its transaction was read.

        Errors: CorruptRecord.
        """
        self._begin_up_to(header.last_offset)
        if header.records_count == 0:
            return True
        record = next(RecordBatch(view).records(), None)
        kind = control_type(None if record is None else record.key)
        if kind is ControlType.ABORT:
            entry, met = self._ongoing_aborted.pop(header.producer_id, (None, False))
            if entry is not None and met:
                self.retained.append(entry)
                return False
            return True
        if kind is ControlType.COMMIT:
            met = header.producer_id in self._ongoing_committed
            self._ongoing_committed.discard(header.producer_id)
            return not met
        return False


def note_keys(header: BatchHeader, view: memoryview, keys: OffsetMap, start_offset: int) -> bool:
    """Put the keys of a data batch, from start_offset on, into the map; False once it is full.

    Errors: RecordError if the body does not match the header.
    """
    if header.magic < 2:
        for record in RecordBatch(view).records():
            if record.key is not None and record.offset >= start_offset:
                if keys.is_full:
                    return False
                keys.put(record.key, record.offset)
        return True
    usual = USUAL_ATTRIBUTES | TRANSACTIONAL_MASK
    if header.is_transactional and keys.note_batches(view, 0, usual, start_offset):
        return True
    base_offset = header.base_offset
    body = RecordBatch(view).body()
    heads = keys_and_ends(body, header.records_count, header.last_offset_delta)
    if heads is not None and header.records_count and base_offset >= start_offset:
        _, found, deltas, _ = heads
        if None not in found:
            offsets = _offsets(base_offset, deltas)
            if keys.put_all(cast("list[bytes]", found), offsets):
                return True
    put = keys.put
    for _, _, _, delta, key, _ in _spans_of(header, body):
        if key is not None and base_offset + delta >= start_offset:
            if keys.is_full:
                return False
            put(key, base_offset + delta)
    return True


def _offsets(base_offset: int, deltas: list[int]) -> Sequence[int]:
    count = len(deltas)
    if deltas[-1] == count - 1:  # deltas increase, so none is missing
        return range(base_offset, base_offset + count)
    return [base_offset + delta for delta in deltas]


def _spans_of(header: BatchHeader, body: bytes) -> list[RecordSpan]:
    return record_spans(body, header.records_count, header.last_offset_delta)


class BatchFilter:
    """Decides, during one cleaning round, which records of each batch are kept."""

    __slots__ = (
        "_delete_retention_ms",
        "_keys",
        "_marks",
        "_marks_from",
        "_now_ms",
        "_round_end_offset",
        "keep_legacy_deletes",
        "last_records",
        "records_kept",
        "records_read",
        "transactions",
    )

    def __init__(
        self,
        keys: OffsetMap,
        transactions: CleanedTransactions,
        *,
        now_ms: int,
        delete_retention_ms: int,
        round_end_offset: int,
        keys_from: int = 0,
        max_marks: int = 0,
    ) -> None:
        """Shape: round_end_offset is the first offset after the round; keys were read from keys_from.

        Unit: max_marks is in bytes.
        """
        self._keys = keys
        self._marks = keys.marks(keys_from, max_marks)
        self._marks_from = keys_from
        self.transactions = transactions
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._round_end_offset = round_end_offset
        self.last_records: dict[int, LastRecord] = {}
        self.keep_legacy_deletes = True
        """Whether tombstones of magic 0 and 1 are still kept; depends on the segment's age."""
        self.records_read = 0
        self.records_kept = 0

    def filter_batches(
        self, window: memoryview, at: int
    ) -> tuple[int, list[tuple[Buffer, int, int]]]:
        """Filter batch after batch natively, as `filter` does.

        Shape: returns the position after the last one, and what is kept of them, each with its last offset and largest
        timestamp. Stops before a batch of a transaction and one that is unusual, and at once without the native module.
        """
        end, rows = self._keys.filter_batches(window, at, USUAL_ATTRIBUTES, self._now_ms)
        found: list[tuple[Buffer, int, int]] = []
        for left, size, last_offset, count, kept in rows:
            self.records_read += count
            self.records_kept += kept
            if left is not None:
                found.append((left, last_offset, INT64.unpack_from(left, MAX_TIMESTAMP_AT)[0]))
            elif self._must_keep_header(header := read_header(window, at)):
                found.append((_empty_batch(header), last_offset, NO_TIMESTAMP))
            at += size
        return end, found

    def filter(self, header: BatchHeader, view: memoryview) -> Buffer | None:
        """Filter a stored batch: return the batch itself, a smaller one, or None if nothing remains.

        Errors: RecordError if the body does not match the header.
        """
        if header.is_control:
            return self._filter_control(header, view)
        aborted = self.transactions.on_data(header)
        self.records_read += max(header.records_count, 1)
        if aborted:
            kept: Buffer | None = None
        elif header.magic < 2:
            kept = self._filter_legacy(header, view)
        else:
            kept = self._filter_data(header, view)
        if kept is None and self._must_keep_header(header):
            return _empty_batch(header)
        return kept

    def _must_keep_header(self, header: BatchHeader) -> bool:
        if header.producer_id >= 0:
            last = self.last_records.get(header.producer_id)
            if last is not None:
                if last.data_offset >= 0:
                    if header.last_offset == last.data_offset:
                        return True
                elif header.is_control and header.producer_epoch == last.producer_epoch:
                    return True
        return header.next_offset == self._round_end_offset

    def _filter_control(self, header: BatchHeader, view: memoryview) -> memoryview | bytes | None:
        discardable = self.transactions.on_control(header, view)
        horizon = header.delete_horizon_ms
        over = discardable and horizon is not None and horizon <= self._now_ms
        if header.records_count and not over:
            if discardable and horizon is None:
                body = RecordBatch(view).body()
                return self._with_horizon(header, body, _spans_of(header, body))
            return view
        return _empty_batch(header) if self._must_keep_header(header) else None

    def _filter_data(self, header: BatchHeader, view: memoryview) -> Buffer | None:
        if header.records_count == 0:
            return None
        if header.is_transactional:
            usual = USUAL_ATTRIBUTES | TRANSACTIONAL_MASK
            _, rows = self._keys.filter_batches(view, 0, usual, self._now_ms)
            if rows:
                left, _, _, _, kept_count = rows[0]
                self.records_kept += kept_count
                return left
        horizon = header.delete_horizon_ms
        last = self._last_of_their_keys(header)
        if last is not None and horizon is None and len(last) < header.records_count:
            return self._filter_known(header, view, last)
        body = RecordBatch(view).body()
        tombstones_stay = horizon is None or self._now_ms < horizon
        latest_delta = self._keys.latest_offset - header.base_offset
        heads = keys_and_ends(body, header.records_count, header.last_offset_delta)
        if heads is None or None in heads[1]:
            return self._filter_spans(header, view, body, latest_delta, tombstones_stay)
        ends, keys, deltas, nulls = heads
        lasts = self._keys.last_offsets(cast("list[bytes]", keys))
        offsets = _offsets(header.base_offset, deltas)
        # An offset beyond those in the map is also larger than the last offset of its key.
        kept = [number for number, stays in enumerate(map(ge, offsets, lasts)) if stays]
        if nulls:
            tombstones = set(nulls)
            if horizon is None and not tombstones.isdisjoint(kept):
                return self._filter_spans(header, view, body, latest_delta, tombstones_stay)
            if not tombstones_stay:
                kept = [n for n in kept if n not in tombstones or deltas[n] > latest_delta]
        self.records_kept += len(kept)
        if not kept:
            return None
        if len(kept) == len(ends):
            return view
        return _without_others(
            view,
            body,
            [
                (
                    start := ends[n - 1] if n else 0,
                    ends[n],
                    timestamp_delta(body, start),
                    0,
                    None,
                    True,
                )
                for n in kept
            ],
        )

    def _last_of_their_keys(self, header: BatchHeader) -> list[int] | None:
        # The records that are the last of their key, in a batch whose keys were read. None for any
        # other batch, and for one with gaps in its offsets.
        marks = self._marks
        start = header.base_offset - self._marks_from
        end = start + header.records_count
        if marks is None or start < 0 or end > len(marks):
            return None
        if header.records_count != header.last_offset_delta + 1:
            return None
        if marks.find(1, start, end) < 0:
            return []
        return [number for number, mark in enumerate(marks[start:end]) if mark]

    def _filter_known(
        self, header: BatchHeader, view: memoryview, last: list[int]
    ) -> memoryview | bytes | None:
        # The keys of this batch were read before, so only the records to keep have to be located.
        self.records_kept += len(last)
        if not last:
            return None
        body = RecordBatch(view).body()
        kept = some_records(body, last)
        if kept is None:
            kept = [span for span in _spans_of(header, body) if span[3] in last]
        if not all(span[5] for span in kept):
            return self._with_horizon(header, body, kept)
        return _without_others(view, body, kept)

    def _filter_spans(
        self,
        header: BatchHeader,
        view: memoryview,
        body: bytes,
        latest_delta: int,
        tombstones_stay: bool,
    ) -> memoryview | bytes | None:
        # The same, record by record, for null keys and tombstones that get a delete horizon.
        spans = _spans_of(header, body)
        get = self._keys.get
        base_offset = header.base_offset
        kept: list[RecordSpan] = []
        tombstones = False
        for span in spans:
            _, _, _, delta, key, has_value = span
            if delta > latest_delta or (
                key is not None
                and base_offset + delta >= get(key)
                and (has_value or tombstones_stay)
            ):
                kept.append(span)
                if not has_value:
                    tombstones = True
        self.records_kept += len(kept)
        if not kept:
            return None
        if tombstones and header.delete_horizon_ms is None:
            return self._with_horizon(header, body, kept)
        if len(kept) == len(spans):
            return view
        return _without_others(view, body, kept)

    def _with_horizon(self, header: BatchHeader, body: bytes, kept: list[RecordSpan]) -> bytes:
        horizon = self._now_ms + self._delete_retention_ms
        append_time = header.max_timestamp if header.is_log_append_time else None
        parts = []
        newest = NO_TIMESTAMP
        for start, end, delta, _, _, _ in kept:
            timestamp = header.base_timestamp + delta if append_time is None else append_time
            newest = max(newest, timestamp)
            parts.append(with_timestamp_delta(body, start, end, timestamp - horizon))
        body = b"".join(parts)
        return write_batch(
            compress(header.codec, 2, body) if header.codec else body,
            attributes=header.attributes | DELETE_HORIZON_MASK,
            base_offset=header.base_offset,
            last_offset_delta=header.last_offset_delta,
            base_timestamp=horizon,
            max_timestamp=header.max_timestamp if header.is_log_append_time else newest,
            records_count=len(kept),
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            partition_leader_epoch=header.partition_leader_epoch,
        )

    # -- magic 0 and 1 -----------------------------------------------------------------------------

    def _filter_legacy(self, header: BatchHeader, view: memoryview) -> memoryview | bytes | None:
        records = list(RecordBatch(view).records())
        kept = [record for record in records if self._keeps_legacy(record)]
        self.records_read += len(records) - 1
        self.records_kept += len(kept)
        if not kept:
            return None
        if len(kept) == len(records) and not _mixed_magic(header, view):
            return view
        builder = BatchBuilder(
            header.magic,
            header.codec,
            header.timestamp_type,
            base_offset=kept[0].offset,
            log_append_time=header.max_timestamp
            if header.timestamp_type is TimestampType.LOG_APPEND_TIME
            else NO_TIMESTAMP,
        )
        for record in kept:
            builder.append_record(record)
        return builder.build()

    def _keeps_legacy(self, record: Record) -> bool:
        keys = self._keys
        if record.offset > keys.latest_offset:
            return True
        if record.key is None or record.offset < keys.get(record.key):
            return False
        return record.value is not None or self.keep_legacy_deletes


def _mixed_magic(header: BatchHeader, view: memoryview) -> bool:
    # An old broker version wrote wrappers around messages of another magic (KAFKA-4298): repair
    # them.
    if not header.codec:
        return False
    inner = inner_messages(read_message(view, 0), MAX_DECOMPRESSED_BYTES)
    return any(message.magic != header.magic for message in inner)


def _without_others(view: memoryview, body: bytes, kept: list[RecordSpan]) -> bytes:
    records = b"".join([body[span[0] : span[1]] for span in kept])
    return with_records(view[:HEADER_SIZE], records, len(kept), max([span[2] for span in kept]))


def _empty_batch(header: BatchHeader) -> bytes:
    # In magic 0 and 1 the offset is that of the last record, so the header covers only that one.
    return write_batch(
        b"",
        attributes=header.attributes & _ATTRIBUTES_OF_EMPTY if header.magic == 2 else 0,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
        records_count=0,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        partition_leader_epoch=header.partition_leader_epoch,
    )
