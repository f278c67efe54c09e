"""The plain Produce, which most are: from the body of its frame to the body of its response, without message objects.

Plain is a request of version 9 to 13, not transactional, with one whole batch for each of some partitions that
this broker has, when there is no authorizer. `plain_produce` reads and writes only the form; what may be appended, and
when it is committed, is decided where it is for all requests (`check_form`, `append_records`). What is not plain is left,
untouched, to `produce`, and a row that fails is answered as `produce` answers it. The two give equal bytes:
tests/handlers/test_produce_plain.py compares them.
"""

from __future__ import annotations

import os
from functools import partial
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any

from kwire.codec import AT_ONCE_ELEMENTS
from kwire.layouts import check_layouts
from kwire.messages.produce import ProduceRequest, ProduceResponse
from kwire.records.crc import crc32c

from .. import native
from ..log.log import Log
from ..log.producer_state import BatchMetadata
from ..log.segment import LogSegment
from ..log.validator import AppendInfo, append_info
from ..metadata.internal_topics import INTERNAL_TOPICS
from ..net.dispatcher import Later, Plain, plain_answer
from ..replication.partition import Partition
from .authorization import AllowAll
from .context import NO_REPLY, NoReply, RequestContext
from .produce_answer import Place, answer_of
from .produce_form import check_form

if TYPE_CHECKING:
    from kwire.types import RecordsBytes

    from ..replication.append import AppendResult, AppendRow
    from .context import Services

#: The first version with compact lengths and tagged fields, the first that names topics by id, and the newest one known.
FLEXIBLE_SINCE = 9
TOPIC_IDS_SINCE = 13
NEWEST = 13
ID_BYTES = 16

for message in (ProduceRequest, ProduceResponse):
    check_layouts(message, (FLEXIBLE_SINCE, TOPIC_IDS_SINCE), NEWEST)
    if native.LAYOUTS is not None:
        check_layouts(message, *native.LAYOUTS[message.__name__])

# transactional_id (compact, null) · acks · timeout_ms
_HEAD = Struct(">bhi").unpack_from
_HEAD_BYTES = 7
_INDEX = Struct(">i").unpack_from
# index · error_code · base_offset · log_append_time_ms · log_start_offset · record_errors (none) ·
# error_message (null) · tagged fields (none)
_ROW = Struct(">ihqqqbbb").pack
#: After the topics: throttle_time_ms and no tagged fields.
_END = bytes(5)

#: The same in the native module; None without it.
_NATIVE_PATH: Any = native.ProducePath and native.ProducePath(
    crc32c,
    partial(tuple.__new__, BatchMetadata),
    append_info,
    INTERNAL_TOPICS,
    os.pwrite,
    (Partition, Log, LogSegment),
)


def plain_produce(  # noqa: C901 - one pass over the bytes, without calls for what all requests have
    ctx: RequestContext, frame: memoryview, at: int, done: Any = None
) -> Plain | ProduceResponse | Later[Any] | NoReply | None:
    """Append a plain request and answer it; None, with nothing done, if it is not plain.

    Shape: `at` is where the body begins in the frame. `done` is None, or what `plain_produce_frame` returned: what became of
    each row, where not all are written and committed.
    """
    version, services = ctx.version, ctx.services
    if not FLEXIBLE_SINCE <= version <= NEWEST or type(services.authorizer) is not AllowAll:
        return None
    partitions: dict[Any, Partition] = services.replica_manager.partitions
    if done is None and native.ProducePath is not None:
        done = _NATIVE_PATH.answer(frame, at, version, partitions, ctx.now_ms, services.metadata)
        if type(done) is tuple:
            body, count = done
            return plain_answer(([body], count, ())) if body else NO_REPLY
    topics: list[tuple[bytes, int]] = []  # as the response names it, and its number of rows
    places: list[Place] = []
    rows: list[AppendRow] = []
    before = None
    try:
        transactional_id, acks, timeout_ms = _HEAD(frame, at)
        if transactional_id or not -1 <= acks <= 1:
            return None
        at += _HEAD_BYTES
        left = frame[at] - 1  # a compact length; those of several bytes are not plain
        at += 1
        if not 0 < left < 127:
            return None
        while left:
            left -= 1
            start = at
            if version < TOPIC_IDS_SINCE:
                at += frame[at]
                name = str(frame[start + 1 : at], "utf-8")
                if not 0 < at - start < 128:
                    return None
            else:
                at += ID_BYTES
                known = services.metadata().topic_by_id(bytes(frame[start:at]))
                if known is None:
                    return None
                name = known.name
            if name in INTERNAL_TOPICS or name == before:
                return None
            before = name
            named = bytes(frame[start:at])
            count = frame[at] - 1
            at += 1
            if not 0 < count < 127 or len(rows) + count > AT_ONCE_ELEMENTS:
                return None
            topics.append((named, count))
            while count:
                count -= 1
                (index,) = _INDEX(frame, at)
                at += 4
                size = shift = 0
                while (byte := frame[at]) > 127 and shift < 28:
                    size |= (byte & 127) << shift
                    shift += 7
                    at += 1
                size = (size | byte << shift) - 1
                at += 1
                records: RecordsBytes = frame[at : at + size]
                at += size
                partition = partitions.get((name, index))
                if frame[at] or partition is None or check_form(records, version) is not None:
                    return None
                at += 1
                places.append((name, index, partition))
                rows.append((partition, records))
            if frame[at]:
                return None
            at += 1
        if frame[at]:
            return None
    except (IndexError, StructError, UnicodeDecodeError):
        return None

    def answer(results: list[AppendResult]) -> Plain | ProduceResponse | NoReply:
        written = [bytes((len(topics) + 1,))]
        row = 0
        for named, count in topics:
            written += (named, bytes((count + 1,)))
            for result in results[row : row + count]:
                if type(result) is not AppendInfo:
                    return answer_of(ctx, acks, places, results)
                first_offset, _, append_time, log_start, *_ = result
                written.append(
                    _ROW(places[row][1], 0, first_offset, append_time, log_start, 1, 0, 0)
                )
                row += 1
            written.append(b"\0")
        if acks == 0:
            return NO_REPLY
        written.append(_END)
        return plain_answer(([b"".join(written)], row, ()))

    appended = services.replica_manager.appends.append_records(
        rows, acks, timeout_ms, ctx.now_ms, client=ctx, done=done
    )
    if isinstance(appended, list):
        return answer(appended)
    return ctx.later(appended, answer)


def plain_produce_frame(
    services: Services, frame: memoryview, version: int, now_ms: int
) -> tuple[bytes, int] | list[AppendResult] | None:
    """See `Handler.plain_frame`."""
    if native.ProducePath is None or type(services.authorizer) is not AllowAll:
        return None
    done: tuple[bytes, int] | list[AppendResult] | None = _NATIVE_PATH.answer(
        frame, -1, version, services.replica_manager.partitions, now_ms, services.metadata
    )
    return done
