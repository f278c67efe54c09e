"""Topics that are created automatically: on first use, and the coordinators' own topics.

Source: AutoTopicCreationManager (3.9).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode
from kwire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

from ..coordination.cluster import random_id
from ..coordination.paths import NewTopic
from ..metadata.internal_topics import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from ..turns import Turns
from .refusal import ControllerRefusal
from .topic_plan import DEFAULT, MAX_PARTITIONS_PER_REQUEST, plan_topic
from .topics import TakenNames

if TYPE_CHECKING:
    from ..config import BrokerConfig
    from ..metadata.publisher import MetadataPublisher
    from .controller import Controller

logger = logging.getLogger(__name__)

#: The version that a 3.9 broker uses.
CREATE_TOPICS_VERSION = 7
#: Clients request a coordinator many times a second; the reason for its absence is logged at this interval.
COMPLAIN_EVERY_S = 60.0

REPLICATION_FACTORS = {
    GROUP_METADATA_TOPIC: "offsets.topic.replication.factor",
    TRANSACTION_STATE_TOPIC: "transaction.state.log.replication.factor",
    SHARE_GROUP_STATE_TOPIC: "share.coordinator.state.topic.replication.factor",
}


class AutoTopics:
    """Creates topics on first use, and returns when they are ready for use.

    Shape: `to_controller` sends a request to the controller if that is another broker. Topics that another broker
    creates are not awaited; clients are told to try again. `alone` means that there will never be a second broker:
    Apache Kafka's default of three replicas for the coordinators' topics then becomes one.
    """

    def __init__(
        self,
        controller: Controller,
        publisher: MetadataPublisher,
        config: BrokerConfig,
        to_controller: Callable[[object, int], Awaitable[object]] | None = None,
        *,
        alone: bool = False,
        turns: Turns | None = None,
    ) -> None:
        self._controller = controller
        self._publisher = publisher
        self._config = config
        self._to_controller = to_controller
        self._alone = alone
        self._turns = turns or Turns(lambda: 0)
        self._complained_at: dict[str, float] = {}
        self._asked: dict[str, asyncio.Task[None]] = {}

    async def auto_create(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        """Create those of the topics that do not exist, and return the errors.

        Shape: the result contains only topics that failed.
        Errors: INVALID_TOPIC_EXCEPTION, INVALID_REPLICATION_FACTOR; LEADER_NOT_AVAILABLE while the controller, on
        another broker, creates the topics, and for topics beyond the number that is created at once.
        """
        errors: dict[str, ErrorCode] = {}
        wanted: list[NewTopic] = []
        taken = TakenNames(self._publisher.image.topics)
        room = MAX_PARTITIONS_PER_REQUEST
        for name in names:
            await self._turns.pause()
            if room <= 0:
                errors[name] = ErrorCode.LEADER_NOT_AVAILABLE
                continue
            planned = plan_topic(
                self._request(name),
                self._publisher.image,
                self._config,
                taken,
                topic_id=random_id(),
            )
            if isinstance(planned, ControllerRefusal):
                self._failed(errors, name, planned)
                self._complain(name, planned)
            else:
                wanted.append(planned)
                taken.add(name)
                room -= len(planned.partitions)
        if wanted:
            made = await self._controller.create_topics(wanted)
            for topic, result in zip(wanted, made, strict=True):
                if isinstance(result, ControllerRefusal):
                    await self._turns.pause()
                    self._failed(errors, topic.name, result)
        return errors

    def _failed(self, errors: dict[str, ErrorCode], name: str, refusal: ControllerRefusal) -> None:
        """Set the error that the client gets for a topic that was not created."""
        if refusal.error == ErrorCode.NOT_CONTROLLER:
            errors[name] = ErrorCode.LEADER_NOT_AVAILABLE
            self._ask_controller(name)
        elif refusal.error != ErrorCode.TOPIC_ALREADY_EXISTS:  # another request was faster
            errors[name] = refusal.error

    @property
    def asking(self) -> bool:
        """Whether a request to the controller to create a topic is in flight."""
        return bool(self._asked)

    def _ask_controller(self, name: str) -> None:
        """Send the controller a request to create a topic, unless one is in flight."""
        if self._to_controller is None or name in self._asked:
            return
        task = asyncio.get_running_loop().create_task(self._ask(name, self._to_controller))
        self._asked[name] = task
        task.add_done_callback(lambda _: self._asked.pop(name))

    async def _ask(self, name: str, send: Callable[[object, int], Awaitable[object]]) -> None:
        topic = self._request(name)
        if topic.num_partitions == DEFAULT:
            topic.num_partitions = self._config.get_int("num.partitions")
        if topic.replication_factor == DEFAULT:
            topic.replication_factor = self._config.get_int("default.replication.factor")
        try:
            response = await send(CreateTopicsRequest(topics=[topic]), CREATE_TOPICS_VERSION)
        except OSError as error:
            logger.warning("cannot ask the controller for topic %s: %s", name, error)
            return
        assert isinstance(response, CreateTopicsResponse)
        for result in response.topics:
            if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                error_name = ErrorCode(result.error_code).name
                logger.warning("the controller does not create topic %s: %s", name, error_name)

    async def ensure_internal_topic(self, name: str) -> ErrorCode:
        """Create a coordinator's topic unless it exists."""
        return (await self.auto_create([name])).get(name, ErrorCode.NONE)

    def _complain(self, name: str, refusal: ControllerRefusal) -> None:
        """Log, at intervals, why a coordinator's topic cannot be created, since clients do not learn the reason."""
        key = REPLICATION_FACTORS.get(name)
        if key is None or refusal.error != ErrorCode.INVALID_REPLICATION_FACTOR:
            return
        now_s = asyncio.get_running_loop().time()
        if now_s - self._complained_at.get(name, -COMPLAIN_EVERY_S) < COMPLAIN_EVERY_S:
            return
        self._complained_at[name] = now_s
        logger.warning(
            "cannot create %s yet: %s=%d and only %d brokers are alive; start more, or set it lower",
            name,
            key,
            self._config.get_int(key),
            len(self._publisher.image.brokers),
        )

    def _request(self, name: str) -> CreatableTopic:
        configs = internal_topic_configs(name, self._config)
        if name == GROUP_METADATA_TOPIC:
            return self._internal(name, "offsets.topic.num.partitions", configs)
        if name == TRANSACTION_STATE_TOPIC:
            min_isr = str(self._unless_alone("transaction.state.log.min.isr"))
            configs["min.insync.replicas"] = min_isr
            return self._internal(name, "transaction.state.log.num.partitions", configs)
        if name == SHARE_GROUP_STATE_TOPIC:
            min_isr = str(self._unless_alone("share.coordinator.state.topic.min.isr"))
            configs["min.insync.replicas"] = min_isr
            return self._internal(name, "share.coordinator.state.topic.num.partitions", configs)
        return CreatableTopic(name=name, num_partitions=DEFAULT, replication_factor=DEFAULT)

    def _internal(self, name: str, partitions: str, configs: dict[str, str]) -> CreatableTopic:
        return CreatableTopic(
            name=name,
            num_partitions=self._config.get_int(partitions),
            replication_factor=self._unless_alone(REPLICATION_FACTORS[name]),
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )

    def _unless_alone(self, key: str) -> int:
        """A number of replicas; 1 on a single broker, unless it is configured."""
        if self._alone and key not in self._config.effective:
            return 1
        return self._config.get_int(key)


def internal_topic_configs(name: str, config: BrokerConfig) -> dict[str, str]:
    """The configs of a new coordinator's topic; none for other topics.

    Source: GroupCoordinator.groupMetadataTopicConfigs, TransactionStateManager's topic configs,
    ShareCoordinatorService.shareGroupStateTopicConfigs.
    """
    if name == GROUP_METADATA_TOPIC:
        return {
            "cleanup.policy": "compact",
            "segment.bytes": str(config.get_int("offsets.topic.segment.bytes")),
            "compression.type": "producer",
        }
    if name == TRANSACTION_STATE_TOPIC:
        return {
            "cleanup.policy": "compact",
            "segment.bytes": str(config.get_int("transaction.state.log.segment.bytes")),
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
            "min.insync.replicas": str(config.get_int("transaction.state.log.min.isr")),
        }
    if name == SHARE_GROUP_STATE_TOPIC:
        return {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "segment.bytes": str(config.get_int("share.coordinator.state.topic.segment.bytes")),
            "retention.ms": "-1",
            "min.insync.replicas": str(config.get_int("share.coordinator.state.topic.min.isr")),
        }
    return {}
