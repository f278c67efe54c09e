"""What several pages need: topics, sizes, groups with their offsets and lag; gathered by requests, and kept for moments."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kwire.messages.describe_log_dirs import DescribeLogDirsRequest
from kwire.messages.list_groups import ListGroupsRequest
from kwire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kwire.messages.metadata import MetadataRequest
from kwire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

from .console import Console

#: How long what was gathered is good, in ms.
KEPT_MS = 2_000
#: Special timestamps of ListOffsets.
LATEST, EARLIEST = -1, -2
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


class Lag(NamedTuple):
    """A committed offset. Shape: `end` and `lag` are None if the partition is led elsewhere, or gone."""

    group: str
    topic: str
    partition: int
    committed: int
    metadata: str
    end: int | None

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the end."""
        return None if self.end is None else max(0, self.end - self.committed)


class ListedGroup(NamedTuple):
    """A group as it is listed."""

    id: str
    state: str
    protocol_type: str


@dataclass
class Groups:
    """All groups that this broker coordinates, with what they have committed."""

    listed: dict[str, ListedGroup] = field(default_factory=dict)
    by_group: dict[str, list[Lag]] = field(default_factory=lambda: defaultdict(list))
    by_topic: dict[str, list[Lag]] = field(default_factory=lambda: defaultdict(list))


async def topics(console: Console) -> dict[str, Any]:
    """Every topic that may be seen, as Metadata answers, by name in order."""

    async def gather() -> dict[str, Any]:
        response = await console.ask(
            MetadataRequest(topics=None, allow_auto_topic_creation=False), 12
        )
        return {topic.name: topic for topic in sorted(response.topics, key=lambda t: t.name)}

    return await console.kept("topics", KEPT_MS, gather)  # type: ignore[no-any-return]


async def sizes(console: Console) -> dict[str, dict[int, int]]:
    """Bytes of the replicas on this broker, by topic and partition; empty if that may not be seen."""

    async def gather() -> dict[str, dict[int, int]]:
        response = await console.ask(DescribeLogDirsRequest(topics=None))
        found: dict[str, dict[int, int]] = {}
        for directory in response.results:
            for topic in directory.topics:
                rows = found.setdefault(topic.name, {})
                for row in topic.partitions:
                    rows[row.partition_index] = row.partition_size
            await console.broker.turns.pause(console)
        return found

    return await console.kept("sizes", 2 * KEPT_MS, gather)  # type: ignore[no-any-return]


async def offsets(
    console: Console,
    partitions: dict[str, list[int]],
    timestamp: int,
    isolation_level: int = READ_UNCOMMITTED,
) -> dict[str, dict[int, int]]:
    """Offsets at a time, of the partitions that this broker leads and that have such an offset."""
    if not partitions:
        return {}
    response = await console.ask(
        ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            timeout_ms=5_000,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=number, timestamp=timestamp)
                        for number in numbers
                    ],
                )
                for topic, numbers in partitions.items()
            ],
        )
    )
    return {
        topic.name: {
            row.partition_index: row.offset
            for row in topic.partitions
            if not row.error_code and row.offset >= 0
        }
        for topic in response.topics
    }


async def groups(console: Console) -> Groups:
    """All groups, their committed offsets and their lag."""
    return await console.kept("groups", KEPT_MS, lambda: _groups(console))  # type: ignore[no-any-return]


async def _groups(console: Console) -> Groups:
    pause = console.broker.turns.pause
    found = Groups()
    listed = await console.ask(ListGroupsRequest(states_filter=[], types_filter=[]))
    for group in sorted(listed.groups, key=lambda each: each.group_id):
        found.listed[group.group_id] = ListedGroup(
            group.group_id, group.group_state, group.protocol_type
        )
    if not found.listed:
        return found
    answer = await console.ask(
        OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in found.listed],
            require_stable=False,
        ),
        9,
    )
    wanted: dict[str, set[int]] = defaultdict(set)
    for group in answer.groups:
        for topic in group.topics:
            wanted[topic.name].update(row.partition_index for row in topic.partitions)
        await pause(console)
    ends = await offsets(console, {name: sorted(rows) for name, rows in wanted.items()}, LATEST)
    for group in answer.groups:
        for topic in group.topics:
            of_topic = ends.get(topic.name, {})
            for row in topic.partitions:
                if row.committed_offset < 0:
                    continue
                lag = Lag(
                    group.group_id,
                    topic.name,
                    row.partition_index,
                    row.committed_offset,
                    row.metadata or "",
                    of_topic.get(row.partition_index),
                )
                found.by_group[lag.group].append(lag)
                found.by_topic[lag.topic].append(lag)
        await pause(console)
    return found


def total_lag(rows: list[Lag]) -> int | None:
    """The sum of the lags that are known; None if none is."""
    known = [row.lag for row in rows if row.lag is not None]
    return sum(known) if known else None
