"""Groups: the list with members and lag; one group with its members, their assignments, and the lag of each partition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kwire.messages.describe_groups import DescribeGroupsRequest

from ..explain.live_groups import assigned_partitions, subscribed
from . import facts
from .console import Console, Refused, said
from .facts import Lag
from .listing import listing

if TYPE_CHECKING:
    from starlette.requests import Request

CONSUMER = "consumer"
#: Members and partitions of one group that are shown.
MOST_MEMBERS = 500
MOST_PARTITIONS = 2_000


@dataclass
class GroupRow:
    """A group in the list. Shape: `lag` is None if none is known, or before it is asked for."""

    id: str
    state: str
    protocol_type: str
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
    """A partition that a group reads. Shape: `committed` is None if nothing is committed, `owner` if nobody reads it."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    metadata: str
    owner: str

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the end."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


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
    """The group in the query; names may have any characters, so they are not in the path."""
    return str(request.query_params.get("id", ""))


async def gather_group(console: Console, request: Request) -> dict[str, Any]:
    """One group."""
    name = group_id(request)
    groups = await facts.groups(console)
    response = await console.ask(
        DescribeGroupsRequest(groups=[name]), 5, groups.coordinators.get(name)
    )
    (group,) = response.groups
    if group.error_code:
        raise Refused(404, "Not available", f"The group {name}: {said(group.error_code)}.")
    lags = await facts.with_ends(console, groups.by_group.get(name, []))
    if group.group_state == "Dead" and not lags:
        raise Refused(
            404,
            "No such group",
            f"There is no group {name}, or {console.broker.principal} may not see it.",
        )
    is_consumer = group.protocol_type in (CONSUMER, "")
    members = []
    owners: dict[tuple[str, int], str] = {}
    for row in sorted(group.members, key=lambda each: (each.client_id, each.member_id)):
        await console.broker.turns.pause(console)
        member = MemberRow(
            row.member_id,
            row.group_instance_id or "",
            row.client_id,
            row.client_host.lstrip("/"),
            sorted(subscribed(bytes(row.member_metadata))) if is_consumer else [],
        )
        if is_consumer:
            for topic, number in assigned_partitions(bytes(row.member_assignment)):
                member.assigned.setdefault(topic, []).append(number)
                owners[(topic, number)] = row.client_id
        members.append(member)
    places = await places_of(console, lags, owners)
    by_owner: dict[tuple[str, int], PlaceRow] = {(row.topic, row.partition): row for row in places}
    for member in members:
        found = [
            place.lag
            for topic, numbers in member.assigned.items()
            for number in numbers
            if (place := by_owner.get((topic, number))) is not None and place.lag is not None
        ]
        member.lag = sum(found) if found else None
    known = [row.lag for row in places if row.lag is not None]
    return {
        "group": group,
        "coordinator": groups.coordinators.get(name, console.broker.node_id),
        "members": members[:MOST_MEMBERS],
        "member_count": len(members),
        "places": places[:MOST_PARTITIONS],
        "place_count": len(places),
        "lag": sum(known) if known else None,
        "unread": sum(not row.owner for row in places) if group.group_state == "Stable" else 0,
    }


async def places_of(
    console: Console, lags: list[Lag], owners: dict[tuple[str, int], str]
) -> list[PlaceRow]:
    """Every partition that is assigned, or of which an offset is committed."""
    rows = {
        (lag.topic, lag.partition): PlaceRow(
            lag.topic,
            lag.partition,
            lag.committed,
            lag.end,
            lag.metadata,
            owners.get((lag.topic, lag.partition), ""),
        )
        for lag in lags
    }
    uncommitted: dict[str, list[int]] = defaultdict(list)
    for topic, number in owners:
        if (topic, number) not in rows:
            uncommitted[topic].append(number)
    ends = await facts.offsets(console, dict(uncommitted), facts.LATEST)
    for topic, numbers in uncommitted.items():
        for number in numbers:
            end = ends.get(topic, {}).get(number)
            rows[(topic, number)] = PlaceRow(topic, number, None, end, "", owners[(topic, number)])
    return [rows[key] for key in sorted(rows)]
