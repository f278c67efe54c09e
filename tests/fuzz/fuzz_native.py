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
from array import array
from collections.abc import Iterator

from kwire.errors import CorruptRecord
from kwire.records.batch import MAX_DECOMPRESSED_BYTES
from kwire.records.layout import CODEC_MASK, HEADER
from kwire.records.record import Record, read_records, write_record
from kwire.records.validation import _scan
from server.log.cleaner.record_spans import record_spans
from server.log.log_config import INT64_MAX, LogConfig
from server.log.validator import check_header, reads_as_stated
from tests.support.forms import NATIVE, form

NOW_MS = 1_700_000_000_000

INTERESTING = (0, 1, 2, 12, 14, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
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
    """The same for the functions of compaction. Their Python form does not check headers, and so refuses less."""
    heads, copy = NATIVE["record_heads"], NATIVE["copy_records"]
    assert heads is not None
    assert copy is not None
    found = heads(body, count, max(count, 0) - 1)
    numbers = [number for number in range(min(max(count, 0), 100)) if number % 3 != 1]
    copied = copy(body, numbers)
    try:
        spans = record_spans(body, count, count - 1)
    except CorruptRecord:
        assert found is None, (body.hex(), count)
        return
    if not is_sound:
        return
    assert found is not None, (body.hex(), count)
    ends, keys, deltas, nulls = found
    assert list(zip(ends, keys, deltas, strict=True)) == [(s[1], s[4], s[3]) for s in spans]
    assert nulls == [number for number, span in enumerate(spans) if not span[5]]
    wanted = [spans[number] for number in numbers]
    if not wanted or not all(span[5] for span in wanted):
        assert copied is None
    else:
        joined = b"".join(body[span[0] : span[1]] for span in wanted)
        assert copied == (joined, max(span[2] for span in wanted))


def read_as_columns(body: bytes, count: int, *, is_sound: bool) -> None:
    """Sound bodies are read; all others must do no harm. tests/pipeline/segments/test_decode.py compares the values."""
    find_ends, read = NATIVE["append_record_ends"], NATIVE["read_fields"]
    assert find_ends is not None
    assert read is not None
    exact = (ctypes.c_ubyte * len(body)).from_buffer_copy(body)
    ends: list[int] = []
    has_ends = find_ends(exact, 0, len(body), max(count, 0), ends)
    assert has_ends or not is_sound
    if not has_ends:  # regardless of their values
        ends = sorted(n * 7 % (len(body) + 3) for n in range(1, min(len(body), 20)))
    starts = array("q", [0, *ends[:-1]][: len(ends)])
    has_fields = read(exact, starts, array("q", ends), array("q", bytes(7 * 8 * len(ends))))
    assert has_fields or not is_sound


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
