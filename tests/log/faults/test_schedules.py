"""Seeded schedules of crashes and failing disks over real logs; see workload.py.

`KWIRE_SEED=n` runs only that schedule; `KWIRE_LONG=1` runs for ten minutes, with seeds derived from the date.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor

import pytest

from .expected import Violation
from .workload import FAULTS, run

LONG = os.environ.get("KWIRE_LONG", "") not in ("", "0")
SEED = os.environ.get("KWIRE_SEED")

SECONDS = 600
COUNT = 400
AT_ONCE = 25


def run_some(first: int, count: int) -> tuple[int, list[str]]:
    """Run some seeds; return (in how many the fault occurred, the violations)."""
    struck = 0
    wrong = []
    for seed in range(first, first + count):
        try:
            struck += run(seed).struck
        except Violation as e:
            wrong.append(str(e))
    return struck, wrong


def test_first_schedules_of_each_fault_lose_nothing() -> None:
    if SEED is not None:
        run(int(SEED))
        return
    _, wrong = run_some(0, 12 * len(FAULTS))
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS * 2)
@pytest.mark.skipif(SEED is not None, reason="one seed is asked for")
def test_hundreds_of_schedules_lose_nothing() -> None:
    seed = int(time.time()) // 86_400 * 1_000_000 if LONG else 0
    first = seed
    started = time.monotonic()
    struck = 0
    wrong: list[str] = []
    with ProcessPoolExecutor(2) as processes:
        while not wrong and (
            time.monotonic() - started < SECONDS if LONG else seed - first < COUNT
        ):
            some = range(seed, seed + 8 * AT_ONCE, AT_ONCE)
            for part, said in processes.map(run_some, some, [AT_ONCE] * len(some)):
                struck += part
                wrong += said
            seed += 8 * AT_ONCE
    assert not wrong, "\n".join(wrong)
    print(f"{seed - first} schedules, in {struck} of them the fault struck")
    assert struck > (seed - first) / 3


def test_a_seed_always_gives_the_same_schedule() -> None:
    seeds = range(300, 318)
    assert [run(seed) for seed in seeds] == [run(seed) for seed in seeds]
