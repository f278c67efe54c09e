"""The target of a reset of a group's offsets."""

from __future__ import annotations

import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator

import pytest

from kwire.pipeline.replay.options import time_ms as pipeline_time_ms
from server.__main__ import make_parser
from server.cli.positions import position
from server.cli.reset_target import (
    ResetTarget,
    duration_target,
    offset_target,
    read_plan,
    resolved,
    shift_target,
    target,
    time_target,
    topic_and_partitions,
)
from server.client.positions import StartPosition
from server.times import unix_ms

TPS = [("t", 0), ("t", 1)]
STARTS = {("t", 0): 10, ("t", 1): 0}
ENDS = {("t", 0): 30, ("t", 1): 5}
NOW = 1_000_000


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (target, "earliest", ResetTarget(word="earliest")),
        (target, "17", ResetTarget(offset=17)),
        (target, "2025-01-31T12:00:00+00:00", ResetTarget(time_ms=1738324800000)),
        (target, "@1738324800000", ResetTarget(time_ms=1738324800000)),
        (time_target, "2025-01-31T12:00:00.250+00:00", ResetTarget(time_ms=1738324800250)),
        (offset_target, "0", ResetTarget(offset=0)),
        (shift_target, "-10", ResetTarget(shift=-10)),
        (duration_target, "PT1H30M", ResetTarget(ago_ms=5_400_000)),
        (duration_target, "P1DT1.5S", ResetTarget(ago_ms=86_401_500)),
        (duration_target, "90m", ResetTarget(ago_ms=5_400_000)),
    ],
)
def test_targets_are_read(
    parse: Callable[[str], ResetTarget], text: str, expected: ResetTarget
) -> None:
    assert parse(text) == expected


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose zone is not UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("new_york")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2025-01-31T12:00:00", 1738324800000),
        ("2025-01-31T12:00:00.123", 1738324800123),
        ("2025-01-31", 1738281600000),
        ("2025-01-31T12:00:00Z", 1738324800000),
        ("2025-01-31T12:00:00-05:00", 1738342800000),
        ("1738324800000", 1738324800000),
        ("1969-12-31T23:59:59.999", 0),  # -1 would be the end of a partition
    ],
)
def test_time_without_a_zone_is_utc_on_any_machine(text: str, expected: int) -> None:
    assert time_target(text) == ResetTarget(time_ms=expected)
    assert target(f"@{text}") == ResetTarget(time_ms=expected)
    assert position(f"@{text}") == StartPosition(time_ms=expected)
    assert pipeline_time_ms(text) in (expected, -1)
    assert unix_ms(text) in (expected, -1) if "-" in text else True


@pytest.mark.parametrize("words", [["groups", "reset"], ["consume"]])
def test_help_says_which_zone_a_time_has(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        make_parser(words[0]).parse_args([*words, "--help"])
    assert "UTC" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (target, "soon"),
        (target, "-1"),
        (time_target, "noon"),
        (offset_target, "1.5"),
        (offset_target, "9" * 19),
        (offset_target, "9" * 5000),
        (shift_target, "-" + "9" * 19),
        (time_target, "9" * 19),
        (duration_target, "9" * 19 + "d"),
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
        (ResetTarget(word="earliest"), [10, 0]),
        (ResetTarget(word="latest"), [30, 5]),
        (ResetTarget(word="current"), [20, 5]),
        (ResetTarget(offset=12), [12, 5]),
        (ResetTarget(offset=3), [10, 3]),
        (ResetTarget(shift=-5), [15, None]),
        (ResetTarget(shift=-50), [10, None]),
        (ResetTarget(shift=50), [30, None]),
        (ResetTarget(time_ms=500), [25, 5]),
        (ResetTarget(ago_ms=NOW - 500), [25, 5]),
    ],
)
def test_offsets_stay_within_what_there_is(where: ResetTarget, offsets: list[int | None]) -> None:
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
