"""Moves of replicas: the active controller's steps from the request to the end.

A move is stored first (the topic's node lists both the old and the new replicas), so that any controller can continue
it. Then a new leader epoch informs the leader of the new replicas, and they copy the log. When every target replica is
in sync, the others leave the in-sync replicas, the new list is sent, the others are deleted, and the topic's node is
written again.
Source: KafkaController.onPartitionReassignment (phases U, A and B); KIP-455.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from kwire.errors import ErrorCode

from ..coordination.controller_inbox import REASSIGN_PARTITIONS, encode_reassignments
from ..coordination.paths import LeaderAndIsr, MalformedNode, ReplicaAssignment
from ..coordination.store import BadVersion
from ..metadata.image import PartitionImage
from ..metadata.topic_partition import TopicPartition
from .active import ActiveController
from .context import online_replicas
from .election import elect_for_reassignment, reassignment_step
from .images import state_of, with_partitions, with_states
from .reassignment import (
    UNKNOWN_PARTITION,
    assignment_of,
    is_complete,
    is_reassigning,
    plan_reassignment,
    target_of,
)
from .refusal import ControllerRefusal

logger = logging.getLogger(__name__)

NO_TARGET = ControllerRefusal(
    ErrorCode.INVALID_REPLICA_ASSIGNMENT, "No replica of the assignment is alive and in sync."
)

Assignments = dict[TopicPartition, ReplicaAssignment]


class Reassignments:
    """Starts, ends and cancels moves of replicas."""

    def __init__(self, active: ActiveController) -> None:
        self._active = active

    async def alter(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None], *, change_factor: bool = True
    ) -> dict[TopicPartition, ControllerRefusal | None]:
        """Start moves to these replicas, or cancel them (None), replacing earlier moves.

        Errors, for each partition: those of `plan_reassignment`, INVALID_REPLICATION_FACTOR.
        """
        results: dict[TopicPartition, ControllerRefusal | None] = {}
        plans: Assignments = {}
        for tp, target in wanted.items():
            await self._active.pause()
            plan = self._plan(tp, target, change_factor)
            if isinstance(plan, ControllerRefusal):
                results[tp] = plan
            else:
                plans[tp] = plan
                results[tp] = None
        # This supersedes a tool's request for the same partitions in ZooKeeper.
        await self._remove_requests(plans)
        results.update(await self.begin(plans))
        return results

    def _plan(
        self, tp: TopicPartition, target: Sequence[int] | None, change_factor: bool
    ) -> ReplicaAssignment | ControllerRefusal:
        active = self._active
        partition = active.image.partition(*tp)
        plan = plan_reassignment(partition, target, active.online)
        if isinstance(plan, ControllerRefusal) or partition is None:
            return plan
        before = len(target_of(assignment_of(partition)))
        if target is not None and not change_factor and len(target) != before:
            return ControllerRefusal(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {before} to {len(target)}",
            )
        state = state_of(partition)
        if state is not None and not set(state.isr) & set(plan.replicas):
            return ControllerRefusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {tp.topic}:{tp.partition} because it"
                " would require an unclean leader election.",
            )
        return plan

    async def begin(self, plans: Assignments) -> dict[TopicPartition, ControllerRefusal | None]:
        """Store the moves and inform the replicas; moves that copy nothing are finished immediately."""
        if not plans:
            return {}
        changed = {
            tp: plan
            for tp, plan in plans.items()
            if assignment_of(self._partition(tp)) != plan and is_reassigning(plan)
        }
        gone = await self._write(changed)
        for tp in gone:
            plans.pop(tp, None)
        moving = {
            tp: plan for tp, plan in plans.items() if not self._is_done(tp, plan) and tp in changed
        }
        for tp, plan in moving.items():
            logger.info(
                "Moving replicas of %s from %s to %s: adding %s, removing %s",
                tp,
                list(target_of(assignment_of(self._partition(tp)))),
                list(target_of(plan)),
                list(plan.adding),
                list(plan.removing),
            )
        await self._step(moving)
        left = await self._finish({tp: p for tp, p in plans.items() if self._is_done(tp, p)})
        results: dict[TopicPartition, ControllerRefusal | None] = dict.fromkeys(
            gone, UNKNOWN_PARTITION
        )
        results.update({tp: NO_TARGET for tp in left if tp not in changed})
        return results

    async def resume(self) -> None:
        """Continue the moves that an earlier controller began; it may not have informed any broker."""
        plans = await self.going_on()
        if plans:
            logger.info("Continuing the moves of %d partitions", len(plans))
        await self._step({tp: plan for tp, plan in plans.items() if not self._is_done(tp, plan)})
        await self._finish({tp: plan for tp, plan in plans.items() if self._is_done(tp, plan)})

    async def in_sync(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """End the moves, of these partitions or of all, whose target replicas are all in sync."""
        if partitions is None:
            plans = await self.going_on()
        else:
            image = self._active.image
            found = {tp: image.partition(*tp) for tp in partitions}
            plans = {tp: assignment_of(p) for tp, p in found.items() if p and is_moving(p)}
        await self._finish({tp: plan for tp, plan in plans.items() if self._is_done(tp, plan)})

    async def going_on(self) -> Assignments:
        """The ongoing moves."""
        found: Assignments = {}
        for topic in self._active.image.topics.values():
            await self._active.pause()
            for number, partition in topic.partitions.items():
                if is_moving(partition):
                    found[TopicPartition(topic.name, number)] = assignment_of(partition)
        return found

    # -- steps -----------------------------------------------------------------------------------

    def _partition(self, tp: TopicPartition) -> PartitionImage:
        found = self._active.image.partition(*tp)
        assert found is not None
        return found

    def _is_done(self, tp: TopicPartition, plan: ReplicaAssignment) -> bool:
        return not is_reassigning(plan) or is_complete(plan, self._partition(tp).isr)

    async def _step(self, plans: Assignments) -> None:
        """Inform all replicas of a move, in a new leader epoch."""
        active = self._active

        def rule(tp: TopicPartition, p: PartitionImage, now: LeaderAndIsr) -> LeaderAndIsr | None:
            replicas = plans[tp].replicas
            online = online_replicas(p._replace(replicas=replicas), active.online)
            return reassignment_step(now, replicas, online, active.epoch)

        states, _ = await active.decide({tp: self._partition(tp) for tp in plans}, rule)
        await self._publish(plans, states)

    async def _finish(self, plans: Assignments) -> list[TopicPartition]:
        """Keep only the target replicas; returns partitions in which none of them is alive and in sync."""
        active = self._active
        if not plans:
            return []
        targets = {tp: ReplicaAssignment(target_of(plan)) for tp, plan in plans.items()}

        def rule(tp: TopicPartition, p: PartitionImage, now: LeaderAndIsr) -> LeaderAndIsr | None:
            replicas = targets[tp].replicas
            online = online_replicas(p._replace(replicas=replicas), active.online)
            return elect_for_reassignment(now, replicas, online, active.epoch)

        begun = {tp: self._partition(tp) for tp in plans}
        begun = {tp: partition for tp, partition in begun.items() if partition.partition_epoch >= 0}
        states, left = await active.decide(begun, rule)
        for tp in left:
            logger.warning("No target replica of %s is alive and in sync: its move has to wait", tp)
            targets.pop(tp)
        await self._publish(targets, states)
        # The node comes last: until then it lists the replicas that may still have to be removed.
        await self._write(targets)
        await self._remove_requests(targets)
        for tp, target in targets.items():
            logger.info("%s has its replicas on %s", tp, list(target.replicas))
        return left

    async def _publish(
        self, plans: Assignments, states: Mapping[TopicPartition, LeaderAndIsr]
    ) -> None:
        changed: dict[str, list[PartitionImage]] = {}
        for tp, plan in plans.items():
            partition = self._partition(tp)
            changed.setdefault(tp.topic, []).append(
                partition._replace(
                    replicas=plan.replicas,
                    adding=plan.adding,
                    removing=plan.removing,
                    offline=tuple(each for each in partition.offline if each in plan.replicas),
                )
            )
        edit = with_partitions(self._active.image.edit(), changed)
        await self._active.publish(with_states(edit, states).build())

    async def _write(self, plans: Assignments) -> list[TopicPartition]:
        """Write assignments to the nodes of their topics; returns partitions of deleted topics."""
        active = self._active
        by_topic: dict[str, dict[int, ReplicaAssignment]] = {}
        for tp, plan in plans.items():
            by_topic.setdefault(tp.topic, {})[tp.partition] = plan
        topics = set(by_topic)
        gone: list[TopicPartition] = []
        while topics:
            found = await active.cluster.topics(topics)
            gone += [tp for tp in plans if tp.topic in topics and tp.topic not in found]
            again: set[str] = set()
            for name, node in found.items():
                partitions = {**node.partitions, **by_topic[name]}
                try:
                    await active.writes.set_assignment(name, node._replace(partitions=partitions))
                except BadVersion:
                    again.add(name)
            topics = again
        return gone

    # -- requests in ZooKeeper -------------------------------------------------------------------

    async def take_requests(self) -> None:
        """Start the moves that a tool requests in /admin/reassign_partitions."""
        active = self._active
        try:
            wanted = await active.cluster.inbox.reassignments()
        except MalformedNode as error:
            logger.warning("Removing an unreadable request for moves: %s", error)
            await active.writes.remove_nodes([REASSIGN_PARTITIONS])
            wanted = await active.cluster.inbox.reassignments()
        if wanted is None:
            return
        plans: Assignments = {}
        failed: dict[TopicPartition, ControllerRefusal] = {}
        for tp, target in wanted.items():
            partition = active.image.partition(*tp)
            plan = plan_reassignment(partition, target, active.image.brokers.keys() | set(target))
            if isinstance(plan, ControllerRefusal):
                failed[tp] = plan
            elif partition is not None and assignment_of(partition) != plan:
                plans[tp] = plan
            elif partition is not None and not is_reassigning(plan):
                failed[tp] = ControllerRefusal(ErrorCode.NONE, "it is there already")
        for tp, refusal in failed.items():
            logger.info("Not moving %s as requested in ZooKeeper: %s", tp, refusal.message)
        await self.begin(plans)
        await self._remove_requests(failed)

    async def _remove_requests(self, partitions: Collection[TopicPartition]) -> None:
        active = self._active
        if not partitions:
            return
        wanted = await active.cluster.inbox.reassignments()
        if wanted is None:
            return
        left = {tp: target for tp, target in wanted.items() if tp not in partitions}
        if not left:
            await active.writes.remove_nodes([REASSIGN_PARTITIONS])
            await active.cluster.inbox.reassignments()  # sets the watch for the next request
        elif len(left) < len(wanted):
            await active.writes.replace_node(REASSIGN_PARTITIONS, encode_reassignments(left))


def is_moving(partition: PartitionImage) -> bool:
    """Whether its replicas are being moved."""
    return bool(partition.adding or partition.removing)
