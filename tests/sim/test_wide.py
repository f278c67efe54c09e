"""The simulated cluster with pauses, failing directories, reassignments and topics created again."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ..support.broker_process import REPOSITORY

pytestmark = pytest.mark.slow

LONG = os.environ.get("KWIRE_LONG") == "1"
SEEDS, STEPS = (3000, 20) if LONG else (16, 8)


@pytest.mark.timeout(18_000 if LONG else 900)
def test_no_seed_violates_anything_whatever_else_is_done_to_the_cluster() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "tests.sim.wide", "--seeds", str(SEEDS), "--steps", str(STEPS)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "| violations | 0 |" in found.stdout
