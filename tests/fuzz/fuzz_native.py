"""Fuzz target: for any bytes, the native module produces the same result as Python, or leaves them to Python.

Run: python -m tests.fuzz.fuzz_native [--inputs N] [--seed N]
Inputs are damaged bodies of records; each is in memory of exactly its size. For the sanitizers of addresses and
undefined behavior, build the module with them and run the target with their library:

    KWIRE_SANITIZE=1 python setup.py build_ext --inplace --force
    ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD=$(gcc -print-file-name=libasan.so) PYTHONMALLOC=malloc \\
        python -m tests.fuzz.fuzz_native --inputs 1000000
    python setup.py build_ext --inplace --force
"""

from __future__ import annotations

import argparse
import ctypes
import random
import struct
from array import array
from collections.abc import Iterator

from kwire.errors import CorruptRecord, RecordError
from kwire.records.batch import MAX_DECOMPRESSED_BYTES, read_header, rewrite_crc
from kwire.records.builder import write_batch
from kwire.records.compression import compress
from kwire.records.layout import CODEC_MASK, DELETE_HORIZON_MASK, HEADER
from kwire.records.record import Record, read_records, write_record
from kwire.records.validation import _scan
from server.log.cleaner.offset_map import offset_map
from server.log.cleaner.record_filter import (
    USUAL_ATTRIBUTES,
    BatchFilter,
    CleanedTransactions,
    note_keys,
)
from server.log.log_config import INT64_MAX, LogConfig
from server.log.validator import check_header, reads_as_stated
from tests.support.forms import NATIVE, form

NOW_MS = 1_700_000_000_000

