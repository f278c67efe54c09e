"""LZ4 frames, with correct header checksums and with those of old Kafka clients.

Frame header: uint32 magic (little-endian), FLG, BD, [uint64 content size], [uint32 dictionary id], HC = second byte of
the XXH32 of the bytes between magic and HC. Clients before 0.10 also hashed the magic (KAFKA-3160); for magic 0, Apache
Kafka still writes that checksum, and does not check it. Only the first frame counts, as in Lz4BlockInputStream.
"""

from __future__ import annotations

from io import BytesIO

from lz4.frame import BLOCKSIZE_MAX64KB, create_decompression_context, decompress_chunk
from lz4.frame import compress as compress_frame

from kwire.errors import CorruptRecord
from kwire.records.inflation import CHUNK, too_large
from kwire.records.xxhash import xxh32

Buffer = bytes | bytearray | memoryview

FRAME_MAGIC = b"\x04\x22\x4d\x18"
_CONTENT_SIZE_FLAG = 0x08
_DICTIONARY_FLAG = 0x01
DEFAULT_LEVEL = 9
_HIGHEST_LEVEL = 12


def _checksum_at(view: Buffer) -> int:
    """Return the position of HC in the frame header at the start of view."""
    if len(view) < 7:
        raise CorruptRecord(f"{len(view)} bytes are too few for an lz4 frame", offset=0)
    if view[:4] != FRAME_MAGIC:
        raise CorruptRecord("lz4 frame magic is missing", offset=0)
    flags = view[4]
    position = 6 + bool(flags & _CONTENT_SIZE_FLAG) * 8 + bool(flags & _DICTIONARY_FLAG) * 4
    if position >= len(view):
        raise CorruptRecord("lz4 frame header is cut short", offset=4)
    return position


def _header_checksum(header: bytes, *, broken: bool) -> int:
    return xxh32(header if broken else header[4:]) >> 8 & 0xFF


def decompress(view: memoryview, limit: int, *, broken_checksum: bool = False) -> bytes:
    """Decompress the first frame, at most limit bytes; errors as `compression.decompress`.

    Shape: with broken_checksum the header checksum is not checked.
    """
    checksum_at = _checksum_at(view)
    position = 0
    whole = BytesIO()
    total = 0
    try:
        context = create_decompression_context()
        if broken_checksum:
            header = bytes(view[:checksum_at])
            right = header + bytes((_header_checksum(header, broken=False),))
            decompress_chunk(context, right, max_length=0)
            position = checksum_at + 1
        # A chunk is allocated in full before it is filled, so small inputs get small chunks.
        chunk = min(CHUNK, max(4096, len(view) * 8))
        while True:
            room = min(chunk, limit - total + 1)
            rest = view[position:] if position else view
            out, used, ended = decompress_chunk(context, rest, max_length=room)
            position += used
            total += len(out)
            if total > limit:
                raise too_large("lz4", limit)
            if ended and total == len(out):  # as usual, in one piece
                return out  # type: ignore[no-any-return]
            whole.write(out)
            if ended:
                return whole.getvalue()
            if not out and not used:
                raise CorruptRecord("lz4 data is cut short", offset=position)
    except RuntimeError as error:
        raise CorruptRecord(f"lz4 data is corrupt: {error}", offset=position) from error


def compress(data: Buffer, level: int | None = None, *, broken_checksum: bool = False) -> bytes:
    """Compress into one frame of independent 64 KiB blocks without content checksum.

    Unit: Kafka's compression.lz4.level, 1 to 17; 9 (its default) means the fast compressor.
    """
    frame: bytes = compress_frame(
        data,
        compression_level=0 if level in (None, DEFAULT_LEVEL) else min(level, _HIGHEST_LEVEL),
        block_size=BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    if not broken_checksum:
        return frame
    checksum_at = _checksum_at(frame)
    broken = _header_checksum(frame[:checksum_at], broken=True)
    return frame[:checksum_at] + bytes((broken,)) + frame[checksum_at + 1 :]
