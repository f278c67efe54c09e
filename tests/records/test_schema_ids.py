"""The prefix of a schema registry's serializers."""

from __future__ import annotations

import pytest

from kwire.errors import CorruptRecord
from kwire.records.schema_ids import message_indexes, schema_id

PREFIX = b"\0\0\1\0\7"


def test_id_is_read_only_after_the_magic_byte() -> None:
    assert schema_id(PREFIX) == schema_id(PREFIX + b"data") == 65_543
    assert schema_id(b"\0\xff\xff\xff\xff") == 0xFFFFFFFF
    for data in (b"", PREFIX[:4], b"\1" + PREFIX[1:], b"{1234"):
        assert schema_id(data) is None


@pytest.mark.parametrize(
    ("after", "indexes", "size"),
    [
        (b"\0", (0,), 1),
        (b"\2\0", (0,), 2),
        (b"\4\2\6data", (1, 3), 3),
        (b"\2\x80\2", (128,), 3),
    ],
)
def test_message_indexes(after: bytes, indexes: tuple[int, ...], size: int) -> None:
    assert message_indexes(PREFIX + after) == (indexes, 5 + size)


@pytest.mark.parametrize(
    "after", [b"", b"\2", b"\3", b"\2\1", b"\x84\1" + bytes(70), b"\xff" * 9, b"\4\2"]
)
def test_damaged_message_indexes_are_refused(after: bytes) -> None:
    with pytest.raises(CorruptRecord):
        message_indexes(PREFIX + after)
