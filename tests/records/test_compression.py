"""Each codec in both directions, with limits on data that exceeds them."""

from __future__ import annotations

import gzip
import random
import struct
import tracemalloc
import zlib
from typing import Any

import lz4.frame
import pytest
import snappy as python_snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kwire.errors import CorruptRecord, TooLarge, UnsupportedCodec
from kwire.records import lz4 as kwire_lz4
from kwire.records import zstd as kwire_zstd
from kwire.records.compression import GZIP_INPUT, Codec, compress, decompress
from kwire.records.inflation import most_pieces
from kwire.records.snappy import XERIAL_HEADER
from kwire.records.xxhash import xxh32
from tests.support.cpu_time import cpu_time

LIMIT = 1 << 20
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
NOISE = random.Random(5).randbytes(200_000)
INPUTS = [b"", b"x", b"abc" * 40_000, NOISE, NOISE[:1000] * 100, NOISE[:1000] * 600]


@pytest.mark.parametrize(
    ("codec", "magic"),
    [(codec, magic) for codec in Codec for magic in (0, 1, 2) if magic == 2 or codec != Codec.ZSTD],
)
@pytest.mark.parametrize(
    "data", INPUTS, ids=["empty", "one", "easy", "noise", "mixed", "in chunks"]
)
def test_what_is_compressed_comes_back(codec: Codec, magic: int, data: bytes) -> None:
    packed = compress(codec, magic, data)
    assert data == decompress(codec, magic, memoryview(packed), len(data))
    if data:
        with pytest.raises(TooLarge):
            decompress(codec, magic, packed, len(data) - 1)


@pytest.mark.parametrize(("codec", "levels"), [(1, (1, 9)), (3, (1, 9, 12, 17)), (4, (-5, 1, 22))])
def test_levels_are_kafkas(codec: int, levels: tuple[int, ...]) -> None:
    sizes = [len(compress(codec, 2, INPUTS[4], level)) for level in levels]
    for level in levels:
        assert INPUTS[4] == decompress(codec, 2, compress(codec, 2, INPUTS[4], level), LIMIT)
    assert sizes[-1] <= sizes[0]


@pytest.mark.parametrize("codec", CODECS)
def test_every_cut_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, 2, b"hello, hello, hello, record batch" * 3)
    for cut in range(len(packed)):
        if codec is Codec.SNAPPY and cut == len(XERIAL_HEADER):
            continue  # a xerial stream of no blocks is a whole, empty one
        with pytest.raises(CorruptRecord):
            decompress(codec, 2, packed[:cut], LIMIT)


@pytest.mark.parametrize("codec", CODECS)
def test_flipped_bytes_never_pass_the_limit_or_crash(codec: Codec) -> None:
    packed = compress(codec, 2, INPUTS[4][:3000])
    rng = random.Random(codec)
    for _ in range(300):
        damaged = bytearray(packed)
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            assert len(decompress(codec, 2, damaged, 5000)) <= 5000
        except (CorruptRecord, TooLarge):
            pass


