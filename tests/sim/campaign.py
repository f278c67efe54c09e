"""Runs many seeds in several processes, and collects their outcomes."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from .planted import planted
from .world import FAULTS, Outcome, run


def outcome_of(
    seed: int, steps: int, mistake: str | None, members: int = 0, sharers: int = 0
) -> Outcome:
    """Run one seed, optionally with a planted mistake and with members of groups."""
    logging.disable(logging.CRITICAL)
    with planted(mistake):
        return run(seed, steps, members, sharers)


def processes(jobs: int) -> ProcessPoolExecutor:
    """A pool of processes that run seeds; a seed repeats exactly only with PYTHONHASHSEED=0."""
    return ProcessPoolExecutor(jobs, get_context("spawn"))


def outcomes(
    seeds: Iterable[int],
    steps: int,
    mistake: str | None,
    pool: ProcessPoolExecutor,
    members: int = 0,
    sharers: int = 0,
) -> Iterator[Outcome]:
    """Run seeds in processes, and yield the outcomes in the order of the seeds.

    Closing the iterator early cancels the seeds that have not begun.
    """
    one = partial(outcome_of, steps=steps, mistake=mistake, members=members, sharers=sharers)
    yield from pool.map(one, seeds)


def table(found: list[Outcome]) -> str:
    """The totals of all runs, as rows of the table in the docs."""
    faults: Counter[str] = Counter()
    for outcome in found:
        faults.update(outcome.faults)
    rows = [
        ("seeds run", len(found)),
        ("simulated hours", round(sum(each.simulated_s for each in found) / 3600, 1)),
        *((f"faults: {name}", faults[name]) for name in FAULTS),
        ("records acknowledged", sum(each.acknowledged for each in found)),
        ("records committed", sum(each.committed for each in found)),
        ("checks of a leader", sum(each.checks for each in found)),
        ("violations", sum(each.violation is not None for each in found)),
    ]
    return "\n".join(f"| {name} | {value:,} |" for name, value in rows)
