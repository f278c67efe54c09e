"""Random histories: in any order of events, leaders are safe and epochs only increase."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.messages.alter_partition import AlterPartitionRequestPartitionData, BrokerState
from server.controller.alter_partition import Unchanged, decide
from server.controller.context import online_replicas
from server.controller.election import (
    Electorate,
    after_change,
    elect_for_reassignment,
    elect_for_shutdown,
    elect_preferred,
    initial_state,
    reassignment_step,
)
from server.controller.leadership import PREFERRED
from server.controller.reassignment import (
    assignment_of,
    is_complete,
    is_reassigning,
    origin_of,
    plan_reassignment,
    reassigned,
    target_of,
)
from server.controller.refusal import ControllerRefusal
from server.coordination.paths import LeaderAndIsr, ReplicaAssignment
from server.metadata.image import NO_LEADER, PartitionImage
from server.metadata.topic_partition import TopicPartition
from tests.coordination.conftest import stores
from tests.support.cpu_time import cpu_time

from .members import Member, Network, join, new_topic
from .test_cluster import alter

LONG = bool(os.environ.get("KWIRE_LONG"))
BROKERS = (1, 2, 3, 4)
EPOCH = 7


class History:
    """One partition under the rules, without network and store.

    `last` are the replicas that were in sync when there last was a leader; they may lead without
    losing records.
    """

    def __init__(self, replicas: Sequence[int]) -> None:
        self.alive = set(BROKERS)
        self.stopping: set[int] = set()
        self.assignment = ReplicaAssignment(tuple(replicas))
        first = initial_state(replicas, self.alive, EPOCH)
        assert first is not None
        self.state = first

    @property
    def online(self) -> set[int]:
        return self.alive - self.stopping

    def take(self, state: LeaderAndIsr | None) -> None:
        if state is None:
            return
        before = self.state
        # The store assigns the next partition epoch.
        self.state = state._replace(partition_epoch=before.partition_epoch + 1)
        assert state.leader_epoch >= before.leader_epoch
        if state.leader != before.leader:
            assert state.leader_epoch > before.leader_epoch
        if state.leader not in (NO_LEADER, before.leader):
            assert state.leader in before.isr, "only a replica in sync may begin to lead"
            assert state.leader in self.online
        self.check()

    def check(self) -> None:
        state = self.state
        assert state.isr, "somebody has all records"
        assert set(state.isr) <= set(self.assignment.replicas)
        assert len(set(state.isr)) == len(state.isr)
        if state.leader != NO_LEADER:
            assert state.leader in state.isr
            assert state.leader in self.alive

    def settle(self) -> None:
        electorate = Electorate(self.online, self.alive & self.stopping)
        self.take(after_change(self.state, self.assignment.replicas, electorate, EPOCH))
        self.finish()

    # events

    def die(self, broker: int) -> None:
        self.alive.discard(broker)
        self.stopping.discard(broker)
        electorate = Electorate(self.online, self.alive & self.stopping)
        self.take(after_change(self.state, self.assignment.replicas, electorate, EPOCH))
        self.finish()

    def come(self, broker: int) -> None:
        self.alive.add(broker)
        self.settle()

    def stop(self, broker: int) -> None:
        if broker in self.alive:
            self.stopping.add(broker)
            if len(self.assignment.replicas) > 1 and broker in self.assignment.replicas:
                replicas = self.assignment.replicas
                self.take(elect_for_shutdown(self.state, replicas, self.online, EPOCH))

    def propose(self, isr: Sequence[int], old: bool) -> None:
        """The leader proposes in-sync replicas, perhaps from outdated state."""
        state = self.state
        if state.leader == NO_LEADER:
            return
        wanted = tuple(dict.fromkeys((state.leader, *isr)))
        asked = AlterPartitionRequestPartitionData(
            partition_index=0,
            leader_epoch=state.leader_epoch - old,
            partition_epoch=state.partition_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=each) for each in wanted],
        )
        online = dict.fromkeys(self.online, 1)
        decided = decide(state.leader, asked, 3, self.partition(), online, EPOCH)
        if isinstance(decided, LeaderAndIsr):
            assert not old
            assert decided.leader_epoch == state.leader_epoch
            self.take(decided)
            self.finish()
        elif not isinstance(decided, Unchanged):
            assert decided.value > 0

    def prefer(self) -> None:
        if self.assignment.replicas[0] != self.state.leader:
            replicas = self.assignment.replicas
            self.take(elect_preferred(self.state, replicas, self.online, EPOCH))

    def move(self, target: Sequence[int] | None) -> None:
        if target is None:
            if not is_reassigning(self.assignment):
                return
            target = origin_of(self.assignment)
        elif not target or not set(target) <= self.online:
            return
        plan = reassigned(self.assignment, target)
        if not set(self.state.isr) & set(plan.replicas):
            return  # refused
        if is_reassigning(plan):
            before, self.assignment = self.assignment, plan
            step = reassignment_step(self.state, plan.replicas, self.online, EPOCH)
            assert step is not None, before
            self.take(step)
        elif self._end(plan):
            return
        self.finish()

    def finish(self) -> None:
        if is_reassigning(self.assignment) and is_complete(self.assignment, self.state.isr):
            self._end(self.assignment)

    def _end(self, plan: ReplicaAssignment) -> bool:
        target = target_of(plan)
        online = [each for each in target if each in self.online]
        state = elect_for_reassignment(self.state, target, online, EPOCH)
        if state is None:
            return False
        self.assignment = ReplicaAssignment(target)
        self.take(state)
        return True

    def partition(self) -> PartitionImage:
        state = self.state
        return PartitionImage(
            0,
            state.leader,
            state.leader_epoch,
            self.assignment.replicas,
            state.isr,
            state.partition_epoch,
            recovering=state.recovering,
        )


some = st.lists(st.sampled_from(BROKERS), max_size=4, unique=True)
events = st.one_of(
    st.tuples(st.just("die"), st.sampled_from(BROKERS)),
    st.tuples(st.just("come"), st.sampled_from(BROKERS)),
    st.tuples(st.just("stop"), st.sampled_from(BROKERS)),
    st.tuples(st.just("propose"), some, st.booleans()),
    st.tuples(st.just("prefer")),
    st.tuples(st.just("move"), st.one_of(st.none(), some)),
)


@given(st.lists(st.sampled_from(BROKERS), min_size=1, unique=True), st.lists(events, max_size=30))
def test_every_history_of_a_partition_is_safe(
    replicas: list[int], history: list[tuple[object, ...]]
) -> None:
    partition = History(replicas)
    for name, *arguments in history:
        getattr(partition, str(name))(*arguments)
        partition.check()


@given(some.filter(bool), some.filter(bool), some.filter(bool))
def test_assignments_of_a_move_say_where_from_and_where_to(
    first: list[int], second: list[int], third: list[int]
) -> None:
    plan = reassigned(ReplicaAssignment(tuple(first)), second)
    assert target_of(plan) == tuple(second)
    assert set(origin_of(plan)) == set(first)
    assert set(plan.replicas) == {*first, *second}
    assert is_reassigning(plan) == (set(first) != set(second))
    again = reassigned(plan, third)
    assert target_of(again) == tuple(third)
    assert set(origin_of(again)) == set(first)
    back = reassigned(again, origin_of(again))
    assert not is_reassigning(back)
    assert set(back.replicas) == set(first)


def test_a_move_to_very_many_brokers_is_refused_in_little_time() -> None:
    with cpu_time() as taken:
        refused = plan_reassignment(PartitionImage(0, 0, 0, (0,), (0,)), range(250_000), {0})
    assert isinstance(refused, ControllerRefusal)
    assert taken.seconds < 5


# -- whole controllers ---------------------------------------------------------------------------


class Cluster:
    """Brokers that start and stop, including the controller; leaders propose changes at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.network = Network()
        self.epochs: dict[TopicPartition, int] = {}
        self.topics = 0

    @property
    def members(self) -> dict[int, Member]:
        return self.network.members

    def active(self) -> Member | None:
        return next((each for each in self.members.values() if each.controller.is_active), None)

    def check(self, image_of: Member) -> None:
        image = image_of.image
        for topic in image.topics.values():
            for number, partition in topic.partitions.items():
                if partition.partition_epoch < 0:
                    continue
                tp = TopicPartition(topic.name, number)
                assert set(partition.isr) <= set(partition.replicas), (tp, partition)
                assert partition.isr
                assert partition.leader_epoch >= self.epochs.get(tp, 0), (tp, partition)
                self.epochs[tp] = partition.leader_epoch
                if partition.leader != NO_LEADER:
                    assert partition.leader in partition.isr, (tp, partition)
                    assert partition.leader in image.brokers, (tp, partition)

    async def step(self, join_one: Callable[[int], object]) -> None:
        active = self.active()
        if active is None:
            await asyncio.sleep(0.001)
            return
        chance = self.random
        image = active.image
        tps = [
            TopicPartition(topic.name, number)
            for topic in image.topics.values()
            for number in topic.partitions
        ]
        await getattr(
            self, chance.choice(("lose", "lose", "gain", "make", "alter", "alter", "move", "elect"))
        )(active, tps, join_one)

    async def lose(self, active: Member, tps: list[TopicPartition], _: object) -> None:
        if len(self.members) > 1:
            member = self.random.choice(list(self.members.values()))
            if self.random.random() < 0.5:
                epoch = member.controller.broker_epoch
                await active.controller.controlled_shutdown(member.id, epoch)
            await member.stop()

    async def gain(self, active: Member, tps: list[TopicPartition], join_one: object) -> None:
        gone = [each for each in BROKERS if each not in self.members]
        if gone:
            assert callable(join_one)
            await join_one(self.random.choice(gone))

    async def make(self, active: Member, tps: list[TopicPartition], _: object) -> None:
        if self.topics < 5:
            self.topics += 1
            rows = [tuple(self.random.sample(BROKERS, self.random.randint(1, 3))) for _ in range(3)]
            await active.controller.create_topics([new_topic(f"t{self.topics}", *rows)])

    async def alter(self, active: Member, tps: list[TopicPartition], _: object) -> None:
        if not tps:
            return
        tp = self.random.choice(tps)
        partition = active.image.partition(*tp)
        assert partition is not None
        leader = self.members.get(partition.leader)
        if leader is not None:
            others = [each for each in partition.replicas if each != leader.id]
            some = self.random.sample(others, self.random.randint(0, len(others)))
            await alter(active, leader, (leader.id, *some), tp)

    async def move(self, active: Member, tps: list[TopicPartition], _: object) -> None:
        if tps:
            tp = self.random.choice(tps)
            target = self.random.sample(BROKERS, self.random.randint(1, 3))
            wanted = None if self.random.random() < 0.3 else target
            await active.controller.alter_reassignments({tp: wanted})

    async def elect(self, active: Member, tps: list[TopicPartition], _: object) -> None:
        await active.controller.elect_leaders(None, PREFERRED)