@pytest.mark.parametrize("codec", CODECS)
def test_bomb_is_too_large_and_costs_little_memory(codec: Codec) -> None:
    zeros = bytes(50_000_000)
    bomb = compress(codec, 2, zeros)
    if codec is Codec.SNAPPY:
        bomb = python_snappy.compress(zeros)  # one raw block, with its size in the preamble
    del zeros
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            decompress(codec, 2, bomb, LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * LIMIT


def test_unassigned_codecs_are_unsupported() -> None:
    for number in (5, 6, 7):
        with pytest.raises(UnsupportedCodec):
            decompress(number, 2, b"", LIMIT)
    for magic in (0, 1):
        with pytest.raises(UnsupportedCodec):
            compress(Codec.ZSTD, magic, b"")


def test_gzip_members_follow_each_other_and_junk_after_them_is_ignored() -> None:
    packed = compress(Codec.GZIP, 2, b"one ") + compress(Codec.GZIP, 2, b"two")
    assert decompress(Codec.GZIP, 2, packed, LIMIT) == b"one two"
    assert decompress(Codec.GZIP, 2, packed + b"junk" * 10, LIMIT) == b"one two"
    with pytest.raises(TooLarge):
        decompress(Codec.GZIP, 2, packed, 6)


@pytest.mark.parametrize("size", [GZIP_INPUT - 30, GZIP_INPUT, 3 * GZIP_INPUT])
def test_gzip_members_may_end_anywhere(size: int) -> None:
    draw = random.Random(size)
    parts = [draw.randbytes(size + step) for step in range(40)]
    packed = b"".join(gzip.compress(part, 1) for part in parts)
    whole = b"".join(parts)
    assert decompress(Codec.GZIP, 2, packed, len(whole)) == whole
    assert decompress(Codec.GZIP, 2, packed + b"junk" * GZIP_INPUT, len(whole)) == whole
    with pytest.raises(TooLarge):
        decompress(Codec.GZIP, 2, packed, len(whole) - 1)
    with pytest.raises(CorruptRecord, match="cut short"):
        decompress(Codec.GZIP, 2, packed[:-1], len(whole))


def test_what_follows_a_gzip_member_is_not_copied_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = 0

    class Counted:
        """A decompressor that counts its unused data."""

        def __init__(self, wbits: int) -> None:
            self.real = made(wbits)

        def __getattr__(self, name: str) -> Any:
            nonlocal copied
            value = getattr(self.real, name)
            if name == "unused_data":
                copied += len(value)
            return value

    made = zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", Counted)
    packed = gzip.compress(b"") * 50_000
    with pytest.raises(TooLarge, match="4160 pieces"):
        decompress(Codec.GZIP, 2, packed, 1 << 20)
    assert 0 < copied <= 4160 * GZIP_INPUT < 4160 * len(packed) // 10


def test_gzip_with_a_wrong_checksum_is_corrupt() -> None:
    packed = bytearray(compress(Codec.GZIP, 2, b"hello"))
    packed[-5] ^= 1
    with pytest.raises(CorruptRecord):
        decompress(Codec.GZIP, 2, packed, LIMIT)
    with pytest.raises(CorruptRecord):
        decompress(Codec.GZIP, 2, zlib.compress(b"zlib is not gzip"), LIMIT)


def test_snappy_is_read_raw_and_in_xerial_blocks() -> None:
    raw = python_snappy.compress(b"hello" * 100)
    assert decompress(Codec.SNAPPY, 1, raw, LIMIT) == b"hello" * 100
    stream = XERIAL_HEADER + struct.pack(">i", len(raw)) + raw
    assert decompress(Codec.SNAPPY, 1, stream, LIMIT) == b"hello" * 100
    assert decompress(Codec.SNAPPY, 1, stream + stream, LIMIT) == b"hello" * 200


@pytest.mark.parametrize("size", [-1, 1000, 2**31 - 1])
def test_xerial_block_size_that_lies_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptRecord):
        decompress(Codec.SNAPPY, 2, XERIAL_HEADER + struct.pack(">i", size) + b"\x00", LIMIT)


@pytest.mark.parametrize("preamble", ["ffffffff0f", "ffffffff", "ffffffffff01", "80808001"])
def test_snappy_preamble_that_lies_is_corrupt_before_it_allocates(preamble: str) -> None:
    with pytest.raises(CorruptRecord, match=r"claims|does not end"):
        decompress(Codec.SNAPPY, 2, bytes.fromhex(preamble) + b"\x00a", 2**32)


def test_lz4_of_magic_0_has_the_broken_checksum_and_is_read_with_either() -> None:
    right = compress(Codec.LZ4, 1, b"hello")
    broken = compress(Codec.LZ4, 0, b"hello")
    # Both headers as Apache Kafka 3.9.2 writes them (KAFKA-3160).
    assert right[:7].hex() == "04224d18604082"
    assert broken[:7].hex() == "04224d1860401a"
    assert right[7:] == broken[7:]
    assert decompress(Codec.LZ4, 0, broken, LIMIT) == b"hello"
    assert decompress(Codec.LZ4, 0, right, LIMIT) == b"hello"
    with pytest.raises(CorruptRecord):
        decompress(Codec.LZ4, 1, broken, LIMIT)


@pytest.mark.parametrize("size_known", [True, False])
@pytest.mark.parametrize("linked", [True, False])
def test_lz4_frames_of_other_writers_are_read(size_known: bool, linked: bool) -> None:
    frame = lz4.frame.compress(
        NOISE, store_size=size_known, block_linked=linked, content_checksum=True
    )
    assert decompress(Codec.LZ4, 2, frame, LIMIT) == NOISE
    at = 14 if size_known else 6
    odd = frame[:at] + bytes((frame[at] ^ 0x55,)) + frame[at + 1 :]
    assert decompress(Codec.LZ4, 0, odd, LIMIT) == NOISE


def test_lz4_reads_the_first_frame_only() -> None:
    packed = compress(Codec.LZ4, 2, b"one") + compress(Codec.LZ4, 2, b"two")
    assert decompress(Codec.LZ4, 2, packed, LIMIT) == b"one"
    assert kwire_lz4.decompress(memoryview(packed), 3) == b"one"


