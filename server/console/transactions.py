"""Transactions by their ids, and the producers of a partition: their state, since when, and the records they block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kwire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kwire.messages.describe_transactions import DescribeTransactionsRequest
from kwire.messages.list_transactions import ListTransactionsRequest

from ..client.answers import leaders_of
from ..client.requests import LATEST, READ_COMMITTED
from . import facts, topics
from .console import Console, PageRefused, said
from .listing import listing, number_in

if TYPE_CHECKING:
    from starlette.requests import Request

#: States in which a transaction blocks readers of committed records.
OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


@dataclass
class TransactionRow:
    """A transactional id. Shape: `held_back` is None if it is not known; the other fields are those of
    DescribeTransactions.
    """

    id: str
    state: str
    producer_id: int
    coordinator: int
    epoch: int = -1
    timeout_ms: int = -1
    start_ms: int = -1
    partitions: list[tuple[str, int]] | None = None
    held_back: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether a transaction is in progress."""
        return self.state in OPEN


async def listed(console: Console) -> tuple[list[TransactionRow], str]:
    """Every transactional id that its coordinator lists, and an error in words, empty for none."""
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], duration_filter=-1)
    lists = await console.ask_each(dict.fromkeys(console.live, request))
    rows = [
        TransactionRow(each.transactional_id, each.transaction_state, each.producer_id, broker_id)
        for broker_id, response in lists.items()
        for each in response.transaction_states
    ]
    errors = [said(response.error_code) for response in lists.values() if response.error_code]
    return rows, errors[0] if errors else ""


async def gather(console: Console, request: Request) -> dict[str, Any]:
    """The list of transactional ids, those with an open transaction first."""
    rows, error = await listed(console)
    pages = listing(
        "/console/transactions",
        request.query_params,
        rows,
        {"state": lambda row: (not row.is_open, row.id), "name": lambda row: row.id},
        text=lambda row: f"{row.id} {row.state} {row.producer_id}",
    )
    shown: list[TransactionRow] = list(pages.rows)
    if shown:
        await describe(console, shown)
    return {
        "pages": pages,
        "all_count": len(rows),
        "open_count": sum(row.is_open for row in rows),
        "error": error,
    }


async def describe(console: Console, rows: list[TransactionRow]) -> None:
    """Add the coordinators' details, and the number of records that wait for each open transaction."""
    coordinated: dict[int, list[str]] = {}
    for row in rows:
        coordinated.setdefault(row.coordinator, []).append(row.id)
    described = await console.ask_each(
        {
            broker_id: DescribeTransactionsRequest(transactional_ids=ids)
            for broker_id, ids in coordinated.items()
        }
    )
    by_id = {
        each.transactional_id: each
        for response in described.values()
        for each in response.transaction_states
    }
    wanted: dict[str, set[int]] = {}
    for row in rows:
        found = by_id.get(row.id)
        if found is None or found.error_code:
            continue
        row.epoch, row.timeout_ms = found.producer_epoch, found.transaction_timeout_ms
        row.start_ms = found.transaction_start_time_ms
        row.partitions = [
            (topic.topic, number) for topic in found.topics for number in topic.partitions
        ]
        if row.is_open:
            for topic, number in row.partitions:
                wanted.setdefault(topic, set()).add(number)
    partitions = {name: sorted(numbers) for name, numbers in wanted.items()}
    ends = await facts.offsets(console, partitions, LATEST)
    stable = await facts.offsets(console, partitions, LATEST, READ_COMMITTED)
    for row in rows:
        if row.is_open and row.partitions:
            held = [
                ends[topic][number] - stable[topic][number]
                for topic, number in row.partitions
                if number in ends.get(topic, {}) and number in stable.get(topic, {})
            ]
            row.held_back = sum(held) if held else None


async def gather_producers(console: Console, request: Request) -> dict[str, Any]:
    """The producers in the state of a partition."""
    topic = await topics.topic_of(console, request)
    led = topics.led(topic)
    number = number_in(request.query_params.get("partition"), led[0] if led else 0)
    rows: list[Any] = []
    error = ""
    if number in led:
        response = await console.ask(
            DescribeProducersRequest(
                topics=[TopicRequest(name=topic.name, partition_indexes=[number])]
            ),
            to=leaders_of(topic)[number],
        )
        row = response.topics[0].partitions[0]
        error = row.error_message or said(row.error_code)
        rows = sorted(
            row.active_producers,
            key=lambda each: (each.current_txn_start_offset < 0, -each.last_timestamp),
        )
    held_back = 0
    if number in led and not error:
        stable = await topics.stable_offsets(console, topic.name, [number])
        ends = (await facts.offsets(console, {topic.name: [number]}, LATEST)).get(topic.name, {})
        held_back = ends.get(number, 0) - stable.get(number, ends.get(number, 0))
    elif led and number not in led:
        raise PageRefused(
            404,
            "Not available",
            f"{topic.name}-{number} has no leader, or there is no such partition.",
        )
    return {
        **await topics.head(console, topic, "producers"),
        "led": led,
        "number": number,
        "error": error,
        "rows": rows[:500],
        "row_count": len(rows),
        "held_back": held_back,
    }
