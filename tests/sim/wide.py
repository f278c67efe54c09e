"""`python -m tests.sim.wide`: the simulation with faults of machines and actions of administrators.

Brokers are paused (they stand still while the network continues), log directories fail on running brokers, replicas are moved
between brokers and between the log directories of one broker, leaders are elected, min.insync.replicas is changed, and a second
topic is deleted and created again all the time. The invariants are the same as in the other runs.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextvars import Context, copy_context
from functools import partial
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

from kwire.errors import ErrorCode
from kwire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kwire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kwire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kwire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire.messages.delete_topics import DeleteTopicsRequest
from kwire.messages.elect_leaders import ElectLeadersRequest
from kwire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kwire.messages.metadata import MetadataRequest
from server.metadata.topic_partition import TopicPartition
from server.net.broker_channel import ChannelError
from tests.log.faults.disk import Fault

from . import world
from .clients import Client
from .history import Violation
from .loop import SimulatedLoop
from .node import FOLDER
from .tasks import OWNER, owned_tasks
from .world import BROKERS, PARTITIONS, TOPIC, Outcome, World, end_all
from .zookeeper import ZOOKEEPER

logger = logging.getLogger(__name__)

MORE = (
    *("pause", "pause", "directory", "move", "move", "elect", "minimum", "remake", "grow"),
    *("other directory", "other directory", "other directory"),
)
SECOND = "u"
DIRECTORIES = (f"{FOLDER}/a", f"{FOLDER}/b")
TOPIC_RESOURCE = 2
INVALID_PARTITIONS = 37


class PausableLoop(SimulatedLoop):
    """A loop on which everything that belongs to one broker can be paused."""

    def __init__(self) -> None:
        super().__init__()
        #: Paused node -> the callbacks that became due, in order, each with its timer.
        self.held: dict[int, list[tuple[asyncio.TimerHandle | None, asyncio.Handle]]] = {}

    def pause(self, node_id: int) -> None:
        """Run no more callbacks of a node."""
        self.held[node_id] = []

    def resume(self, node_id: int) -> None:
        """Run the callbacks that became due in the meantime, in order."""
        for timer, handle in self.held.pop(node_id, ()):
            if not handle.cancelled() and (timer is None or not timer.cancelled()):
                self._ready.append(handle)  # type: ignore[attr-defined]

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """As of any loop."""
        held = self.held.get(node_of(context)) if self.held else None
        if held is None:
            return super().call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        held.append((None, handle))
        return handle

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As of any loop."""
        node_id = node_of(context)
        if node_id is None:
            return super().call_at(when, callback, *args, context=context)
        context = context or copy_context()
        cell: list[asyncio.TimerHandle] = []
        timer = super().call_at(
            when, self._due, node_id, cell, callback, args, context, context=context
        )
        cell.append(timer)
        return timer

    def _due(
        self,
        node_id: int,
        cell: list[asyncio.TimerHandle],
        callback: Callable[..., Any],
        args: Any,
        context: Context,
    ) -> None:
        held = self.held.get(node_id)
        if held is None:
            callback(*args)
        else:
            held.append((cell[0], asyncio.Handle(callback, args, self, context)))


def node_of(context: Context | None) -> int | None:
    """The node that a callback belongs to."""
    owner = OWNER.get() if context is None else context.get(OWNER)
    return None if owner is None else owner[0]