def test_zstd_reads_all_frames_and_skips_skippable_ones() -> None:
    skippable = b"\x53\x2a\x4d\x18" + struct.pack("<I", 3) + b"abc"
    packed = compress(Codec.ZSTD, 2, b"one ") + skippable + compress(Codec.ZSTD, 2, b"two")
    assert decompress(Codec.ZSTD, 2, packed, LIMIT) == b"one two"
    for junk in (b"junk", skippable[:-1], b"\x00"):
        with pytest.raises(CorruptRecord):
            decompress(Codec.ZSTD, 2, packed + junk, LIMIT)


def test_zstd_of_streaming_writers_is_read() -> None:
    compressor = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    packed = compressor.compress(NOISE) + compressor.flush()
    assert decompress(Codec.ZSTD, 2, packed, LIMIT) == NOISE
    for cut in (len(packed) - 1, len(packed) - 5, len(packed) // 2):
        with pytest.raises(CorruptRecord):
            decompress(Codec.ZSTD, 2, packed[:cut], LIMIT)


def test_zstd_content_size_that_lies_is_refused() -> None:
    packed = bytearray(zstandard.ZstdCompressor().compress(b"x" * 300))
    struct.pack_into("<H", packed, 5, 40_000)
    with pytest.raises(CorruptRecord):
        decompress(Codec.ZSTD, 2, packed, LIMIT)


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", 0x02CC5D05),
        (b"a", 0x550D7456),
        (b"abc", 0x32D153FF),
        (b"Nobody inspects the spammish repetition", 0xE2293B2F),
    ],
)
def test_xxh32_gives_the_published_digests(data: bytes, digest: int) -> None:
    assert digest == xxh32(data)


# -- many small pieces -----------------------------------------------------------------------------


def empty_zstd_blocks(count: int) -> bytes:
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(b"")
    head = frame[:6]  # magic, descriptor, window
    return head + b"\x00\x00\x00" * (count - 1) + b"\x01\x00\x00"


PIECES = {
    Codec.GZIP: lambda count: compress(Codec.GZIP, 2, b"") * count,
    Codec.SNAPPY: lambda count: XERIAL_HEADER + b"\0\0\0\1\0" * count,
    Codec.ZSTD: empty_zstd_blocks,
}


@pytest.mark.parametrize("codec", PIECES)
def test_pieces_without_content_are_bounded_by_the_limit_too(codec: Codec) -> None:
    limit = 16 * 1024
    assert decompress(codec, 2, PIECES[codec](most_pieces(limit)), limit) == b""
    with pytest.raises(TooLarge, match="consists of more than 128 pieces"):
        decompress(codec, 2, PIECES[codec](most_pieces(limit) + 1), limit)


def test_skippable_zstd_frames_count_as_pieces() -> None:
    skippable = b"\x50\x2a\x4d\x18" + bytes(4)
    content = compress(Codec.ZSTD, 2, b"hello")
    assert decompress(Codec.ZSTD, 2, skippable * 10 + content, 256) == b"hello"
    with pytest.raises(TooLarge):
        decompress(Codec.ZSTD, 2, skippable * 100 + content, 256)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
def test_limit_decides_and_nothing_else_does(codec: Codec, data: st.DataObject) -> None:
    """The decompressed size of a batch is known exactly, regardless of its compressed size."""
    piece = data.draw(st.binary(max_size=50))
    content = piece * data.draw(st.integers(0, 2000))
    limit = data.draw(st.integers(0, len(content) + 10))
    packed = compress(codec, 2, content)
    if len(content) <= limit:
        assert decompress(codec, 2, packed, limit) == content
    else:
        with pytest.raises(TooLarge):
            decompress(codec, 2, packed, limit)


@pytest.mark.parametrize("codec", CODECS)
def test_little_is_decompressed_before_a_small_limit_is_passed(codec: Codec) -> None:
    """A batch of 64 KiB is checked in the loop, which must take milliseconds for any content."""
    bomb = compress(codec, 2, bytes(64 * 1024 * 900))[:65536]
    with cpu_time() as taken:
        for _ in range(10):
            with pytest.raises((TooLarge, CorruptRecord)):
                decompress(codec, 2, bomb, 64 * 1024)
    assert taken.seconds / 10 < 0.01


def test_zstd_decompressor_is_used_again_unless_it_became_large_or_failed() -> None:
    kwire_zstd._free.clear()
    small = compress(Codec.ZSTD, 2, b"small" * 100)
    for _ in range(2):
        assert decompress(Codec.ZSTD, 2, small, 1000) == b"small" * 100
        (kept,) = kwire_zstd._free
    with pytest.raises(TooLarge):
        decompress(Codec.ZSTD, 2, small, 100)
    assert kwire_zstd._free == []
    large = compress(Codec.ZSTD, 2, random.Random(1).randbytes(4 << 20))
    kwire_zstd._free.append(kept)
    assert len(decompress(Codec.ZSTD, 2, large, 5 << 20)) == 4 << 20
    assert kwire_zstd._free == []
