"""The choice of leaders and in-sync replicas when brokers come and go; pure.

Source: controller/PartitionStateMachine.scala (PartitionLeaderElectionAlgorithms), Election.scala,
ReplicaStateMachine.removeReplicasFromIsr.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from ..coordination.paths import LeaderAndIsr
from ..metadata.image import NO_LEADER


class Electorate(NamedTuple):
    """The brokers from which leaders are chosen.

    Shape: `online` brokers may lead; `stopping` brokers are alive but about to stop, so they only keep leaderships that
    no other broker can take over; replicas on failed log directories (of one partition) are in neither.
    """

    online: Collection[int]
    stopping: Collection[int] = ()

    def without(self, replicas: Collection[int]) -> Electorate:
        """The same brokers without some replicas."""
        if not replicas:
            return self
        return Electorate(
            [each for each in self.online if each not in replicas],
            [each for each in self.stopping if each not in replicas],
        )


def initial_state(
    replicas: Sequence[int], live: Collection[int], controller_epoch: int
) -> LeaderAndIsr | None:
    """The first state of a new partition: its live replicas in sync, the first of them leading.

    None if no replica is alive; the partition then stays without a state.
    """
    isr = tuple(replica for replica in replicas if replica in live)
    if not isr:
        return None
    return LeaderAndIsr(isr[0], 0, isr, controller_epoch)


def after_change(
    state: LeaderAndIsr,
    replicas: Sequence[int],
    brokers: Electorate,
    controller_epoch: int,
    unclean: bool = False,
) -> LeaderAndIsr | None:
    """The state after brokers came or went; None if nothing changes.

    A live leader stays, and replicas that are not alive leave the in-sync replicas, so that the leader does not wait
    for them. Otherwise the first replica that is alive and in sync leads; with `unclean`, any live replica may lead,
    and records may be lost. Without a candidate, the partition has no leader and keeps its in-sync replicas, so that
    one of them can lead when it is back; a leader that is about to stop keeps leading until it stops.
    """
    online = brokers.online
    if state.leader in online and state.leader in replicas:
        isr = tuple(replica for replica in state.isr if replica in online)
        if isr == state.isr or not isr:
            return None
        return next_state(state, state.leader, isr, controller_epoch, state.recovering)
    candidates = [replica for replica in replicas if replica in online]
    clean = [replica for replica in candidates if replica in state.isr]
    if clean:
        isr = tuple(replica for replica in state.isr if replica in online)
        return next_state(state, clean[0], isr, controller_epoch, state.recovering)
    if state.leader in brokers.stopping:
        return None
    if unclean and candidates:
        return next_state(state, candidates[0], (candidates[0],), controller_epoch, True)
    if state.leader == NO_LEADER:
        return None
    return next_state(state, NO_LEADER, state.isr, controller_epoch, state.recovering)


def elect_unclean(
    state: LeaderAndIsr, replicas: Sequence[int], online: Collection[int], controller_epoch: int
) -> LeaderAndIsr | None:
    """The state if an administrator accepts the loss of records; None without a candidate."""
    return _electable(after_change(state, replicas, Electorate(online), controller_epoch, True))


def _electable(state: LeaderAndIsr | None) -> LeaderAndIsr | None:
    return None if state is None or state.leader == NO_LEADER else state


def elect_preferred(
    state: LeaderAndIsr, replicas: Sequence[int], online: Collection[int], controller_epoch: int
) -> LeaderAndIsr | None:
    """The state in which the first replica leads; None if it is not alive or not in sync."""
    if not replicas or replicas[0] not in online or replicas[0] not in state.isr:
        return None
    return next_state(state, replicas[0], state.isr, controller_epoch, state.recovering)


def elect_for_shutdown(
    state: LeaderAndIsr, replicas: Sequence[int], online: Collection[int], controller_epoch: int
) -> LeaderAndIsr | None:
    """The state in which no broker that is about to stop leads or is in sync.

    None if no other in-sync replica is alive, so that the broker has to keep leading, or if nothing changes.
    """
    isr = tuple(replica for replica in state.isr if replica in online)
    leader = state.leader
    if leader not in online:
        leader = next((replica for replica in replicas if replica in isr), NO_LEADER)
    if leader == NO_LEADER or (leader, isr) == (state.leader, state.isr):
        return None
    return next_state(state, leader, isr, controller_epoch, state.recovering)


def elect_for_reassignment(
    state: LeaderAndIsr, target: Sequence[int], online: Collection[int], controller_epoch: int
) -> LeaderAndIsr | None:
    """The state that ends a reassignment: only target replicas lead and are in sync.

    Shape: always a new leader epoch, so that all brokers learn the replicas. None if no live target replica is in sync.
    """
    isr = tuple(replica for replica in state.isr if replica in target)
    leader = state.leader
    if leader not in target or leader not in online:
        leader = next((each for each in target if each in online and each in isr), NO_LEADER)
    if leader == NO_LEADER:
        return None
    return next_state(state, leader, isr, controller_epoch, state.recovering)


def reassignment_step(
    state: LeaderAndIsr, replicas: Sequence[int], online: Collection[int], controller_epoch: int
) -> LeaderAndIsr | None:
    """The state during a reassignment: a new leader epoch informs the leader of all replicas.

    Replicas that are not assigned, or no longer assigned, leave the in-sync replicas. None if none would then be in
    sync.
    """
    isr = tuple(replica for replica in state.isr if replica in replicas)
    if not isr:
        return None
    leader = state.leader
    if leader not in replicas:
        leader = next((each for each in replicas if each in online and each in isr), NO_LEADER)
    return next_state(state, leader, isr, controller_epoch, state.recovering)


def next_state(
    state: LeaderAndIsr, leader: int, isr: tuple[int, ...], controller_epoch: int, recovering: bool
) -> LeaderAndIsr:
    """The state with another leader and the next leader epoch."""
    return state._replace(
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        isr=isr,
        controller_epoch=controller_epoch,
        recovering=recovering,
    )
