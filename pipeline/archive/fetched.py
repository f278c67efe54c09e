"""Reads the records of a partition from its broker as Arrow batches: stored batches, decoded as those of segments are.

Spark's client makes an object of each record, and a row of each object; this makes columns of thousands.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kwire.errors import ErrorCode, RecordError
from kwire.records.batch import iter_batch_headers

from ..client_settings import Secret, concern_connections, for_kwire
from ..problems import Problem
from ..segments.damage import FAIL, Damage
from ..segments.records import SliceReader, WantedColumns
from ..segments.slices import OffsetSlice
from ..segments.walk import FileWindow, FoundBatch
from ..stored_batches import FetchRefused, StoredBatches, StoredClient, Unavailable

#: Bytes of one Fetch, and of one that only asks for the next batch.
WINDOW, PEEK = 4 << 20, 1 << 10
#: Seconds for which a broker may be away, as long as Spark's client waits; and for which a topic may be unknown to it.
PATIENCE_S, GONE_S = 120.0, 10.0
#: Seconds between two requests for what is not there.
AGAIN_S = 0.2

#: Errors that another request will not change.
_FINAL = {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CORRUPT_MESSAGE}


class Span(NamedTuple):
    """What one task reads: records of a partition from `start` (inclusive) to `end` (exclusive)."""

    bootstrap: str
    topic: str
    partition: int
    start: int
    end: int
    read_committed: bool
    arguments: Secret = Secret()
    """How brokers are reached, from `client_settings.for_kwire`."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def arguments_of(client_properties: Sequence[tuple[str, str]]) -> Secret | None:
    """How brokers are reached with these settings of clients; None if they demand another client."""
    return for_kwire(client_properties) if concern_connections(client_properties) else None


def read(span: Span, columns: Sequence[str]) -> Iterator[Any]:
    """Yield the records as Arrow batches, in order of offset.

    Errors: Problem if offsets are gone or damaged, or if no broker has them for two minutes.
    """
    # A slice of no file, of which only the offsets are used.
    cut = OffsetSlice(span.topic, span.partition, "", 0, 0, 0, None, span.start, span.end)
    reader = SliceReader(-1, cut, WantedColumns(tuple(columns)), _Damage(span, cut))
    offset = span.start
    with StoredClient(span.bootstrap, span.arguments) as client:
        while offset < span.end:
            stored = _stored(client, span, offset)
            if stored is None:
                return
            batches, until = _visible(span, stored, offset)
            if until == offset:
                raise _damaged(span, f"offset {offset}", "it is not whole")
            offset = until
            yield from reader.of_window(FileWindow(stored.records, 0, batches))


class _Damage(Damage):
    """Batches that cannot be decoded."""

    def __init__(self, span: Span, cut: OffsetSlice) -> None:
        super().__init__(cut, "", FAIL, fail_on_data_loss=True)
        self._span = span

    def batch(self, position: int, size: int, offsets: str, reason: object) -> None:
        """Raise Problem."""
        raise _damaged(self._span, offsets, reason)


def _damaged(span: Span, offsets: str, reason: object) -> Problem:
    return Problem(
        f"{span.topic} partition {span.partition}: the batch at {offsets} is damaged on the broker ({reason}): kwire pipeline"
        " audit --log-dir shows all damaged batches"
    )


def _visible(span: Span, stored: StoredBatches, offset: int) -> tuple[list[FoundBatch], int]:
    """The batches with records from `offset` on, without those of aborted transactions, and the offset after them all."""
    batches = []
    at, until = 0, offset
    try:
        for batch, is_aborted in stored.judged():
            header = batch.header
            if header.next_offset > offset:
                batch.verify_crc()
                until = header.next_offset
                if not is_aborted:
                    batches.append(FoundBatch(at, header.size, header))
            at += header.size
    except RecordError as error:
        raise _damaged(span, f"offset {until}", error) from error
    return batches, until


def _ends_in_gap(client: StoredClient, span: Span, offset: int) -> bool:
    """Whether compaction has removed what there was from an offset to the span's end, and a transaction is open after it.

    A broker does not show the batch after the gap then, unless it is asked for uncommitted ones too.
    """
    stored = client.fetch(span.topic, span.partition, offset, PEEK, committed=False)
    first = next(iter_batch_headers(stored.records), None)
    # An older format's header has the last offset.
    return first is not None and first[1].magic == 2 and first[1].base_offset >= span.end


def _stored(client: StoredClient, span: Span, offset: int) -> StoredBatches | None:
    """What a broker has from an offset on, at least one batch; None if it has none any more before the span's end.

    Waits for a broker that is away, or that has become leader late.
    """
    began = time.monotonic()
    while True:
        why = "it has none"
        try:
            stored = client.fetch(
                span.topic, span.partition, offset, WINDOW, committed=span.read_committed
            )
            if stored.records:
                return stored
            if span.read_committed and _ends_in_gap(client, span, offset):
                return None
        except FetchRefused as error:
            why = str(error)
            waited = time.monotonic() - began
            if error.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                raise Problem(
                    f"{span}: offsets from {offset} on no longer exist: they were deleted before they were read"
                ) from error
            if error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and waited > GONE_S:
                raise Problem(f"{span}: no longer there; the topic was deleted") from error
            if error.error in _FINAL:
                raise
        except Unavailable as error:
            why = str(error)
        if time.monotonic() - began > PATIENCE_S:
            raise Problem(
                f"no broker gave offset {offset} of {span} within {PATIENCE_S:.0f} s ({why}); nothing is lost: run the same"
                " command again"
            )
        time.sleep(AGAIN_S)
