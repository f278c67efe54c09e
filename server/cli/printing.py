"""The output of `kwire consume`: batches as text, and standard output, whose reader may be slow."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

from kwire.errors import WireError
from kwire.records.batch import RecordBatch
from kwire.records.record import read_values

from ..client.reader import ReadRecords
from ..streams import StreamFailed
from .client import CommandError
from .record_format import PrintForm, Source

#: How long to wait for the reader of the output before other work is done. Unit: s.
SLOW_S = 0.5
#: The size of writes if the reader may be slow: a writable pipe accepts at least this much. Unit: bytes.
PIECE = 4096


class Printed(NamedTuple):
    """Records as they are printed. Shape: `next_offset` follows the last record, shown or not."""

    text: bytes
    records: int
    next_offset: int


def text_of(chunk: ReadRecords, form: PrintForm, most: int | None) -> Printed:
    """The text of a chunk, with at most `most` records. Errors: CommandError for damaged batches."""
    topic, partition = chunk.partition
    texts: list[bytes] = []
    count = 0
    for batch in chunk.batches:
        left = None if most is None else most - count
        if left == 0:
            return Printed(b"".join(texts), count, batch.header.base_offset)
        try:
            batch.verify_crc()
            printed = text_of_batch(
                batch, Source(topic, partition, batch.timestamp_type), form, chunk, left
            )
        except WireError as error:
            offset = batch.header.base_offset
            raise CommandError(
                f"{topic}-{partition}: damaged at offset {offset}: {error}"
            ) from None
        texts.append(printed.text)
        count += printed.records
        if left is not None and printed.records == left:
            return Printed(b"".join(texts), count, printed.next_offset)
    return Printed(b"".join(texts), count, chunk.next_offset)


def text_of_batch(
    batch: RecordBatch, source: Source, form: PrintForm, chunk: ReadRecords, most: int | None
) -> Printed:
    """The text of the part of a batch that belongs to the chunk. Errors: WireError."""
    header = batch.header
    around = form.around
    if (
        around is not None
        and header.magic == 2
        and chunk.begin <= header.base_offset
        and header.last_offset < chunk.next_offset
        and (most is None or header.records_count <= most)
    ):
        values = read_values(batch.body(), header.records_count, around.null)
        between = around.after + around.before
        text = around.before + between.join(values) + around.after if values else b""
        return Printed(text, len(values), header.next_offset)
    asked_for = (
        record for record in batch.records() if chunk.begin <= record.offset < chunk.next_offset
    )
    records = list(islice(asked_for, most))
    one = form.one
    text = b"".join([one(record, source) for record in records])
    return Printed(text, len(records), records[-1].offset + 1 if records else header.next_offset)


class StandardOutput:
    """Standard output. Shape: `idle` is called at intervals while the reader is slow."""

    def __init__(self, stream: Any, idle: Callable[[], None] | None) -> None:
        self._stream = stream
        self._idle = idle if idle is not None and can_be_slow(stream) else None

    def write(self, text: bytes) -> None:
        """Write and flush."""
        if self._idle is None:
            self._stream.write(text)
            self._stream.flush()
            return
        number = self._stream.fileno()
        view = memoryview(text)
        while view:
            if select.select([], [number], [], SLOW_S)[1]:
                try:
                    view = view[os.write(number, view[:PIECE]) :]
                except OSError as error:
                    raise StreamFailed("standard output", error) from None
            else:
                self._idle()


def can_be_slow(stream: Any) -> bool:
    """Whether writing to a stream may have to wait: to a pipe or a terminal, but not to a file."""
    try:
        return not stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False
