"""The simulated cluster: no seed may violate an invariant, and planted mistakes must be noticed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from server.coordinator.group.consumer.group import ConsumerGroup
from server.coordinator.share_state.operations import WRITE_STATE
from server.coordinator.share_state.persister import StatePersister
from server.coordinator.share_state.rows import StateOutcome

from ..support.broker_process import REPOSITORY
from .campaign import outcome_of, outcomes, processes
from .planted import MISTAKES
from .world import run

pytestmark = pytest.mark.slow

LONG = os.environ.get("KWIRE_LONG") == "1"
STEPS = 20 if LONG else 8
MEMBER_SEEDS = 2_000 if LONG else 10
SEEDS_OF_A_MISTAKE = 400 if LONG else 100
#: The first seed that finds a mistake, if not 0; a change to kwire may change it. The seeds of SEEDS find each of them.
FIRST_SEED: dict[str, int] = (
    {}
    if LONG
    else {
        "acknowledge-early": 4,
        "answer-in-any-order": 1,
        "elect-anybody": 17,
        "forget-decided-transactions": 4,
        "go-on-after-a-timeout": 32,
        "ignore-epochs-on-truncation": 2,
        "keep-a-stale-isr": 19,
        "lose-markers": 4,
        "share-the-memory-of-frames": 4,
        "wait-for-the-fastest": 9,
    }
)
SEEDS = 20_000 if LONG else max(FIRST_SEED.values()) + 1


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """Processes shared by all tests here, since each takes a second to start and compile its codecs."""
    with patch.dict(os.environ, PYTHONHASHSEED="0"), processes(2) as pool:
        yield pool


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.sim", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(36_000 if LONG else 900)
def test_no_seed_violates_anything(pool: ProcessPoolExecutor) -> None:
    acknowledged = checks = 0
    wrong = []
    for outcome in outcomes(range(SEEDS), STEPS, None, pool):
        acknowledged += outcome.acknowledged
        checks += outcome.checks
        if outcome.violation is not None:
            wrong.append(f"python -m tests.sim --seed {outcome.seed} --steps {STEPS}: {outcome}")
    assert not wrong, "\n".join(wrong)
    assert acknowledged > 100 * SEEDS, "hardly anything was produced"
    assert checks > 100 * SEEDS, "hardly anything was checked"


def in_turn(
    pool: ProcessPoolExecutor, one: Callable[[int], str | None], seeds: Iterable[int]
) -> Iterator[str | None]:
    """The violation in each seed; a seed begins when it is asked for, as none after the first violation counts."""
    return (pool.submit(one, seed).result() for seed in seeds)


def with_a_mistake(seed: int, name: str) -> str | None:
    return outcome_of(seed, STEPS, name).violation


@pytest.mark.parametrize("name", sorted(MISTAKES))
def test_planted_mistake_is_noticed(name: str, pool: ProcessPoolExecutor) -> None:
    first = FIRST_SEED.get(name, 0)
    seeds = range(first, first + SEEDS_OF_A_MISTAKE)
    assert any(in_turn(pool, partial(with_a_mistake, name=name), seeds))


def test_command_names_the_seed_that_violates_something() -> None:
    found = simulate("--mistake", "acknowledge-early", "--until-caught", "--jobs", "1")
    assert found.returncode == 1, found.stdout + found.stderr
    assert "again: python -m tests.sim --seed" in found.stdout


def test_seed_replays_exactly() -> None:
    once, again = (simulate("--seeds", "2", "--first", "7", "--jobs", "1") for _ in range(2))
    assert once.returncode == 0, once.stdout + once.stderr
    assert "| violations | 0 |" in once.stdout
    assert once.stdout == again.stdout


@pytest.mark.timeout(36_000 if LONG else 900)
def test_no_two_live_members_of_a_consumer_group_have_the_same_partition(
    pool: ProcessPoolExecutor,
) -> None:
    """Three members of the new protocol; in the end every partition has one of them."""
    found = pool.map(partial(run, steps=STEPS, members=3), range(MEMBER_SEEDS))
    assert [(each.seed, each.violation) for each in found if each.violation] == []


def without_waiting_for_partitions(seed: int) -> str | None:
    """Run a group that gives partitions away before they are free."""
    with patch.object(ConsumerGroup, "partition_epoch", lambda group, topic_id, partition: -1):
        return run(seed, STEPS, members=3).violation


def test_partitions_that_are_given_away_before_they_are_free_are_noticed(
    pool: ProcessPoolExecutor,
) -> None:
    found = in_turn(pool, without_waiting_for_partitions, range(4))
    assert any("which member" in (each or "") for each in found)


@pytest.mark.timeout(36_000 if LONG else 900)
def test_what_a_share_group_has_accepted_is_not_delivered_again_and_nothing_is_lost(
    pool: ProcessPoolExecutor,
) -> None:
    """Three members of a share group; in the end every record has been accepted."""
    found = pool.map(partial(run, steps=STEPS, sharers=3), range(MEMBER_SEEDS))
    assert [(each.seed, each.violation) for each in found if each.violation] == []


ask = StatePersister.ask


def written_nowhere(
    persister: StatePersister, operation: Any, group_id: str, rows: Sequence[Any]
) -> asyncio.Future[list[Any]]:
    if operation is not WRITE_STATE:
        return ask(persister, operation, group_id, rows)
    done: asyncio.Future[list[StateOutcome]] = asyncio.get_running_loop().create_future()
    done.set_result([StateOutcome(row.topic_id, row.partition) for row in rows])
    return done


def without_written_states(seed: int) -> str | None:
    """Run a share group whose states are not stored."""
    with patch.object(StatePersister, "ask", written_nowhere):
        return run(seed, STEPS, sharers=3).violation


def test_states_of_share_groups_that_are_not_stored_are_noticed(pool: ProcessPoolExecutor) -> None:
    found = in_turn(pool, without_written_states, range(4))
    assert any("delivered again" in (each or "") for each in found)
