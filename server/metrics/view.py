"""The input of a scrape: references to a broker's components, and sums over its partitions that are made in steps."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .requests import RequestMetrics, TopicMetrics

if TYPE_CHECKING:
    from ..config import BrokerConfig
    from ..controller.controller import Controller
    from ..coordinator.group.coordinator import GroupCoordinator
    from ..coordinator.group.kinds import AnyGroup
    from ..coordinator.transaction.coordinator import TransactionCoordinator
    from ..handlers.login import SaslLogins
    from ..log.log_manager import LogManager
    from ..log.upkeep import LogUpkeep
    from ..metadata.image import MetadataImage
    from ..net.listener import Listener
    from ..quotas.clients import ClientQuotas
    from ..replication.fetch_session import FetchSessionCache
    from ..replication.partition import Partition
    from ..replication.replica_manager import ReplicaManager
    from ..telemetry.receiver import Telemetry
    from ..turns import Turns
    from ..watchdog import Watchdog
    from .rates import Rates
    from .sessions import StoreSessions

#: The number of partitions, groups or connections that are processed in one step.
STEP = 32


@dataclass(frozen=True, slots=True)
class CounterSources:
    """The parts of a running broker whose counters are read.

    Shape: `state` is the broker's, as in Apache Kafka's BrokerState; `watchdog` is None if the process runs more than
    this broker; `upkeep` counts flushes; `telemetry` holds the metrics that clients push, None if the broker does not
    accept them; `logins` are those of the listeners with logins. Unit: `busy_s()` is the CPU time of the loop's thread.
    """

    node_id: int
    cluster_id: str
    version: str
    config: BrokerConfig
    requests: RequestMetrics
    replicas: ReplicaManager
    logs: LogManager
    upkeep: LogUpkeep
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    fetch_sessions: FetchSessionCache
    controller: Controller
    listeners: tuple[Listener, ...]
    logins: Mapping[str, SaslLogins]
    quotas: ClientQuotas
    turns: Turns
    watchdog: Watchdog | None
    sessions: StoreSessions
    rates: Rates
    telemetry: Telemetry | None
    busy_s: Callable[[], float]


@dataclass(slots=True)
class TopicIn:
    """The totals produced to a topic's partitions on this broker."""

    appends: int = 0
    bytes: int = 0
    messages: int = 0


@dataclass(slots=True)
class View:
    """One scrape. Shape: `look` fills the fields below `limit`. Unit: `steady_ms` never goes back.

    `partitions` and `group_partitions` are those with their own series; `left_out` is the number of others.
    """

    sources: CounterSources
    state: int
    image: MetadataImage
    now_ms: int
    steady_ms: int
    limit: int

    partitions: list[Partition] = field(default_factory=list)
    left_out: int = 0
    leaders: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0
    waiting_fetches: int = 0
    waiting_produces: int = 0
    topics_in: dict[str, TopicIn] = field(default_factory=dict)
    topics: dict[str, TopicMetrics] = field(default_factory=dict)
    global_partitions: int = 0
    offline_partitions: int = 0
    imbalance: int = 0
    groups: list[AnyGroup] = field(default_factory=list)
    groups_by_state: dict[str, int] = field(default_factory=dict)
    offsets: int = 0
    transactional_ids: int = 0
    open_transactions: int = 0
    oldest_transaction_ms: int = 0
    connections: dict[tuple[str, str, str], int] = field(default_factory=dict)
    unsent_connections: int = 0


Steps = Generator[None, None, None]


def look(view: View) -> Steps:
    """Fill a view, in steps; does not iterate over anything that may change in between."""
    yield from look_at_partitions(view)
    yield from look_at_topics(view)
    yield from look_at_image(view)
    yield from look_at_groups(view)
    yield from look_at_transactions(view)
    yield from look_at_connections(view)


