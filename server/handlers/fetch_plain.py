"""The plain answer to a consumer's Fetch, which most are: rows without errors, written without message objects.

What is read, and which rows an answer includes, is decided where it is for all fetches (`fetch_records`,
`rows_with_news`); here is only their form. Fetches that wait for the same records get the same bytes: the answer is
written for the first of them, and holds for those that are answered in the same turn of the loop, as long as the
partitions are as they were. The compiled codec gives equal bytes: tests/handlers/test_fetch_plain.py compares them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any

from kwire.layouts import check_layouts
from kwire.messages.fetch import FetchRequest, FetchResponse
from kwire.varint import uvarint

from .. import native
from ..log.file_layer import FileSlice
from ..net.dispatcher import Plain, plain_answer
from .fetch_answer import refused_answer, response_of, rows_with_news

if TYPE_CHECKING:
    from ..replication.fetch_session import FetchContext, FetchedPartition, Key
    from ..replication.partition import Partition
    from ..replication.read import FetchParams, FetchRow, Reading, WaitingFetch
    from .context import RequestContext

#: The first versions with sessions, with preferred replicas, with compact lengths and tagged fields, and with topic ids;
#: and the newest one that is known here.
SESSIONS_SINCE = 7
PREFERRED_SINCE = 11
FLEXIBLE_SINCE = 12
TOPIC_IDS_SINCE = 13
NEWEST = 18

check_layouts(
    FetchResponse, (SESSIONS_SINCE, PREFERRED_SINCE, FLEXIBLE_SINCE, TOPIC_IDS_SINCE), NEWEST
)
if native.LAYOUTS is not None:
    for message in (FetchRequest, FetchResponse):
        check_layouts(message, *native.LAYOUTS[message.__name__])

#: Answers up to this size are one buffer. Unit: bytes.
JOINED_BYTES = 16 * 1024
#: Slices up to this are read for answers that several get. Unit: bytes.
COPY_BYTES = 32 * 1024

#: The compact lengths of lists and strings, of which few are longer, and that of no records.
_COMPACT = [uvarint(length + 1) for length in range(256)]
EMPTY = _COMPACT[0]

# throttle_time_ms · error_code · session_id
_HEAD = Struct(">ihi").pack
# index · error_code · high_watermark · last_stable_offset · log_start_offset · aborted_transactions
# (none, or null) · preferred_read_replica; then the size of the records, and they
_FLEXIBLE_ROW = Struct(">ihqqqbi").pack
_ROW_11 = Struct(">ihqqqiii").pack
_ROW_7 = Struct(">ihqqqii").pack
_SIZE = Struct(">h").pack
_COUNT = Struct(">i").pack

Written = tuple[list[Any], list[tuple[str | bytes, int, int]]]


def written_answer(
    ctx: RequestContext,
    request: FetchRequest | None,
    context: FetchContext,
    reading: Reading,
    keep: Callable[[list[FetchRow], Written], None] | None = None,
) -> Plain | FetchResponse:
    """Return the answer, written without message objects if all rows are plain; `keep` receives a written answer."""
    refused = refused_answer(ctx, request, context, reading)
    if refused is not None:
        return refused
    rows = rows_with_news(context, reading.rows)
    written = (native.write_rows or write_rows)(ctx.version, rows)
    if written is None:
        return response_of(ctx, context, reading, rows)
    if keep is not None:
        keep(rows, written)
    return _with_head(context, written, len(rows))


def written_answer_later(
    ctx: RequestContext,
    request: FetchRequest | None,
    context: FetchContext,
    params: FetchParams,
    found: WaitingFetch,
    others: object,
) -> Plain | FetchResponse:
    """Answer a fetch that has waited; reuse the answer just written for another one if it requests the same.

    Shape: `others` says whether the same records may have woken another fetch.
    """
    if (
        not others
        or params.denies is not None
        or params.refuse is not None
        or params.in_rack
        or ctx.charge is not None
    ):
        return written_answer(ctx, request, context, found.read())
    asked = (
        ctx.version,
        params.read_committed,
        params.max_bytes,
        context.incremental,
        (native.asked_by or asked_by)(context.partitions),
    )
    sessions = ctx.services.fetch_sessions
    shared = sessions.last_answer
    if (
        type(shared) is SharedAnswer
        and shared.asked == asked
        and (context.session is None or not context.overtaken)
        and shared.holds()
    ):
        return shared.given_to(context)
    reading = found.read()

    def keep(rows: list[FetchRow], written: Written) -> None:
        partitions = ctx.services.replica_manager.partitions
        kept = SharedAnswer(asked, reading.rows, rows, written, partitions)
        sessions.last_answer = kept

        def forget() -> None:
            kept.close()
            if sessions.last_answer is kept:
                sessions.last_answer = None

        asyncio.get_running_loop().call_soon(forget)

    return written_answer(ctx, request, context, reading, None if reading.pending else keep)


def asked_by(partitions: dict[Key, FetchedPartition]) -> list[Any]:
    """The parts of each partition of a fetch that determine its answer."""
    return [
        (
            key,
            each.fetch_offset,
            each.max_bytes,
            each.high_watermark,
            each.log_start_offset,
            each.current_leader_epoch,
            each.last_fetched_epoch,
        )
        for key, each in partitions.items()
    ]


def _with_head(context: FetchContext, written: Written, rows: int) -> Plain:
    parts, read = written
    session = context.session
    head = _HEAD(0, 0, 0 if session is None else session.id)
    first = parts[0]
    if len(first) <= JOINED_BYTES:
        return plain_answer(([head + first, *parts[1:]], rows, read))
    return plain_answer(([head, *parts], rows, read))


def write_rows(  # noqa: C901 - one pass, as for Produce
    version: int, rows: list[FetchRow]
) -> Written | None:
    """The topics of an answer with these rows, and what observers count of them; None if a row is not plain.

    Shape: buffers and slices, the first of them bytes. Long lists are not plain, nor are names that no topic can have.
    """
    if not SESSIONS_SINCE <= version <= NEWEST or len(rows) >= len(_COMPACT):
        return None
    topics: dict[str | bytes, list[Any]] = {}
    sizes: dict[str | bytes, list[int]] = {}
    flexible = version >= FLEXIBLE_SINCE
    has_slices = False
    for key, asked, _, result in rows:
        error, high_watermark, stable, log_start, data, _, diverging, aborted, preferred = result
        if error or diverging is not None or aborted:
            return None
        name = key[1] if version >= TOPIC_IDS_SINCE else key[0]
        size = len(data)
        if type(data) is not bytes:
            has_slices = True
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = []
            sizes[name] = []
        sizes[name].append(size)
        number = asked.partition
        if flexible:
            none = 0 if aborted is None else 1
            topic.append(
                _FLEXIBLE_ROW(number, 0, high_watermark, stable, log_start, none, preferred)
            )
            if size:
                topic.append(uvarint(size + 1))
                topic.append(data)
            else:
                topic.append(EMPTY)
            topic.append(b"\0")
        else:
            none = -1 if aborted is None else 0
            if version >= PREFERRED_SINCE:
                row = _ROW_11(number, 0, high_watermark, stable, log_start, none, preferred, size)
            else:
                row = _ROW_7(number, 0, high_watermark, stable, log_start, none, size)
            topic.append(row)
            if size:
                topic.append(data)
    parts: list[Any] = [_COMPACT[len(topics)] if flexible else _COUNT(len(topics))]
    read: list[tuple[str | bytes, int, int]] = []
    total = 0
    for name, written in topics.items():
        count, size = len(sizes[name]), sum(sizes[name])
        total += size
        read.append((name, count, size))
        if isinstance(name, bytes):
            parts.append(name)
        else:
            encoded = name.encode()
            length = len(encoded)
            if length >= len(_COMPACT):
                return None
            parts.append(_COMPACT[length] if flexible else _SIZE(length))
            parts.append(encoded)
        parts.append(_COMPACT[count] if flexible else _COUNT(count))
        parts += written
        if flexible:
            parts.append(b"\0")
    if flexible:
        parts.append(b"\0")
    if total <= JOINED_BYTES and not has_slices:
        return [b"".join(parts)], read
    return _joined(parts), read


def _joined(parts: list[Any]) -> list[Any]:
    """Join buffers, except for records that are many."""
    joined: list[Any] = []
    run: list[bytes] = []
    for part in parts:
        if type(part) is bytes and len(part) <= JOINED_BYTES:
            run.append(part)
        else:
            joined += (b"".join(run), part)
            run = []
    joined.append(b"".join(run))
    return joined


def as_seen(seen: list[Any]) -> bool:
    """Whether partitions are unchanged."""
    for partition, log, leads, state, committed, log_start, log_end in seen:
        if (
            log.committed != committed
            or log.log_start_offset != log_start
            or log.log_end_offset != log_end
            or partition.state is not state
            or partition.is_leader is not leads
            or partition.log is not log
            or log.offline
        ):
            return False
    return True


class SharedAnswer:
    """An answer that several fetches get, until the turn of the loop is over.

    Shape: `asked` are the requested partitions; `answered` is what its rows tell a session about each partition.
    """

    __slots__ = ("_answered", "_parts", "_read", "_seen", "asked")

    def __init__(
        self,
        asked: Any,
        all_rows: list[FetchRow],
        rows: list[FetchRow],
        written: Written,
        partitions: dict[Any, Partition],
    ) -> None:
        self.asked = asked
        parts, self._read = written
        self._parts = [part.again() if type(part) is FileSlice else part for part in parts]
        self._answered: list[tuple[Key, int, int, bool]] = [
            (key, result.high_watermark, result.log_start_offset, len(result.data) > 0)
            for key, _, _, result in rows
        ]
        self._seen = []
        for _, each, topic, _ in all_rows:
            partition = partitions[topic, each.partition]
            log = partition.log
            self._seen.append(
                (
                    partition,
                    log,
                    partition.is_leader,
                    partition.state,
                    log.committed,
                    log.log_start_offset,
                    log.log_end_offset,
                )
            )

    def holds(self) -> bool:
        """Whether all partitions are unchanged."""
        return (native.as_seen or as_seen)(self._seen)

    def given_to(self, context: FetchContext) -> Plain:
        """The answer for another fetch; updates its session."""
        session = context.session
        if session is not None:
            partitions = context.partitions
            behind = []
            for key, high_watermark, log_start, has_data in self._answered:
                asked = partitions[key]
                asked.high_watermark = high_watermark
                asked.log_start_offset = log_start
                if has_data:
                    behind.append(key)
            if context.incremental:
                session.put_behind(behind)
        parts = []
        for number, part in enumerate(self._parts):
            if type(part) is FileSlice:
                if len(part) <= COPY_BYTES:
                    self._parts[number] = data = part.read()
                    part.close()
                    part = data
                else:
                    part = part.again()
            parts.append(part)
        return _with_head(context, (parts, self._read), len(self._answered))

    def close(self) -> None:
        """Let go of the files."""
        for part in self._parts:
            if type(part) is FileSlice:
                part.close()
