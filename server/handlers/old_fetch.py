"""Fetch before version 4: stored batches of magic 2 are converted for old clients.

Behavior: one answer converts at most MAX_CONVERTED_BYTES, but at least one batch. Small amounts are
converted on the loop, the rest in a worker process. Batches of which nothing remains (transaction
markers) are skipped, so that a client does not ask for them again for ever.
Versions: magic 1 for 2 and 3, magic 0 for 0 and 1. Headers, producer ids and transactions are lost.
Omitted: Apache Kafka pads a converted response to its original size with a truncated message; kwire
does not.
Source: KafkaApis.maybeConvertFetchedData, LazyDownConversionRecords.
"""

from __future__ import annotations

import logging
from concurrent.futures import BrokenExecutor
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode, RecordError, TooLarge, UnsupportedCodec
from kwire.records.batch import MAX_DECOMPRESSED_BYTES

from ..replication.partition import Partition
from ..replication.read_result import LaterRead, ReadResult
from ..workers import TookTooLong, TookTooMuch
from .context import RequestContext

if TYPE_CHECKING:
    from ..log.file_layer import FileSlice

logger = logging.getLogger(__name__)

READS_MAGIC_2_SINCE = 4
READS_MAGIC_1_SINCE = 2

MAX_CONVERTED_BYTES = 1 << 20

#: Larger amounts, stored or decompressed, are converted in a worker process.
INLINE_BYTES = 32 * 1024
INLINE_RECORDS = 1000


def refuses_old(ctx: RequestContext, partition: Partition) -> ErrorCode:
    """Why a client below version 10 may not read a partition, or NONE.

    Errors: UNSUPPORTED_COMPRESSION_TYPE if the topic's batches are compressed with zstd;
    UNSUPPORTED_VERSION if they would have to be converted and message.downconversion.enable forbids
    it.
    """
    if partition.log.config.compression_type == "zstd":
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if ctx.version < READS_MAGIC_2_SINCE:
        services = ctx.services
        overrides = services.metadata().topic_config(partition.tp.topic)
        if not services.config.topic_config(overrides)["message.downconversion.enable"]:
            return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


class Conversion:
    """Converts the records of one request; a `Convert`."""

    def __init__(self, ctx: RequestContext) -> None:
        self._ctx = ctx
        self.client = ctx.connection

    async def __call__(
        self, partition: Partition | None, result: ReadResult, fetch_offset: int
    ) -> ReadResult:
        """Convert the records; read on if none remain.

        Errors: in the result; UNSUPPORTED_COMPRESSION_TYPE for zstd, CORRUPT_MESSAGE; UNKNOWN_SERVER_ERROR for a batch
        that takes too much time or memory.
        """
        ctx = self._ctx
        magic = 1 if ctx.version >= READS_MAGIC_1_SINCE else 0
        name = "a deleted partition" if partition is None else str(partition.tp)
        while True:
            answer = await _down(ctx, name, _stored(result.data), magic, fetch_offset)
            if isinstance(answer, ErrorCode):
                return ReadResult(answer, -1, -1, -1, b"", -1)
            next_offset = result.next_offset
            if answer or partition is None or next_offset >= result.high_watermark:
                return result._replace(data=answer)
            more = partition.read(next_offset, MAX_CONVERTED_BYTES)
            result = await more.later if isinstance(more, LaterRead) else more
            if result.error or not result.data:
                return result


def _stored(data: bytes | FileSlice) -> bytes:
    if isinstance(data, bytes):
        return data
    stored = data.read()
    data.close()
    return stored


async def _down(
    ctx: RequestContext, name: str, stored: bytes, magic: int, fetch_offset: int
) -> bytes | ErrorCode:
    """Convert batches; only the first of which anything remains, if all of them cost too much."""
    from kwire.records.batch import iter_batch_headers

    headers = list(iter_batch_headers(stored))
    records = sum(header.records_count for _, header in headers)
    if len(stored) <= INLINE_BYTES and records <= INLINE_RECORDS and ctx.services.turns.has_time():
        answer = _convert(stored, magic, fetch_offset, INLINE_BYTES)
        if answer is not None:
            return answer
    for position, header in [(0, None), *headers]:
        end = len(stored) if header is None else position + header.size
        try:
            answer = await ctx.services.executor.in_worker(
                ctx.connection, _convert, stored[position:end], magic, fetch_offset
            )
        except BrokenExecutor:
            logger.exception("the worker process ended while it converted records of %s", name)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        except (TookTooLong, TookTooMuch) as error:
            if header is None and len(headers) > 1:
                continue
            logger.warning(
                "records at offset %d of %s are not converted for client %r at %s: %s",
                headers[0][1].base_offset if header is None else header.base_offset,
                name,
                ctx.client_id,
                ctx.connection.peer,
                error,
            )
            return ErrorCode.UNKNOWN_SERVER_ERROR
        if answer is None:
            return ErrorCode.CORRUPT_MESSAGE
        if answer or header is None:
            return answer
    return b""


def _convert(
    stored: bytes, magic: int, fetch_offset: int, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> bytes | ErrorCode | None:
    """Convert batches; None if they, or with the default the first, decompress to more than max_bytes."""
    from kwire.records.convert import down_convert

    try:
        return down_convert(
            stored,
            magic,
            first_offset=fetch_offset,
            max_bytes=max_bytes,
            partly=max_bytes == MAX_DECOMPRESSED_BYTES,
        )
    except TooLarge:
        return None
    except UnsupportedCodec:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    except RecordError:
        return ErrorCode.CORRUPT_MESSAGE
