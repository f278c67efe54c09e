"""A lock in a storage without locks: one holder at a time, through deaths, pauses and races; without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kwire.pipeline.leases import LEASE_S, RENEWAL_S, Lease
from kwire.pipeline.problems import Problem
from kwire.pipeline.storage import HadoopStorage, LocalStorage

NAME = "_locks/archive.lock"


class Site:
    """A storage, a clock for all machines, and the holder that renews while others wait."""

    def __init__(self, folder: Path) -> None:
        self.files = LocalStorage(str(folder))
        self.now_s = 0.0
        self.alive: list[Lease] = []

    def lease(self) -> Lease:
        return Lease(self.files, NAME, now=lambda: self.now_s, pause=self.wait)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        for lease in self.alive:
            lease.renew()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_second_is_refused_as_soon_as_the_first_renews(site: Site) -> None:
    first, second = site.lease(), site.lease()
    assert first.take()
    site.alive = [first]
    told: list[str] = []
    assert not second.take(told.append)
    assert site.now_s == RENEWAL_S
    assert "process" in told[0]
    first.check()


def test_holder_that_died_is_followed_after_a_lease(site: Site) -> None:
    first, second = site.lease(), site.lease()
    assert first.take()
    assert second.take()
    assert site.now_s == LEASE_S
    # It only slept, and must not continue.
    with pytest.raises(Problem, match="was not renewed for 30 s"):
        first.check()
    with pytest.raises(Problem):
        first.renew()
    first.give_back()
    second.renew()
    second.check()


def test_lock_that_was_given_back_is_free_at_once(site: Site) -> None:
    for _ in range(3):
        lease = site.lease()
        assert lease.take()
        lease.renew()
        lease.give_back()
    assert site.now_s == 0
    assert len(site.files.list("_locks")) == 1


def test_one_given_back_while_another_waits_is_taken(site: Site) -> None:
    first, second = site.lease(), site.lease()
    assert first.take()
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        first.give_back()

    second._pause = pause
    assert second.take()
    assert pauses == [RENEWAL_S]


def test_of_two_that_wait_for_a_dead_holder_one_wins(site: Site) -> None:
    dead, one, other = site.lease(), site.lease(), site.lease()
    assert dead.take()
    won: list[bool] = []
    clock = [0.0]

    def others_pause(seconds: float) -> None:
        clock[0] += seconds

    other._now, other._pause = lambda: clock[0], others_pause

    def pause(seconds: float) -> None:
        site.now_s += seconds
        if site.now_s == LEASE_S:
            # Before one creates the next number.
            won.append(other.take())

    one._pause = pause
    won.append(one.take())
    assert won == [True, False]


def test_late_writer_of_an_old_number_holds_nothing(site: Site) -> None:
    # It checked, slept, and the number that it then creates has been used and removed in the meantime.
    late = site.lease()
    create = site.files.create
    holder = site.lease()

    def after_others(name: str, data: bytes) -> bool:
        site.files.create = create  # type: ignore[method-assign]
        before = site.lease()
        assert before.take()
        before.give_back()
        assert holder.take()
        return create(name, data)

    site.files.create = after_others  # type: ignore[method-assign]
    assert not late.take()
    holder.renew()


def test_holder_notices_that_its_number_was_passed(site: Site) -> None:
    first = site.lease()
    assert first.take()
    site.files.create(f"{NAME}.{2:020d}", b"{}")
    with pytest.raises(Problem, match="another job may hold it"):
        first.renew()


@pytest.mark.parametrize("is_written", [False, True])
def test_renewal_that_fails_once_costs_nothing(site: Site, is_written: bool) -> None:
    """A storage that does not answer may have done what it was asked for, or not."""
    lease = site.lease()
    assert lease.take()
    replace = site.files.replace

    def failing(name: str, data: bytes) -> None:
        site.files.replace = replace  # type: ignore[method-assign]
        if is_written:
            replace(name, data)
        raise OSError("no answer")

    site.files.replace = failing  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no answer"):
        lease.renew()
    site.now_s += RENEWAL_S
    lease.renew()
    site.now_s += RENEWAL_S
    lease.check()
    site.alive = [lease]
    assert not site.lease().take()


def test_job_that_fails_lets_the_next_one_begin_at_once(tmp_path: Path) -> None:
    files: Any = LocalStorage(str(tmp_path))
    files._waits = None
    with pytest.raises(Problem), HadoopStorage.hold(files, NAME) as held:
        assert held is not None
        raise Problem("the topic is gone")
    (item,) = files.list("_locks")
    assert files.read(f"_locks/{item.name}") == b"{}"