INTERESTING = (0, 1, 2, 12, 14, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
KEYS = (b"", b"k", b"k" * 64, b"k" * 9000)
DELTAS = (0, 0, 1, -1, 63, 64, -65, 1 << 20, -(1 << 31), (1 << 63) - 1, -(1 << 63))


def compare(body: bytes, count: int) -> bool:
    """Pass a body to both forms; return whether it is sound. Errors: AssertionError if they differ."""
    try:
        expected = _scan(body, count)
    except CorruptRecord:
        expected = None
    walk = NATIVE["walk_records"]
    assert walk is not None
    found = walk((ctypes.c_ubyte * len(body)).from_buffer_copy(body), count)
    assert found == expected, (body.hex(), count, found, expected)
    compare_headers(body, count)
    compare_for_compaction(body, count, is_sound=expected is not None)
    read_as_columns(body, count, is_sound=expected is not None)
    with form("pure"):
        expected_records = records_of(body, count)
    with form("native"):
        assert records_of(body, count) == expected_records, (body.hex(), count)
    return expected is not None


def records_of(body: bytes, count: int) -> tuple[list[Record], str]:
    """The records that can be read, and the error after them."""
    found: list[Record] = []
    try:
        found.extend(read_records(body, count, 5, NOW_MS))
    except CorruptRecord as error:
        return found, str(error)
    return found, ""


def compare_headers(body: bytes, count: int) -> None:
    """The same for a batch around the body, whose header is also damaged, depending on its bytes and their number."""
    check = NATIVE["check_batch"]
    assert check is not None
    seed = random.Random(len(body) * 31 + count)
    delta = count - 1 if count > -(1 << 31) else 0
    fields = [0, len(body) + 49, 0, 2, 7, seed.choice((0, 0, 1, 16)), delta]
    fields += [NOW_MS, NOW_MS + seed.choice((0, 1, 63)), -1, -1, -1, count]
    if seed.random() < 0.3:
        fields[seed.choice([n for n in range(13) if n != 4])] = seed.choice((-1, 0, 1, 33))
    batch = memoryview(HEADER.pack(*fields) + body)[: seed.choice((None, None, None, 60, 61))]
    bounds = (NOW_MS, seed.choice((0, 5, INT64_MAX)), seed.choice((0, 5, INT64_MAX)), 1 << 20)
    expected = check_header(batch, *bounds, False, False)
    assert check(batch, *bounds, False, False) == expected, bytes(batch).hex()
    needs_keys = seed.random() < 0.5
    found = check(batch, *bounds, True, needs_keys)
    if expected is None:
        assert found is None, bytes(batch).hex()
        return
    _, attributes, delta, base, latest, *_ = expected
    config = LogConfig(
        message_timestamp_before_max_ms=bounds[1],
        message_timestamp_after_max_ms=bounds[2],
        cleanup_policy=frozenset({"compact" if needs_keys else "delete"}),
    )
    if attributes & CODEC_MASK:
        assert found == expected
    elif latest >= 0:
        with form("native"):
            sound = reads_as_stated(
                batch, attributes, delta + 1, base, latest, config, NOW_MS, MAX_DECOMPRESSED_BYTES
            )
        if sound and found is None:  # it leaves far timestamps to Python
            assert max(map(abs, _scan(body, count)[:2])) >= 1 << 61, bytes(batch).hex()
        else:
            assert found == ((*expected[:-1], True) if sound else None), bytes(batch).hex()


def compare_for_compaction(body: bytes, count: int, *, is_sound: bool) -> None:
    """The same for a batch that is compacted, depending on its bytes and their number."""
    seed = random.Random(len(body) * 37 + count)
    attributes = seed.choice((0, 0, 3, 8, DELETE_HORIZON_MASK, DELETE_HORIZON_MASK | 9))
    stored = compress(attributes & CODEC_MASK, 2, body) if attributes & CODEC_MASK else body
    batch = write_batch(
        stored,
        attributes=attributes,
        base_offset=1000,
        last_offset_delta=min(max(count, 1) - 1 + seed.choice((0, 0, 0, 7, -1)), (1 << 31) - 1),
        base_timestamp=NOW_MS + seed.choice((0, 1)),
        max_timestamp=NOW_MS,
        records_count=count,
    )
    header = read_header(batch)
    exact = (ctypes.c_ubyte * len(batch)).from_buffer_copy(batch)
    view = memoryview(exact).cast("B")
    start = 1000 + seed.choice((-1, 0, 1, 5))
    latest = 1000 + seed.choice((-1, 1, 100))
    lasts = [(key, min(latest, 1000 + seed.choice((-1, 0, 1, 3, 100)))) for key in KEYS]
    far = False
    found = []
    for name in ("pure", "native"):
        with form(name):
            noted, known = offset_map(1 << 16), offset_map(1 << 16)
            for key, offset in lasts:
                known.put(key, offset)
            known.latest_offset = latest
            rules = BatchFilter(
                known,
                CleanedTransactions([]),
                now_ms=NOW_MS,
                delete_retention_ms=1000,
                round_end_offset=-1,
            )
            taken, left = True, None
            if name == "native":
                taken = noted.note_batches(view, 0, USUAL_ATTRIBUTES, start) > 0
                end, rows = rules.filter_batches(view, 0)
                if end:
                    left = bytes(rows[0][0]) if rows else None
                else:
                    taken = False
            else:
                try:
                    if count:
                        note_keys(header, view, noted, start)
                    kept = rules.filter(header, view)
                    left = None if kept is None else bytes(kept)
                except RecordError:
                    taken = False
                except struct.error:  # of far timestamps
                    taken, far = False, True
            found.append((taken, left, [noted.get(key) for key in KEYS], len(noted)))
    (sound, expected, *map_expected), (taken, left, *map_found) = found
    if taken:
        assert not far
        assert sound and left == expected and map_found == map_expected, (body.hex(), count)
    elif is_sound and sound and count:
        # It leaves tombstones that get a delete horizon, and far timestamps.
        horizon = expected is not None and not attributes & DELETE_HORIZON_MASK
        horizon = horizon and bool(read_header(expected).attributes & DELETE_HORIZON_MASK)
        assert horizon or max(map(abs, _scan(body, count)[:2])) >= 1 << 61, (body.hex(), count)
    compact_with_damaged_header(batch, seed)


def compact_with_damaged_header(batch: bytes, seed: random.Random) -> None:
    """A batch whose header is damaged, but not its CRC, must do no harm."""
    damaged = bytearray(batch)
    damaged[seed.choice((*range(8), *range(21, 61)))] = seed.choice(INTERESTING)
    rewrite_crc(damaged)
    view = memoryview((ctypes.c_ubyte * len(batch)).from_buffer_copy(damaged)).cast("B")
    with form("native"):
        keys = offset_map(1 << 16)
        assert keys.note_batches(view, 0, 0x7FFF, 0) in (0, len(batch))
        assert keys.filter_batches(view, 0, 0x7FFF, NOW_MS)[0] in (0, len(batch))


def read_as_columns(body: bytes, count: int, *, is_sound: bool) -> None:
    """Sound bodies are read; all others must do no harm. tests/pipeline/segments/test_decode.py compares the values."""
    read = NATIVE["read_fields"]
    assert read is not None
    exact = (ctypes.c_ubyte * len(body)).from_buffer_copy(body)
    room = max(0, min(count, len(body)))
    for bodies in ((0, len(body), count), (1, len(body), count), (0, len(body) + 1, room)):
        table = array("q", bytes(8 * 8 * room))
        has_fields = read(exact, array("q", bodies), table)
        assert bodies[0] or bodies[1] > len(body) or has_fields == is_sound, (body.hex(), count)


def drawn(draw: random.Random) -> tuple[bytes, int]:
    """A body and a count of records, most of them damaged."""
    count = draw.choice((0, 1, 1, 2, 3, 8, 70))
    records = []
    for number in range(count):
        key = draw.choice((None, b"", b"k", b"k" * 64, b"k" * 9000))
        value = draw.choice((None, b"", b"value", b"v" * 63, b"v" * 200))
        headers = [("h" * draw.choice((0, 1, 70)), draw.choice((None, b"", b"x")))] * draw.choice(
            (0, 0, 1, 3)
        )
        offset = number if draw.random() < 0.97 else draw.choice((0, 5, -1, (1 << 31) - 1))
        records.append(write_record(offset, draw.choice(DELTAS), key, value, headers))
    body = bytearray(b"".join(records))
    for _ in range(draw.choice((0, 1, 1, 2, 4))):
        if not body:
            break
        # Lengths and deltas are at the beginnings of records.
        place = draw.choice((draw.randrange(min(len(body), 12)), draw.randrange(len(body))))
        change = draw.random()
        if change < 0.5:
            body[place] = draw.choice((*INTERESTING, draw.randrange(256)))
        elif change < 0.7:
            del body[place:]
        elif change < 0.8:
            del body[place]
        elif change < 0.95:
            body[place:place] = bytes(draw.choice(INTERESTING) for _ in range(draw.randint(1, 11)))
        else:
            body += bytes(draw.randint(1, 9))
    if draw.random() < 0.1:
        count += draw.choice((-1, 1, -(1 << 31), (1 << 31) - 1 - count))
    return bytes(body), max(min(count, (1 << 31) - 1), -(1 << 31))


def inputs(number: int, seed: int) -> Iterator[tuple[bytes, int]]:
    """The given number of inputs, the same for the same seed."""
    draw = random.Random(seed)
    for _ in range(number):
        yield drawn(draw)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.fuzz_native")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sound = sum(compare(*each) for each in inputs(options.inputs, options.seed))
    print(f"{options.inputs} inputs, {sound} of them sound: both forms agree")


if __name__ == "__main__":
    main()
