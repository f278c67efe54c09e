"""`kwire cluster describe` and `kwire cluster health`: the brokers of a cluster, and its problems."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from typing import Any, NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kwire.messages.describe_log_dirs import DescribeLogDirsRequest
from kwire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

from ..client.answers import partitions_of
from ..client.brokers import Brokers
from ..client.errors import Unavailable
from ..client.requests import metadata_of
from ..explain.words import counted, listed
from .output import show_rows, wants_json

MIN_ISR = "min.insync.replicas"


class ClusterFinding(NamedTuple):
    """A problem, and its place."""

    problem: str
    where: list[str]


def describe(brokers: Brokers, options: Namespace) -> int:
    """Print the brokers."""
    response = brokers.ask(metadata_of(None))
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    for topic in response.topics:
        for placed in partitions_of(topic).values():
            leaders[placed.leader] += 1
            replicas.update(placed.replicas)
    rows: list[list[object]] = []
    for node in sorted(response.brokers, key=lambda row: int(row.node_id)):
        dirs = log_dirs(brokers, node.node_id)
        rows.append(
            [
                node.node_id,
                f"{node.host}:{node.port}",
                node.rack,
                node.node_id == response.controller_id,
                leaders[node.node_id],
                replicas[node.node_id],
                None if dirs is None else sum(size_of(row) for row in dirs),
            ]
        )
    head = ["broker", "address", "rack", "controller", "leaders", "replicas", "bytes"]
    if wants_json(options):
        rows = [[response.cluster_id, *row] for row in rows]
        head = ["cluster", *head]
    topics = counted(len(response.topics), "topic")
    partitions = counted(sum(leaders.values()), "partition")
    show_rows(options, head, rows, f"{response.cluster_id}  {topics}  {partitions}")
    return 0


def log_dirs(brokers: Brokers, node: int) -> list[Any] | None:
    """The log directories of a broker; None if the broker does not report them."""
    try:
        rows: list[Any] = brokers.ask(DescribeLogDirsRequest(topics=None), node).results
    except Unavailable:
        return None
    return rows


def size_of(log_dir: Any) -> int:
    """Bytes of all partitions in a log directory."""
    return sum(row.partition_size for topic in log_dir.topics for row in topic.partitions)


def health(brokers: Brokers, options: Namespace) -> int:
    """Print problems; exit code 1 if there are any."""
    found = findings(brokers)
    if wants_json(options):
        rows = [[each.problem, len(each.where), each.where] for each in found]
        show_rows(options, ["problem", "count", "where"], rows)
    elif found:
        for each in found:
            print(f"{each.problem}: {len(each.where)} ({listed(each.where)})")
    else:
        print("healthy")
    return 1 if found else 0


def findings(brokers: Brokers) -> list[ClusterFinding]:
    """The problems, the worst first. Errors: Unavailable if no broker answers."""
    response = brokers.ask(metadata_of(None))
    brokers.learn_nodes()
    silent, failed = [], []
    for node in sorted(brokers.nodes):
        try:
            dirs = brokers.ask(DescribeLogDirsRequest(topics=None), node).results
        except Unavailable as error:
            silent.append(str(error))
            continue
        failed += [
            f"{row.log_dir} of broker {node}"
            for row in dirs
            if row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        ]
    minimum = min_isr(brokers, [topic.name for topic in response.topics])
    leaderless, below, thin = [], [], []
    for topic in sorted(response.topics, key=lambda row: str(row.name)):
        for number, placed in sorted(partitions_of(topic).items()):
            name = f"{topic.name}-{number}"
            if placed.leader < 0:
                leaderless.append(name)
            elif len(placed.isr) < minimum.get(topic.name, 1):
                below.append(name)
            elif len(placed.isr) < len(placed.replicas):
                thin.append(name)
    return [
        ClusterFinding(problem, names)
        for problem, names in (
            ("brokers that do not answer", silent),
            ("no controller", [] if brokers.controller >= 0 else ["none is elected"]),
            ("partitions without a leader", leaderless),
            (f"partitions below {MIN_ISR}", below),
            ("under-replicated partitions", thin),
            ("log directories that failed", failed),
            ("partitions that are being moved", being_moved(brokers)),
        )
        if names
    ]


def being_moved(brokers: Brokers) -> list[str]:
    """Partitions being reassigned; none without the permission to see them."""
    try:
        response = brokers.ask_controller(ListPartitionReassignmentsRequest())
    except Unavailable:
        return []
    return [
        f"{topic.name}-{row.partition_index}"
        for topic in response.topics
        for row in topic.partitions
    ]


def min_isr(brokers: Brokers, topics: list[str]) -> dict[str, int]:
    """The required number of in-sync replicas, by topic, for topics whose configs may be seen."""
    if not topics:
        return {}
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=2, resource_name=name, configuration_keys=[MIN_ISR]
            )
            for name in topics
        ]
    )
    try:
        response = brokers.ask(request)
    except Unavailable:
        return {}
    return {
        row.resource_name: int(config.value)
        for row in response.results
        for config in row.configs
        if config.value is not None
    }
