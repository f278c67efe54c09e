"""The table of all served series: Apache Kafka's MBeans, kafka_exporter's series, and kwire's own.

A row names an MBean as in Apache Kafka's documentation; `names.py` derives the names of its series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from kwire.api import ApiKey
from kwire.errors import ErrorCode

from .histogram import Histogram, merged
from .names import MBeanKind, Name, series_of
from .process import disk_bytes
from .requests import FETCH, ApiMetrics, TopicMetrics
from .view import (
    View,
    is_at_min_isr,
    is_under_min_isr,
    is_under_replicated,
)

if TYPE_CHECKING:
    from ..handlers.login import LoginCounts
    from ..replication.partition import Partition
    from ..telemetry.receiver import Telemetry

#: Label values, and the value. If there are fewer values than labels, the last labels are omitted.
Sample: TypeAlias = tuple[tuple[str, ...], float]
#: Label values, the counts of the last minutes, and the total count.
Distribution: TypeAlias = tuple[tuple[str, ...], list[int], int]

NOTHING: tuple[str, ...] = ()
TOPIC = ("topic",)
PARTITION = ("topic", "partition")
CLIENT_ID = ("clientId",)
REQUEST = ("request",)
LISTENER = ("listener", "networkProcessor")
SOFTWARE = ("clientSoftwareName", "clientSoftwareVersion", *LISTENER)
#: The one event loop takes the place of all network threads.
LOOP = "0"


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """One MBean, or another source of series.

    Shape: `read` returns samples (for histograms, distributions). `each` reads one partition instead; with `led`, only
    partitions that this broker leads. `series` has the names, in all sets of rules.
    """

    bean: str
    labels: tuple[str, ...]
    doc: str
    series: tuple[Name, ...]
    kind: MBeanKind
    read: Callable[[View], Iterable[Sample] | Iterable[Distribution]] | None = None
    each: Callable[[Partition], float] | None = None
    led: bool = False


def bean(
    kind: MBeanKind,
    domain: str,
    type_: str,
    name: str,
    doc: str,
    read: Callable[[View], float | Iterable[Sample]] | None = None,
    labels: tuple[str, ...] = NOTHING,
    *,
    each: Callable[[Partition], float] | None = None,
    also: tuple[Name, ...] = (),
) -> SeriesRow:
    """A row for an MBean of Apache Kafka. Shape: `also` are names that do not follow from a rule."""
    shown = f"{domain}:type={type_}" + ("" if kind is MBeanKind.FLAT else f",name={name}")
    shown += "".join(f",{label}=*" for label in labels) + (
        f" [{name}]" if kind is MBeanKind.FLAT else ""
    )
    series = (*series_of(kind, domain, type_, name, labels), *also)
    return SeriesRow(shown, labels, doc, series, kind, _samples(read), each)


def own(
    name: str,
    doc: str,
    read: Callable[[View], float | Iterable[Sample]] | None = None,
    labels: tuple[str, ...] = NOTHING,
    *,
    counts: bool = False,
    each: Callable[[Partition], float] | None = None,
) -> SeriesRow:
    """A row for a series that is not an MBean. Shape: `each` reads partitions that this broker leads."""
    series = (Name(name, labels, counts),)
    return SeriesRow(
        "", labels, doc, series, MBeanKind.GAUGE, _samples(read), each, each is not None
    )


def _samples(
    read: Callable[[View], float | Iterable[Sample]] | None,
) -> Callable[[View], Iterable[Sample]] | None:
    if read is None:
        return None

    def samples(view: View) -> Iterable[Sample]:
        found = read(view)
        return [(NOTHING, found)] if isinstance(found, int | float) else found

    return samples


# -- readers


def by_topic(read: Callable[[TopicMetrics], int]) -> Callable[[View], Iterator[Sample]]:
    """The value for all topics together, without a label, followed by each topic's value."""

    def samples(view: View) -> Iterator[Sample]:
        total = sum(map(read, view.topics.values())) + read(view.sources.requests.gone)
        yield NOTHING, total
        for name in _topics(view):
            found = view.topics.get(name)
            yield (name,), 0 if found is None else read(found)

    return samples


def bytes_in(view: View) -> Iterator[Sample]:
    gone = view.sources.replicas.membership.counts.bytes_in_gone
    yield NOTHING, sum(each.bytes for each in view.topics_in.values()) + gone
    for name in _topics(view):
        yield (name,), view.topics_in[name].bytes


