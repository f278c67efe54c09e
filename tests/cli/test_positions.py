"""Where `kwire consume` begins and ends."""

from __future__ import annotations

import time
from argparse import ArgumentTypeError
from collections.abc import Sequence

import pytest

from server.cli.positions import position
from server.client.positions import StartPosition, resolve
from server.client.requests import EARLIEST, LATEST, Partition


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("beginning", StartPosition(word="beginning")),
        ("latest", StartPosition(word="end")),
        ("17", StartPosition(offset=17)),
        ("-10", StartPosition(before_end=10)),
        ("@1738324800000", StartPosition(time_ms=1738324800000)),
        ("@2025-01-31T12:00:00+00:00", StartPosition(time_ms=1738324800000)),
    ],
)
def test_position_is_a_word_an_offset_a_count_or_a_time(text: str, meant: StartPosition) -> None:
    assert position(text) == meant


def test_time_may_be_counted_back_from_now() -> None:
    time_ms = position("@-2h").time_ms
    assert time_ms is not None
    assert abs(time_ms - (time.time() - 7200) * 1000) < 60_000


@pytest.mark.parametrize("text", ["soon", "+1", "@", "@soon", "@-5y", ""])
def test_position_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is neither"):
        position(text)


def offsets_at(tps: Sequence[Partition], at: int) -> dict[Partition, int]:
    """Partitions 0 (offsets 5 to 9, the first at time 100) and 1 (empty)."""
    if at == EARLIEST:
        return {ZERO: 5, ONE: 0}
    if at == LATEST:
        return {ZERO: 10, ONE: 0}
    return {ZERO: 5} if at <= 100 else {}


ZERO, ONE = ("t", 0), ("t", 1)


@pytest.mark.parametrize(
    ("text", "zero", "one"),
    [
        ("beginning", 5, 0),
        ("end", 10, 0),
        ("7", 7, 0),
        ("3", 5, 0),
        ("99", 10, 0),
        ("-2", 8, 0),
        ("-20", 5, 0),
        ("@100", 5, 0),
        ("@101", 10, 0),
    ],
)
def test_position_is_found_in_each_partition_within_what_it_has(
    text: str, zero: int, one: int
) -> None:
    assert resolve(offsets_at, [ZERO, ONE], position(text)) == {ZERO: zero, ONE: one}
