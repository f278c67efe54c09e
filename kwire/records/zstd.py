"""Zstandard record data: one frame or several in a row.

The library's one-shot call allocates the content size that a frame claims, and its streaming reader ends without an
error where data is cut short. Therefore the frames are first walked, block header by block header (RFC 8878, section
3.1.1), to find truncation and junk; then they are streamed.
Source: zstd-jni's ZstdInputStream, which reads frames one after another.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

from kwire.errors import CorruptRecord
from kwire.records.inflation import CHUNK, most_pieces, too_large, too_many_pieces

if TYPE_CHECKING:
    from zstandard import ZstdDecompressor

Buffer = bytes | bytearray | memoryview

FRAME_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE_MAGIC = b"\x2a\x4d\x18"
_RLE_BLOCK = 1
_RESERVED_BLOCK = 3
DEFAULT_LEVEL = 3
KEPT_BYTES = 1 << 20
"""A decompressor that is larger than this, because a frame had a large window, is not kept."""
_free: list[ZstdDecompressor] = []
_DICTIONARY_ID_SIZES = (0, 1, 2, 4)
_CONTENT_SIZE_SIZES = (0, 2, 4, 8)


def _frame_end(view: memoryview, position: int, most_blocks: int) -> tuple[int, int]:
    """Return the end of the frame at position, and its number of blocks.

    Shape: gives up after most_blocks, with the position there. Errors: CorruptRecord for truncation and junk.
    """
    start = position
    end = len(view)
    magic = bytes(view[position : position + 4])
    if len(magic) == 4 and magic[1:] == _SKIPPABLE_MAGIC and magic[0] & 0xF0 == 0x50:
        position += 8 + int.from_bytes(view[position + 4 : position + 8], "little")
        if position > end:
            raise CorruptRecord("zstd skippable frame is cut short", offset=start)
        return position, 1
    if magic != FRAME_MAGIC or position + 5 > end:
        raise CorruptRecord("zstd frame magic is missing", offset=start)
    descriptor = view[position + 4]
    single_segment = descriptor >> 5 & 1
    position += 5 + (1 - single_segment) + _DICTIONARY_ID_SIZES[descriptor & 3]
    position += _CONTENT_SIZE_SIZES[descriptor >> 6] or single_segment
    last = blocks = 0
    while not last:
        if blocks >= most_blocks:
            return position, blocks + 1
        blocks += 1
        if position + 3 > end:
            raise CorruptRecord("zstd data is cut short", offset=start)
        header = view[position] | view[position + 1] << 8 | view[position + 2] << 16
        last = header & 1
        kind = header >> 1 & 3
        if kind == _RESERVED_BLOCK:
            raise CorruptRecord("zstd block type is reserved", offset=position)
        position += 3 + (1 if kind == _RLE_BLOCK else header >> 3)
    position += 4 * (descriptor >> 2 & 1)
    if position > end:
        raise CorruptRecord("zstd data is cut short", offset=start)
    return position, blocks


def decompress(view: memoryview, limit: int) -> bytes:
    """Decompress all frames, at most limit bytes; errors as `compression.decompress`."""
    from zstandard import ZstdError

    position = 0
    pieces_left = most_pieces(limit)
    while position < len(view):
        position, blocks = _frame_end(view, position, pieces_left)
        pieces_left -= blocks
        if pieces_left < 0:
            raise too_many_pieces("zstd", limit)
    if not position:
        raise CorruptRecord("zstd data is empty", offset=0)
    whole = BytesIO()
    total = 0
    # A chunk is allocated in full before it is filled, so small inputs get small chunks.
    chunk = min(CHUNK, max(4096, len(view) * 8))
    decompressor = _decompressor()
    try:
        reader = decompressor.stream_reader(view, read_across_frames=True)
        while out := reader.read(min(chunk, limit - total + 1)):
            total += len(out)
            if total > limit:
                raise too_large("zstd", limit)
            whole.write(out)
    except ZstdError as error:
        raise CorruptRecord(f"zstd data is corrupt: {error}") from error
    if not _free and decompressor.memory_size() <= KEPT_BYTES:
        _free.append(decompressor)
    return whole.getvalue()


def _decompressor() -> ZstdDecompressor:
    """An unused decompressor; making one takes as long as decompressing a small batch."""
    from zstandard import ZstdDecompressor

    try:
        return _free.pop()
    except IndexError:
        return ZstdDecompressor()


def compress(data: Buffer, level: int | None = None) -> bytes:
    """Compress into one frame that states its content size."""
    from zstandard import ZstdCompressor

    compressor = ZstdCompressor(level=DEFAULT_LEVEL if level is None else level)
    if len(data) <= CHUNK:
        return compressor.compress(data)
    view = memoryview(data)
    frame = compressor.compressobj(size=len(view))
    parts = [frame.compress(view[at : at + CHUNK]) for at in range(0, len(view), CHUNK)]
    return b"".join((*parts, frame.flush()))
