"""From fetched bytes to the records of a page, marked as aborted, undecided, control records or tombstones. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from kwire.errors import WireError
from kwire.records.batch import iter_batches
from kwire.records.control import control_type

from ..client.visibility import Aborted, Visibility
from .filters import SearchedRecord, Test
from .units import shortened
from .values import MAX_LINE, Shown, shown

#: The maximum size of one batch when it is decompressed.
MAX_BATCH_BYTES = 16 * 1024 * 1024
#: After this many bytes of decompressed records, the rest is left for the next call, since a search can end only
#: between calls.
MAX_PIECE_BYTES = 16 * 1024 * 1024
#: The size that a record counts in addition to its key, value and headers, and a header in addition to its name and
#: value.
RECORD_BYTES = 64
#: The maximum number of headers of a record that are shown, and of characters in each.
MAX_HEADERS = 50
MAX_HEADER_TEXT = 4 * 1024


class FoundRecords(NamedTuple):
    """The content of a part of a partition. Shape: `next_offset` follows its last batch; `problems` are sentences."""

    rows: list[RecordRow]
    looked_at: int
    next_offset: int
    problems: list[str]


@dataclass
class RecordRow:
    """One record of the list. Shape: `mark` is empty for an ordinary record; `more_headers` is the number of hidden
    headers.
    """

    partition: int
    offset: int
    timestamp: int
    key: Shown
    value: Shown
    headers: list[tuple[str, Shown]]
    mark: str = ""
    note: str = ""
    more_headers: int = 0


class WantedRecords(NamedTuple):
    """The wanted records of a partition, and their form. Shape: `end` is the first offset that is not wanted."""

    partition: int
    start: int
    end: int
    test: Test | None
    form: str
    most: int
    newest: bool
    stable: int
    decoder: Any = None


def rows_of(data: bytes, wanted: WantedRecords, aborted: Collection[Aborted]) -> FoundRecords:
    """The wanted records in `data`; the last ones if `newest`.

    Shape: `aborted` are producer ids with the first offset of each aborted transaction, as Fetch returns them to
    consumers of committed records. A batch that cannot be read is a problem, and is skipped.
    """
    #: The arguments of `row_of`: most rows of a long list are not shown, and need not be made.
    rows: deque[tuple[SearchedRecord, Any, WantedRecords, bool]] = deque(maxlen=wanted.most)
    problems: list[str] = []
    looked_at, next_offset, size = 0, wanted.start, 0
    visibility = Visibility(aborted)
    batches = iter_batches(data)
    while size < MAX_PIECE_BYTES:
        try:
            batch = next(batches, None)
        except WireError as error:
            problems.append(f"from offset {next_offset} on nothing can be read: {error}")
            break
        if batch is None:
            break
        header = batch.header
        is_aborted = visibility.is_aborted(batch)
        next_offset = header.next_offset
        if next_offset <= wanted.start or header.base_offset >= wanted.end:
            continue
        try:
            for record in batch.records(MAX_BATCH_BYTES):
                size += RECORD_BYTES * (1 + len(record.headers))
                size += len(record.key or b"") + len(record.value or b"")
                if not wanted.start <= record.offset < wanted.end:
                    continue
                looked_at += 1
                searched = SearchedRecord(
                    wanted.partition,
                    record.offset,
                    record.timestamp,
                    record.key,
                    record.value,
                    record.headers,
                )
                if wanted.decoder is not None and not batch.is_control:
                    wanted.decoder.look(searched)
                if wanted.test is not None and (batch.is_control or not wanted.test(searched)):
                    continue
                rows.append((searched, batch, wanted, is_aborted))
                if len(rows) == wanted.most and not wanted.newest:
                    return FoundRecords(
                        [row_of(*row) for row in rows], looked_at, next_offset, problems
                    )
        except WireError as error:
            problems.append(
                f"the batch at offset {header.base_offset} ({header.size} bytes) cannot be shown: {error}"
            )
    return FoundRecords([row_of(*row) for row in rows], looked_at, next_offset, problems)


def row_of(
    record: SearchedRecord, batch: Any, wanted: WantedRecords, is_aborted: bool
) -> RecordRow:
    """A record in its displayed form."""
    header = batch.header
    mark = note = ""
    if batch.is_control:
        mark = "control"
        kind = control_type(record.key)
        note = f"{kind.name.lower().replace('_', ' ')} of producer {header.producer_id}, epoch {header.producer_epoch}"
        record.key = record.value = None
    elif is_aborted:
        mark, note = "aborted", f"its transaction of producer {header.producer_id} was aborted"
    elif batch.is_transactional and record.offset >= wanted.stable:
        mark = "undecided"
        note = f"the transaction of producer {header.producer_id}, or an earlier one, is still open"
    elif record.value is None:
        mark, note = "tombstone", "a null value deletes the key from a compacted topic"
    value = shown(record.value, wanted.form)
    key = shown(record.key)
    if wanted.decoder is not None:
        key, value = wanted.decoder.shown(record, key, value)
    return RecordRow(
        record.partition,
        record.offset,
        record.timestamp,
        key,
        value,
        [
            (shortened(name, MAX_LINE), header_value(data))
            for name, data in record.headers[:MAX_HEADERS]
        ],
        mark,
        note,
        max(0, len(record.headers) - MAX_HEADERS),
    )


def header_value(data: bytes | None) -> Shown:
    """The value of a header."""
    found = shown(data)
    return found._replace(whole=shortened(found.whole, MAX_HEADER_TEXT))
