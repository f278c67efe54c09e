"""The target of a reset of a group's offsets."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable

import pytest

from server.cli.reset_target import (
    Target,
    duration_target,
    offset_target,
    read_plan,
    resolved,
    shift_target,
    target,
    time_target,
    topic_and_partitions,
)

TPS = [("t", 0), ("t", 1)]
STARTS = {("t", 0): 10, ("t", 1): 0}
ENDS = {("t", 0): 30, ("t", 1): 5}
NOW = 1_000_000


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (target, "earliest", Target(word="earliest")),
        (target, "17", Target(offset=17)),
        (target, "2025-01-31T12:00:00+00:00", Target(time_ms=1738324800000)),
        (target, "@1738324800000", Target(time_ms=1738324800000)),
        (time_target, "2025-01-31T12:00:00.250+00:00", Target(time_ms=1738324800250)),
        (offset_target, "0", Target(offset=0)),
        (shift_target, "-10", Target(shift=-10)),
        (duration_target, "PT1H30M", Target(ago_ms=5_400_000)),
        (duration_target, "P1DT1.5S", Target(ago_ms=86_401_500)),
        (duration_target, "90m", Target(ago_ms=5_400_000)),
    ],
)
def test_targets_are_read(parse: Callable[[str], Target], text: str, expected: Target) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (target, "soon"),
        (target, "-1"),
        (time_target, "noon"),
        (offset_target, "1.5"),
        (shift_target, "x"),
        (duration_target, "P"),
        (duration_target, "PT"),
        (duration_target, "1w"),
        (topic_and_partitions, "t:a"),
        (topic_and_partitions, ":1"),
    ],
)
def test_what_cannot_be_meant_is_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        parse(text)


@pytest.mark.parametrize(
    ("where", "offsets"),
    [
        (Target(word="earliest"), [10, 0]),
        (Target(word="latest"), [30, 5]),
        (Target(word="current"), [20, 5]),
        (Target(offset=12), [12, 5]),
        (Target(offset=3), [10, 3]),
        (Target(shift=-5), [15, None]),
        (Target(shift=-50), [10, None]),
        (Target(shift=50), [30, None]),
        (Target(time_ms=500), [25, 5]),
        (Target(ago_ms=NOW - 500), [25, 5]),
    ],
)
def test_offsets_stay_within_what_there_is(where: Target, offsets: list[int | None]) -> None:
    times = {500: {("t", 0): 25}}
    found = resolved(where, TPS, {("t", 0): 20}, STARTS, ENDS, times.__getitem__, NOW)
    assert [found.get(tp) for tp in TPS] == offsets


def test_plan_is_read_back_and_bad_lines_are_named() -> None:
    assert read_plan(["t,0,5", "", "u, 1, 7"]) == {("t", 0): 5, ("u", 1): 7}
    with pytest.raises(ValueError, match="line 2: not topic,partition,offset"):
        read_plan(["t,0,5", "t,0"])


def test_partitions_of_a_topic_may_be_named() -> None:
    assert topic_and_partitions("t") == ("t", None)
    assert topic_and_partitions("t:0,2") == ("t", [0, 2])
