"""Creation, growth and deletion of topics: the active controller's part.

Source: KafkaController (processTopicChange, processPartitionModifications, processTopicDeletion),
TopicDeletionManager.scala.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from kwire.errors import ErrorCode
from kwire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse

from ..coordination.cluster import random_id
from ..coordination.cluster_state import ClusterState
from ..coordination.controller_writes import NotController
from ..coordination.paths import LeaderAndIsr, NewTopic, ReplicaAssignment, TopicAssignment
from ..coordination.store import BadVersion, NodeExists, NoNode, SessionExpired
from ..metadata.image import TOPICS, TopicImage
from ..metadata.topic_partition import TopicPartition
from .active import ActiveController, BrokerAnswer
from .deletion import TopicDeletion
from .election import initial_state
from .images import shows, topic_image
from .messages import Extra
from .refusal import ControllerRefusal

logger = logging.getLogger(__name__)

NOT_CONTROLLER = ControllerRefusal(
    ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster."
)
UNKNOWN_TOPIC = ControllerRefusal(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)


#: The number of new topics that are written together, and published together: few enough for a turn of the loop.
WRITTEN_AT_ONCE = 64
SHOWN_AT_ONCE = 8
#: The number of topics that are deleted together.
DELETED_AT_ONCE = 16


class TopicChanges:
    """Creates, completes, grows and deletes topics."""

    def __init__(self, active: ActiveController) -> None:
        self._active = active
        self._watched: set[str] = set()  # topics whose node has a watch

    # -- creation --------------------------------------------------------------------------------

    async def create(self, topics: Sequence[NewTopic]) -> list[TopicImage | ControllerRefusal]:
        """Create topics; one result for each. Errors: TOPIC_ALREADY_EXISTS, NOT_CONTROLLER."""
        active = self._active
        results: list[TopicImage | ControllerRefusal] = []
        for first in range(0, len(topics), WRITTEN_AT_ONCE):
            # Concurrently: the stores put the writes into one commit, or do not wait between them.
            some = topics[first : first + WRITTEN_AT_ONCE]
            results += await asyncio.gather(*(self._create(topic) for topic in some))
            await active.pause()
        for first in range(0, len(topics), SHOWN_AT_ONCE):
            end = first + SHOWN_AT_ONCE
            configs = active.image.edit()  # before the topics, as the logs need them
            made: list[TopicImage] = []
            for topic, result in zip(topics[first:end], results[first:end], strict=True):
                if isinstance(result, TopicImage):
                    made.append(result)
                    configs.put_config(TOPICS, topic.name, topic.configs)
            if made:
                await active.publish(configs.build())
                await active.publish(active.image.with_topics(made))
                report_new(made)
            await active.pause()
        return results

    async def _create(self, topic: NewTopic) -> TopicImage | ControllerRefusal:
        active = self._active
        exists = ControllerRefusal(
            ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists."
        )
        if topic.name in active.image.topics:
            return exists
        if topic.name in active.context.deleting:
            return ControllerRefusal(
                ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' is marked for deletion."
            )
        states: dict[int, LeaderAndIsr] = {}
        for number, assignment in topic.partitions.items():
            state = initial_state(assignment.replicas, active.online, active.epoch)
            if state is not None:
                states[number] = state
        try:
            made = await active.writes.create_topic(topic, states)
        except NodeExists:
            return exists
        except (NotController, SessionExpired):
            return NOT_CONTROLLER
        return topic_image(
            topic.name,
            topic.topic_id,
            TopicAssignment(topic.topic_id, topic.partitions),
            {TopicPartition(topic.name, number): state for number, state in made.items()},
        )

    async def grow(
        self, name: str, partitions: Mapping[int, Sequence[int]]
    ) -> TopicImage | ControllerRefusal:
        """Add partitions. Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS."""
        active = self._active
        unknown = ControllerRefusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
        )
        while True:
            assignment = (await active.cluster.topics([name])).get(name)
            if assignment is None or name not in active.image.topics:
                return unknown
            if partitions.keys() & assignment.partitions.keys():
                return ControllerRefusal(
                    ErrorCode.INVALID_PARTITIONS,
                    f"Topic already has {len(assignment.partitions)} partitions.",
                )
            added = {n: ReplicaAssignment(tuple(partitions[n])) for n in sorted(partitions)}
            grown = assignment._replace(partitions={**assignment.partitions, **added})
            try:
                found = {name: await active.writes.set_assignment(name, grown)}
            except BadVersion:
                continue
            except NoNode:
                return unknown
            await self.take(found)
            return active.image.topics[name]

    # -- what others wrote -----------------------------------------------------------------------

    async def changed(self) -> None:
        """Handle a topic's node that was created or removed."""
        active = self._active
        names = set(await active.cluster.topic_names())
        self._watched &= names
        gone = [name for name in active.image.topics if name not in names]
        if gone:
            edit = active.image.edit().remove_topics(gone)
            for name in gone:
                edit.put_config(TOPICS, name, {})
            await active.publish(edit.build())
        new = sorted(names - self._watched)
        for first in range(0, len(new), WRITTEN_AT_ONCE):
            found = await active.cluster.topics(new[first : first + WRITTEN_AT_ONCE])
            self._watched |= found.keys()
            await self.take(found)
            await active.pause()

    async def take(self, found: Mapping[str, TopicAssignment]) -> None:
        """Create what is new in these assignments: topics, and partitions of known topics.

        Replicas of known partitions stay; only a reassignment moves them.
        """
        active = self._active
        topics: dict[str, TopicAssignment] = {}
        for name, assignment in found.items():
            known = active.image.topic(name)
            assignment = with_known(assignment, known)
            if name not in active.context.deleting and not shows(known, assignment):
                topics[name] = assignment
        if not topics:
            return
        states = await active.cluster.states(
            TopicPartition(name, number)
            for name, assignment in topics.items()
            for number in assignment.partitions
        )
        await self.complete(topics, states, active.online)
        configs = await active.cluster.configs((TOPICS, name) for name in topics)
        edit = active.image.edit()
        for (entity_type, name), config in configs.items():
            edit.put_config(entity_type, name, config)
        await active.publish(edit.build())
        made = [
            topic_image(name, assignment.topic_id, assignment, states)
            for name, assignment in topics.items()
            if assignment.topic_id is not None
        ]
        for index, topic in enumerate(made):
            known = active.image.topic(topic.name)
            if known is not None and known.topic_id == topic.topic_id:
                made[index] = topic._replace(partitions={**topic.partitions, **known.partitions})
        await active.publish(active.image.with_topics(made))
        report_new(made)

    async def complete(
        self,
        topics: dict[str, TopicAssignment],
        states: dict[TopicPartition, LeaderAndIsr],
        online: Collection[int],
    ) -> set[TopicPartition]:
        """Give every topic an id, and every partition with a live replica a state.

        Shape: `topics` and `states` are completed in place; returns the partitions that are now created.
        """
        writes = self._active.writes
        new: dict[TopicPartition, LeaderAndIsr] = {}
        for name, assignment in list(topics.items()):
            if assignment.topic_id is None:
                with_id = assignment._replace(topic_id=random_id())
                topics[name] = await writes.set_assignment(name, with_id)
            for number, replicas in assignment.partitions.items():
                tp = TopicPartition(name, number)
                if tp not in states:
                    state = initial_state(replicas.replicas, online, writes.controller.epoch)
                    if state is not None:
                        new[tp] = state
        states.update(await writes.create_states(new))
        return set(new)

    # -- deletion --------------------------------------------------------------------------------

    async def delete(self, names: Sequence[str]) -> list[ControllerRefusal | None]:
        """Delete topics: from the image immediately, from the store when no replica is left."""
        active = self._active
        known = [name for name in dict.fromkeys(names) if name in active.image.topics]
        for first in range(0, len(known), DELETED_AT_ONCE):
            # One commit for all of them, from which a later controller can continue.
            some = known[first : first + DELETED_AT_ONCE]
            await asyncio.gather(*(self._request_deletion(name) for name in some))
            await self._begin_deletion(some)
            await active.pause()
        found = set(known)
        return [None if name in found else UNKNOWN_TOPIC for name in names]

    async def _request_deletion(self, name: str) -> None:
        try:
            await self._active.cluster.request_deletion(name)
        except NodeExists:
            pass

    async def deletions_changed(self) -> None:
        """Start the deletions requested in ZooKeeper."""
        active = self._active
        names = await active.cluster.deletions()
        asked = [name for name in names if name not in active.context.deleting]
        wanted = await self._allowed(asked, active.image.topics)
        await self._begin_deletion(wanted)

    async def _allowed(self, names: Sequence[str], topics: Collection[str]) -> list[str]:
        """Those of the topics that may be deleted; the requests to delete others are removed."""
        active = self._active
        unknown = [name for name in names if name not in topics]
        if unknown:
            # An earlier controller may have removed them in part.
            logger.info("Removing the remains of the deleted topics %s", ", ".join(unknown))
            await asyncio.gather(*(active.writes.delete_topic(name) for name in unknown))
        wanted = [name for name in names if name in topics]
        if wanted and not active.services.settings.delete_topic_enable:
            logger.warning("Topics %s stay: delete.topic.enable is false", ", ".join(wanted))
            await asyncio.gather(*(active.writes.forget_deletion(name) for name in wanted))
            return []
        return wanted

    async def load_deletions(self, state: ClusterState) -> None:
        """Remove the topics being deleted from the state that was read, and continue their deletion."""
        active = self._active
        for name in await self._allowed(state.deletions, state.topics):
            assignment = state.topics.pop(name)
            if name not in active.context.deleting:
                topic = topic_image(
                    name, assignment.topic_id or bytes(16), assignment, state.states
                )
                active.context.deleting[name] = TopicDeletion(topic)

    async def _begin_deletion(self, names: Sequence[str]) -> None:
        active = self._active
        if not names:
            return
        logger.info("Deleting topics %s", ", ".join(names))
        edit = active.image.edit()
        for name in names:
            active.context.deleting[name] = TopicDeletion(active.image.topics[name])
            edit.put_config(TOPICS, name, {})
        stops = self._stops()
        await active.publish(edit.remove_topics(names).build(), Extra(stops=stops))
        self._report_waiting(names)
        await active.settle()
        await self.remove_done()  # a topic without replicas is done at once

    def _stops(self) -> dict[int, dict[TopicPartition, bool]]:
        active = self._active
        stops: dict[int, dict[TopicPartition, bool]] = {}
        for deletion in active.context.deleting.values():
            for broker_id, partitions in deletion.tell(active.image.brokers).items():
                stops.setdefault(broker_id, {}).update(dict.fromkeys(partitions, True))
        return stops

    def _report_waiting(self, names: Iterable[str]) -> None:
        active = self._active
        for name in names:
            dead = set(active.context.deleting[name].waiting_for()) - active.image.brokers.keys()
            if dead:
                logger.warning(
                    "Topic %s has replicas on brokers %s, which are not alive: its deletion ends when"
                    " they are back",
                    name,
                    ", ".join(map(str, sorted(dead))),
                )

    async def resume_deletions(self) -> None:
        """Tell brokers that have started which replicas to delete."""
        active = self._active
        stops = self._stops()
        if stops:
            await active.publish(active.image, Extra(stops=stops))
            await active.settle()
        await self.remove_done()

    async def stop_answered(self, answer: BrokerAnswer) -> None:
        """Handle the answer of a broker that has stopped, and perhaps deleted, replicas."""
        active = self._active
        request, response = answer.request, answer.response
        assert isinstance(request, StopReplicaRequest)
        assert isinstance(response, StopReplicaResponse)
        broker = active.image.brokers.get(answer.broker_id)
        if broker is None or broker.epoch != answer.broker_epoch:
            return
        errors = {
            TopicPartition(row.topic_name, row.partition_index): row.error_code
            for row in response.partition_errors
        }
        deleted: dict[bool, dict[str, list[TopicPartition]]] = {True: {}, False: {}}
        for topic in request.topic_states:
            for state in topic.partition_states:
                tp = TopicPartition(topic.topic_name, state.partition_index)
                if state.delete_partition and tp.topic in active.context.deleting:
                    done = not response.error_code and not errors.get(tp, 0)
                    deleted[done].setdefault(tp.topic, []).append(tp)
        for done, topics in deleted.items():
            for name, partitions in topics.items():
                active.context.deleting[name].answered(broker.id, partitions, done)
                if not done:
                    logger.warning(
                        "Broker %d could not delete %d replicas of topic %s: this is retried when"
                        " it comes back",
                        broker.id,
                        len(partitions),
                        name,
                    )
        await self.remove_done()

    async def remove_done(self) -> None:
        """Remove the nodes of topics that have no replica left."""
        active = self._active
        done = [name for name, deletion in active.context.deleting.items() if deletion.done]
        if done:
            await asyncio.gather(*(active.writes.delete_topic(name) for name in done))
            for name in done:
                del active.context.deleting[name]
            logger.info("Deleted topics %s", ", ".join(done))

    def watched(self, names: Iterable[str]) -> None:
        """Note that these topics' nodes were read with a watch."""
        self._watched = set(names)


def with_known(assignment: TopicAssignment, known: TopicImage | None) -> TopicAssignment:
    """The assignment with the current replicas of known partitions."""
    if known is None or known.topic_id != assignment.topic_id:
        return assignment
    partitions = dict(assignment.partitions)
    for number, partition in known.partitions.items():
        if number in partitions:
            partitions[number] = ReplicaAssignment(
                partition.replicas, partition.adding, partition.removing
            )
    return assignment._replace(partitions=partitions)


def report_new(topics: Sequence[TopicImage]) -> None:
    """Log one line for a batch of topics that were created or extended."""
    if topics:
        shown = ", ".join(f"{topic.name} ({len(topic.partitions)})" for topic in topics[:10])
        more = f" and {len(topics) - 10} more" if len(topics) > 10 else ""
        logger.info("Topics created or grown (partitions): %s%s", shown, more)
