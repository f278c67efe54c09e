"""Topics: the list with sizes, groups and lag; a topic's partitions, settings and groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kwire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kwire.types import uuid_to_str

from ..client.requests import EARLIEST, LATEST, READ_COMMITTED
from ..config.changes import ConfigResourceType
from ..config.definitions import to_text
from ..config.tables import TOPIC
from . import facts
from .console import Console, PageRefused, said
from .facts import Lag
from .listing import Listing, listing

if TYPE_CHECKING:
    from starlette.requests import Request

#: The origin of a setting's value. Source: DescribeConfigsResponse.ConfigSource.
SOURCES = {
    1: "the topic",
    2: "this broker, changed at run time",
    3: "all brokers, changed at run time",
    4: "the broker's start",
    5: "the default",
}


@dataclass
class TopicRow:
    """A topic in the list. Shape: `records` counts offsets; None before they are requested or if no leader answers."""

    name: str
    is_internal: bool
    partitions: int
    replication_factor: int
    out_of_sync: int
    offline: int
    size: int | None
    groups: list[tuple[str, int | None]] = field(default_factory=list)
    lag: int | None = None
    records: int | None = None


@dataclass
class PartitionRow:
    """A partition of a topic. Shape: offsets are None if its leader does not answer, `size` if no broker does."""

    number: int
    leader: int
    epoch: int
    replicas: list[tuple[int, bool]]
    start: int | None = None
    end: int | None = None
    stable: int | None = None
    size: int | None = None

    @property
    def records(self) -> int | None:
        """Offsets between the first and the end."""
        return None if self.end is None or self.start is None else self.end - self.start

    @property
    def held_back(self) -> int:
        """Records that wait for the end of a transaction."""
        if self.end is None or self.stable is None:
            return 0
        return self.end - self.stable


@dataclass
class Setting:
    """One setting of a topic."""

    name: str
    value: str | None
    default: str | None
    source: str
    is_changed: bool
    is_sensitive: bool
    documentation: str = ""


@dataclass
class GroupOfTopic:
    """The progress of one group in a topic."""

    id: str
    state: str
    lag: int | None
    rows: list[Lag] = field(default_factory=list)


async def gather(console: Console, request: Request) -> dict[str, Any]:
    """The list of topics."""
    pause = console.broker.turns.pause
    topics = await facts.topics(console)
    sizes = await facts.sizes(console)
    groups = await facts.groups(console)
    show_internal = request.query_params.get("internal") == "1"
    rows, internal_count = [], 0
    for topic in topics.values():
        internal_count += topic.is_internal
        if show_internal or not topic.is_internal:
            rows.append(_row(topic, sizes.get(topic.name)))
        await pause(console)
    if by_lag := request.query_params.get("sort") == "lag":
        await _add_lag(console, groups, rows)
    pages = listing(
        "/console/topics",
        request.query_params,
        rows,
        {
            "name": lambda row: row.name,
            "partitions": lambda row: row.partitions,
            "size": lambda row: row.size,
            "lag": lambda row: row.lag,
        },
        text=lambda row: row.name,
        kept=("internal",),
    )
    if not by_lag:
        await _add_lag(console, groups, pages.rows)
    await _count_records(console, topics, pages)
    return {
        "pages": pages,
        "all_count": len(topics),
        "internal_count": internal_count,
        "show_internal": show_internal,
    }


async def _add_lag(console: Console, groups: facts.Groups, rows: Iterable[TopicRow]) -> None:
    """Add the groups of topics, the one with the largest lag first."""
    rows = list(rows)
    committed = [lag for row in rows for lag in groups.by_topic.get(row.name, [])]
    by_topic: dict[str, dict[str, list[Lag]]] = {}
    for lag in await facts.with_ends(console, committed):
        by_topic.setdefault(lag.topic, {}).setdefault(lag.group, []).append(lag)
    for row in rows:
        await console.broker.turns.pause(console)
        by_group = by_topic.get(row.name, {})
        row.groups = [(name, facts.total_lag(found)) for name, found in by_group.items()]
        row.groups.sort(key=lambda each: (-(each[1] or 0), each[0]))
        row.lag = facts.total_lag([lag for found in by_group.values() for lag in found])


def _row(topic: Any, sizes: dict[int, int] | None) -> TopicRow:
    return TopicRow(
        topic.name,
        topic.is_internal,
        len(topic.partitions),
        max((len(each.replica_nodes) for each in topic.partitions), default=0),
        sum(len(each.isr_nodes) < len(each.replica_nodes) for each in topic.partitions),
        sum(each.leader_id < 0 for each in topic.partitions),
        sum(sizes.values()) if sizes else None,
    )


async def _count_records(console: Console, topics: dict[str, Any], pages: Listing) -> None:
    wanted = {row.name: led(topics[row.name]) for row in pages.rows}
    wanted = {name: numbers for name, numbers in wanted.items() if numbers}
    starts = await facts.offsets(console, wanted, EARLIEST)
    ends = await facts.offsets(console, wanted, LATEST)
    for row in pages.rows:
        found = ends.get(row.name)
        if found:
            before = starts.get(row.name, {})
            row.records = sum(end - before.get(number, end) for number, end in found.items())


def led(topic: Any) -> list[int]:
    """The partitions of a topic that have a leader."""
    return [each.partition_index for each in topic.partitions if each.leader_id >= 0]


async def topic_of(console: Console, request: Request) -> Any:
    """The topic in the path, as in the answer of Metadata. Errors: PageRefused."""
    name = request.path_params["topic"]
    found = (await facts.topics(console)).get(name)
    if found is None:
        raise PageRefused(
            404,
            "No such topic",
            f"There is no topic {name}, or {console.broker.principal} may not see it.",
        )
    if found.error_code:
        raise PageRefused(404, "Not available", f"{name}: {said(found.error_code)}.")
    return found


async def head(console: Console, topic: Any, tab: str) -> dict[str, Any]:
    """The content of the head of each page of a topic."""
    groups = await facts.groups(console)
    return {
        "topic": topic,
        "topic_id": uuid_to_str(topic.topic_id),
        "tab": tab,
        "group_count": len({lag.group for lag in groups.by_topic.get(topic.name, [])}),
    }


async def gather_partitions(console: Console, request: Request) -> dict[str, Any]:
    """A topic's partitions."""
    topic = await topic_of(console, request)
    rows = [
        PartitionRow(
            each.partition_index,
            each.leader_id,
            each.leader_epoch,
            [(replica, replica in each.isr_nodes) for replica in each.replica_nodes],
        )
        for each in topic.partitions
    ]
    pages = listing(
        f"/console/topics/{topic.name}",
        request.query_params,
        rows,
        {"number": lambda row: row.number},
        text=lambda row: str(row.number),
    )
    shown: list[PartitionRow] = list(pages.rows)
    numbers = [row.number for row in shown if row.leader >= 0]
    wanted = {topic.name: numbers} if numbers else {}
    starts = (await facts.offsets(console, wanted, EARLIEST)).get(topic.name, {})
    ends = (await facts.offsets(console, wanted, LATEST)).get(topic.name, {})
    stable = await stable_offsets(console, topic.name, numbers)
    sizes = (await facts.sizes(console)).get(topic.name, {})
    for row in shown:
        row.start, row.end = starts.get(row.number), ends.get(row.number)
        row.stable, row.size = stable.get(row.number), sizes.get(row.number)
    return {
        **await head(console, topic, "partitions"),
        "pages": pages,
        "size": sum(sizes.values()) if sizes else None,
        "under_replicated": sum(any(not ok for _, ok in row.replicas) for row in rows),
        "offline": sum(row.leader < 0 for row in rows),
    }


