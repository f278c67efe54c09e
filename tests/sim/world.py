"""One run of the simulation: a cluster, its clients, the faults, and the verdict."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import Counter
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from kwire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from server.coordination.embedded import EmbeddedTree
from server.metadata.topic_partition import TopicPartition
from server.net.broker_channel import ChannelError

from .clients import Client, Consumer, Producer
from .compacted import TP as COMPACTED
from .compacted import Keeper, compacted_topic
from .history import History, Violation
from .loop import SimulatedClock, SimulatedLoop
from .members import SETTINGS as GROUP_SETTINGS
from .members import GroupMember, Views
from .network import Network
from .node import SimulatedNode
from .sharers import SETTINGS as SHARE_SETTINGS
from .sharers import Deliveries, Sharer
from .tasks import owned_tasks
from .transactions import Transactor
from .zookeeper import ZOOKEEPER, SimulatedStore

logger = logging.getLogger(__name__)

BROKERS = (0, 1, 2)
#: A little more than a follower waits for an answer on a cut connection
#: (replica.socket.timeout.ms).
CATCH_UP_S = 40
SESSION_TIMEOUT_MS = 3000
SETTINGS = {
    "num.partitions": "1",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "200",
    "replica.fetch.backoff.ms": "100",
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "log.segment.bytes": "20000",
    "auto.leader.rebalance.enable": "false",
    # Enough work for compaction in a minute of cluster time.
    "offsets.topic.segment.bytes": "4000",
    "transaction.state.log.segment.bytes": "4000",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "log.cleaner.dedupe.buffer.size": "1100000",
}
#: The possible faults and repairs in a step, each with a likelihood proportional to its number of entries.
KINDS = (
    "kill", "power", "restart", "restart", "stop", "cut", "cut zookeeper", "join", "join",
    "expire", "clock", "loss", "suspect", "suspect", "calm", "calm",
)  # fmt: skip
FAULTS = tuple(dict.fromkeys(KINDS))
TOPIC = "t"
PARTITIONS = 2


class Outcome(NamedTuple):
    """The outcome of a run."""

    seed: int
    faults: Counter[str]
    acknowledged: int
    committed: int
    checks: int
    simulated_s: float
    violation: str | None


class World:
    """The whole simulation, on one loop."""

    def __init__(self, seed: int, steps: int, members: int = 0, sharers: int = 0) -> None:
        self.seed = seed
        self.members = members
        self.views = Views()
        self.sharers = sharers
        self.deliveries = Deliveries()
        self.steps = steps
        self.rng = Random(seed)
        self.history = History()
        self.faults: Counter[str] = Counter()
        self.nodes: dict[int, SimulatedNode] = {}
        self.stores: list[SimulatedStore] = []

    async def build(self) -> None:
        """Start three brokers and create a topic."""
        loop = asyncio.get_running_loop()
        self.network = Network(Random(self.rng.random()))
        self.tree = await EmbeddedTree.open(None, SimulatedClock(loop))
        for number in BROKERS:
            self.nodes[number] = SimulatedNode(
                number,
                Random(self.rng.random()),
                self.network,
                self._open_store,
                {
                    **SETTINGS,
                    **(GROUP_SETTINGS if self.members else {}),
                    **(SHARE_SETTINGS if self.sharers else {}),
                },
            )
        for node in self.nodes.values():
            node.start()
        admin = Client(900, self.network, list(BROKERS), Random(self.seed), self.history)
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=PARTITIONS,
            replication_factor=3,
            configs=[CreatableTopicConfig(name="min.insync.replicas", value="2")],
        )
        async with asyncio.timeout(120):
            while True:
                request = CreateTopicsRequest(topics=[topic, compacted_topic()], timeout_ms=10_000)
                try:
                    answer = await admin.ask(self.rng.choice(BROKERS), request, 7)
                    if all(each.error_code in (0, 36) for each in answer.topics):
                        break
                except ChannelError:
                    pass
                await admin.pause()
            while len(admin.leaders) < PARTITIONS + 1 or -1 in admin.leaders.values():
                await admin.refresh()
                await admin.pause()

    def _open_store(self, node_id: int) -> SimulatedStore:
        store = SimulatedStore(
            self.tree, self.network, Random(self.rng.random()), node_id, SESSION_TIMEOUT_MS
        )
        self.stores.append(store)
        return store

    # A run

    async def run(self) -> None:
        """Let clients work during faults, then repair everything and check the result."""
        await self.build()
        tps = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        arguments = (self.network, list(BROKERS))
        clients: list[Any] = [
            Producer(1, *arguments, Random(self.rng.random()), self.history, tps=tps),
            Producer(2, *arguments, Random(self.rng.random()), self.history, tps=tps[:1]),
            Consumer(3, *arguments, Random(self.rng.random()), self.history, tp=tps[0], group="g"),
            Transactor(
                4, *arguments, Random(self.rng.random()), self.history, tps=tps, name="x", group="x"
            ),
            Keeper(5, *arguments, Random(self.rng.random()), self.history, tps=[COMPACTED]),
        ]
        clients += (
            GroupMember(
                10 + number,
                *arguments,
                Random(self.rng.random()),
                self.history,
                views=self.views,
                tps=tps,
                real_coordinator=self._coordinator,
            )
            for number in range(self.members)
        )
        clients += (
            Sharer(
                20 + number,
                *arguments,
                Random(self.rng.random()),
                self.history,
                deliveries=self.deliveries,
                tps=tps,
            )
            for number in range(self.sharers)
        )
        running = [asyncio.create_task(client.run()) for client in clients]
        watching = asyncio.create_task(self._watch())
        try:
            for _ in range(self.steps):
                await asyncio.sleep(self.rng.random() * 1.5)
                await self._step()
                self._raise_failed([*running, watching])
            await self._heal()
            for client in clients:
                client.stopping = True
            async with asyncio.timeout(120):
                await asyncio.gather(*running)
                await asyncio.gather(
                    *(each.verify() for each in clients if isinstance(each, GroupMember | Sharer))
                )
                for client in clients:
                    if not isinstance(client, GroupMember | Sharer):
                        await client.verify()
            await asyncio.sleep(3)
            self.check()
            for client in clients:
                client.judge()
            self.history.check_acknowledged()
            self.history.check_unique()
            await self._check_replicas(tps)
            self._raise_failed([watching])
        except TimeoutError as error:
            raise Violation("clients get no answer although everything is well again") from error
        finally:
            for task in (*running, watching):
                task.cancel()
            await asyncio.gather(*running, watching, return_exceptions=True)

    def _raise_failed(self, tasks: list[asyncio.Task[Any]]) -> None:
        for task in tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise task.exception()  # type: ignore[misc]

    def _coordinator(self) -> int:
        """The broker that leads the groups' partition in the newest epoch; -1 if there is none."""
        led = [
            (partition.state.leader_epoch, node.id)
            for node in self.nodes.values()
            if node.broker is not None and node.broker.rooms is not None
            for partition in node.broker.rooms.replica_manager
            if partition.tp.topic == "__consumer_offsets" and partition.is_leader
        ]
        return max(led, default=(-1, -1))[1]

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            self.check()

    def check(self) -> None:
        """Check every current leader."""
        for node in self.nodes.values():
            broker = node.broker
            if broker is None or broker.rooms is None:
                continue
            for partition in broker.rooms.replica_manager:
                if partition.tp.topic == TOPIC:
                    self.history.check_leader(node.id, node.life, partition)

    async def _check_replicas(self, tps: list[TopicPartition]) -> None:
        """Check that all replicas become equal once faults are over and no answer is outstanding."""
        for tp in tps:
            for _ in range(CATCH_UP_S):
                ends = {node.id: self._end_of(node, tp) for node in self.nodes.values()}
                if len(set(ends.values())) == 1:
                    break
                await asyncio.sleep(1)
            else:
                raise Violation(f"{tp}: the replicas end at {ends} after everything was well")

    def _end_of(self, node: Any, tp: TopicPartition) -> int:
        assert node.broker is not None
        partition = node.broker.rooms.replica_manager.get(*tp)
        assert partition is not None
        end: int = partition.log.log_end_offset
        return end

    # Faults

    async def _step(self) -> None:
        kind = self.rng.choice(KINDS)
        node = self.nodes[self.rng.choice(BROKERS)]
        match kind:
            case "kill" | "power" if node.is_up and self._up() > 1:
                if kind == "power" and self.rng.random() < 0.7:
                    return
                power = kind == "power" and self._others_in_sync(node.id)
                node.kill(power=power)
                if power:
                    # Until it has left the in-sync replicas, it must not be the only one of them:
                    # acks=all promises that several machines have a record, not that a disk has it.
                    self.network.cut.clear()
                    await asyncio.sleep(SESSION_TIMEOUT_MS / 1000 + 3)
            case "stop" if node.is_up and self._up() == 3 and self._is_started(node):
                try:
                    await asyncio.wait_for(node.stop(), 60)
                except TimeoutError as error:
                    raise Violation(f"broker {node.id} does not stop") from error
            case "restart":
                down = [each for each in self.nodes.values() if not each.is_up]
                if not down:
                    return
                self.rng.choice(down).start()
            case "cut":
                self.network.cut.add(frozenset(self.rng.sample(BROKERS, 2)))
            case "cut zookeeper":
                self.network.cut.add(frozenset((node.id, ZOOKEEPER)))
            case "join":
                if not self.network.cut:
                    return
                self.network.cut.discard(
                    self.rng.choice(sorted(self.network.cut, key=lambda pair: sorted(pair)))
                )
            case "expire" if node.is_up and node.store is not None:
                await node.store.expire()
            case "suspect":
                self._suspect(node)
            case "clock":
                node.clock.skew_ms = self.rng.randint(-600_000, 600_000)
            case "loss":
                self.network.loss = self.rng.choice((0.0, 0.0, 0.02, 0.1))
            case "calm":
                await asyncio.sleep(self.rng.random() * 5)
            case _:
                return
        self.faults[kind] += 1
        logger.info(
            "%.2f s: %s (broker %d if of one)", asyncio.get_running_loop().time(), kind, node.id
        )

    def _suspect(self, node: SimulatedNode) -> None:
        """Make a broker believe that another's port refuses connections, or no longer does."""
        if node.broker is None or node.broker.rooms is None:
            return
        controller = node.broker.rooms.controller
        other = self.rng.choice([number for number in BROKERS if number != node.id])
        if self.rng.random() < 0.5:
            controller.peer_lost(other)
        else:
            controller.peer_found(other)

    def _up(self) -> int:
        return sum(node.is_up for node in self.nodes.values())

    def _is_started(self, node: SimulatedNode) -> bool:
        return node._task is not None and node._task.done()

    def _others_in_sync(self, node_id: int) -> bool:
        """Whether a power cut here loses nothing, because other replicas have the records in memory."""
        states = [
            json.loads(node.data or b"{}")
            for path, node in self.tree.tree.nodes.items()
            if path.endswith("/state")
        ]
        return all(len(set(state["isr"]) - {node_id}) >= 2 for state in states)

    async def _heal(self) -> None:
        self.network.cut.clear()
        self.network.loss = 0.0
        for node in self.nodes.values():
            node.clock.skew_ms = 0
            if not node.is_up:
                node.start()
            elif node.broker.rooms is not None:
                for number in BROKERS:
                    node.broker.rooms.controller.peer_found(number)
        for _ in range(20):
            await asyncio.sleep(1.5)
            for node in self.nodes.values():
                if not node.is_up:  # it gave up because its old session had not ended
                    node.start()
            if self._is_well():
                return

    def _is_well(self) -> bool:
        """Whether every partition has a leader with all replicas in sync."""
        led = set()
        for node in self.nodes.values():
            if not self._is_started(node) or node.broker is None:
                return False
            for partition in node.broker.rooms.replica_manager:
                if partition.is_leader:
                    if len(partition.isr.isr) < len(BROKERS):
                        return False
                    led.add(partition.tp)
        return all(TopicPartition(TOPIC, number) in led for number in range(PARTITIONS))


def run(seed: int, steps: int = 20, members: int = 0, sharers: int = 0) -> Outcome:
    """Run one seed from beginning to end, perhaps with members of a consumer group or of a share group.

    Shape: a violation is in the outcome.
    """
    loop = SimulatedLoop()
    loop.set_task_factory(owned_tasks)
    world = World(seed, steps, members, sharers)
    violation = None
    random.seed(seed)  # ids of fetch sessions
    try:
        with patch("os.urandom", Random(seed).randbytes):  # ids of topics
            loop.run_until_complete(world.run())
    except Violation as error:
        violation = str(error)
    finally:
        loop.run_until_complete(end_all())
        simulated_s = loop.time()
        loop.close()
    return Outcome(
        seed,
        world.faults,
        len(world.history.acknowledged),
        sum(each.end for each in world.history.partitions.values()),
        world.history.checks + world.views.checks,
        simulated_s,
        violation,
    )


async def end_all() -> None:
    """Cancel every task."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