def messages_in(view: View) -> Iterator[Sample]:
    gone = view.sources.replicas.membership.counts.messages_in_gone
    yield NOTHING, sum(each.messages for each in view.topics_in.values()) + gone
    for name in _topics(view):
        yield (name,), view.topics_in[name].messages


def produce_requests(view: View) -> Iterator[Sample]:
    counts, gone = view.sources.replicas.membership.counts, view.sources.requests.gone
    total = sum(each.appends for each in view.topics_in.values()) + counts.appends_gone
    refused = sum(each.refused_produce for each in view.topics.values()) + gone.refused_produce
    yield NOTHING, total + refused
    for name in _topics(view):
        found = view.topics.get(name)
        yield (
            (name,),
            view.topics_in[name].appends + (0 if found is None else found.refused_produce),
        )


def _topics(view: View) -> Iterator[str]:
    """The topics with their own series: those with partitions here, up to the limit."""
    for number, name in enumerate(view.topics_in):
        if number >= view.limit:
            return
        yield name


def api_name(api_key: int) -> str:
    """The name of an API in Apache Kafka's metrics, such as OffsetCommit."""
    return "".join(word.capitalize() for word in ApiKey(api_key).name.split("_"))


def consumers(view: View) -> list[int]:
    """Fetch requests of consumers, by version."""
    requests = view.sources.requests
    followers = requests.fetch_follower.versions
    return [
        max(0, both - one)
        for both, one in zip(requests.apis[FETCH].versions, followers, strict=True)
    ]


def apis(view: View) -> Iterator[tuple[str, ApiMetrics]]:
    """Each requested API; Fetch has additional entries for consumers and for followers."""
    requests = view.sources.requests
    for api_key, api in list(requests.apis.items()):
        yield api_name(api_key), api
    yield "FetchConsumer", requests.fetch_consumer
    yield "FetchFollower", requests.fetch_follower


def request_counts(view: View) -> Iterator[Sample]:
    for name, api in apis(view):
        is_consumers = api is view.sources.requests.fetch_consumer
        versions = consumers(view) if is_consumers else api.versions
        used = [(version, count) for version, count in enumerate(versions) if count]
        for version, count in used or [(0, 0)]:
            yield (name, str(version)), count


def request_errors(view: View) -> Iterator[Sample]:
    requests = view.sources.requests
    for name, api in apis(view):
        if api is requests.fetch_consumer or api is requests.fetch_follower:
            continue  # these are counted under Fetch, and must not appear twice in a sum
        errors = api.errors
        if api is requests.apis[FETCH]:
            errors = dict(requests.fetch_consumer.errors)
            for code, count in requests.fetch_follower.errors.items():
                errors[code] = errors.get(code, 0) + count
        for code, count in (errors or {0: 0}).items():
            yield (name, error_name(code)), count


