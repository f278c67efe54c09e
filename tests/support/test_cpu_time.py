"""Bounds of CPU time hold on slow machines, and do not hold for slow code."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import count

import pytest

from . import cpu_time as module
from .cpu_time import REFERENCE_S, cpu_time


class Machine:
    """A clock that advances only with work."""

    def __init__(self, slowness: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.slowness: Iterator[float] = (slowness for _ in count())
        monkeypatch.setattr(module, "reference_work", lambda: self.work(REFERENCE_S))

    def work(self, seconds: float) -> None:
        self.now += seconds * next(self.slowness)


@pytest.mark.parametrize("slowness", [1, 7])
def test_time_is_that_of_the_stated_machine(
    slowness: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(slowness, monkeypatch)
    with cpu_time(lambda: machine.now) as taken:
        machine.work(0.3)
    assert taken.seconds == taken.longest_s == pytest.approx(0.3)


def test_faster_machine_does_not_make_a_bound_tighter(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(0.5, monkeypatch)
    with cpu_time(lambda: machine.now) as taken:
        machine.work(0.3)
    assert taken.seconds == pytest.approx(0.15)


def test_machine_that_becomes_slow_during_the_work_is_noticed_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(1, monkeypatch)
    with cpu_time(lambda: machine.now) as taken:
        machine.slowness = (4 for _ in count())
        machine.work(0.3)
    assert taken.seconds == pytest.approx(0.3)


def test_pieces_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(2, monkeypatch)
    with cpu_time(lambda: machine.now) as taken:
        for seconds in (0.1, 0.5, 0.2):
            with taken.piece():
                machine.work(seconds)
            machine.work(1)
    assert taken.seconds == pytest.approx(0.8)
    assert taken.longest_s == pytest.approx(0.5)
    assert taken.median_s == pytest.approx(0.2)


def test_collector_rests_meanwhile() -> None:
    with cpu_time():
        assert not gc.isenabled()
    assert gc.isenabled()
