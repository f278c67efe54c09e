"""Ids as text."""

from __future__ import annotations

import pytest

from kwire.types import ONE_UUID, ZERO_UUID, uuid_from_str, uuid_to_str


def test_id_prints_as_kafka_prints_it() -> None:
    assert uuid_to_str(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_str(ONE_UUID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_to_str(b"\xfb\xff" + bytes(14)).startswith("-_")


def test_id_comes_back_from_its_text() -> None:
    assert uuid_from_str(uuid_to_str(bytes(range(16)))) == bytes(range(16))


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 23, "A" * 100])
def test_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        uuid_from_str(text)