def error_name(code: int) -> str:
    """The name of an error."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def request_times(which: str) -> Callable[[View], Iterator[Distribution]]:
    """The distribution of one of the times of each API."""

    def distributions(view: View) -> Iterator[Distribution]:
        requests = view.sources.requests
        for name, api in apis(view):
            histograms: list[Histogram]
            if api is requests.apis[FETCH]:
                both = (requests.fetch_consumer, requests.fetch_follower)
                histograms = [each.histograms()[which] for each in both]
            else:
                histograms = [api.histograms()[which]]
            for histogram in histograms:
                histogram.roll(view.steady_ms)
            count = sum(consumers(view)) if api is requests.fetch_consumer else api.requests
            yield (name,), merged([each.window() for each in histograms]), count

    return distributions


def idle(view: View) -> float:
    """The fraction of the last half minute in which the loop used no CPU time."""
    sources = view.sources
    busy = sources.rates.per_second("busy", view.steady_ms, sources.busy_s())
    return min(1.0, max(0.0, 1 - busy))


def connection_counts(view: View) -> Iterator[Sample]:
    for listener in view.sources.listeners:
        yield (listener.endpoint.listener, LOOP), len(listener.sessions)


def connections_created(view: View) -> Iterator[Sample]:
    for listener in view.sources.listeners:
        yield (listener.endpoint.listener, LOOP), listener.accepted_count


def connection_rate(closed: bool) -> Callable[[View], Iterator[Sample]]:
    def samples(view: View) -> Iterator[Sample]:
        for listener in view.sources.listeners:
            name = listener.endpoint.listener
            total = listener.accepted_count - (len(listener.sessions) if closed else 0)
            rate = view.sources.rates.per_second((name, closed), view.steady_ms, total)
            yield (name, LOOP), rate

    return samples


def logins(read: Callable[[LoginCounts], int]) -> Callable[[View], Iterator[Sample]]:
    """One of the counters of logins, for each listener with SASL."""

    def samples(view: View) -> Iterator[Sample]:
        for listener, counted in view.sources.logins.items():
            yield (listener, LOOP), sum(read(each) for each in list(counted.counts.values()))

    return samples


def logins_by_mechanism(view: View) -> Iterator[Sample]:
    for listener, counted in view.sources.logins.items():
        for mechanism, counts in list(counted.counts.items()):
            yield (listener, mechanism or "unknown", "successful"), counts.successful
            yield (listener, mechanism or "unknown", "failed"), counts.failed


def throttled(which: str) -> Callable[[View], Iterator[Sample]]:
    """One of the counters of each kind of quota."""

    def samples(view: View) -> Iterator[Sample]:
        quotas = view.sources.quotas
        for quota in (quotas.produce, quotas.fetch, quotas.request, quotas.mutation):
            yield (quota.key,), getattr(quota, which)

    return samples


def software(view: View) -> Iterator[Sample]:
    for (listener, name, version), count in view.connections.items():
        yield (name, version, listener, LOOP), count


def groups_in(state: str) -> Callable[[View], float]:
    return lambda view: view.groups_by_state.get(state, 0)


def log_sizes_of_transactions(view: View) -> float:
    slots = view.sources.transactions.runtime.slots
    found = (view.sources.replicas.get("__transaction_state", each) for each in list(slots))
    return sum(each.log.size_bytes for each in found if each is not None)


def load_time(of: Callable[[list[int]], float]) -> Callable[[View], float]:
    def read(view: View) -> float:
        times = list(view.sources.transactions.runtime.load_times_ms)
        return of(times) if times else 0

    return read


def session_count(view: View) -> float:
    return len(view.sources.fetch_sessions.sessions)


def session_partitions(view: View) -> float:
    sessions = list(view.sources.fetch_sessions.sessions.values())
    return sum(len(session.partitions) for session in sessions)


def purgatory(view: View) -> Iterator[Sample]:
    yield ("Produce",), view.waiting_produces
    yield ("Fetch",), view.waiting_fetches


def offline_directories(view: View) -> float:
    return sum(each.offline for each in view.sources.logs.directories)


def disk(which: str) -> Callable[[View], Iterator[Sample]]:
    def samples(_: View) -> Iterator[Sample]:
        found = disk_bytes(which)
        if found is not None:
            yield NOTHING, found

    return samples


# -- kafka_exporter: what each broker knows best, so that the sum over brokers is the cluster


def topic_partitions(view: View) -> Iterator[Sample]:
    for name in _topics(view):
        topic = view.image.topics.get(name)
        first = None if topic is None else topic.partitions.get(0)
        if topic is not None and first is not None and first.leader == view.sources.node_id:
            yield (name,), len(topic.partitions)


def brokers(view: View) -> Iterator[Sample]:
    if view.sources.controller.is_active:
        yield NOTHING, len(view.image.brokers)


def group_offsets(view: View) -> Iterator[Sample]:
    for group, topic, partition, offset, _ in _committed(view):
        yield (group, topic, str(partition)), offset


def group_lags(view: View) -> Iterator[Sample]:
    for group, topic, partition, offset, end in _committed(view):
        if end is not None:
            yield (group, topic, str(partition)), end - offset


def _committed(view: View) -> Iterator[tuple[str, str, int, int, int | None]]:
    """Group, topic, partition, committed offset, and the high watermark if the partition is on this broker."""
    left = view.limit
    replicas = view.sources.replicas.partitions
    for group in view.groups:
        for tp, stored in list(group.offsets.committed.items()):
            if not left:
                return
            left -= 1
            replica = replicas.get(tp)
            offset = stored.value.offset
            end = None
            if replica is not None:
                end = replica.log.high_watermark
                if not replica.is_leader and offset > end:
                    # A follower hears of the high watermark later, but has everything below it if it is in sync.
                    in_sync = view.sources.node_id in replica.state.isr
                    end = min(offset, replica.log.log_end_offset) if in_sync else None
            yield group.group_id, tp.topic, tp.partition, offset, end


def group_sums(lag: bool) -> Callable[[View], Iterator[Sample]]:
    """Sums by group and topic; sums of lags only where all lags are known."""

    def samples(view: View) -> Iterator[Sample]:
        sums: dict[tuple[str, str], int] = {}
        beyond: dict[
            tuple[str, str], int
        ] = {}  # these do not make up for a lag in another partition
        unknown: set[tuple[str, str]] = set()
        for group, topic, _, offset, end in _committed(view):
            key = group, topic
            if not lag:
                sums[key] = sums.get(key, 0) + offset
            elif end is None:
                unknown.add(key)
            else:
                sums[key] = sums.get(key, 0) + max(0, end - offset)
                beyond[key] = beyond.get(key, 0) + min(0, end - offset)
        for key, value in sums.items():
            if key not in unknown:
                yield key, value or beyond.get(key, 0)

    return samples


def group_members(view: View) -> Iterator[Sample]:
    for group in view.groups[: view.limit]:
        yield (group.group_id,), len(group.members)


# -- kwire's own


def long_turns(view: View) -> Iterator[Sample]:
    watchdog = view.sources.watchdog
    if watchdog is not None:
        yield NOTHING, watchdog.long_turns


def long_turns_by_api(view: View) -> Iterator[Sample]:
    watchdog = view.sources.watchdog
    if watchdog is not None:
        for api, count in list(watchdog.long_turns_by_api.items()):
            yield (api,), count


def longest_turn(view: View) -> Iterator[Sample]:
    watchdog = view.sources.watchdog
    if watchdog is not None:
        longest_ns, watchdog.selector.longest_ns = watchdog.selector.longest_ns, 0
        yield NOTHING, longest_ns / 1e9


def frame_bytes(view: View) -> float:
    return view.sources.listeners[0].memory.used


def unread_bytes(view: View) -> float:
    return view.sources.listeners[0].output.used


def pushed(read: Callable[[Telemetry], float]) -> Callable[[View], Iterator[Sample]]:
    """One of the values about metrics that clients push; none if the broker does not accept them."""

    def samples(view: View) -> Iterator[Sample]:
        if view.sources.telemetry is not None:
            yield NOTHING, read(view.sources.telemetry)

    return samples


def log_dir_lag(view: View) -> Iterator[Sample]:
    """The lag of copies being made in other log directories behind their logs."""
    logs = view.sources.logs
    pairs = [(logs.get(copy.tp), copy) for copy in logs.futures()]
    lags = [log.log_end_offset - copy.log_end_offset for log, copy in pairs if log is not None]
    yield ("ReplicaAlterLogDirs",), max(lags, default=0)


G, M, P, H, F = (
    MBeanKind.GAUGE,
    MBeanKind.METER,
    MBeanKind.PERCENT,
    MBeanKind.HISTOGRAM,
    MBeanKind.FLAT,
)
SERVER, NETWORK, CONTROLLER = "kafka.server", "kafka.network", "kafka.controller"
LOG, CLUSTER, GROUP = "kafka.log", "kafka.cluster", "kafka.coordinator.group"
TOPICS, TRANSACTIONS = "BrokerTopicMetrics", "transaction-coordinator-metrics"
SOCKETS, CLIENTS = "socket-server-metrics", "client-metrics"
STRIMZI_SOFTWARE = Name("kafka_server_socket_server_metrics_connections_software", SOFTWARE, False)
CONFLUENT_IDLE = Name(
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total", (), False
)

# fmt: off
ROWS: tuple[SeriesRow, ...] = (
    # The broker
    bean(G, SERVER, "KafkaServer", "BrokerState", "0 not running, 1 starting, 2 recovery, 3 running, 7 shutting down.", lambda v: v.state),
    bean(G, SERVER, "KafkaServer", "linux-disk-read-bytes", "Bytes that the process has read from disks (Linux).", disk("read_bytes")),
    bean(G, SERVER, "KafkaServer", "linux-disk-write-bytes", "Bytes that the process has written to disks (Linux).", disk("write_bytes")),
    bean(P, NETWORK, "SocketServer", "NetworkProcessorAvgIdlePercent", "Share of the last half minute in which the event loop used no CPU time. kwire has the loop instead of network threads and request handlers.", idle),
    bean(P, SERVER, "KafkaRequestHandlerPool", "RequestHandlerAvgIdlePercent", "The same value as NetworkProcessorAvgIdlePercent: one event loop does both.", idle, also=(CONFLUENT_IDLE,)),
    # Topics
    bean(M, SERVER, TOPICS, "MessagesInPerSec", "Messages appended as leader.", messages_in, TOPIC),
    bean(M, SERVER, TOPICS, "BytesInPerSec", "Bytes appended as leader.", bytes_in, TOPIC),
    bean(M, SERVER, TOPICS, "BytesOutPerSec", "Bytes sent to consumers.", by_topic(lambda t: t.bytes_out), TOPIC),
    bean(M, SERVER, TOPICS, "TotalProduceRequestsPerSec", "Appends as leader, including rejected ones.", produce_requests, TOPIC),
    bean(M, SERVER, TOPICS, "TotalFetchRequestsPerSec", "Partitions in responses to Fetch requests.", by_topic(lambda t: t.fetch), TOPIC),
    bean(M, SERVER, TOPICS, "FailedProduceRequestsPerSec", "Failed appends to partitions, without those that failed because of a client's mistake.", by_topic(lambda t: t.failed_produce), TOPIC),
    bean(M, SERVER, TOPICS, "FailedFetchRequestsPerSec", "Failed reads of partitions, without those that failed because of a client's mistake.", by_topic(lambda t: t.failed_fetch), TOPIC),
    bean(M, SERVER, TOPICS, "ReplicationBytesOutPerSec", "Bytes sent to followers.", lambda v: v.sources.requests.replication_bytes_out),
    # Requests
    bean(M, NETWORK, "RequestMetrics", "RequestsPerSec", "Requests by API and version.", request_counts, ("request", "version")),
    bean(M, NETWORK, "RequestMetrics", "ErrorsPerSec", "Error codes in responses and in their rows, including NONE.", request_errors, ("request", "error")),
    *(
        bean(H, NETWORK, "RequestMetrics", name, doc, request_times(name), REQUEST)  # type: ignore[arg-type]
        for name, doc in (
            ("TotalTimeMs", "Milliseconds from the turn of the event loop in which a request was received until its response is ready."),
            ("RequestQueueTimeMs", "Milliseconds that a request waited for other requests in its turn of the event loop."),
            ("LocalTimeMs", "Milliseconds for handling a request and encoding its response."),
            ("RemoteTimeMs", "Milliseconds that a request waited for other replicas, for records, or for its next slice."),
            ("ResponseQueueTimeMs", "Milliseconds that a response waited for earlier responses."),
            ("ResponseSendTimeMs", "Milliseconds until the kernel had accepted all of a response."),
        )
    ),
    bean(G, NETWORK, "RequestChannel", "RequestQueueSize", "Requests and other work that wait for their next slice.", lambda v: v.sources.turns.waiting),
    bean(G, NETWORK, "RequestChannel", "ResponseQueueSize", "Connections with responses that have not been read.", lambda v: v.unsent_connections),
    bean(G, SERVER, "DelayedOperationPurgatory", "PurgatorySize", "Requests that wait for records, or for replicas, counted by partition.", purgatory, ("delayedOperation",)),
    bean(G, SERVER, "FetchSessionCache", "NumIncrementalFetchSessions", "Fetch sessions.", session_count),
    bean(G, SERVER, "FetchSessionCache", "NumIncrementalFetchPartitionsCached", "Partitions in fetch sessions.", session_partitions),
    # Connections
    bean(F, SERVER, SOCKETS, "connection-count", "Open connections.", connection_counts, LISTENER),
    bean(F, SERVER, SOCKETS, "connection-creation-total", "Connections accepted.", connections_created, LISTENER),
    bean(F, SERVER, SOCKETS, "connection-creation-rate", "Connections accepted per second, over the last half minute.", connection_rate(False), LISTENER),
    bean(F, SERVER, SOCKETS, "connection-close-rate", "Connections closed per second, over the last half minute.", connection_rate(True), LISTENER),
    bean(F, SERVER, SOCKETS, "successful-authentication-total", "Logins on listeners with SASL.", logins(lambda c: c.successful), LISTENER),
    bean(F, SERVER, SOCKETS, "failed-authentication-total", "Logins that failed.", logins(lambda c: c.failed), LISTENER),
    bean(F, SERVER, SOCKETS, "successful-reauthentication-total", "Repeated logins of open connections.", logins(lambda c: c.reauthenticated), LISTENER),
    bean(F, SERVER, SOCKETS, "failed-reauthentication-total", "Repeated logins that failed.", logins(lambda c: c.reauthentication_failed), LISTENER),
    bean(F, SERVER, SOCKETS, "expired-connections-killed-count", "Connections closed because the client continued after its session had expired.", logins(lambda c: c.expired), LISTENER),
    bean(F, SERVER, SOCKETS, "connections", "Open connections by client software and version.", software, SOFTWARE, also=(STRIMZI_SOFTWARE,)),
    # Replicas
    bean(G, SERVER, "ReplicaManager", "LeaderCount", "Partitions that this broker leads.", lambda v: v.leaders),
    bean(G, SERVER, "ReplicaManager", "PartitionCount", "Partitions of which this broker has a replica.", lambda v: len(v.sources.replicas.partitions)),
    bean(G, SERVER, "ReplicaManager", "OfflineReplicaCount", "Replicas on log directories that have failed.", lambda v: len(v.sources.replicas.offline)),
    bean(G, SERVER, "ReplicaManager", "UnderReplicatedPartitions", "Led partitions with a replica that is not in sync.", lambda v: v.under_replicated),
    bean(G, SERVER, "ReplicaManager", "UnderMinIsrPartitionCount", "Led partitions with fewer in-sync replicas than min.insync.replicas.", lambda v: v.under_min_isr),
    bean(G, SERVER, "ReplicaManager", "AtMinIsrPartitionCount", "Led partitions with exactly min.insync.replicas in-sync replicas.", lambda v: v.at_min_isr),
    bean(G, SERVER, "ReplicaManager", "ReassigningPartitions", "Partitions that are being moved; reported by the controller.", lambda v: v.reassigning),
    bean(G, SERVER, "ReplicaAlterLogDirsManager", "MaxLag", "Largest number of offsets by which the copy of a replica that is moved to another log directory is behind.", log_dir_lag, CLIENT_ID),
    bean(M, SERVER, "ReplicaManager", "IsrShrinksPerSec", "How often replicas left the in-sync replicas of a led partition.", lambda v: v.sources.replicas.membership.counts.isr_shrinks),
    bean(M, SERVER, "ReplicaManager", "IsrExpandsPerSec", "How often replicas joined the in-sync replicas of a led partition.", lambda v: v.sources.replicas.membership.counts.isr_expands),
    bean(G, CLUSTER, "Partition", "ReplicasCount", "Replicas; 0 on brokers that do not lead the partition.", labels=PARTITION, each=lambda p: len(p.state.replicas) if p.is_leader else 0),
    bean(G, CLUSTER, "Partition", "InSyncReplicasCount", "In-sync replicas; 0 on brokers that do not lead the partition.", labels=PARTITION, each=lambda p: len(p.isr.isr) if p.is_leader else 0),
    bean(G, CLUSTER, "Partition", "UnderReplicated", "1 if a replica is not in sync.", labels=PARTITION, each=is_under_replicated),
    bean(G, CLUSTER, "Partition", "UnderMinIsr", "1 if fewer replicas than min.insync.replicas are in sync.", labels=PARTITION, each=is_under_min_isr),
    bean(G, CLUSTER, "Partition", "AtMinIsr", "1 if exactly min.insync.replicas replicas are in sync.", labels=PARTITION, each=is_at_min_isr),
    bean(G, CLUSTER, "Partition", "LastStableOffsetLag", "Messages between the last stable offset and the high watermark.", labels=PARTITION, each=lambda p: p.log.high_watermark - p.log.last_stable_offset if p.is_leader else 0),
    # Logs
    bean(G, LOG, "Log", "Size", "Bytes of a replica's segments.", labels=PARTITION, each=lambda p: p.log.size_bytes),
    bean(G, LOG, "Log", "NumLogSegments", "Segments of a replica.", labels=PARTITION, each=lambda p: len(p.log.segments)),
    bean(G, LOG, "Log", "LogStartOffset", "First offset of a replica.", labels=PARTITION, each=lambda p: p.log.log_start_offset),
    bean(G, LOG, "Log", "LogEndOffset", "Offset of the next message of a replica.", labels=PARTITION, each=lambda p: p.log.log_end_offset),
    bean(G, LOG, "LogManager", "OfflineLogDirectoryCount", "Log directories that have failed.", offline_directories),
    # The controller
    bean(G, CONTROLLER, "KafkaController", "ActiveControllerCount", "1 on the controller, 0 on other brokers.", lambda v: int(v.sources.controller.is_active)),
    bean(G, CONTROLLER, "KafkaController", "OfflinePartitionsCount", "Partitions without a leader; reported by the controller.", lambda v: v.offline_partitions),
    bean(G, CONTROLLER, "KafkaController", "PreferredReplicaImbalanceCount", "Partitions not led by their first replica; reported by the controller.", lambda v: v.imbalance),
    bean(G, CONTROLLER, "KafkaController", "GlobalTopicCount", "Topics of the cluster; reported by the controller.", lambda v: len(v.image.topics) if v.sources.controller.is_active else 0),
    bean(G, CONTROLLER, "KafkaController", "GlobalPartitionCount", "Partitions of the cluster; reported by the controller.", lambda v: v.global_partitions),
    bean(M, CONTROLLER, "ControllerStats", "UncleanLeaderElectionsPerSec", "Elections of leaders that were not in sync.", lambda v: v.sources.controller.unclean_elections),
    bean(M, SERVER, "SessionExpireListener", "ZooKeeperSyncConnectsPerSec", "Connections made to the store.", lambda v: v.sources.sessions.connects),
    bean(M, SERVER, "SessionExpireListener", "ZooKeeperDisconnectsPerSec", "Connections to the store that were lost.", lambda v: v.sources.sessions.disconnects),
    bean(M, SERVER, "SessionExpireListener", "ZooKeeperAuthFailuresPerSec", "Logins that the store rejected.", lambda v: v.sources.sessions.auth_failures),
    bean(M, SERVER, "SessionExpireListener", "ZooKeeperExpiresPerSec", "Sessions with the store that expired.", lambda v: v.sources.sessions.expires),
    # Coordinators
    bean(G, GROUP, "GroupMetadataManager", "NumGroups", "Groups that this broker coordinates.", lambda v: len(v.groups)),
    bean(G, GROUP, "GroupMetadataManager", "NumOffsets", "Committed offsets of the groups that this broker coordinates.", lambda v: v.offsets),
    bean(G, GROUP, "GroupMetadataManager", "NumGroupsPreparingRebalance", "Groups that wait for members to join.", groups_in("PreparingRebalance")),
    bean(G, GROUP, "GroupMetadataManager", "NumGroupsCompletingRebalance", "Groups that wait for the assignment.", groups_in("CompletingRebalance")),
    bean(G, GROUP, "GroupMetadataManager", "NumGroupsStable", "Groups in which every member has its assignment.", groups_in("Stable")),
    bean(G, GROUP, "GroupMetadataManager", "NumGroupsDead", "Groups that are being removed.", groups_in("Dead")),
    bean(G, GROUP, "GroupMetadataManager", "NumGroupsEmpty", "Groups without members.", groups_in("Empty")),
    bean(F, SERVER, TRANSACTIONS, "partition-load-time-max", "Longest of the most recent load times of partitions of __transaction_state. Unit: milliseconds.", load_time(max)),
    bean(F, SERVER, TRANSACTIONS, "partition-load-time-avg", "Average of the most recent load times of partitions of __transaction_state. Unit: milliseconds.", load_time(lambda times: sum(times) / len(times))),
    bean(F, SERVER, TRANSACTIONS, "transactional-id-count", "Transactional ids that this broker coordinates.", lambda v: v.transactional_ids),
    bean(F, SERVER, TRANSACTIONS, "active-transaction-total-time-max", "How long the oldest open transaction has been open. Unit: milliseconds.", lambda v: v.oldest_transaction_ms),
    bean(F, SERVER, TRANSACTIONS, "partitions-total-size", "Bytes of the partitions of __transaction_state that this broker leads.", log_sizes_of_transactions),
    # Metrics that clients push (KIP-714)
    bean(F, SERVER, CLIENTS, "instance-count", "Clients that have asked which metrics to push.", pushed(lambda t: len(t.clients.instances))),
    bean(F, SERVER, CLIENTS, "plugin-export-count", "Pushes that were accepted.", pushed(lambda t: t.exported)),
    bean(F, SERVER, CLIENTS, "plugin-error-count", "Pushes that could not be read.", pushed(lambda t: t.failed)),
    bean(F, SERVER, CLIENTS, "throttle-count", "Requests that clients sent too early.", pushed(lambda t: t.clients.throttled)),
    bean(F, SERVER, CLIENTS, "unknown-subscription-request-count", "Pushes for a subscription that has changed.", pushed(lambda t: t.clients.unknown_subscriptions)),
    own("kwire_client_metrics_series", "Series that clients have pushed (kafka_client_...).", pushed(lambda t: t.series.count)),
    own("kwire_client_metrics_left_out_total", "Values of clients that were left out because of kwire.client.metrics.limit.", pushed(lambda t: t.series.left_out), counts=True),
    own("kwire_client_metrics_ignored_total", "Values of clients that are not numbers.", pushed(lambda t: t.series.ignored), counts=True),
    # kafka_exporter
    own("kwire_stray_logs", "Logs in the log directories that are no replicas of this broker.", lambda v: len(v.sources.replicas.strays)),
    own("kafka_brokers", "Brokers of the cluster; reported by the controller.", brokers),
    own("kafka_exporter_build_info", "1, with the version of kwire; dashboards take their variables from it.", lambda v: [((v.sources.version,), 1)], ("version",)),
    own("kafka_topic_partitions", "Partitions of a topic; reported by the leader of its first partition.", topic_partitions, TOPIC),
    own("kafka_topic_partition_current_offset", "High watermark. This and the other kafka_topic_partition_ metrics are reported by the partition's leader.", labels=PARTITION, each=lambda p: p.log.high_watermark),
    own("kafka_topic_partition_oldest_offset", "First offset.", labels=PARTITION, each=lambda p: p.log.log_start_offset),
    own("kafka_topic_partition_in_sync_replica", "In-sync replicas.", labels=PARTITION, each=lambda p: len(p.isr.isr)),
    own("kafka_topic_partition_leader", "Broker id of the leader.", labels=PARTITION, each=lambda p: p.state.leader),
    own("kafka_topic_partition_leader_is_preferred", "1 if the first replica leads.", labels=PARTITION, each=lambda p: p.state.replicas[:1] == (p.state.leader,)),
    own("kafka_topic_partition_replicas", "Replicas.", labels=PARTITION, each=lambda p: len(p.state.replicas)),
    own("kafka_topic_partition_under_replicated_partition", "1 if a replica is not in sync.", labels=PARTITION, each=is_under_replicated),
    own("kafka_consumergroup_current_offset", "Committed offset; reported by the group's coordinator.", group_offsets, ("consumergroup", *PARTITION)),
    own("kafka_consumergroup_current_offset_sum", "Sum of the committed offsets of a topic.", group_sums(False), ("consumergroup", "topic")),
    own("kafka_consumergroup_lag", "High watermark minus committed offset, if the coordinator has a replica of the partition; negative if the offset is beyond the end.", group_lags, ("consumergroup", *PARTITION)),
    own("kafka_consumergroup_lag_sum", "Lag of a topic, if the lag of all its partitions is known.", group_sums(True), ("consumergroup", "topic")),
    own("kafka_consumergroup_members", "Members of a group.", group_members, ("consumergroup",)),
    # kwire's own
    own("kwire_info", "1, with the broker's id and version, and the cluster's id.", lambda v: [((str(v.sources.node_id), v.sources.cluster_id, v.sources.version), 1)], ("broker_id", "cluster_id", "version")),
    own("kwire_loop_busy_seconds_total", "CPU time of the event loop.", lambda v: v.sources.busy_s(), counts=True),
    own("kwire_loop_longest_turn_seconds", "CPU time of the longest turn of the loop since the last scrape.", longest_turn),
    own("kwire_loop_long_turns_total", "Turns of the loop that took kwire.long.turn.ms of CPU time or more.", long_turns, counts=True),
    own("kwire_loop_long_turns_by_request_total", "Long turns of the loop in which a request was being handled.", long_turns_by_api, REQUEST, counts=True),
    own("kwire_logins_total", "Logins by mechanism and result.", logins_by_mechanism, ("listener", "mechanism", "result"), counts=True),
    own("kwire_quota_throttled_requests_total", "Requests throttled by each kind of quota of clients.", throttled("throttled"), ("quota",), counts=True),
    own("kwire_quota_throttled_milliseconds_total", "Total time for which requests were throttled.", throttled("throttled_ms"), ("quota",), counts=True),
    own("kwire_request_frame_memory_bytes", "Memory of requests that are being received.", frame_bytes),
    own("kwire_unread_response_memory_bytes", "Memory of responses that clients have not read.", unread_bytes),
    own("kwire_log_flushes_total", "How often a log was flushed to the device.", lambda v: v.sources.upkeep.flushes, counts=True),
    own("kwire_log_flush_seconds_total", "Total time that these flushes took.", lambda v: v.sources.upkeep.flush_us / 1e6, counts=True),
    own("kwire_transactions_open", "Open transactions that this broker coordinates.", lambda v: v.open_transactions),
    own("kwire_metrics_partitions_left_out", "Replicas without series of their own because of kwire.metrics.partition.limit.", lambda v: v.left_out),
)
# fmt: on