async def stable_offsets(console: Console, topic: str, numbers: list[int]) -> dict[int, int]:
    """The last stable offset of partitions."""
    found = await facts.offsets(
        console, {topic: numbers} if numbers else {}, LATEST, READ_COMMITTED
    )
    return found.get(topic, {})


async def gather_settings(console: Console, request: Request) -> dict[str, Any]:
    """A topic's settings, those that differ from the default first."""
    topic = await topic_of(console, request)
    response = await console.ask(
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=ConfigResourceType.TOPIC,
                    resource_name=topic.name,
                    configuration_keys=None,
                )
            ],
            include_synonyms=False,
            include_documentation=True,
        )
    )
    (result,) = response.results
    rows = [] if result.error_code else [setting_of(each) for each in result.configs]
    rows.sort(key=lambda row: (not row.is_changed, row.name))
    return {
        **await head(console, topic, "settings"),
        "error": result.error_message or said(result.error_code),
        "rows": rows,
        "changed": sum(row.is_changed for row in rows),
    }


def setting_of(config: Any) -> Setting:
    """A setting as DescribeConfigs returns it; changed if its value differs from Apache Kafka's default.

    Shape: synonyms do not give the default, since the broker's setting may have another name and unit.
    """
    key = TOPIC.get(config.name)
    default = None if key is None or key.default is None else to_text(key.convert(key.default))
    return Setting(
        config.name,
        config.value,
        default,
        SOURCES.get(config.config_source, "unknown"),
        config.value != default,
        config.is_sensitive,
        config.documentation or "",
    )


async def gather_groups(console: Console, request: Request) -> dict[str, Any]:
    """The groups with committed offsets in a topic."""
    topic = await topic_of(console, request)
    groups = await facts.groups(console)
    found: dict[str, GroupOfTopic] = {}
    for lag in await facts.with_ends(console, groups.by_topic.get(topic.name, [])):
        row = found.get(lag.group)
        if row is None:
            row = found[lag.group] = GroupOfTopic(lag.group, groups.listed[lag.group].state, None)
        row.rows.append(lag)
    for row in found.values():
        row.lag = facts.total_lag(row.rows)
    rows = sorted(found.values(), key=lambda row: (-(row.lag or 0), row.id))
    return {**await head(console, topic, "groups"), "rows": rows}