def look_at_partitions(view: View) -> Steps:
    """Sums over the replicas on this broker."""
    everything = list(view.sources.replicas.partitions.values())
    view.partitions = everything[: view.limit]
    view.left_out = max(0, len(everything) - view.limit)
    for number, partition in enumerate(everything):
        if number % STEP == 0:
            yield
        found = view.topics_in.get(partition.tp.topic)
        if found is None:
            found = view.topics_in[partition.tp.topic] = TopicIn()
        found.appends += partition.appends
        found.bytes += partition.bytes_in
        found.messages += partition.messages_in
        waiters = partition.waiters
        view.waiting_fetches += len(waiters.fetches)
        view.waiting_produces += len(waiters.commits)
        if partition.is_leader:
            view.leaders += 1
            view.under_replicated += is_under_replicated(partition)
            view.under_min_isr += is_under_min_isr(partition)
            view.at_min_isr += is_at_min_isr(partition)


def look_at_topics(view: View) -> Steps:
    """The activity of clients on each topic; the counts of topics that are gone are added up and forgotten."""
    counted = view.sources.requests.topics
    image = view.image
    for number, (key, metrics) in enumerate(list(counted.items())):
        if number % STEP == 0:
            yield
        if isinstance(key, bytes):
            topic = image.topics_by_id.get(key)
            name = None if topic is None else topic.name
        else:
            name = key if key in image.topics else None
        if name is None:
            counted.pop(key, None)
            view.sources.requests.gone.add(metrics)
            continue
        known = view.topics.get(name)
        if known is None:
            known = view.topics[name] = TopicMetrics()
        known.add(metrics)


def look_at_image(view: View) -> Steps:
    """Sums over the cluster's partitions; only the controller reports them."""
    if not view.sources.controller.is_active:
        return
    seen = 0
    for topic in view.image.topics.values():
        for partition in topic.partitions.values():
            seen += 1
            if seen % STEP == 0:
                yield
            view.offline_partitions += partition.leader < 0
            view.reassigning += bool(partition.adding or partition.removing)
            view.imbalance += bool(partition.replicas) and partition.leader != partition.replicas[0]
    view.global_partitions = seen


def look_at_groups(view: View) -> Steps:
    """The groups that this broker coordinates."""
    for _, shard in view.sources.groups.runtime.active():
        for number, group in enumerate(list(shard.groups.values())):
            if number % STEP == 0:
                yield
            state = group.state.value
            view.groups.append(group)
            view.groups_by_state[state] = view.groups_by_state.get(state, 0) + 1
            view.offsets += len(group.offsets.committed)


def look_at_transactions(view: View) -> Steps:
    """The transactional ids that this broker coordinates."""
    for _, shard in view.sources.transactions.runtime.active():
        view.transactional_ids += len(shard.transactions)
        for number, transactional_id in enumerate(list(shard.open)):
            if number % STEP == 0:
                yield
            transaction = shard.transactions.get(transactional_id)
            stored = None if transaction is None else transaction.stored
            if stored is None or stored.start_ms < 0:
                continue
            view.open_transactions += 1
            view.oldest_transaction_ms = max(
                view.oldest_transaction_ms, view.now_ms - stored.start_ms
            )


def look_at_connections(view: View) -> Steps:
    """Connections by listener and by the client's name and version."""
    for listener in view.sources.listeners:
        name = listener.endpoint.listener
        for number, session in enumerate(list(listener.sessions)):
            if number % STEP == 0:
                yield
            info = session.info
            key = name, info.client_software_name, info.client_software_version
            view.connections[key] = view.connections.get(key, 0) + 1
            view.unsent_connections += session.transport.unsent_bytes > 0


def is_under_replicated(partition: Partition) -> bool:
    """Whether an assigned replica is not in sync; for the leader."""
    return partition.is_leader and len(partition.isr.isr) < len(partition.state.replicas)


def is_under_min_isr(partition: Partition) -> bool:
    """Whether fewer replicas are in sync than min.insync.replicas; for the leader."""
    return partition.is_leader and len(partition.isr.isr) < partition.min_insync_replicas


def is_at_min_isr(partition: Partition) -> bool:
    """Whether exactly min.insync.replicas replicas are in sync; for the leader."""
    return partition.is_leader and len(partition.isr.isr) == partition.min_insync_replicas
