"""Requests of many tiny elements keep the event loop from others for no longer than a blink; see bench/attack/."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import pytest

from bench.attack.__main__ import CPU_GOAL_S, MEMORY_GOAL, run
from bench.attack.rows import ROWS
from bench.attack.smallest import array_paths
from bench.attack.sweep import Case, Sweep, served
from bench.attack.target import ROOT, MeteredKwire
from kwire.api import request_class

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

#: Few of the attacks here; `make attack` has them all.
SHORT = ("list-offsets-by-time", "tiny-describe-groups-4", "owners-assignments")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeteredKwire]:
    """A broker whose turns are measured."""
    directory = tmp_path_factory.mktemp("target")
    with MeteredKwire(directory, root=ROOT, python=sys.executable) as broker:
        assert isinstance(broker, MeteredKwire)
        yield broker


def test_half_a_megabyte_of_tiny_elements_takes_no_long_turn_in_any_api(
    target: MeteredKwire,
) -> None:
    sweep = Sweep(target)
    for api, _, version in served(target.port):
        # The last array is the innermost one.
        for path in list(array_paths(request_class(api), version))[-1:]:
            sweep.run(Case(api, version, path, 0.5, "distinct"))
    assert len(sweep.found) > 30
    slow = [f"{row}" for row in sweep.found if row.turn_s > CPU_GOAL_S]
    large = [f"{row}" for row in sweep.found if row.memory_mb > MEMORY_GOAL]
    assert not slow + large, "\n".join(slow + large)


@pytest.mark.parametrize("name", SHORT)
def test_honest_client_waits_little_beside_an_attack(name: str) -> None:
    rows = [row for row in ROWS if row.name == name]
    options = argparse.Namespace(kafka=False, root=str(ROOT), python=sys.executable)
    (result,) = run(rows, options)
    assert result["alive"]
    assert result["errors"] == []
    assert result["tracebacks"] == 0
    assert result["cpu_s"] < CPU_GOAL_S, result
    assert result["peak_mb"] < MEMORY_GOAL, result
