"""Snappy record data: raw blocks, and the framing of the xerial library, which Java clients use.

Xerial stream: magic 82 'SNAPPY' 00, int32 version 1, int32 lowest compatible version 1, then blocks of int32 size and
that many bytes of raw snappy. A raw block begins with its decompressed size as an unsigned varint. Source:
org.xerial.snappy SnappyInputStream, SnappyOutputStream.
"""

from __future__ import annotations

from io import BytesIO
from struct import Struct

from kwire.errors import CorruptRecord
from kwire.records.inflation import most_pieces, too_large, too_many_pieces

Buffer = bytes | bytearray | memoryview

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
XERIAL_BLOCK_SIZE = 32 * 1024
"""Decompressed bytes per block, the default of SnappyOutputStream."""

_INT32 = Struct(">i")
_MAGIC_HEAD = _INT32.unpack(XERIAL_MAGIC[:4])[0]


def decompress(view: memoryview, limit: int) -> bytes:
    """Decompress a raw block or a xerial stream, at most limit bytes; errors as `compression`."""
    if len(view) < len(XERIAL_HEADER) or view[:8] != XERIAL_MAGIC:
        return _decompress_block(view, 0, len(view), limit)
    whole = BytesIO()
    total = 0
    position = len(XERIAL_HEADER)
    end = len(view)
    pieces_left = most_pieces(limit)
    while position < end:
        pieces_left -= 1
        if pieces_left < 0:
            raise too_many_pieces("snappy", limit)
        if end - position < 4:
            raise CorruptRecord("snappy block size is cut short", offset=position)
        (size,) = _INT32.unpack_from(view, position)
        if size == _MAGIC_HEAD and view[position : position + 8] == XERIAL_MAGIC:
            # A batch may contain several streams in a row; the reader skips each header.
            position += len(XERIAL_HEADER)
            continue
        position += 4
        if not 0 <= size <= end - position:
            raise CorruptRecord(
                f"snappy block of {size} bytes where {end - position} remain", offset=position - 4
            )
        part = _decompress_block(view, position, position + size, limit - total)
        total += len(part)
        whole.write(part)
        position += size
    return whole.getvalue()


def _decompress_block(view: memoryview, start: int, end: int, limit: int) -> bytes:
    from snappy import UncompressError, uncompress

    size = _decompressed_size(view, start, end)
    # The decoder allocates the size in the preamble, so the preamble is checked first: three bytes of snappy cannot
    # expand to more than 64.
    if size * 3 > (end - start) * 64:
        raise CorruptRecord(
            f"snappy block of {end - start} bytes claims {size} bytes of content", offset=start
        )
    if size > limit:
        raise too_large("snappy", limit)
    try:
        block: bytes = uncompress(view[start:end])
    except UncompressError as error:
        raise CorruptRecord("snappy data is corrupt", offset=start) from error
    return block


def _decompressed_size(view: memoryview, start: int, end: int) -> int:
    size = shift = 0
    for position in range(start, min(start + 5, end)):
        byte = view[position]
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size
        shift += 7
    raise CorruptRecord("snappy size preamble does not end", offset=start)


def compress(data: Buffer) -> bytes:
    """Compress as a xerial stream, which every Kafka client reads."""
    from snappy import compress as compress_block

    view = memoryview(data)
    parts = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_SIZE):
        block: bytes = compress_block(view[start : start + XERIAL_BLOCK_SIZE])
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)
