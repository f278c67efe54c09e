"""Decompresses the records of a magic 2 batch, and writes a batch again with some of its records.

The native form of the key map calls these functions, too: `KeyTable` in server/native/compaction.pxi.
"""

from __future__ import annotations

from struct import Struct

from kwire.errors import RecordError
from kwire.records.batch import MAX_DECOMPRESSED_BYTES
from kwire.records.compression import compress, decompress
from kwire.records.crc import crc32c
from kwire.records.layout import (
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    BATCH_LENGTH_AT,
    CODEC_MASK,
    CRC_AT,
    HEADER_SIZE,
    INT32,
    INT64,
    LEADER_EPOCH_AT,
    LOG_OVERHEAD,
    MAX_TIMESTAMP_AT,
    RECORDS_COUNT_AT,
    TIMESTAMP_TYPE_MASK,
)

Buffer = bytes | bytearray | memoryview

UINT32 = Struct(">I")


def body_of(codec: int, data: memoryview) -> bytes:
    """The records of a compressed batch, decompressed; empty if that fails."""
    try:
        return decompress(codec, 2, data, MAX_DECOMPRESSED_BYTES)
    except RecordError:
        return b""


def with_records(head: Buffer, body: bytes, count: int, latest_delta: int) -> bytes:
    """The batch with the header `head`, with no other records than these of its own.

    Shape: `body` is not compressed; the batch is, if it was before. latest_delta is the largest timestamp delta.
    """
    attributes = head[ATTRIBUTES_AT + 1]
    if attributes & CODEC_MASK:
        body = compress(attributes & CODEC_MASK, 2, body)
    covered = bytearray(head[ATTRIBUTES_AT:])  # by the CRC
    if not attributes & TIMESTAMP_TYPE_MASK:
        latest = INT64.unpack_from(head, BASE_TIMESTAMP_AT)[0] + latest_delta
        INT64.pack_into(covered, MAX_TIMESTAMP_AT - ATTRIBUTES_AT, latest)
    INT32.pack_into(covered, RECORDS_COUNT_AT - ATTRIBUTES_AT, count)
    return b"".join(
        (
            head[:BATCH_LENGTH_AT],
            INT32.pack(HEADER_SIZE - LOG_OVERHEAD + len(body)),
            head[LEADER_EPOCH_AT:CRC_AT],
            UINT32.pack(crc32c(body, crc32c(covered))),
            covered,
            body,
        )
    )
