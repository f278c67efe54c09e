"""Changes of leaders as brokers come and go: the active controller's updates of partition states.

Source: KafkaController (onBrokerStartup, onBrokerFailure, onBrokerLogDirFailure, doControlledShutdown,
onReplicaElection, processAlterPartition, checkAndTriggerAutoLeaderRebalance).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from kwire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse

from ..coordination.paths import LeaderAndIsr
from ..metadata.image import NO_EPOCH, NO_LEADER, BrokerRegistration, PartitionImage
from ..metadata.topic_partition import TopicPartition
from ..security.identity import told_by_a_broker
from .active import CONTROLLER, ActiveController, BrokerAnswer
from .alter_partition import TOPIC_ID_VERSION, Unchanged, decide
from .context import all_partitions, online_replicas
from .election import (
    Electorate,
    after_change,
    elect_for_shutdown,
    elect_preferred,
    elect_unclean,
    initial_state,
)
from .images import with_partitions, with_states
from .messages import RECOVERING, Extra
from .rebalance import imbalanced
from .refusal import ControllerRefusal

logger = logging.getLogger(__name__)

PREFERRED, UNCLEAN = 0, 1

Partitions = Mapping[TopicPartition, PartitionImage]


class Shutdown(NamedTuple):
    """The answer to a broker that is about to stop: the partitions that it still leads."""

    error: ErrorCode
    remaining: list[TopicPartition]


class Leadership:
    """Elections and in-sync replicas."""

    def __init__(
        self,
        active: ActiveController,
        in_sync: Callable[[Collection[TopicPartition]], Awaitable[None]],
    ) -> None:
        self._active = active
        #: Called with partitions whose in-sync replicas changed; this may complete their reassignments.
        self._in_sync = in_sync

    # -- brokers ---------------------------------------------------------------------------------

    async def brokers_changed(self, brokers: Mapping[int, BrokerRegistration]) -> set[int]:
        """Apply the list of live brokers; returns the brokers that started or restarted."""
        active = self._active
        before = active.image.brokers
        if brokers == before:
            return set()
        bounced = {
            broker_id
            for broker_id in brokers.keys() & before.keys()
            if brokers[broker_id].epoch != before[broker_id].epoch
        }
        came = (brokers.keys() - before.keys()) | bounced
        went = (before.keys() - brokers.keys()) | bounced
        if came or went:
            logger.info(
                "Brokers added: %s; removed: %s; bounced: %s; alive: %s",
                listed(came - bounced),
                listed(went - bounced),
                listed(bounced),
                listed(brokers),
            )
        for broker_id in went:
            active.context.shutting_down.discard(broker_id)
            active.context.suspected.discard(broker_id)
            for deletion in active.context.deleting.values():
                deletion.lost(broker_id)
        if bounced:  # gone and back since the last read: handle both, one after the other
            await self._take_brokers({b: brokers[b] for b in brokers if b not in bounced})
        await self._take_brokers(brokers)
        return came

    async def _take_brokers(self, brokers: Mapping[int, BrokerRegistration]) -> None:
        active = self._active
        moved = active.image.brokers.keys() ^ brokers.keys()
        touched: dict[TopicPartition, PartitionImage] = {}
        for topic in active.image.topics.values():
            await active.pause()
            for number, partition in topic.partitions.items():
                if moved.intersection(partition.replicas):
                    touched[TopicPartition(topic.name, number)] = partition
        states = await self.settled(touched, brokers)
        edit = active.image.edit().put_brokers(brokers)
        back: dict[str, list[PartitionImage]] = {}
        for tp, partition in touched.items():
            if moved.intersection(partition.offline):
                offline = tuple(each for each in partition.offline if each not in moved)
                back.setdefault(tp.topic, []).append(partition._replace(offline=offline))
        with_partitions(edit, back)
        await active.publish(with_states(edit, states).build())

    def _electorate(self, brokers: Collection[int]) -> Electorate:
        stopping = self._active.context.leaving
        if not stopping:
            return Electorate(brokers)
        return Electorate(
            [each for each in brokers if each not in stopping],
            [each for each in brokers if each in stopping],
        )

    async def settled(
        self, touched: Partitions, brokers: Collection[int]
    ) -> dict[TopicPartition, LeaderAndIsr]:
        """Write states that had to wait, then the states that follow from the live brokers."""
        active = self._active
        electorate = self._electorate(brokers)

        def rule(tp: TopicPartition, p: PartitionImage, now: LeaderAndIsr) -> LeaderAndIsr | None:
            unclean = self.allows_unclean(tp.topic)
            alive = electorate.without(p.offline)
            return after_change(now, p.replicas, alive, active.epoch, unclean)

        states, _ = await active.decide(touched, rule)
        first: dict[TopicPartition, LeaderAndIsr] = {}
        for tp, partition in touched.items():
            if partition.partition_epoch < 0:
                state = initial_state(partition.replicas, electorate.online, active.epoch)
                if state is not None:
                    first[tp] = state
        states.update(await active.writes.create_states(first))
        self._report(touched, states)
        return states

    def allows_unclean(self, topic: str) -> bool:
        """Whether a replica that is not in sync may lead this topic's partitions."""
        active = self._active
        config = active.image.topic_config(topic)
        default = "true" if active.services.settings.unclean_leader_election else "false"
        return config.get("unclean.leader.election.enable", default) == "true"

    async def elect_offline(self, topics: Collection[str] | None = None) -> None:
        """Elect leaders for partitions without one, because the rules have changed."""
        active = self._active
        touched = {
            tp: partition
            for tp, partition in all_partitions(active.image.topics)
            if partition.leader == NO_LEADER and (topics is None or tp.topic in topics)
        }
        states = await self.settled(touched, active.image.brokers)
        await active.publish(with_states(active.image.edit(), states).build())

    def _report(self, touched: Partitions, states: Mapping[TopicPartition, LeaderAndIsr]) -> None:
        """Log one line for a batch of elections."""
        elected = lost = shrunk = unclean = 0
        for tp, state in states.items():
            before = touched[tp]
            if state.leader == NO_LEADER:
                lost += before.leader != NO_LEADER
            elif state.leader != before.leader:
                elected += 1
                unclean += state.leader not in before.isr and before.partition_epoch >= 0
            else:
                shrunk += 1
        if elected or shrunk:
            logger.info("Leaders elected: %d; in-sync replicas shrunk: %d", elected, shrunk)
        if unclean:
            self._active.services.unclean_elections += unclean
            logger.warning("%d of the new leaders were not in sync: records may be lost", unclean)
        if lost:
            logger.error(
                "%d partitions have no leader now: none of their in-sync replicas is alive", lost
            )

    # -- log directories -------------------------------------------------------------------------

    async def probe(self, brokers: Collection[int]) -> None:
        """Ask brokers for the state of all their replicas after a log directory failed."""
        logger.info(
            "A log directory failed on brokers %s: asking for their replicas", listed(brokers)
        )
        await self._active.publish(self._active.image, Extra(probed=brokers))

    async def roles_answered(self, answer: BrokerAnswer) -> None:
        """Read from an answer to LeaderAndIsr which replicas are on failed directories."""
        active = self._active
        request, response = answer.request, answer.response
        broker = active.image.brokers.get(answer.broker_id)
        if broker is None or broker.epoch != answer.broker_epoch:
            return
        assert isinstance(request, LeaderAndIsrRequest)
        assert isinstance(response, LeaderAndIsrResponse)
        if response.error_code:
            logger.error(
                "Broker %d refused LeaderAndIsr: %s",
                broker.id,
                told_by_a_broker(ErrorCode(response.error_code)),
            )
            return
        failed: dict[TopicPartition, PartitionImage] = {}
        back: dict[str, list[PartitionImage]] = {}
        for row in response.topics:
            await active.pause()
            topic = active.image.topic_by_id(row.topic_id)
            if topic is None:
                continue
            for each in row.partition_errors:
                partition = topic.partitions.get(each.partition_index)
                if partition is None:
                    continue
                if each.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                    if broker.id not in partition.offline:
                        now = partition._replace(offline=(*partition.offline, broker.id))
                        failed[TopicPartition(topic.name, partition.partition)] = now
                elif each.error_code == ErrorCode.NONE and broker.id in partition.offline:
                    offline = tuple(each for each in partition.offline if each != broker.id)
                    back.setdefault(topic.name, []).append(partition._replace(offline=offline))
        if back:
            await active.publish(with_partitions(active.image.edit(), back).build())
        if failed:
            logger.error("%d replicas of broker %d are offline", len(failed), broker.id)
            states = await self.settled(failed, active.image.brokers)
            lost: dict[str, list[PartitionImage]] = {}
            for tp, partition in failed.items():
                if active.image.partition(*tp) is not None:
                    lost.setdefault(tp.topic, []).append(partition)
            edit = with_partitions(active.image.edit(), lost)
            await active.publish(with_states(edit, states).build())

    # -- brokers that stop -----------------------------------------------------------------------

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> Shutdown:
        """Move leaderships away from a broker that is about to stop, and remove it from the in-sync replicas.

        Errors: STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE.
        """
        active = self._active
        broker = active.image.brokers.get(broker_id)
        if broker is None:
            return Shutdown(ErrorCode.BROKER_NOT_AVAILABLE, [])
        if broker_epoch != NO_EPOCH and broker_epoch < broker.epoch:
            return Shutdown(ErrorCode.STALE_BROKER_EPOCH, [])
        active.context.shutting_down.add(broker_id)
        touched, states = await self._leave_out(broker_id)
        after = with_states(active.image.edit(), states).build()
        followed = {tp: False for tp, p in touched.items() if p.leader != broker_id}
        await active.publish(after, Extra(stops={broker_id: followed}))
        remaining = [
            tp
            for tp in touched
            if (found := after.partition(*tp)) is not None and found.leader == broker_id
        ]
        logger.info(
            "Broker %d shuts down: %d partitions changed, it still leads %d",
            broker_id,
            len(states),
            len(remaining),
        )
        return Shutdown(ErrorCode.NONE, remaining)

    async def _leave_out(
        self, broker_id: int
    ) -> tuple[Partitions, dict[TopicPartition, LeaderAndIsr]]:
        """Write the states in which a broker neither leads nor is in sync, where other replicas are in sync.

        Shape: the partitions of which it is a replica, and the new states.
        """
        active = self._active
        touched = {
            tp: partition
            for tp, partition in all_partitions(active.image.topics)
            if broker_id in partition.replicas
            and len(partition.replicas) > 1
            and partition.partition_epoch >= 0
        }

        def rule(tp: TopicPartition, p: PartitionImage, now: LeaderAndIsr) -> LeaderAndIsr | None:
            return elect_for_shutdown(now, p.replicas, self._online(p), active.epoch)

        states, _ = await active.decide(touched, rule)
        return touched, states

    async def suspect(self, broker_id: int) -> None:
        """Exclude a broker that refuses connections although ZooKeeper still has its registration.

        If the broker is alive after all, it follows the new leaders, and can be in sync again once it is trusted.
        """
        active = self._active
        if broker_id not in active.image.brokers or broker_id == active.services.broker_id:
            return
        active.context.suspected.add(broker_id)
        _, states = await self._leave_out(broker_id)
        await active.publish(with_states(active.image.edit(), states).build())
        if states:  # none after a clean stop
            logger.warning(
                "Broker %d refuses connections: %d partitions continue without it",
                broker_id,
                len(states),
            )

    async def trust(self, broker_id: int) -> None:
        """Handle a suspected broker that accepts connections again, or is gone permanently."""
        if broker_id in self._active.context.suspected:
            self._active.context.suspected.discard(broker_id)
            logger.info("Broker %d takes connections again", broker_id)
            await self.elect_offline()

    def _online(self, partition: PartitionImage) -> tuple[int, ...]:
        return online_replicas(partition, self._active.online)

    # -- requested elections ---------------------------------------------------------------------

    async def elect(
        self, partitions: Iterable[TopicPartition] | None, election: int
    ) -> dict[TopicPartition, ControllerRefusal | None]:
        """Elect preferred leaders, or any live replica where there is no leader; None means all partitions.

        Errors: for each partition ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE,
        UNKNOWN_TOPIC_OR_PARTITION; INVALID_TOPIC_EXCEPTION for a topic that is being deleted.
        """
        active = self._active
        results: dict[TopicPartition, ControllerRefusal | None] = {}
        touched: dict[TopicPartition, PartitionImage] = {}
        everything = (tp for tp, _ in all_partitions(active.image.topics))
        for tp in everything if partitions is None else partitions:
            await active.pause()
            found = active.image.partition(*tp)
            if found is None:
                results[tp] = self._no_partition(tp)
            elif self._has_its_leader(found, election):
                results[tp] = NOT_NEEDED
            else:
                touched[tp] = found
        choose = elect_preferred if election == PREFERRED else elect_unclean

        def rule(tp: TopicPartition, p: PartitionImage, now: LeaderAndIsr) -> LeaderAndIsr | None:
            return choose(now, p.replicas, self._online(p), active.epoch)

        states, left = await active.decide(touched, rule)
        self._report(touched, states)
        await active.publish(with_states(active.image.edit(), states).build())
        results.update(dict.fromkeys(touched))
        results.update({tp: not_elected(tp, election) for tp in left})
        return results

    def _no_partition(self, tp: TopicPartition) -> ControllerRefusal:
        if tp.topic in self._active.context.deleting:
            return ControllerRefusal(
                ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted"
            )
        return ControllerRefusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
        )

    def _has_its_leader(self, partition: PartitionImage, election: int) -> bool:
        if election == PREFERRED:
            return partition.leader == partition.replicas[0]
        return partition.leader in self._active.online

    async def rebalance(self) -> None:
        """Elect preferred leaders for brokers that lead too few partitions."""
        active = self._active
        percentage = active.services.settings.leader_imbalance_percentage
        wanted = await active.services.turns.run(
            imbalanced(active.image.topics, percentage), CONTROLLER
        )
        able = [
            tp
            for tp, partition in wanted
            if (preferred := partition.replicas[0]) in partition.isr
            and preferred in self._online(partition)
        ]
        if able:
            logger.info("Electing the preferred leaders of %d partitions", len(able))
            await self.elect(able, PREFERRED)

    # -- in-sync replicas ------------------------------------------------------------------------

    async def alter_partition(
        self, request: AlterPartitionRequest, version: int
    ) -> AlterPartitionResponse:
        """Write the in-sync replicas that leaders propose.

        Errors: for the whole request STALE_BROKER_EPOCH; for each partition UNKNOWN_TOPIC_ID and those of
        `alter_partition.decide`.
        """
        active = self._active
        image = active.image
        broker = image.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            logger.debug("AlterPartition of an earlier process of broker %d", request.broker_id)
            return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH, topics=[])
        online = {each: image.brokers[each].epoch for each in active.online}
        rows: list[tuple[str, bytes, dict[int, LeaderAndIsr | ErrorCode]]] = []
        wanted: dict[TopicPartition, LeaderAndIsr] = {}
        for asked in request.topics:
            if version >= TOPIC_ID_VERSION:
                topic = image.topic_by_id(asked.topic_id)
                unknown = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                topic = image.topic(asked.topic_name)
                unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results: dict[int, LeaderAndIsr | ErrorCode] = {}
            name = asked.topic_name if topic is None else topic.name
            rows.append((name, asked.topic_id, results))
            for each in asked.partitions:
                number = each.partition_index
                if topic is None:
                    results[number] = unknown
                    continue
                current = topic.partitions.get(number)
                decided = decide(request.broker_id, each, version, current, online, active.epoch)
                if isinstance(decided, Unchanged):
                    results[number] = decided.state
                elif isinstance(decided, ErrorCode):
                    results[number] = decided
                else:
                    wanted[TopicPartition(name, number)] = decided
        written, overtaken = await active.write_states(wanted)
        # Another writer has changed these, so the image has their old states.
        newer = await active.cluster.states(overtaken)
        after = with_states(active.image.edit(), {**newer, **written}).build()
        await active.publish(after)
        by_topic = {name: results for name, _, results in rows}
        for tp in wanted:
            by_topic[tp.topic][tp.partition] = written.get(tp, ErrorCode.INVALID_UPDATE_VERSION)
        if written:
            # The leader gets its answer first.
            active.later(lambda: self._in_sync(list(written)))
        return AlterPartitionResponse(
            topics=[
                AlterPartitionResponseTopicData(
                    topic_name=name,
                    topic_id=topic_id,
                    partitions=[altered(number, each) for number, each in results.items()],
                )
                for name, topic_id, results in rows
            ]
        )

    async def states_written(self, partitions: Collection[TopicPartition]) -> None:
        """Read the states that leaders with an older inter-broker protocol have written themselves."""
        active = self._active
        known = [tp for tp in partitions if active.image.partition(*tp) is not None]
        states = await active.cluster.states(known)
        await active.publish(with_states(active.image.edit(), states).build())
        await self._in_sync(known)


NOT_NEEDED = ControllerRefusal(
    ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
)


def not_elected(tp: TopicPartition, election: int) -> ControllerRefusal:
    """The refusal if no leader was elected, with StateChangeFailedException's message."""
    error = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    strategy = "PreferredReplicaPartitionLeaderElectionStrategy"
    if election == UNCLEAN:
        error = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        strategy = "OfflinePartitionLeaderElectionStrategy(true)"
    return ControllerRefusal(
        error, f"Failed to elect leader for partition {tp} under strategy {strategy}"
    )


def altered(number: int, result: LeaderAndIsr | ErrorCode) -> AlterPartitionResponsePartitionData:
    """A row of the answer to AlterPartition."""
    if isinstance(result, ErrorCode):
        return AlterPartitionResponsePartitionData(partition_index=number, error_code=result)
    return AlterPartitionResponsePartitionData(
        partition_index=number,
        leader_id=result.leader,
        leader_epoch=result.leader_epoch,
        isr=list(result.isr),
        leader_recovery_state=RECOVERING if result.recovering else 0,
        partition_epoch=result.partition_epoch,
    )


def listed(brokers: Iterable[int]) -> str:
    """Broker ids as shown in log lines."""
    return ",".join(map(str, sorted(brokers))) or "none"
