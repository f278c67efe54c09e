"""Applies new metadata images to components that do not read images themselves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..clock import Clock
from ..config import BrokerConfig
from ..config.changes import ChangeRefused
from ..config.group_keys import without_effect
from ..controller.features import finalized
from ..coordination.paths import desanitize
from ..coordination.quota_entities import CLIENTS, IPS, USERS, address_of, entity_of, quota_values
from ..coordinator.common.front_desk import FrontDesk
from ..coordinator.group.config import GroupConfig
from ..coordinator.group.coordinator import GroupCoordinator
from ..coordinator.share_state.coordinator import ShareCoordinator
from ..coordinator.transaction.config import TransactionConfig
from ..coordinator.transaction.coordinator import TransactionCoordinator
from ..log.log_config import LogConfig
from ..log.log_manager import LogManager
from ..metadata.image import BROKERS, CLIENT_METRICS, GROUPS, MetadataImage
from ..metadata.publisher import MetadataPublisher
from ..metadata.topic_partition import TopicPartition
from ..quotas.clients import ClientQuotas
from ..quotas.connections import UNLIMITED, ConnectionRates
from ..quotas.entities import CLIENT_QUOTAS, CONNECTION_CREATION_RATE, IP_QUOTAS
from ..replication.partition import Partition
from ..replication.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from ..handlers.context import Features
    from ..telemetry.receiver import Telemetry

logger = logging.getLogger(__name__)

NO_HTTP = "only a broker with kwire.http.listener (--http) accepts the metrics of clients, because it shows them there"
NO_DECODER = "opentelemetry-proto is not installed; pip install 'kwire[telemetry]'"


class TopicSettings:
    """The current settings of topics."""

    def __init__(self, config: BrokerConfig, publisher: MetadataPublisher) -> None:
        self._config = config
        self._publisher = publisher

    def of(self, topic: str) -> tuple[LogConfig, int]:
        """The log config of a topic and its min.insync.replicas."""
        values = self._config.topic_config(self._publisher.image.topic_config(topic))
        minimum = values["min.insync.replicas"]
        assert isinstance(minimum, int)
        return LogConfig.of(self._config, values), minimum

    def log_config(self, topic: str) -> LogConfig:
        """The log config of a topic."""
        return self.of(topic)[0]


class BrokerSettings:
    """Applies the dynamic settings that an image has for this broker."""

    def __init__(
        self,
        config: BrokerConfig,
        node_id: int,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        group_config: Callable[[], GroupConfig],
        transaction_config: Callable[[], TransactionConfig],
    ) -> None:
        self._config = config
        self._node_id = node_id
        self._replicas = replicas
        self._groups = groups
        self._transactions = transactions
        self._group_config = group_config
        self._transaction_config = transaction_config
        self._begun = False

    def on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        """Apply the settings of the first image, and later changes."""
        if not self._begun:
            self._begun = True
            self._take(after)
        elif any(kind == BROKERS for kind, _ in after.changes_since(before).configs):
            self._take(after)
            self._replicas.reconfigure()
            self._groups.reconfigure(self._group_config())
            self._transactions.reconfigure(self._transaction_config())

    def _take(self, image: MetadataImage) -> None:
        self._config.set_dynamic(
            broker=image.broker_config(self._node_id), default=image.default_broker_config()
        )


class QuotaSettings:
    """Applies the quotas that an image has for users, clients and addresses."""

    def __init__(self, quotas: ClientQuotas, connections: ConnectionRates) -> None:
        self._quotas = quotas
        self._connections = connections

    def on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        """Apply changes."""
        for entity_type, name in after.changes_since(before).configs:
            node = entity_type, name
            config = after.config(*node)
            if entity_type in (USERS, CLIENTS):
                entity = entity_of(*node)
                if entity is not None:
                    self._quotas.set(entity, quota_values(node, config, CLIENT_QUOTAS))
            elif entity_type == IPS:
                rate = quota_values(node, config, IP_QUOTAS).get(CONNECTION_CREATION_RATE)
                self._limit_address(name, rate)

    def _limit_address(self, name: str, rate: float | None) -> None:
        address = address_of(name)
        if address is not None:
            if rate is not None:
                rate = int(max(0, min(rate, UNLIMITED)))  # the store may hold Infinity
            self._connections.limit_address(address, rate)
        elif rate is not None:
            logger.warning(
                "/config/ips/%s has no effect: kwire limits only addresses, not host names", name
            )


class ClientMetricsSettings:
    """Applies an image's subscriptions to client metrics (KIP-714).

    Shape: `telemetry` is None if the broker does not accept metrics; a log line says so for each subscription.
    """

    def __init__(self, telemetry: Telemetry | None, *, has_http: bool) -> None:
        self._telemetry = telemetry
        self._has_http = has_http

    def on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        """Apply changes."""
        for entity_type, node in after.changes_since(before).configs:
            if entity_type == CLIENT_METRICS:
                self._set(node, after.config(entity_type, node))

    def _set(self, node: str, config: Mapping[str, str]) -> None:
        name = desanitize(node)
        if self._telemetry is not None:
            try:
                self._telemetry.clients.set(name, config)
            except ChangeRefused as refused:
                logger.warning(
                    "client metrics subscription %r has no effect: %s", name, refused.message
                )
        elif config:
            why = NO_DECODER if self._has_http else NO_HTTP
            logger.warning("client metrics subscription %r has no effect: %s", name, why)


class FeatureSettings:
    """Applies an image's finalized levels of features."""

    def __init__(
        self,
        features: Features,
        transactions: TransactionCoordinator,
        transaction_config: Callable[[], TransactionConfig],
    ) -> None:
        self._features = features
        self._transactions = transactions
        self._transaction_config = transaction_config

    def on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        """Apply them if they have changed."""
        if after.changes_since(before).features:
            levels = finalized(self._features.supported, after.features)
            self._features.set(levels, after.features_epoch)
            self._transactions.reconfigure(self._transaction_config())


