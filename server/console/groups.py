"""Groups: the list with members and lag; one group with its members, their assignments, and the lag of each partition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..explain.facts import GroupFacts, total_lag
from ..explain.live_groups import group_facts
from . import explaining, facts
from .console import Console, PageRefused
from .facts import Lag
from .listing import listing

if TYPE_CHECKING:
    from starlette.requests import Request

#: The maximum numbers of members and partitions of one group that are shown.
MAX_MEMBERS = 500
MAX_PARTITIONS = 2_000


@dataclass
class GroupRow:
    """A group in the list. Shape: `lag` is None if it is not known, or not requested yet."""

    id: str
    state: str
    protocol_type: str
    kind: str
    topics: list[str]
    partitions: int
    lag: int | None = None


@dataclass
class MemberRow:
    """A member of a group. Shape: `assigned` maps topics to partitions."""

    id: str
    instance_id: str
    client_id: str
    host: str
    subscribed: list[str]
    assigned: dict[str, list[int]] = field(default_factory=dict)
    lag: int | None = None


@dataclass
class PlaceRow:
    """A partition that a group reads. Shape: `committed` is None without a committed offset; `owner` is empty if no
    member reads it.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    metadata: str
    owner: str
    lag: int | None
    note: str | None


async def gather(console: Console, request: Request) -> dict[str, Any]:
    """The list of groups."""
    groups = await facts.groups(console)
    rows = []
    for number, group in enumerate(groups.listed.values()):
        lags = groups.by_group.get(group.id, [])
        topics = sorted({lag.topic for lag in lags})
        rows.append(
            GroupRow(
                group.id,
                group.state,
                group.protocol_type,
                group.kind,
                topics,
                len(lags),
            )
        )
        if number % 64 == 0:
            await console.broker.turns.pause(console)
    if by_lag := request.query_params.get("sort") == "lag":
        await _add_lag(console, groups, rows)
    pages = listing(
        "/console/groups",
        request.query_params,
        rows,
        {
            "name": lambda row: row.id,
            "state": lambda row: row.state,
            "partitions": lambda row: row.partitions,
            "lag": lambda row: row.lag,
        },
        text=lambda row: f"{row.id} {row.state} {' '.join(row.topics)}",
    )
    if not by_lag:
        await _add_lag(console, groups, pages.rows)
    return {"pages": pages, "all_count": len(rows)}


async def _add_lag(console: Console, groups: facts.Groups, rows: Iterable[GroupRow]) -> None:
    rows = list(rows)
    committed = [lag for row in rows for lag in groups.by_group.get(row.id, [])]
    found: dict[str, list[Lag]] = {}
    for lag in await facts.with_ends(console, committed):
        found.setdefault(lag.group, []).append(lag)
    for row in rows:
        row.lag = facts.total_lag(found.get(row.id, []))


def group_id(request: Request) -> str:
    """The group in the query; names may contain any characters, so they are not in the path."""
    return str(request.query_params.get("id", ""))


async def gather_group(console: Console, request: Request) -> dict[str, Any]:
    """One group."""
    name = group_id(request)
    found = None
    if name in (await facts.groups(console)).listed:
        asking = group_facts(name, console.broker.clock.now_ms(), stored=False)
        found = await explaining.run(console, asking)
    if found is None or found.problem == "NO_GROUP":
        raise PageRefused(
            404,
            "No such group",
            f"There is no group {name}, or {console.broker.principal} may not see it.",
        )
    if found.problem is not None:
        raise PageRefused(503, "Not available", f"The group {name}: {found.problem_text}.")
    return await console.broker.executor.in_thread(shown, found)


def shown(group: GroupFacts) -> dict[str, Any]:
    """The values for the page of a group."""
    owners: dict[tuple[str, int], list[str]] = defaultdict(list)
    members = []
    lags = {(row.topic, row.partition): row.lag for row in group.partitions}
    for each in sorted(group.members, key=lambda each: (each.client_id, each.member_id)):
        member = MemberRow(
            each.member_id,
            each.instance_id or "",
            each.client_id,
            each.host.lstrip("/"),
            sorted(each.subscribed),
        )
        for topic, number in each.partitions:
            member.assigned.setdefault(topic, []).append(number)
            owners[topic, number].append(each.client_id)
        # Members of a share group share partitions.
        if group.kind != facts.SHARE:
            member.lag = total_lag(map(lags.get, each.partitions))
        members.append(member)
    places = [
        PlaceRow(
            row.topic,
            row.partition,
            row.committed if row.committed >= 0 else None,
            row.end,
            row.metadata,
            ", ".join(owners[row.topic, row.partition]),
            row.lag,
            row.note,
        )
        for row in group.partitions
    ]
    return {
        "group": group,
        "members": members[:MAX_MEMBERS],
        "member_count": len(members),
        "places": places[:MAX_PARTITIONS],
        "place_count": len(places),
        "lag": total_lag(row.lag for row in places),
        "unread": sum(not row.owner for row in places) if group.state == "Stable" else 0,
    }
