"""The four codecs of record data, with decompression limited by the caller.

Every decompressor counts its output and stops at the caller's limit; none trusts a size in the data when it allocates
memory. The limit also bounds the number of pieces (blocks, members) in the data, since even empty ones take time:
`most_pieces`. The libraries are imported on first use.
Formats: gzip as is; snappy raw, or in xerial blocks (`snappy.py`); lz4 in frames, where magic 0 has a frame checksum
over the wrong bytes (KAFKA-3160, `lz4.py`); zstd frames (`zstd.py`).
Source: CompressionType, GzipCompression, SnappyCompression, Lz4Compression, ZstdCompression.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from io import BytesIO

from kwire.errors import CorruptRecord, UnsupportedCodec
from kwire.records.inflation import CHUNK, most_pieces, too_large, too_many_pieces

Buffer = bytes | bytearray | memoryview

GZIP_MIN_MEMBER = 18
"""Size in bytes of the shortest gzip member's header and trailer."""

GZIP_INPUT = 16 * 1024
"""Bytes that are passed to zlib at a time: at the end of each member, it copies the remaining ones."""


class Codec(IntEnum):
    """Compression codec numbers, as in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def config_name(self) -> str:
        """The name in `compression.type`."""
        return self.name.lower()


def codec_of(number: int, magic: int) -> Codec:
    """Return the codec of that number. Errors: UnsupportedCodec if unassigned or not in magic."""
    if number > Codec.ZSTD:
        raise UnsupportedCodec(f"codec {number} is not assigned")
    if number == Codec.ZSTD and magic < 2:
        raise UnsupportedCodec(f"zstd is not allowed in magic {magic}")
    return Codec(number)


def decompress(codec: int, magic: int, data: Buffer, limit: int) -> bytes:
    """Return the decompressed data, at most `limit` bytes of it.

    Errors: TooLarge as soon as the output exceeds limit bytes, CorruptRecord for damaged or truncated data,
    UnsupportedCodec. Bytes after the end of the compressed data are ignored for gzip and lz4, as by Apache Kafka's
    readers.
    """
    if codec == 0:  # by far the most frequent, so the enum's member is not looked up
        if len(data) > limit:
            raise too_large("none", limit)
        return bytes(data)
    codec = codec_of(codec, magic)
    view = memoryview(data)
    if codec is Codec.GZIP:
        return _gunzip(view, limit)
    if codec is Codec.SNAPPY:
        from kwire.records import snappy

        return snappy.decompress(view, limit)
    if codec is Codec.LZ4:
        from kwire.records import lz4

        return lz4.decompress(view, limit, broken_checksum=magic == 0)
    from kwire.records import zstd

    return zstd.decompress(view, limit)


def compress(codec: int, magic: int, data: Buffer, level: int | None = None) -> bytes:
    """Return the data compressed in the format that this magic requires.

    Unit: level as in Kafka's compression.gzip.level, .lz4.level and .zstd.level; None for its default.
    """
    codec = codec_of(codec, magic)
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        # wbits 31 writes a gzip member with time 0, the header that Java's GZIPOutputStream writes.
        compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        view = memoryview(data)
        parts = [compressor.compress(view[at : at + CHUNK]) for at in range(0, len(view), CHUNK)]
        return b"".join((*parts, compressor.flush()))
    if codec is Codec.SNAPPY:
        from kwire.records import snappy

        return snappy.compress(data)
    if codec is Codec.LZ4:
        from kwire.records import lz4

        return lz4.compress(data, level, broken_checksum=magic == 0)
    from kwire.records import zstd

    return zstd.compress(data, level)


def _gunzip(view: memoryview, limit: int) -> bytes:
    """Decompress all gzip members, as GZIPInputStream does; bytes after the last one are ignored."""
    whole = BytesIO()
    total = 0
    position = 0
    pieces_left = most_pieces(limit)
    while True:
        pieces_left -= 1
        if pieces_left < 0:
            raise too_many_pieces("gzip", limit)
        member = zlib.decompressobj(31)
        source: Buffer = b""
        try:
            while not member.eof:
                if not source:
                    source = view[position : position + GZIP_INPUT]
                    position += len(source)
                out = member.decompress(source, min(CHUNK, limit - total + 1))
                total += len(out)
                if total > limit:
                    raise too_large("gzip", limit)
                whole.write(out)
                source = member.unconsumed_tail
                if not out and not source and position == len(view) and not member.eof:
                    raise CorruptRecord("gzip data is cut short")
        except zlib.error as error:
            raise CorruptRecord(f"gzip data is corrupt: {error}") from error
        position -= len(member.unused_data)
        rest = view[position:]
        if len(rest) < GZIP_MIN_MEMBER or bytes(rest[:3]) != b"\x1f\x8b\x08":
            return whole.getvalue()
