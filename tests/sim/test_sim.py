"""The simulated cluster: seeds in which nothing may go wrong, and mistakes that must be noticed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ..support.broker_process import REPOSITORY
from .planted import MISTAKES

pytestmark = pytest.mark.slow

LONG = os.environ.get("KWIRE_LONG") == "1"
SEEDS, STEPS = (20_000, 20) if LONG else (200, 8)
SEEDS_OF_A_MISTAKE = 400 if LONG else 150
#: Where the short form begins to look for a mistake that few seeds meet; a change to kwire may move these.
FIRST_SEED: dict[str, int] = {} if LONG else {"elect-anybody": 16, "lose-markers": 51}


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.sim", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(36_000 if LONG else 900)
def test_no_seed_violates_anything() -> None:
    found = simulate("--seeds", str(SEEDS), "--steps", str(STEPS))
    assert found.returncode == 0, found.stdout + found.stderr
    assert "| violations | 0 |" in found.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(MISTAKES))
def test_planted_mistake_is_noticed(name: str) -> None:
    seeds = ("--first", str(FIRST_SEED.get(name, 0)), "--seeds", str(SEEDS_OF_A_MISTAKE))
    found = simulate(*seeds, "--mistake", name, "--until-caught")
    assert found.returncode == 1, found.stdout + found.stderr
    assert "again: python -m tests.sim --seed" in found.stdout


def test_seed_replays_exactly() -> None:
    once, again = (simulate("--seeds", "2", "--first", "7").stdout for _ in range(2))
    assert once == again
