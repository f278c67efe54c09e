"""Where `kwire consume` begins and ends."""

from __future__ import annotations

import time
from argparse import ArgumentTypeError
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from server.cli.positions import Position, position, resolve


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("beginning", Position(word="beginning")),
        ("latest", Position(word="end")),
        ("17", Position(offset=17)),
        ("-10", Position(before_end=10)),
        ("@1738324800000", Position(time_ms=1738324800000)),
        ("@2025-01-31T12:00:00+00:00", Position(time_ms=1738324800000)),
    ],
)
def test_position_is_a_word_an_offset_a_count_or_a_time(text: str, meant: Position) -> None:
    assert position(text) == meant


def test_time_may_be_counted_back_from_now() -> None:
    time_ms = position("@-2h").time_ms
    assert time_ms is not None
    assert abs(time_ms - (time.time() - 7200) * 1000) < 60_000


@pytest.mark.parametrize("text", ["soon", "+1", "@", "@soon", "@-5y", ""])
def test_position_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is neither"):
        position(text)


class Found(NamedTuple):
    offset: int


class Consumer:
    """Partitions 0 (offsets 5 to 9, the first at time 100) and 1 (empty)."""

    def beginning_offsets(self, tps: list[int]) -> dict[int, int]:
        return {0: 5, 1: 0}

    def end_offsets(self, tps: list[int]) -> dict[int, int]:
        return {0: 10, 1: 0}

    def offsets_for_times(self, times: Mapping[int, Any]) -> dict[int, Found | None]:
        return {0: Found(5) if times[0] <= 100 else None, 1: None}


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("beginning", {0: 5, 1: 0}),
        ("end", {0: 10, 1: 0}),
        ("7", {0: 7, 1: 0}),
        ("3", {0: 5, 1: 0}),
        ("99", {0: 10, 1: 0}),
        ("-2", {0: 8, 1: 0}),
        ("-20", {0: 5, 1: 0}),
        ("@100", {0: 5, 1: 0}),
        ("@101", {0: 10, 1: 0}),
    ],
)
def test_position_is_found_in_each_partition_within_what_it_has(
    text: str, offsets: dict[int, int]
) -> None:
    assert resolve(Consumer(), [0, 1], position(text)) == offsets
