"""The messages of a topic: by offset, by time or the newest, searched with a filter, and followed live."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..client.requests import (
    EARLIEST,
    LATEST,
    MAX_FETCH_VERSION,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Limits,
    fetch_request,
)
from ..client.visibility import Aborted, aborted_in
from ..times import unix_ms
from . import facts, topics
from .console import Console, PageRefused, said
from .filters import FilterError, parse
from .listing import number_in
from .records import FoundRecords, RecordRow, WantedRecords, rows_of
from .values import FORMS

if TYPE_CHECKING:
    from starlette.requests import Request

    from .filters import Test

LIMITS = (25, 50, 100, 250)
#: The size of one request for records.
FETCH_BYTES = 1024 * 1024
#: A search ends when it has read this much, or has taken this long; the records found so far are shown.
MAX_SEARCH_BYTES = 64 * 1024 * 1024
MAX_SEARCH_S = 5.0
#: The maximum number of characters on a page that are visible only in opened records.
MAX_PAGE_TEXT = 4 * 1024 * 1024
#: The number of offsets before the end that are read first for the newest records.
FIRST_STEP = 200
#: The maximum number of rows that are sent at once to a page that follows a topic; the others are counted.
MAX_LIVE_ROWS = 100
#: How long a live page waits for records before it sends a sign of life. With several brokers, the wait for one is
#: short, so that the records of another are not late.
LIVE_WAIT_MS = 1_500
SHARED_WAIT_MS = 250


class MessagesForm(NamedTuple):
    """The values of the form. Shape: `partition` is None for all; `start` is an offset or a time, by `since`."""

    partition: int | None
    since: str
    start: int
    limit: int
    form: str
    q: str
    test: Test | None
    error: str
    start_text: str


class SearchCount:
    """Counts the data that a search has read."""

    def __init__(self) -> None:
        self.bytes = 0
        self.looked_at = 0
        self.problems: list[str] = []
        self.ended_s = time.monotonic() + MAX_SEARCH_S
        self.stopped = False

    @property
    def has_budget(self) -> bool:
        """Whether the search may continue."""
        if self.bytes < MAX_SEARCH_BYTES and time.monotonic() < self.ended_s:
            return True
        self.stopped = True
        return False

    def count(self, found: FoundRecords) -> None:
        """Count the data that was read."""
        self.looked_at += found.looked_at
        self.problems += found.problems


def asked_of(query: Any) -> MessagesForm:
    """Read the form; invalid values are reported in `error`, and ignored."""
    error = ""
    partition_text = query.get("partition", "")
    partition = number_in(partition_text, -1) if partition_text else None
    since = query.get("from", "newest")
    if since not in ("newest", "oldest", "offset", "time"):
        since = "newest"
    start_text = query.get("at", "").strip()
    start = 0
    if since == "offset":
        start = number_in(start_text, -1)
        if start < 0:
            error, start = f"“{start_text}” is not an offset.", 0
    elif since == "time":
        try:
            start = unix_ms(start_text)
        except ValueError:
            error = f"“{start_text}” is not a time such as 2026-01-31T12:00."
            since = "newest"
    limit = number_in(query.get("limit"), LIMITS[1])
    form = query.get("form", "auto")
    q = query.get("q", "")
    test = None
    try:
        test = parse(q)
    except FilterError as problem:
        error = f"The filter cannot be read: {problem}."
    return MessagesForm(
        partition,
        since,
        start,
        limit if limit in LIMITS else LIMITS[1],
        form if form in FORMS else "auto",
        q,
        test,
        error,
        start_text,
    )


async def gather(console: Console, request: Request) -> dict[str, Any]:
    """The page: the form, and the requested records."""
    topic = await topics.topic_of(console, request)
    asked = asked_of(request.query_params)
    live = request.query_params.get("live") == "1"
    led = topics.led(topic)
    chosen = led if asked.partition is None else [n for n in led if n == asked.partition]
    rows: list[RecordRow] = []
    search = SearchCount()
    ends: dict[int, int] = {}
    starts: dict[int, int] = {}
    if chosen:
        wanted = {topic.name: chosen}
        starts = (await facts.offsets(console, wanted, EARLIEST)).get(topic.name, {})
        ends = (await facts.offsets(console, wanted, LATEST)).get(topic.name, {})
        if not asked.error and not live:
            rows = await read(console, topic.name, asked, starts, ends, search)
    following = following_of(rows, asked, ends)
    return {
        **await topics.head(console, topic, "messages"),
        "asked": asked,
        "live": live,
        "rows": rows,
        "led": led,
        "leaderless": len(topic.partitions) - len(led),
        "records": sum(ends[n] - starts.get(n, ends[n]) for n in ends),
        "limits": LIMITS,
        "forms": FORMS,
        "search": search,
        "following": following,
        "query": request.url.query,
    }


def following_of(
    rows: list[RecordRow], asked: MessagesForm, ends: dict[int, int]
) -> dict[str, str]:
    """The links to the records before and after those on the page; only within one partition."""
    if asked.partition is None or not rows:
        return {}
    offsets = [row.offset for row in rows]
    links = {}
    if max(offsets) + 1 < ends.get(asked.partition, 0):
        links["next"] = str(max(offsets) + 1)
    if min(offsets) > 0:
        links["prev"] = str(max(0, min(offsets) - asked.limit))
    return links


async def read(
    console: Console,
    topic: str,
    asked: MessagesForm,
    starts: dict[int, int],
    ends: dict[int, int],
    search: SearchCount,
) -> list[RecordRow]:
    """The requested records in the order of display: the newest first, or as they were written."""
    stable = await topics.stable_offsets(console, topic, sorted(ends))
    if asked.since == "time":
        found = (await facts.offsets(console, {topic: sorted(ends)}, asked.start)).get(topic, {})
        starts = {number: found.get(number, ends[number]) for number in ends}
    elif asked.since == "offset":
        starts = {number: max(asked.start, starts.get(number, 0)) for number in ends}
    rows: list[RecordRow] = []
    for number in sorted(ends):
        first, end = starts.get(number, ends[number]), ends[number]
        wanted = WantedRecords(
            number,
            first,
            end,
            asked.test,
            asked.form,
            asked.limit,
            asked.since == "newest",
            stable.get(number, end),
            console.decoders.of(topic),
        )
        if asked.since == "newest":
            rows += await newest(console, topic, wanted, search)
        else:
            rows += await onwards(console, topic, wanted, search)
        if not search.has_budget:
            break
    if asked.since == "newest":
        rows.sort(key=lambda row: (row.timestamp, row.offset), reverse=True)
    else:
        rows.sort(
            key=lambda row: (
                (row.timestamp, row.partition, row.offset)
                if asked.since == "time"
                else (row.offset, row.partition)
            )
        )
    rows = rows[: asked.limit]
    shorten(rows, search)
    return rows


def shorten(rows: list[RecordRow], search: SearchCount) -> None:
    """Keep only the first lines of keys, values and headers after MAX_PAGE_TEXT characters, and report it."""
    length = 0
    for number, row in enumerate(rows):
        every = [row.key, row.value, *(value for _, value in row.headers)]
        length += sum(len(each.whole) for each in every)
        if length > MAX_PAGE_TEXT:
            for left in rows[number:]:
                left.key, left.value = (each._replace(whole="") for each in (left.key, left.value))
                left.headers = [(name, each._replace(whole="")) for name, each in left.headers]
            search.problems.append(
                f"the records are long: only the first {number} of them can be opened here"
            )
            return


async def onwards(
    console: Console, topic: str, wanted: WantedRecords, search: SearchCount
) -> list[RecordRow]:
    """The first matching records from an offset on."""
    rows: list[RecordRow] = []
    while wanted.start < wanted.end and len(rows) < wanted.most and search.has_budget:
        found = await piece(console, topic, wanted, search)
        rows += found.rows
        if found.next_offset <= wanted.start:
            break
        wanted = wanted._replace(start=found.next_offset)
    return rows[: wanted.most]


async def newest(
    console: Console, topic: str, wanted: WantedRecords, search: SearchCount
) -> list[RecordRow]:
    """The last matching records: from the end backwards, in growing steps."""
    rows: list[RecordRow] = []
    step, end, first = max(FIRST_STEP, wanted.most), wanted.end, wanted.start
    while end > first and len(rows) < wanted.most and search.has_budget:
        start = max(first, end - step)
        part = wanted._replace(start=start, end=end)
        some: list[RecordRow] = []
        while part.start < end and search.has_budget:
            found = await piece(console, topic, part, search)
            some += found.rows
            del some[: -wanted.most]
            if found.next_offset <= part.start:
                break
            part = part._replace(start=found.next_offset)
        rows = some + rows
        end = start
        step *= 4
    return rows[-wanted.most :]


async def piece(
    console: Console, topic: str, wanted: WantedRecords, search: SearchCount
) -> FoundRecords:
    """Read up to FETCH_BYTES from an offset on, and search them in a thread."""
    data, aborted = await fetch(console, topic, wanted.partition, wanted.start)
    search.bytes += max(len(data), 1024)
    found = await console.broker.executor.in_thread(rows_of, data, wanted, aborted)
    search.count(found)
    return found


async def fetch(
    console: Console, topic: str, partition: int, offset: int
) -> tuple[bytes, list[Aborted]]:
    """Whole batches from an offset on, and the aborted transactions among them. Errors: PageRefused."""
    row = await fetched(console, {(topic, partition): offset}, READ_UNCOMMITTED, 0)
    data = await read_records(console, row[0][1]) if row else b""
    if not data:
        return b"", []
    decided = await fetched(console, {(topic, partition): offset}, READ_COMMITTED, 0)
    if not decided:
        return b"", []
    if getattr(decided[0][1].records, "close", None):
        decided[0][1].records.close()
    return data, aborted_in(decided[0][1])


async def fetched(
    console: Console, offsets: dict[tuple[str, int], int], isolation: int, wait_ms: int
) -> list[tuple[str, Any]]:
    """Fetch from partitions, as a consumer does; wait for records if there are none. Errors: PageRefused."""
    wanted: dict[str, list[int]] = {}
    for name, partition in offsets:
        wanted.setdefault(name, []).append(partition)
    led = await facts.by_leader(console, wanted)
    if len(led) > 1:
        wait_ms = min(wait_ms, SHARED_WAIT_MS)
    requests = {
        leader: fetch_request(
            {
                (name, number): offsets[name, number]
                for name, numbers in partitions.items()
                for number in numbers
            },
            Limits(wait_ms, 1 if wait_ms else 0, FETCH_BYTES, FETCH_BYTES),
            isolation,
        )
        for leader, partitions in led.items()
    }
    rows = [
        (topic.topic, row)
        for response in (await console.ask_each(requests, MAX_FETCH_VERSION)).values()
        for topic in response.responses
        for row in topic.partitions
    ]
    for name, row in rows:
        if row.error_code:
            raise PageRefused(
                403,
                "The records cannot be read",
                f"{name}-{row.partition_index}: {said(row.error_code)}.",
                f"The console reads as {console.broker.principal}.",
            )
    return rows


async def read_records(console: Console, row: Any) -> bytes:
    """The records of an answer; records in a file are read in a thread."""
    records = row.records
    if records is None:
        return b""
    if hasattr(records, "read"):
        try:
            return await console.broker.executor.in_thread(records.read)
        finally:
            records.close()
    return bytes(records)


def follow(console: Console, request: Request) -> Callable[[], Awaitable[str | None]]:
    """Returns the new rows since the last call, for a live page."""
    asked = asked_of(request.query_params)
    cursor: dict[tuple[str, int], int] = {}

    async def more() -> str | None:
        topic = await topics.topic_of(console, request)
        chosen = [n for n in topics.led(topic) if asked.partition is None or n == asked.partition]
        fresh = [number for number in chosen if (topic.name, number) not in cursor]
        if fresh:
            ends = (await facts.offsets(console, {topic.name: fresh}, LATEST)).get(topic.name, {})
            cursor.update({(topic.name, number): end for number, end in ends.items()})
        if not cursor:
            return None
        rows: list[RecordRow] = []
        try:
            answers = await fetched(console, dict(cursor), READ_UNCOMMITTED, LIVE_WAIT_MS)
        except PageRefused:
            cursor.clear()  # the partition has another leader now, or the offsets are gone
            return None
        for name, row in answers:
            data = await read_records(console, row)
            if not data:
                continue
            at = name, row.partition_index
            wanted = WantedRecords(
                row.partition_index,
                cursor[at],
                1 << 62,
                asked.test,
                asked.form,
                MAX_LIVE_ROWS,
                True,
                row.last_stable_offset if row.last_stable_offset >= 0 else 1 << 62,
                console.decoders.of(name),
            )
            found = await console.broker.executor.in_thread(rows_of, data, wanted, ())
            cursor[at] = max(cursor[at], found.next_offset)
            rows += found.rows
        if not rows:
            return None
        rows.sort(key=lambda each: (each.timestamp, each.offset), reverse=True)
        return await console.render(
            "message_rows.html",
            rows=live_rows(rows),
            topic=topic,
            fresh=True,
        )

    return more


def live_rows(rows: list[RecordRow]) -> list[RecordRow]:
    """The rows that are sent at once."""
    some = rows[:MAX_LIVE_ROWS]
    shorten(some, SearchCount())
    return some
