"""The partition of a group, by Java's hash of its name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from server.coordinator.common.partitioner import (
    BLOCK,
    MAX_REMEMBERED,
    _remembered,
    java_string_hash,
    partition_for,
)


def plain_hash(text: str) -> int:
    """The definition of String.hashCode."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for place in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[place : place + 2])) % 2**32
    return value - 2**32 if value >= 2**31 else value


def test_hash_is_that_of_java() -> None:
    assert java_string_hash("") == 0
    assert java_string_hash("polygenelubricants") == -(2**31)
    assert partition_for("polygenelubricants", 50) == 0
    assert java_string_hash("kwire") == plain_hash("kwire")


@given(st.text(max_size=12), st.sampled_from([1, 2, BLOCK - 1, BLOCK, BLOCK + 1]))
def test_names_of_any_length_have_javas_hash(text: str, times: int) -> None:
    name = text * times
    assert java_string_hash(name) == plain_hash(name)


def test_long_names_are_not_remembered() -> None:
    before = _remembered.cache_info().currsize
    for number in range(5):
        partition_for(f"{number}" * (MAX_REMEMBERED + 1), 50)
    assert _remembered.cache_info().currsize == before
