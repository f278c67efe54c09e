"""The first page: brokers, the controller, health, rates, disks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kwire.messages.describe_cluster import DescribeClusterRequest

from ..security.acl import CLUSTER_NAME, AclOperation, ResourceType
from . import facts
from .console import Console, said

if TYPE_CHECKING:
    from starlette.requests import Request

#: The maximum number of problems that are listed.
MAX_PROBLEMS = 12


@dataclass
class BrokerRow:
    """One broker. Shape: leaderships and stored bytes are sums over the visible topics.

    Unit: bytes; `stored` and `usable` are None if the broker does not report them. `console` is the address of its
    console, empty if none is known.
    """

    id: int
    address: str
    rack: str
    live: bool
    leaders: int = 0
    replicas: int = 0
    out_of_sync: int = 0
    stored: int | None = None
    usable: int | None = None
    console: str = ""


@dataclass
class PartitionProblem:
    """A partition with a problem."""

    topic: str
    partition: int
    text: str
    is_offline: bool


def may_see_broker(console: Console) -> bool:
    """Whether the console may show the broker's own state, besides single topics and groups."""
    return console.broker.may(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)


async def gather(console: Console, _: Request) -> dict[str, Any]:
    """Everything on the page."""
    broker = console.broker
    cluster = await console.ask(DescribeClusterRequest())
    topics = await facts.topics(console)
    rows = {
        each.broker_id: BrokerRow(
            each.broker_id, f"{each.host}:{each.port}", each.rack or "", live=True
        )
        for each in cluster.brokers
    }
    problems: list[PartitionProblem] = []
    partitions = offline = under_replicated = 0
    for topic in topics.values():
        await broker.turns.pause(console)
        for partition in topic.partitions:
            partitions += 1
            in_sync = set(partition.isr_nodes)
            for replica in partition.replica_nodes:
                row = rows.get(replica)
                if row is None:
                    row = rows[replica] = BrokerRow(replica, "", "", live=False)
                row.replicas += 1
                row.leaders += replica == partition.leader_id
                row.out_of_sync += replica not in in_sync
            if partition.leader_id < 0:
                offline += 1
                text = "has no leader: it can be neither written nor read"
            elif len(in_sync) < len(partition.replica_nodes):
                under_replicated += 1
                behind = [str(each) for each in partition.replica_nodes if each not in in_sync]
                text = f"is not in sync on broker {', '.join(behind)}"
            else:
                continue
            if len(problems) < MAX_PROBLEMS:
                problems.append(
                    PartitionProblem(
                        topic.name, partition.partition_index, text, partition.leader_id < 0
                    )
                )
    own = may_see_broker(console)
    view = await console.view() if own else None
    stored = await facts.log_dirs(console) if own else {}
    for broker_id, answer in stored.items():
        if broker_id in rows:
            rows[broker_id].stored = sum(map(stored_bytes, answer.results))
            known = [each.usable_bytes for each in answer.results if each.usable_bytes >= 0]
            rows[broker_id].usable = min(known, default=None)
    consoles = await facts.consoles(console)
    for row in rows.values():
        row.console = consoles.get(row.id, "")
    return {
        "controller_id": cluster.controller_id,
        "rows": [rows[each] for each in sorted(rows)],
        "topic_count": sum(not topic.is_internal for topic in topics.values()),
        "internal_count": sum(topic.is_internal for topic in topics.values()),
        "partitions": partitions,
        "offline": offline,
        "under_replicated": under_replicated,
        "problems": problems,
        "not_ready": broker.not_ready(),
        "view": view,
        "charts": console.history.charts() if own else [],
        "connections": 0 if view is None else sum(view.connections.values()),
        "directories": directories(stored[broker.node_id].results) if own and stored else [],
        "uptime_ms": broker.clock.now_ms() - broker.began_ms,
        "resident": await broker.executor.in_thread(resident_bytes) if own else None,
        "busy_s": broker.sources.busy_s(),
        "long_turns": None
        if broker.sources.watchdog is None
        else broker.sources.watchdog.long_turns,
    }


def directories(results: Any) -> list[Any]:
    """This broker's log directories, with their free space."""
    return [
        {
            "path": each.log_dir,
            "error": said(each.error_code),
            "total": each.total_bytes,
            "usable": each.usable_bytes,
            "used": stored_bytes(each),
        }
        for each in results
    ]


def stored_bytes(directory: Any) -> int:
    """Bytes of the replicas in a log directory."""
    return sum(row.partition_size for topic in directory.topics for row in topic.partitions)


def resident_bytes() -> int | None:
    """Memory of the process; None if /proc does not report it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * 4096
    except OSError:
        return None
