"""Fuzz target: any bytes as record data give records or a RecordError, within bounds.

Run: python -m tests.fuzz.fuzz_records [libFuzzer options] [corpus directories]
Needs atheris, which is not among the development dependencies (no wheels for every Python).
The first byte picks what to do: decompress, or walk the bytes as batches, the latter as they are
or with magic 2's CRC made right, so that the records behind it are reached too.
"""

from __future__ import annotations

import sys

from kwire.errors import RecordError
from kwire.records.batch import iter_batches, read_header, rewrite_crc
from kwire.records.compression import Codec, decompress
from kwire.records.convert import down_convert, recompress, up_convert
from kwire.records.layout import HEADER_SIZE, MAGIC_AT
from kwire.records.validation import validate_records

LIMIT = 1 << 18


def fuzz_one(data: bytes) -> None:
    """Run one input. Errors: every exception except RecordError is a finding."""
    if not data:
        return
    choice, data = data[0], data[1:]
    try:
        if choice < 64:
            codec, magic = choice % 8, choice // 8 % 3
            assert len(decompress(codec, magic, data, LIMIT)) <= LIMIT
            return
        if choice < 160 and len(data) >= HEADER_SIZE and data[MAGIC_AT] == 2:
            data = with_right_length_and_crc(data)
        walk(data)
    except RecordError:
        pass


def with_right_length_and_crc(data: bytes) -> bytes:
    """Make one magic 2 batch of all the bytes."""
    batch = bytearray(data)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    rewrite_crc(batch)
    return bytes(batch)


def walk(data: bytes) -> None:
    """Perform a broker's operations on a buffer; each step separately, so that none hides another."""
    for batch in iter_batches(data):
        for work in (
            batch.verify_crc,
            lambda batch=batch: sum(1 for _ in batch.records(LIMIT)),
            lambda batch=batch: validate_records(batch, compacted=True, max_bytes=LIMIT),
            lambda batch=batch: down_convert(batch.view, 0, max_bytes=LIMIT),
            lambda batch=batch: down_convert(batch.view, 1, max_bytes=LIMIT),
            lambda batch=batch: up_convert(batch.view, codec=Codec.NONE, max_bytes=LIMIT),
            lambda batch=batch: (
                recompress(batch.view, Codec.SNAPPY, max_bytes=LIMIT)
                if read_header(batch.view).magic == 2
                else None
            ),
        ):
            try:
                work()
            except RecordError:
                pass


def main() -> None:
    import atheris

    atheris.instrument_all()
    atheris.Setup(sys.argv, fuzz_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
