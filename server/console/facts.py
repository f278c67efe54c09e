"""Data for several pages: topics, sizes, groups with their offsets and lag, gathered by requests and kept briefly.

Facts that only one broker knows are requested from that broker: a partition's offsets from its leader, a group from its
coordinator.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kwire.messages.describe_log_dirs import DescribeLogDirsRequest
from kwire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kwire.messages.list_groups import ListGroupsRequest
from kwire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

from ..client.answers import leaders_of, offsets_in
from ..client.requests import LATEST, READ_UNCOMMITTED, metadata_of, offsets_request
from ..coordination import paths
from ..coordination.store import StoreError
from ..explain.facts import total_lag as sum_of_lags
from .console import Console, PageRefused

#: How long gathered data is valid, in ms.
KEPT_MS = 2_000
#: The same for data that cannot change unless the image does.
UNCHANGED_MS = 600_000
#: The same for the addresses of other brokers' consoles.
CONSOLES_MS = 15_000
#: How long to wait for the store.
STORE_S = 2.0
#: Addresses to which a page can link.
ADDRESS = re.compile(r"[\w.:\[\]-]+:\d+")
#: The type of share groups.
SHARE = "share"


class Lag(NamedTuple):
    """A committed offset, or the start offset of a share group.

    Shape: `unacknowledged` is the lag of a share group, None for others. `end` and `lag` are None before `with_ends`,
    and if the partition's leader does not answer, or the partition is gone.
    """

    group: str
    topic: str
    partition: int
    committed: int
    metadata: str
    end: int | None = None
    unacknowledged: int | None = None

    @property
    def lag(self) -> int | None:
        """Offsets between the committed one and the end; negative if it is beyond the end."""
        if self.unacknowledged is not None:
            return self.unacknowledged
        return None if self.end is None else self.end - self.committed


class ListedGroup(NamedTuple):
    """A group in the list of groups."""

    id: str
    state: str
    protocol_type: str
    kind: str
    """Its type: classic, consumer or share."""


@dataclass
class Groups:
    """All groups and their committed offsets. Shape: `coordinators` are the brokers that coordinate them."""

    listed: dict[str, ListedGroup] = field(default_factory=dict)
    coordinators: dict[str, int] = field(default_factory=dict)
    by_group: dict[str, list[Lag]] = field(default_factory=lambda: defaultdict(list))
    by_topic: dict[str, list[Lag]] = field(default_factory=lambda: defaultdict(list))


async def topics(console: Console) -> dict[str, Any]:
    """Every visible topic as in the answer of Metadata, sorted by name.

    Shape: without an authorizer, topics are requested again only when the image has changed.
    """

    async def gather() -> dict[str, Any]:
        response = await console.ask(metadata_of(None), 12)
        return {topic.name: topic for topic in sorted(response.topics, key=lambda t: t.name)}

    async def gather_if_changed() -> dict[str, Any]:
        return await console.kept("topics of image", UNCHANGED_MS, gather, console.broker.image())  # type: ignore[no-any-return]

    make = gather if console.broker.has_authorizer else gather_if_changed
    return await console.kept("topics", KEPT_MS, make)  # type: ignore[no-any-return]


async def consoles(console: Console) -> dict[int, str]:
    """HOST:PORT of the consoles of other live brokers, from their nodes in the store."""

    async def gather() -> dict[int, str]:
        others, found = console.live[1:], dict[int, str]()
        try:
            async with asyncio.timeout(STORE_S):
                nodes = await console.broker.store.get_many(
                    [paths.broker_path(each) for each in others]
                )
        except (StoreError, TimeoutError):
            return found
        for broker_id, node in zip(others, nodes, strict=True):
            if node is None:
                continue
            try:
                address = paths.decode_broker(broker_id, node[0], -1).console
            except paths.MalformedNode:
                continue
            if ADDRESS.fullmatch(address):
                found[broker_id] = address
        return found

    return await console.kept("consoles", CONSOLES_MS, gather)  # type: ignore[no-any-return]


async def log_dirs(console: Console) -> dict[int, Any]:
    """The stored replicas of each broker, as in DescribeLogDirs; without brokers that do not answer, or may not be
    asked.
    """

    async def gather() -> dict[int, Any]:
        request = DescribeLogDirsRequest(topics=None)
        try:
            return await console.ask_each(dict.fromkeys(console.live, request))
        except PageRefused:
            return {}

    return await console.kept("log dirs", 2 * KEPT_MS, gather)  # type: ignore[no-any-return]


async def sizes(console: Console) -> dict[str, dict[int, int]]:
    """Bytes of each partition, by topic, at its leader, or at another replica if the leader does not answer.

    Shape: without partitions whose size may not be seen.
    """

    async def gather() -> dict[str, dict[int, int]]:
        stored, known = await log_dirs(console), await topics(console)
        found: dict[str, dict[int, int]] = {}
        several = len(stored) > 1
        for broker_id, response in stored.items():
            for directory in response.results:
                for topic in directory.topics:
                    rows = found.setdefault(topic.name, {})
                    led = leaders_of(known[topic.name]) if several and topic.name in known else {}
                    for row in topic.partitions:
                        number = row.partition_index
                        if number not in rows or led.get(number) == broker_id:
                            rows[number] = row.partition_size
                    await console.broker.turns.pause(console)
        return found

    return await console.kept("sizes", 2 * KEPT_MS, gather)  # type: ignore[no-any-return]


async def offsets(
    console: Console,
    partitions: dict[str, list[int]],
    timestamp: int,
    isolation_level: int = READ_UNCOMMITTED,
) -> dict[str, dict[int, int]]:
    """Offsets for a time, from the leaders, of the partitions that have such an offset."""
    found: dict[str, dict[int, int]] = {}
    requests = {
        leader: offsets_request(
            [(topic, number) for topic, numbers in led.items() for number in numbers],
            timestamp,
            isolation=isolation_level,
            timeout_ms=5_000,
        )
        for leader, led in (await by_leader(console, partitions)).items()
    }
    for response in (await console.ask_each(requests)).values():
        for (topic, number), offset in offsets_in(response)[0].items():
            if offset >= 0:
                found.setdefault(topic, {})[number] = offset
        await console.broker.turns.pause(console)
    return found


async def by_leader(
    console: Console, partitions: dict[str, list[int]]
) -> dict[int, dict[str, list[int]]]:
    """Partitions by topic, for each broker that leads some of them."""
    if not console.broker.has_others:
        return {console.broker.node_id: partitions} if partitions else {}
    known = await topics(console)
    found: dict[int, dict[str, list[int]]] = {}
    for name, numbers in partitions.items():
        led = leaders_of(known[name]) if name in known else {}
        for number in numbers:
            if (leader := led.get(number, -1)) >= 0:
                found.setdefault(leader, {}).setdefault(name, []).append(number)
        await console.broker.turns.pause(console)
    return found


async def groups(console: Console) -> Groups:
    """All groups and their committed offsets; `with_ends` adds the lag for those that are shown."""
    return await console.kept("groups", KEPT_MS, lambda: _groups(console))  # type: ignore[no-any-return]


async def _groups(console: Console) -> Groups:
    pause = console.broker.turns.pause
    found = Groups()
    request = ListGroupsRequest(states_filter=[], types_filter=[])
    lists = await console.ask_each(dict.fromkeys(console.live, request))
    coordinated: dict[int, list[str]] = defaultdict(list)
    for broker_id, listed in lists.items():
        for group in listed.groups:
            found.listed[group.group_id] = ListedGroup(
                group.group_id, group.group_state, group.protocol_type, group.group_type.lower()
            )
            found.coordinators[group.group_id] = broker_id
            coordinated[broker_id].append(group.group_id)
        await pause(console)
    found.listed = dict(sorted(found.listed.items()))
    if not found.listed:
        return found
    for lag in [
        *await _committed(console, coordinated),
        *await _shared(console, coordinated, found.listed),
    ]:
        found.by_group[lag.group].append(lag)
        found.by_topic[lag.topic].append(lag)
    return found


async def _committed(console: Console, coordinated: Mapping[int, list[str]]) -> list[Lag]:
    """The committed offsets of groups; share groups have none."""
    pause = console.broker.turns.pause
    answers = await console.ask_each(
        {
            broker_id: OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in names],
                require_stable=False,
            )
            for broker_id, names in coordinated.items()
        },
        9,
    )
    found = []
    for group in (group for answer in answers.values() for group in answer.groups):
        for topic in group.topics:
            for row in topic.partitions:
                if row.committed_offset < 0:
                    continue
                found.append(
                    Lag(
                        group.group_id,
                        topic.name,
                        row.partition_index,
                        row.committed_offset,
                        row.metadata or "",
                    )
                )
        await pause(console)
    return found


async def _shared(
    console: Console, coordinated: Mapping[int, list[str]], listed: Mapping[str, ListedGroup]
) -> list[Lag]:
    """The start offsets of share groups."""
    requests = {}
    for broker_id, names in coordinated.items():
        groups = [
            DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)
            for name in names
            if listed[name].kind == SHARE
        ]
        if groups:
            requests[broker_id] = DescribeShareGroupOffsetsRequest(groups=groups)
    found = []
    for answer in (await console.ask_each(requests)).values():
        for group in answer.groups:
            found += [
                Lag(
                    group.group_id,
                    topic.topic_name,
                    row.partition_index,
                    row.start_offset,
                    "",
                    unacknowledged=row.lag if row.lag >= 0 else None,
                )
                for topic in group.topics
                for row in topic.partitions
                if row.start_offset >= 0
            ]
            await console.broker.turns.pause(console)
    return found


async def with_ends(console: Console, lags: Iterable[Lag]) -> list[Lag]:
    """The same with the ends of their partitions."""
    lags = list(lags)
    wanted: dict[str, set[int]] = defaultdict(set)
    for lag in lags:
        wanted[lag.topic].add(lag.partition)
    ends = await offsets(console, {name: sorted(rows) for name, rows in wanted.items()}, LATEST)
    return [lag._replace(end=ends.get(lag.topic, {}).get(lag.partition)) for lag in lags]


def total_lag(rows: Iterable[Lag]) -> int | None:
    """The lag of several partitions."""
    return sum_of_lags(row.lag for row in rows)
