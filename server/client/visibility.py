"""Which batches of a Fetch a reader of committed records sees. Pure.

Source: CompletedFetch.nextFetchedRecord, KIP-98.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kwire.errors import RecordError
from kwire.records.batch import RecordBatch, iter_batches
from kwire.records.control import ControlType, control_type

#: (producer id, first offset) of an aborted transaction.
Aborted = tuple[int, int]

#: The size of a marker's batch when it is decompressed; Apache Kafka's have 16 bytes.
MAX_MARKER_BYTES = 64 * 1024


class Visibility:
    """Follows the aborted transactions through the batches of a Fetch, which are given in the order of the log."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._to_come = sorted(aborted, key=lambda each: each[1], reverse=True)
        self._aborting: set[int] = set()

    def is_aborted(self, batch: RecordBatch) -> bool:
        """Whether an aborted transaction wrote a batch. A marker is part of none."""
        header = batch.header
        while self._to_come and self._to_come[-1][1] <= header.last_offset:
            self._aborting.add(self._to_come.pop()[0])
        if header.producer_id not in self._aborting:
            return False
        if header.is_control:
            if control_of(batch) is ControlType.ABORT:
                self._aborting.discard(header.producer_id)
            return False
        return header.is_transactional


def aborted_in(row: Any) -> list[Aborted]:
    """The aborted transactions in a partition's row of a Fetch."""
    return [(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()]


def batches_of(row: Any) -> list[RecordBatch]:
    """The whole batches in a partition's row of a Fetch. Errors: WireError."""
    return [] if row.records is None else list(iter_batches(row.records))


def judged(
    batches: Iterable[RecordBatch], aborted: Iterable[Aborted]
) -> Iterator[tuple[RecordBatch, bool]]:
    """Each batch, and whether an aborted transaction wrote it."""
    visibility = Visibility(aborted)
    for batch in batches:
        yield batch, visibility.is_aborted(batch)


def visible(batches: Iterable[RecordBatch], aborted: Iterable[Aborted]) -> Iterator[RecordBatch]:
    """The batches that a consumer sees: no control records, and no aborted transactions."""
    for batch, is_aborted in judged(batches, aborted):
        if not (batch.is_control or is_aborted):
            yield batch


def control_of(batch: RecordBatch) -> ControlType:
    """The kind of a control batch; UNKNOWN if it cannot be read."""
    try:
        for record in batch.records(MAX_MARKER_BYTES):
            return control_type(record.key)
    except RecordError:
        pass
    return ControlType.UNKNOWN
