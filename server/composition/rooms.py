"""The second phase: builds the components of a broker, lowest layer first, and connects them. It does no I/O."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kwire.types import uuid_to_str

from ..clock import SystemClock, cpu_us
from ..config import BrokerConfig
from ..config.group_keys import effective as effective_group_config
from ..controller.auto_topics import AutoTopics
from ..controller.controller import Controller, ControllerSettings
from ..coordination.paths import entity_node
from ..coordinator.common.internal_topic import InternalTopicLog
from ..coordinator.group.config import GroupConfig
from ..coordinator.group.coordinator import GroupCoordinator
from ..coordinator.group.latest_offsets import LatestOffsets
from ..coordinator.group.modern.context import GroupSettings
from ..coordinator.share_state.config import ShareCoordinatorConfig
from ..coordinator.share_state.coordinator import ShareCoordinator
from ..coordinator.share_state.persister import StatePersister
from ..coordinator.transaction.config import TransactionConfig
from ..coordinator.transaction.coordinator import TransactionCoordinator
from ..coordinator.transaction.marker_writer import TransactionMarkerWriter
from ..coordinator.transaction.producer_ids import ProducerIds
from ..handlers.authorization import AllowAll, Authorizer
from ..handlers.ceilings import (
    CEILING_3_9,
    CEILING_4_3,
    GROUP_VERSION,
    TRANSACTION_VERSION,
    WITHOUT_OTHERS,
)
from ..handlers.context import Features, Services
from ..handlers.dispatch import RequestDispatcher
from ..handlers.registry import HandlerTable
from ..handlers.table import SERVED, WITHOUT_TELEMETRY
from ..log.upkeep import LogUpkeep
from ..loggers import BrokerLoggers, request_log_is_on
from ..metadata.departed import DepartedBrokers
from ..metadata.endpoint import WILDCARDS
from ..metadata.image import GROUPS, BrokerRegistration
from ..metadata.internal_topics import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from ..metadata.publisher import ImageListener, MetadataPublisher
from ..quotas.arithmetic import Window
from ..quotas.clients import ClientQuotas
from ..quotas.connections import ConnectionRates
from ..replication.fetch_session import FetchSessionCache
from ..replication.log_dir_moves import LogDirMoves
from ..replication.membership import Membership
from ..replication.partition import Partition
from ..replication.replica_manager import ReplicaManager
from ..turns import Turns
from .following import (
    BrokerSettings,
    ClientMetricsSettings,
    CoordinatorTopics,
    FeatureSettings,
    GroupConfigSettings,
    LogLoading,
    QuotaSettings,
    TopicSettings,
)
from .opened import Opened
from .share_groups import LateSharePartitions, share_partitions

if TYPE_CHECKING:
    from ..coordination.acls import AclStore
    from ..coordination.tokens import TokenStore
    from ..coordinator.transaction.marker_channels import MarkerChannels
    from ..coordinator.transaction.partition_verifier import PartitionVerifier
    from ..handlers.denials import Denials
    from ..handlers.gate import Observer
    from ..interbroker.clients import InterBrokerClients
    from ..interbroker.group_support import GroupSupport
    from ..interbroker.peer_watch import PeerWatch
    from ..telemetry.receiver import Telemetry

logger = logging.getLogger(__name__)

STRAY_ADVICE = (
    ". They are kept. If the directory comes from a cluster in ZooKeeper, bring its metadata here with the brokers"
    " stopped: kwire coordination export --zookeeper HOSTS FILE, then kwire coordination import"
    " --data-dir DIR FILE"
)
SURPLUS_ADVICE = (
    ". They are kept, but those that have all of their replicas on other brokers are deleted after"
    " kwire.stray.log.delete.delay.ms"
)


@dataclass(frozen=True, slots=True)
class Rooms:
    """The components of a broker. Shape: `clients` and `peers` are None if there can be no other broker.

    `acls` is None without an authorizer, `tokens` without a secret key for tokens. `image_listeners` are called with
    each new image, in this order.
    """

    publisher: MetadataPublisher
    replica_manager: ReplicaManager
    upkeep: LogUpkeep
    group_coordinator: GroupCoordinator
    transaction_coordinator: TransactionCoordinator
    share_coordinator: ShareCoordinator
    share_persister: StatePersister
    controller: Controller
    services: Services
    dispatcher: RequestDispatcher
    clients: InterBrokerClients | None
    peers: PeerWatch | None
    image_listeners: tuple[ImageListener, ...]
    acls: AclStore | None
    tokens: TokenStore | None
    connection_rates: ConnectionRates


def build_rooms(
    config: BrokerConfig,
    opened: Opened,
    cleanup: AsyncExitStack,
    *,
    fail: Callable[[Exception], None],
    observer: Observer | None = None,
    telemetry: Telemetry | None = None,
    console_address: str = "",
) -> Rooms:
    """Build the components, and register their closing with `cleanup`.

    Shape: `fail` as for `open_world`; `console_address` is the address of this broker's console for other brokers,
    empty if it has none.
    """
    seams, node_id, logs = opened.seams, opened.node_id, opened.log_manager
    clock, executor = seams.clock, seams.executor
    loggers = BrokerLoggers()
    alone = config.zookeeper_connect is None
    # The Apache Kafka release whose behavior this broker has: with ZooKeeper, 3.9 brokers may be in the cluster.
    ceiling = CEILING_4_3 if alone else CEILING_3_9
    # Other clocks stand still, or are moved by a test.
    turns = Turns(clock.monotonic_us, cpu_us=cpu_us if isinstance(clock, SystemClock) else None)
    cleanup.callback(turns.close)
    publisher = MetadataPublisher()
    departed = DepartedBrokers(config.get_int("zookeeper.session.timeout.ms"), clock.monotonic_ms)
    upkeep = LogUpkeep(config, logs, executor, clock)
    settings = TopicSettings(config, publisher)

    clients: InterBrokerClients | None = None
    if not alone:
        from ..interbroker.clients import InterBrokerClients

        # A lambda, because the controller is built later; it is called only once the broker is registered.
        clients = InterBrokerClients(
            node_id,
            config,
            clock,
            seams.network,
            publisher.current,
            lambda: controller,
            executor.in_thread,
        )
    replicas = ReplicaManager(
        node_id,
        logs,
        settings.of,
        clock,
        membership=(
            Membership[Partition](node_id, flush=upkeep.flush_ahead)
            if clients is None
            else Membership[Partition](
                node_id,
                max_lag_ms=config.get_int("replica.lag.time.max.ms"),
                live_brokers=publisher.live_brokers,
                propose=clients.alter_partitions.propose,
                flush=upkeep.flush_ahead,
                steady_ms=lambda _: clock.monotonic_ms(),
            )
        ),
        executor=executor,
        turns=turns,
        fetchers=None if clients is None else clients.fetchers,
        leader_quota=None if clients is None else clients.quotas.leader,
        stray_advice=STRAY_ADVICE if alone else SURPLUS_ADVICE,
    )

    replicas.appends.memory.max_bytes = config.get_int("kwire.queued.max.append.bytes")

    features = Features.of(ceiling.features)

    def transaction_config() -> TransactionConfig:
        return TransactionConfig.of(config, features.finalized.get(TRANSACTION_VERSION, 0))

    def group_config() -> GroupConfig:
        return GroupConfig.of(config, as_kafka_4=alone)

    share_states = ShareCoordinator(
        ShareCoordinatorConfig.of(config),
        InternalTopicLog(SHARE_GROUP_STATE_TOPIC, replicas),
        clock,
        publisher.current,
        lambda partition, offset: delete_state_records(replicas, partition, offset),
        turns,
    )
    persister = StatePersister(
        node_id,
        share_states,
        publisher.current,
        # A lambda, because `topic_creator` is built later.
        lambda: topic_creator.ensure_internal_topic(SHARE_GROUP_STATE_TOPIC),
        None if clients is None else clients.share_states,
    )

    def settings_of_groups(group_id: str, kind: str) -> GroupSettings | None:
        stored = publisher.current().configs.get(GROUPS)
        if not stored:  # the usual case, in each heartbeat
            return None
        return settings_of_group(config, stored.get(entity_node(group_id), {}), kind)

    groups = GroupCoordinator(
        group_config(),
        InternalTopicLog(GROUP_METADATA_TOPIC, replicas),
        clock,
        turns=turns,
        metadata=publisher.current,
        settings_of=settings_of_groups,
        persister=persister,
        latest_offsets=LatestOffsets(
            node_id,
            replicas,
            publisher.current,
            None if clients is None else clients.share_states,
        ),
    )
    producer_ids = ProducerIds(lambda: opened.cluster.allocate_producer_ids(node_id))
    marker_writer = TransactionMarkerWriter(
        replicas,
        groups,
        publisher.current,
        clock,
        write_timeout_ms=config.get_int("request.timeout.ms"),
    )
    markers: MarkerChannels | None = None
    if clients is not None:
        markers = clients.markers(marker_writer, turns)
    transactions = TransactionCoordinator(
        transaction_config(),
        InternalTopicLog(TRANSACTION_STATE_TOPIC, replicas),
        clock,
        producer_ids,
        markers or marker_writer,
        turns,
    )
    verifier: PartitionVerifier | None = None
    if clients is not None:
        verifier = clients.verifier(transactions)

    registration = registration_of(config, opened)._replace(console=console_address)
    controller = Controller(
        opened.cluster,
        publisher,
        node_id,
        lambda: registration,
        settings=controller_settings(config),
        local=replicas,
        open_channel=None if clients is None else clients.controller_channel,
        on_fatal=fail,
        turns=turns,
    )
    peers: PeerWatch | None = None
    if clients is not None and config.get_bool("kwire.failover.on.refusal"):
        from ..interbroker.peer_watch import PeerWatch

        peers = PeerWatch(
            node_id,
            seams.network,
            publisher.current,
            config.inter_broker_listener.listener,
            controller.peer_lost,
            controller.peer_found,
        )
    authorizer: Authorizer = AllowAll()
    acls: AclStore | None = None
    denials: Denials | None = None
    if config.has_authorizer:
        from ..coordination.acls import AclStore
        from ..handlers.denials import Denials
        from ..security.acl_authorizer import AclAuthorizer

        denials = Denials(clock.monotonic_ms)
        authorizer = decides = AclAuthorizer(
            config.super_users,
            allow_if_no_acl_is_found=config.get_bool("allow.everyone.if.no.acl.found"),
        )
        acls = AclStore(opened.store, decides, clock, turns)
    tokens = token_store(config, opened)
    window = quota_window(config, "quota.window.num", "quota.window.size.seconds")
    controller_window = quota_window(
        config, "controller.quota.window.num", "controller.quota.window.size.seconds"
    )
    quotas = ClientQuotas(window, controller_window)
    own_listener = None if alone else config.inter_broker_listener.listener
    connection_rates = ConnectionRates(window, own_listener if len(config.listeners) > 1 else None)
    handlers = HandlerTable(SERVED if telemetry is not None else WITHOUT_TELEMETRY, ceiling)
    moves = LogDirMoves(
        config,
        logs,
        replicas,
        executor,
        clock,
        turns,
        lambda tp: publisher.current().partition(*tp) is not None,
    )
    cleanup.callback(moves.close)
    group_support: GroupSupport | None = None
    if not alone:
        from ..interbroker.group_support import GroupSupport

        # Clients see the newer versions only from now on; in a cluster with Apache Kafka 3.9, they see its versions.
        group_support = GroupSupport(
            opened.cluster.registrations, lambda: handlers.raise_versions(WITHOUT_OTHERS)
        )
        cleanup.callback(group_support.close)
    topic_creator = AutoTopics(
        controller,
        publisher,
        config,
        to_controller=None if clients is None else clients.to_controller,
        alone=alone,
        turns=turns,
    )
    shares: Any = LateSharePartitions(
        lambda: share_partitions(
            config, replicas, publisher.current, persister, clock, turns, executor
        )
    )
    cleanup.callback(shares.close)
    services = Services(
        node_id=node_id,
        cluster_id=opened.cluster_id,
        # In a cluster, all brokers have to advertise the same address for a broker: clients drop a connection when its
        # broker's address changes.
        advertises=bool(config.advertised_listeners) or not alone,
        ceiling=ceiling.name,
        features=features,
        config=config,
        clock=clock,
        executor=executor,
        turns=turns,
        api_ranges=handlers.ranges,
        metadata=publisher.current,
        publisher=publisher,
        departed=departed,
        cluster=opened.cluster,
        log_manager=logs,
        log_dir_moves=moves,
        replica_manager=replicas,
        controller=controller,
        group_coordinator=groups,
        transaction_coordinator=transactions,
        share_coordinator=share_states,
        share_persister=persister,
        partition_verifier=verifier or transactions,
        marker_writer=marker_writer,
        producer_ids=producer_ids,
        fetch_sessions=FetchSessionCache(
            config.get_int("max.incremental.fetch.session.cache.slots"),
            max_partitions=config.get_int("kwire.fetch.session.max.partitions"),
        ),
        share_partitions=shares,
        authorizer=authorizer,
        acls=acls,
        tokens=tokens,
        quotas=quotas,
        denials=denials,
        telemetry=telemetry,
        loggers=loggers,
        group_support=group_support,
        topics=topic_creator,
    )
    replicas.moves = moves
    topics = CoordinatorTopics(groups, transactions, share_states, publisher.current)
    replicas.on_leadership(topics.on_leadership)
    own_settings = BrokerSettings(
        config, node_id, replicas, groups, transactions, group_config, transaction_config
    )
    loading = LogLoading(logs, settings, clock)
    quota_settings = QuotaSettings(quotas, connection_rates)
    subscriptions = ClientMetricsSettings(telemetry, has_http=config.http_listener is not None)
    group_configs = GroupConfigSettings()
    feature_levels = FeatureSettings(features, transactions, transaction_config)
    image_listeners: tuple[ImageListener, ...]
    if clients is None:
        image_listeners = (
            own_settings.on_image,
            feature_levels.on_image,
            quota_settings.on_image,
            subscriptions.on_image,
            group_configs.on_image,
            loading.on_image,
            replicas.on_image,
            topics.on_image,
            persister.on_image,
            controller.on_image,
        )
    else:
        assert markers is not None and verifier is not None
        image_listeners = (
            departed.on_image,
            clients.on_image,
            markers.on_image,
            verifier.on_image,
            own_settings.on_image,
            quota_settings.on_image,
            loading.on_image,
            clients.quotas.on_image,  # uses the settings that `own_settings` has applied
            replicas.on_image,
            topics.on_image,
            persister.on_image,
            controller.on_image,
            *(() if peers is None else (peers.on_image,)),
            *(() if group_support is None else (group_support.on_image,)),
        )
    publisher.subscribe(*image_listeners)

    cleanup.callback(replicas.close)
    cleanup.callback(persister.close)
    cleanup.push_async_callback(controller.shutdown)
    if clients is not None:
        assert markers is not None and verifier is not None
        cleanup.push_async_callback(clients.close)
        cleanup.callback(markers.close)
        cleanup.callback(verifier.close)
    dispatcher = RequestDispatcher(
        handlers,
        services,
        clock,
        turns=turns,
        max_decoded_bytes=config.get_int("kwire.request.decoded.max.bytes"),
        quotas=quotas,
        observer=observer,
    )
    loggers.changed = lambda: log_requests(dispatcher, observer, request_log_is_on())
    log_requests(dispatcher, observer, config.get_str("kwire.log.level") == "DEBUG")
    return Rooms(
        publisher=publisher,
        replica_manager=replicas,
        upkeep=upkeep,
        group_coordinator=groups,
        transaction_coordinator=transactions,
        share_coordinator=share_states,
        share_persister=persister,
        controller=controller,
        services=services,
        dispatcher=dispatcher,
        clients=clients,
        peers=peers,
        image_listeners=image_listeners,
        acls=acls,
        tokens=tokens,
        connection_rates=connection_rates,
    )


def log_requests(dispatcher: RequestDispatcher, observer: Observer | None, is_on: bool) -> None:
    """Log each request from now on, or no longer."""
    if is_on:
        from ..handlers.request_log import RequestLog

        observer = RequestLog(observer)
    dispatcher.observe_with(observer)


def delete_state_records(replicas: ReplicaManager, partition: int, offset: int) -> None:
    """Remove the records of a partition of __share_group_state before an offset, as its leader."""
    replica = replicas.get(SHARE_GROUP_STATE_TOPIC, partition)
    if replica is not None:
        error, _ = replica.delete_records_before(offset)
        if error:
            logger.info("%s is not pruned to %d: %s", replica.tp, offset, error.name)


def quota_window(config: BrokerConfig, samples: str, seconds: str) -> Window:
    """The window for measuring rates, from two settings by name."""
    return Window(config.get_int(samples), 1000 * config.get_int(seconds))


def token_store(config: BrokerConfig, opened: Opened) -> TokenStore | None:
    """The delegation tokens; None if the brokers have no secret key for tokens."""
    secret = config.get_optional_str("delegation.token.secret.key")
    if secret is None:
        secret = config.get_optional_str("delegation.token.master.key")
    if not secret:
        return None
    from uuid import uuid4

    from ..coordination.tokens import TokenStore
    from ..security.delegation_tokens import DelegationTokens, TokenTimes

    times = TokenTimes(
        config.get_int("delegation.token.max.lifetime.ms"),
        config.get_int("delegation.token.expiry.time.ms"),
    )
    tokens = DelegationTokens(secret, times)
    return TokenStore(opened.store, tokens, opened.seams.clock, lambda: uuid_to_str(uuid4().bytes))


def controller_settings(config: BrokerConfig) -> ControllerSettings:
    """The settings of the controller."""
    alone = config.zookeeper_connect is None
    return ControllerSettings(
        listener="" if alone else config.inter_broker_listener.listener,
        unclean_leader_election=config.get_bool("unclean.leader.election.enable"),
        delete_topic_enable=config.get_bool("delete.topic.enable"),
        auto_leader_rebalance=config.get_bool("auto.leader.rebalance.enable"),
        leader_imbalance_percentage=config.get_int("leader.imbalance.per.broker.percentage"),
        leader_imbalance_check_s=config.get_int("leader.imbalance.check.interval.seconds"),
    )


def settings_of_group(
    config: BrokerConfig, stored: Mapping[str, str], kind: str = "consumer"
) -> GroupSettings | None:
    """The settings of a consumer group or share group that has its own configs."""
    if not stored:
        return None
    values = effective_group_config(config, stored)

    def number(name: str) -> int:
        value = values[name]
        assert isinstance(value, int)
        return value

    return GroupSettings(
        number(f"{kind}.session.timeout.ms"),
        number(f"{kind}.heartbeat.interval.ms"),
        number(f"{kind}.assignment.interval.ms"),
    )


def registration_of(config: BrokerConfig, opened: Opened) -> BrokerRegistration:
    """The registration that other brokers see. Its addresses do not depend on those that clients get."""
    advertised = {endpoint.listener: endpoint for endpoint in config.advertised_listeners}
    endpoints = []
    for own in opened.endpoints:
        told = advertised.get(own.listener)
        if told is not None:
            host, port = told.host, told.port or own.port
        else:
            host = opened.host_name if own.host in WILDCARDS else own.host
            port = own.port
        endpoints.append(own._replace(host=host, port=port))
    return BrokerRegistration(
        opened.node_id,
        tuple(endpoints),
        config.get_optional_str("broker.rack"),
        # From 1, because releases before 3.7 refuse a range from 0.
        features={GROUP_VERSION: (1, CEILING_4_3.features[GROUP_VERSION][1])},
    )
