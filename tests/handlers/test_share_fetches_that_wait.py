"""Waiting ShareFetch requests, with all other events between their steps.

The next step is chosen at random: on a busy broker, other steps come between any two of them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Generator
from typing import Any

import pytest

from server.share.acknowledgement import RELEASE, Acknowledged
from server.share.acquisition import AcquireLimits
from server.share.led import Rows, ShareFetchParams, WaitingShareFetch
from server.share.states import ACQUIRED
from tests.support.replicas import Replicas, topic_id, turns

from .shares import GROUP, Shares, on_loop

TOPICS = ("a", "b", "c")
ASKED = [((topic_id(name), 0), name) for name in TOPICS]
LIMITS = AcquireLimits(500, 500)
NEVER_MS = 10_000_000

Got = set[tuple[str, bytes, int]]


class AnyOrder:
    """Work in steps that the test chooses; a replacement for `Turns` for callers that only run work."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.works: list[Generator[None, None, Any]] = []

    def run(self, steps: Generator[None, None, Any], owner: object = None) -> None:
        self.works.append(steps)

    def step(self) -> None:
        """Do a step of any work."""
        if self.works:
            work = self.rng.choice(self.works)
            try:
                next(work)
            except StopIteration:
                self.works.remove(work)


class Scene:
    """Members that fetch all topics at once, and the records that they have."""

    def __init__(self, room: Replicas, rng: random.Random) -> None:
        self.rng = rng
        self.order = AnyOrder(rng)
        self.shares = Shares(room, turns=self.order)
        self.manager = self.shares.manager
        self.waiting: list[WaitingShareFetch] = []
        self.got: Got = set()
        self.members = 0

    def note(self, member: str, rows: Rows) -> None:
        for (id_, _), row in rows.items():
            for each in row.acquired_records:
                for offset in range(each.first_offset, each.last_offset + 1):
                    assert (member, id_, offset) not in self.got
                    self.got.add((member, id_, offset))

    def fetch(self) -> None:
        """Let another member fetch."""
        self.members += 1
        params = ShareFetchParams(f"member-{self.members}", NEVER_MS, 1, 1 << 20, LIMITS)

        def steps() -> Generator[None, None, None]:
            found = yield from self.manager.fetch(GROUP, params, ASKED)
            if isinstance(found, WaitingShareFetch):
                self.waiting.append(found)
            else:
                self.note(params.member_id, found)

        self.order.run(steps())

    def produce(self) -> None:
        self.shares.room.produce(self.rng.choice(TOPICS), b"v")

    def release(self) -> None:
        """Let a member release its records of one topic."""
        if not self.got:
            return
        member, id_, _ = self.rng.choice(sorted(self.got))
        mine = sorted(each for each in self.got if each[:2] == (member, id_))
        self.got.difference_update(mine)
        batches = [Acknowledged(offset, offset, (RELEASE,)) for _, _, offset in mine]
        self.order.run(self.manager.acknowledge(GROUP, member, (id_, 0), batches))

    def time_out(self) -> None:
        if self.waiting:
            waiting = self.rng.choice(self.waiting)
            if not waiting.is_done:
                self.manager._time_out(waiting)

    def go(self) -> None:
        """End the connection of a waiting member."""
        if self.waiting:
            self.rng.choice(self.waiting).end()

    def collect(self) -> None:
        """Take the answers that are there."""
        for each in list(self.waiting):
            if each.is_done:
                self.waiting.remove(each)
                assert each.future is not None
                if not each.future.cancelled():
                    self.note(each.params.member_id, each.future.result())

    async def rest(self) -> None:
        """Do all the work that is left."""
        for _ in range(20):
            while self.order.works:
                self.order.step()
            await turns()
        self.collect()

    def acquired(self) -> Got:
        """The acquired records of the share partitions."""
        return {
            (run.member_id, led.key.topic_id, offset)
            for led in self.manager.led.values()
            if led.machine is not None
            for batch in led.machine.batches
            for run in batch.runs
            if run.state == ACQUIRED
            for offset in range(run.first, run.last + 1)
        }


@pytest.mark.parametrize("seed", range(60))
@on_loop
async def test_what_is_acquired_is_answered_and_nobody_waits_beside_it(
    room: Replicas, seed: int
) -> None:
    """Each record belongs to the member that got it in an answer, and no fetch waits while records are available."""
    scene = Scene(room, random.Random(seed))
    scene.shares.consumed(*TOPICS)
    actions = [scene.produce, scene.fetch, scene.release, scene.time_out, scene.go]
    weights = [4, 4, 2, 2, 1]
    for _ in range(12):
        for action in scene.rng.choices(actions, weights, k=scene.rng.randint(1, 3)):
            action()
        for _ in range(scene.rng.randint(0, 40)):
            scene.order.step()
            if scene.rng.random() < 0.2:
                await asyncio.sleep(0)
        scene.collect()
    await scene.rest()
    assert scene.acquired() == scene.got
    for waiting in scene.waiting:
        assert not [led.key for led in waiting.held if scene.manager._has_some(led)]
    for waiting in scene.waiting:
        waiting.end()