class GroupConfigSettings:
    """Logs which configs of groups have no effect."""

    def on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        """Check the configs that have changed; at startup, all of them."""
        for entity_type, node in after.changes_since(before).configs:
            if entity_type == GROUPS:
                now, then = after.config(entity_type, node), before.config(entity_type, node)
                idle = [name for name in without_effect(now) if now[name] != then.get(name)]
                if idle:
                    logger.warning(
                        "configs of group %r have no effect, because kwire has no groups of this type: %s",
                        desanitize(node),
                        ", ".join(idle),
                    )


class LogLoading:
    """Loads the logs once the first image contains the settings of their topics."""

    def __init__(self, logs: LogManager, settings: TopicSettings, clock: Clock) -> None:
        self._logs = logs
        self._settings = settings
        self._clock = clock
        self._loaded = False

    def on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        """Load the logs, in the first call only."""
        if not self._loaded:
            self._loaded = True
            self._logs.load(self._settings.log_config, self._clock.now_ms())


class CoordinatorTopics:
    """Informs the coordinators of changes to their internal topics, and of deleted topics."""

    def __init__(
        self,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        share_states: ShareCoordinator,
        image: Callable[[], MetadataImage],
    ) -> None:
        self._groups = groups
        self._share_states = share_states
        self._image = image
        desks: tuple[FrontDesk[Any, Any], ...] = (groups, transactions, share_states)
        self._desks = {desk.topic: desk for desk in desks}

    def on_leadership(self, partition: Partition, leads: bool) -> None:
        """Handle that this broker has become the leader of a partition, or no longer is."""
        desk = self._desks.get(partition.tp.topic)
        if desk is None:
            return
        if leads:
            desk.lead(partition.tp.partition, partition.state.leader_epoch)
        else:
            desk.resign(partition.tp.partition)

    def on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        """Handle deleted topics, and a new number of partitions of an internal topic."""
        delta = after.changes_since(before)
        if delta.deleted:
            ids = {topic.name: topic.topic_id for topic in delta.deleted.values()}

            def made_again(tp: TopicPartition) -> bool:
                found = self._image().topics.get(tp.topic)
                return found is not None and found.topic_id != ids[tp.topic]

            self._groups.partitions_deleted(
                (
                    TopicPartition(topic.name, number)
                    for topic in delta.deleted.values()
                    for number in topic.partitions
                ),
                made_again,
            )
            gone = {topic.topic_id for topic in delta.deleted.values()}
            self._groups.share.topics_deleted(gone)
            self._share_states.topics_deleted(gone)
        for topic, desk in self._desks.items():
            if topic in delta.changed:
                desk.topic_partitions = len(after.topics[topic].partitions)
