"""Builders of record batches for the tests of this folder, and Hypothesis strategies."""

from __future__ import annotations

from hypothesis import strategies as st

from kwire.records.batch import BatchBuilder
from kwire.records.record import Record

T0 = 1_700_000_000_000

RECORDS = [
    Record(0, T0, b"key", b"value", [("h", b"1"), ("h", None), ("ключ", b"")]),
    Record(1, T0 + 5, None, b"", []),
    Record(2, T0 - 7000, b"", None, []),
    Record(3, T0 + 10**9, b"k" * 300, b"v" * 5000, []),
]

PLAIN_RECORDS = [record._replace(headers=()) for record in RECORDS]


def batch_of(records: list[Record], magic: int = 2, codec: int = 0, **fields: object) -> bytes:
    """Build one batch (or set of old messages) that begins at the first record's offset."""
    fields.setdefault("base_offset", records[0].offset)
    builder = BatchBuilder(magic, codec, **fields)  # type: ignore[arg-type]
    for record in records:
        builder.append_record(record)
    return builder.build()


_bytes = st.binary(max_size=60)
_headers = st.lists(st.tuples(st.text(max_size=8), st.none() | _bytes), max_size=3)


@st.composite
def record_lists(draw: st.DrawFn, *, headers: bool = True) -> list[Record]:
    """One to eight records at rising offsets with gaps."""
    offset = draw(st.integers(0, 2**40))
    records = []
    for _ in range(draw(st.integers(1, 8))):
        records.append(
            Record(
                offset,
                draw(st.integers(-1, 2**62) | st.integers(T0, T0 + 1000)),
                draw(st.none() | _bytes),
                draw(st.none() | _bytes),
                draw(_headers) if headers else [],
            )
        )
        offset += draw(st.integers(1, 3) | st.integers(1, 100_000))
    return records