class WideWorld(World):
    """The world with more kinds of faults."""

    loop: PausableLoop

    async def build(self) -> None:
        """As in World, with an administrator."""
        await super().build()
        self.admin = Client(901, self.network, list(BROKERS), self.rng, self.history)
        self.chores: set[asyncio.Task[None]] = set()

    async def _step(self) -> None:
        if self.rng.random() < 0.5:
            await super()._step()
            return
        kind = self.rng.choice(MORE)
        node = self.nodes[self.rng.choice(BROKERS)]
        match kind:
            case "pause" if node.is_up and self._is_started(node):
                await self._pause(node.id)
            case "directory" if node.is_up and node.files is not None and not node.files.fault:
                if not self._others_in_sync(node.id):
                    return
                node.files.fault = Fault(
                    self.rng.choice(("EIO", "ENOSPC")), 1, prefix=self.rng.choice(DIRECTORIES)
                )
            case "move":
                replicas = self.rng.sample(BROKERS, self.rng.choice((2, 3)))
                number = self.rng.randrange(PARTITIONS)
                self._chore(partial(self._move, number, replicas))
            case "other directory" if node.is_up:
                opened = None if node.broker is None else node.broker.opened
                logs = [] if opened is None else opened.log_manager.logs()
                if not logs:
                    return
                moved = self.rng.choice(sorted(logs, key=lambda log: log.tp))
                path = self.rng.choice(DIRECTORIES)
                self._chore(partial(self._change_directory, node.id, moved.tp, path))
            case "elect":
                self._chore(self._elect)
            case "minimum":
                value = self.rng.choice(("1", "2", "2"))
                self._chore(partial(self._set_minimum, value))
            case "remake":
                self._chore(self._remake)
            case "grow":
                self._chore(self._grow)
            case _:
                return
        self.faults[kind] += 1
        logger.info("%.2f s: %s (broker %d if of one)", self.loop.time(), kind, node.id)

    async def _pause(self, node_id: int) -> None:
        lost = frozenset((node_id, ZOOKEEPER))
        was_lost = lost in self.network.cut
        self.network.cut.add(lost)
        self.loop.pause(node_id)
        try:
            await asyncio.sleep(self.rng.choice((0.3, 1.0, 2.5, 4.0, 8.0)) * self.rng.random())
        finally:
            if not was_lost:
                self.network.cut.discard(lost)
            self.loop.resume(node_id)

    def _chore(self, work: Callable[[], Any]) -> None:
        task = asyncio.get_running_loop().create_task(self._try(work))
        self.chores.add(task)
        task.add_done_callback(self.chores.discard)

    async def _try(self, work: Callable[[], Any]) -> None:
        try:
            async with asyncio.timeout(20):
                await work()
        except (ChannelError, TimeoutError):
            pass

    async def _controller(self) -> int:
        answer = await self.admin.ask(self.rng.choice(BROKERS), MetadataRequest(topics=[]), 12)
        return int(answer.controller_id) if answer.controller_id >= 0 else BROKERS[0]

    async def _move(self, number: int, replicas: list[int]) -> int:
        row = ReassignablePartition(partition_index=number, replicas=replicas)
        topic = ReassignableTopic(name=TOPIC, partitions=[row])
        request = AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=5000)
        answer = await self.admin.ask(await self._controller(), request, 0)
        return int(answer.error_code or answer.responses[0].partitions[0].error_code)

    async def _change_directory(self, node_id: int, tp: TopicPartition, path: str) -> None:
        row = AlterReplicaLogDirTopic(name=tp.topic, partitions=[tp.partition])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[row])])
        await self.admin.ask(node_id, request, 2)

    def _copies(self) -> int:
        """The number of replicas that are still being moved to another directory."""
        opened = [node.broker.opened for node in self.nodes.values() if node.broker is not None]
        return sum(len(each.log_manager.futures()) for each in opened if each is not None)

    async def _elect(self) -> None:
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=5000)
        await self.admin.ask(await self._controller(), request, 2)

    async def _set_minimum(self, value: str) -> int:
        config = AlterableConfig(name="min.insync.replicas", config_operation=0, value=value)
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = await self.admin.ask(self.rng.choice(BROKERS), request, 1)
        return int(answer.responses[0].error_code)

    async def _remake(self) -> None:
        request = DeleteTopicsRequest(topic_names=[SECOND], timeout_ms=3000)
        await self.admin.ask(await self._controller(), request, 5)
        await self._make()

    async def _make(self) -> int:
        topic = CreatableTopic(name=SECOND, num_partitions=3, replication_factor=3)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=3000)
        answer = await self.admin.ask(await self._controller(), request, 7)
        return int(answer.topics[0].error_code)

    async def _grow(self) -> None:
        topic = CreatePartitionsTopic(name=SECOND, count=self.rng.randint(4, 6))
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=3000)
        await self.admin.ask(await self._controller(), request, 3)

    # The end

    async def _heal(self) -> None:
        self.network.cut.clear()
        self.network.loss = 0.0
        for node in self.nodes.values():
            if node.is_up and node.files is not None and node.files.fault is not None:
                node.kill()  # an operator replaces the disk
        for task in list(self.chores):
            task.cancel()
        await super()._heal()
        await self._insist("set min.insync.replicas", lambda: self._set_minimum("2"), 0)
        for number in range(PARTITIONS):
            work = partial(self._move, number, list(BROKERS))
            await self._insist("move replicas back", work, 0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        await self._insist("make the second topic", self._make, 0, ErrorCode.TOPIC_ALREADY_EXISTS)
        await self._insist("end the moves", self._moving, 0)
        for _ in range(40):
            if self._is_well() and not self._copies():
                return
            await asyncio.sleep(1)
        raise Violation(f"not well 40 s after everything was put right: {self._ills()}")

    def _ills(self) -> list[str]:
        ills = [
            f"broker {node.id}: {partition}, {partition.isr}"
            for node in self.nodes.values()
            if node.broker is not None
            for partition in node.broker.rooms.replica_manager
            if partition.is_leader and len(partition.isr.isr) < len(BROKERS)
        ]
        return [*ills, f"{self._copies()} replicas are between directories"]

    async def _moving(self) -> int:
        request = ListPartitionReassignmentsRequest(topics=None, timeout_ms=5000)
        answer = await self.admin.ask(await self._controller(), request, 0)
        return int(answer.error_code or len(answer.topics))

    async def _insist(self, what: str, work: Callable[[], Any], *right: int) -> None:
        found: object = None
        for _ in range(100):
            try:
                found = await work()
                if found in right:
                    return
            except ChannelError as error:
                found = error
            await asyncio.sleep(0.5)
        raise Violation(f"cannot {what} although all is well: {found}")


def run(seed: int, steps: int) -> Outcome:
    """Run one seed from beginning to end; a violation is in the outcome."""
    loop = PausableLoop()
    loop.set_task_factory(owned_tasks)
    simulated = WideWorld(seed, steps)
    simulated.loop = loop
    violation = None
    random.seed(seed)
    two = {"log.dirs": ",".join(DIRECTORIES)}
    try:
        with (
            patch("os.urandom", random.Random(seed).randbytes),
            patch.dict(world.SETTINGS, two),
        ):
            loop.run_until_complete(simulated.run())
    except Violation as error:
        violation = str(error)
    finally:
        for node_id in BROKERS:
            loop.resume(node_id)
        loop.run_until_complete(end_all())
        simulated_s = loop.time()
        loop.close()
    history = simulated.history
    return Outcome(
        seed,
        simulated.faults,
        len(history.acknowledged),
        sum(each.end for each in history.partitions.values()),
        history.checks,
        simulated_s,
        violation,
    )


def outcome_of(seed: int, steps: int) -> Outcome:
    """Run one seed without logging."""
    logging.disable(logging.CRITICAL)
    return run(seed, steps)


def main() -> int:
    """See the module."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.sim.wide", *sys.argv[1:]])
    parser = argparse.ArgumentParser(prog="python -m tests.sim.wide", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="number of seeds (default 100)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seed", type=int, help="replay this seed and show the brokers' logs")
    parser.add_argument("--steps", type=int, default=20, help="faults in each run (default 20)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    options = parser.parse_args()
    if options.seed is not None:
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
        outcome = run(options.seed, options.steps)
        print(outcome)
        return int(outcome.violation is not None)
    faults: Counter[str] = Counter()
    violations = acknowledged = 0
    seeds = range(options.first, options.first + options.seeds)
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        for outcome in pool.map(partial(outcome_of, steps=options.steps), seeds):
            faults.update(outcome.faults)
            acknowledged += outcome.acknowledged
            if outcome.violation is not None:
                violations += 1
                print(f"seed {outcome.seed}: {outcome.violation}", flush=True)
    for name, count in sorted(faults.items()):
        print(f"| faults: {name} | {count:,} |")
    print(f"| seeds run | {options.seeds:,} |")
    print(f"| records acknowledged | {acknowledged:,} |")
    print(f"| violations | {violations:,} |")
    return int(violations > 0)


if __name__ == "__main__":
    sys.exit(main())
