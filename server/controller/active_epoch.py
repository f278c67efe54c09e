"""One controller epoch of this broker, from its election to its end.

Source: KafkaController.onControllerFailover, onControllerResignation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from kwire.errors import ErrorCode
from kwire.messages.leader_and_isr import LeaderAndIsrRequest

from ..coordination.cluster_state import ClusterState
from ..coordination.controller_inbox import PREFERRED_ELECTION
from ..coordination.controller_writes import ControllerWrites
from ..coordination.events import ChangeKind, ClusterEvent
from ..coordination.paths import FinalizedFeatures, MalformedNode
from ..metadata.image import TOPICS
from .active import ActiveController, BrokerAnswer, ControllerServices
from .context import all_partitions
from .images import topics_image, with_states
from .leadership import PREFERRED, Leadership, listed
from .messages import NOTHING, Extra
from .reassignments import Reassignments
from .refusal import ControllerRefusal
from .topic_changes import TopicChanges

logger = logging.getLogger(__name__)

#: The delay before leaders are first rebalanced. Source: scheduleAutoLeaderRebalanceTask.
FIRST_REBALANCE_S = 5


class ActiveEpoch:
    """The active controller and its tasks, by kind."""

    def __init__(self, services: ControllerServices, writes: ControllerWrites) -> None:
        self.active = ActiveController(services, writes)
        self.topics = TopicChanges(self.active)
        self.reassignments = Reassignments(self.active)
        self.leadership = Leadership(self.active, self.reassignments.in_sync)
        self.active.on_answer = self._answered
        #: Whether the image shows the content of the store.
        self.begun = False
        self._rebalancing: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Read everything, complete unfinished work, and send the state to every broker."""
        await self._drop_notifications()
        await self.load(starting=True)
        self.begun = True
        await self.reassignments.take_requests()
        await self.reassignments.resume()
        await self._elect_as_requested()
        self._rebalancing = asyncio.get_running_loop().create_task(
            self._rebalance(), name="leader rebalance"
        )

    def close(self) -> None:
        """Stop all work."""
        self.active.close()
        if self._rebalancing is not None:
            self._rebalancing.cancel()
            self._rebalancing = None

    async def handle(self, event: ClusterEvent) -> None:
        """Handle an event by reading the state that it announces."""
        match event.change:
            case ChangeKind.BROKERS:
                await self._brokers_changed()
            case ChangeKind.TOPICS:
                await self.topics.changed()
            case ChangeKind.ASSIGNMENT:
                await self.topics.take(await self.active.cluster.topics([event.topic]))
            case ChangeKind.DELETIONS:
                await self.topics.deletions_changed()
            case ChangeKind.ISR_CHANGES:
                await self._isr_changed()
            case ChangeKind.LOG_DIRS:
                await self._log_dirs_failed()
            case ChangeKind.REASSIGNMENT:
                await self.reassignments.take_requests()
            case ChangeKind.PREFERRED_ELECTION:
                await self._elect_as_requested()

    # -- loading ---------------------------------------------------------------------------------

    async def load(self, *, starting: bool = False) -> None:
        """Read brokers, topics and states; write missing states, elect leaders, publish, and send messages."""
        active = self.active
        state = await active.cluster.load_topics(ClusterState())
        self.topics.watched(state.topics)
        features = await self._enabled_features(await active.cluster.features())
        active.context.shutting_down &= state.brokers.keys()
        active.context.suspected &= state.brokers.keys()
        await self.topics.load_deletions(state)
        online = state.brokers.keys() - active.context.leaving
        new = await self.topics.complete(state.topics, state.states, online)
        before = active.image
        loaded = topics_image(before, state, keep_offline=not starting)
        states = await self.leadership.settled(dict(all_partitions(loaded.topics)), state.brokers)
        if active.image is not before:  # an earlier controller has sent something in the meantime
            loaded = topics_image(active.image, state, keep_offline=not starting)
        edit = with_states(loaded.edit(), states).put_features(features.levels, features.epoch)
        after = edit.build()
        await active.publish(after, Extra(starting=True, new=new) if starting else NOTHING)
        logger.info(
            "Loaded %d topics with %d partitions; brokers alive: %s",
            len(after.topics),
            sum(len(topic.partitions) for topic in after.topics.values()),
            listed(after.brokers),
        )
        await self.topics.resume_deletions()

    async def update_features(
        self, change: Callable[[Mapping[str, int]], Mapping[str, int] | ControllerRefusal]
    ) -> ControllerRefusal | None:
        """Replace the stored levels of features with the result of `change`; None unless `change` returns a refusal."""
        active = self.active
        stored = await self._enabled_features(await active.cluster.features())
        levels = change(stored.levels)
        if isinstance(levels, ControllerRefusal):
            return levels
        if levels != stored.levels:
            written = await active.writes.set_features(stored._replace(levels=levels))
            edit = active.image.edit().put_features(written.levels, written.epoch)
            await active.publish(edit.build())
            changed = (each for each in levels.items() if each not in stored.levels.items())
            shown = ", ".join(f"{name}={level}" for name, level in changed)
            logger.info("Finalized levels of features changed: %s", shown)
        return None

    async def _enabled_features(self, features: FinalizedFeatures | None) -> FinalizedFeatures:
        writes = self.active.writes
        if features is None:
            return await writes.set_features(FinalizedFeatures(True, {}))
        if not features.enabled:
            return await writes.set_features(features._replace(enabled=True))
        return features

    async def _drop_notifications(self) -> None:
        """Remove notifications for an earlier controller, since everything is read now anyway."""
        inbox = self.active.cluster.inbox
        isr_changes, _ = await inbox.isr_changes()
        log_dirs, _ = await inbox.log_dir_events()
        await self.active.writes.remove_nodes([*isr_changes, *log_dirs])

    # -- events ----------------------------------------------------------------------------------

    async def _brokers_changed(self) -> None:
        if await self.leadership.brokers_changed(await self.active.cluster.brokers()):
            await self.topics.resume_deletions()
            await self.reassignments.in_sync()

    async def _isr_changed(self) -> None:
        paths, partitions = await self.active.cluster.inbox.isr_changes()
        if paths:
            await self.leadership.states_written(partitions)
            await self.active.writes.remove_nodes(paths)

    async def _log_dirs_failed(self) -> None:
        paths, brokers = await self.active.cluster.inbox.log_dir_events()
        if paths:
            await self.leadership.probe(brokers & self.active.image.brokers.keys())
            await self.active.writes.remove_nodes(paths)

    async def _elect_as_requested(self) -> None:
        active = self.active
        try:
            wanted = await active.cluster.inbox.preferred_elections()
        except MalformedNode as error:
            logger.warning("Removing an unreadable request for elections: %s", error)
            await active.writes.remove_nodes([PREFERRED_ELECTION])
            wanted = await active.cluster.inbox.preferred_elections()
        if wanted is None:
            return
        logger.info(
            "Electing the preferred leaders of %d partitions as requested in ZooKeeper", len(wanted)
        )
        for tp, refusal in (await self.leadership.elect(wanted, PREFERRED)).items():
            if refusal is not None and refusal.error is not ErrorCode.ELECTION_NOT_NEEDED:
                logger.warning("No preferred leader of %s: %s", tp, refusal.message)
        await active.writes.remove_nodes([PREFERRED_ELECTION])
        await active.cluster.inbox.preferred_elections()  # sets the watch for the next request

    async def configs_changed(self, entities: Iterable[tuple[str, str]]) -> None:
        """Elect leaders for partitions without one, in topics that now allow unclean leaders."""
        topics = {
            name
            for entity_type, name in entities
            if entity_type == TOPICS and self.leadership.allows_unclean(name)
        }
        if topics:
            await self.leadership.elect_offline(topics)

    async def _answered(self, answer: BrokerAnswer) -> None:
        if isinstance(answer.request, LeaderAndIsrRequest):
            await self.leadership.roles_answered(answer)
        else:
            await self.topics.stop_answered(answer)

    async def _rebalance(self) -> None:
        settings = self.active.services.settings
        delay_s = FIRST_REBALANCE_S
        while True:
            await asyncio.sleep(delay_s)
            if settings.auto_leader_rebalance:
                self.active.later(self.leadership.rebalance)
            delay_s = settings.leader_imbalance_check_s
