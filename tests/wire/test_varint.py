"""Variable-length integers at their edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.errors import BadLength, EncodeError, Truncated
from kwire.varint import UINT64_BYTES, read_uvarint, read_varint, uvarint, varint


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16383, "ff7f"),
        (16384, "808001"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_unsigned_varint_is_as_kafka_writes_it(value: int, encoded: str) -> None:
    assert uvarint(value).hex() == encoded
    assert read_uvarint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001")]
)
def test_zig_zag_varint_is_as_kafka_writes_it(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded
    assert read_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@given(st.integers(-(2**63), 2**63 - 1))
def test_zig_zag_varint_of_64_bits_comes_back(value: int) -> None:
    data = b"x" + varint(value)
    assert read_varint(memoryview(data), 1, UINT64_BYTES) == (value, len(data))


def test_overlong_form_is_read() -> None:
    assert read_uvarint(b"\x81\x80\x00", 0) == (1, 3)


def test_varint_beyond_the_end_is_truncated() -> None:
    for data in (b"", b"\x80", b"\xff\xff"):
        with pytest.raises(Truncated):
            read_uvarint(data, 0)


def test_varint_without_end_is_refused() -> None:
    with pytest.raises(BadLength):
        read_uvarint(b"\xff" * 20, 0)
    with pytest.raises(BadLength):
        read_uvarint(b"\xff" * 20, 0, UINT64_BYTES)


def test_varint_beyond_its_bits_is_refused() -> None:
    with pytest.raises(BadLength, match="too large"):
        read_uvarint(b"\xff\xff\xff\xff\x1f", 0)


def test_negative_number_is_not_unsigned() -> None:
    with pytest.raises(EncodeError):
        uvarint(-1)