@pytest.mark.parametrize("seed", range(100 if LONG else 12))
def test_controllers_keep_leaders_safe_through_a_random_history(seed: int) -> None:
    async def main() -> None:
        cluster = Cluster(seed)
        async with stores("embedded", None) as maker:

            async def join_one(broker_id: int) -> None:
                await join(maker, broker_id, cluster.network)

            for broker_id in BROKERS:
                await join_one(broker_id)
            for _ in range(60):
                await cluster.step(join_one)
                active = cluster.active()
                if active is not None:
                    cluster.check(active)
            for broker_id in BROKERS:
                if broker_id not in cluster.members:
                    await join_one(broker_id)
            await settle(cluster)
            for member in list(cluster.members.values()):
                await member.stop()

    asyncio.run(asyncio.wait_for(main(), 60))


async def settle(cluster: Cluster) -> None:
    """Once all brokers are back, every partition has a leader, and all agree on it."""
    active = cluster.active()
    while active is None:
        await asyncio.sleep(0.001)
        active = cluster.active()
    await active.until(lambda image: set(image.brokers) == set(BROKERS))
    await active.turn()
    cluster.check(active)
    stored = await active.cluster.states(
        TopicPartition(topic.name, number)
        for topic in active.image.topics.values()
        for number in topic.partitions
    )
    for tp, state in stored.items():
        partition = active.image.partition(*tp)
        assert partition is not None
        assert state.leader != NO_LEADER, tp
        assert (state.leader, state.leader_epoch, state.isr) == (
            partition.leader,
            partition.leader_epoch,
            partition.isr,
        )
        assignment = assignment_of(partition)
        if not is_reassigning(assignment):
            assert online_replicas(partition, BROKERS) == partition.replicas
        for member in cluster.members.values():
            if member.id in partition.replicas:
                await member.eventually(
                    lambda member=member, tp=tp, state=state: (  # type: ignore[misc]
                        member.replicas.roles.get(tp) == (state.leader, state.leader_epoch)
                    )
                )
    moves = await active.controller.list_reassignments(None)
    assert not isinstance(moves, ControllerRefusal)
