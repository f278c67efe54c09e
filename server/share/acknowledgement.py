"""Acknowledgements: the member that holds records accepts, releases or rejects them, or extends its locks.

Source: SharePartition.acknowledge.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from kwire.errors import ErrorCode

from .in_flight import NOBODY, InFlightBatch, StateRun, StateWrite
from .locks import Lock
from .partition import SharePartition
from .settings import ShareSettings
from .states import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE
from .writes import begin_write, complete_write

# Acknowledge types. Source: AcknowledgeType; 0 is a gap, an offset without a record.
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
STATE_OF = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: ARCHIVED}

#: The number of runs after which a batch is no longer divided; each run takes about 150 bytes. Only the last batch of a
#: share partition can have more records than may be locked, because it was acquired whole.
MAX_RUNS = 5_000

#: The number of runs that one step processes.
STEP = 256

_FIRST = attrgetter("first")


class ShareRefusal(NamedTuple):
    """Why an operation is refused."""

    error: ErrorCode
    message: str


NOT_ACQUIRED = "The batch cannot be acknowledged. The batch is not in the acquired state."
PART_NOT_ACQUIRED = (
    "The batch cannot be acknowledged. The subset batch is not in the acquired state."
)
OFFSET_NOT_ACQUIRED = "The offset cannot be acknowledged. The offset is not acquired."
IN_TRANSITION = (
    "The record state is invalid. The acknowledgement of delivery could not be completed."
)
NOT_OWNER = "Member is not the owner of batch record"
NOT_OWNER_OF_OFFSET = "Member is not the owner of offset"
NO_RENEWAL = "Renewing acquisition locks is not enabled for the group."
NOT_FOUND = "Batch record not found. The request batch offsets are not found in the cache."
FIRST_TOO_HIGH = "Batch record not found. The first offset in request is past acquired records."
LAST_TOO_HIGH = "Batch record not found. The last offset in request is past acquired records."
TOO_MANY_PARTS = "The records in flight are acknowledged in too many parts."


class Acknowledged(NamedTuple):
    """Offsets that a member acknowledges.

    Shape: `last` is inclusive; there is one type for all offsets, or one per offset.
    """

    first: int
    last: int
    types: Sequence[int]


def acknowledge(
    partition: SharePartition,
    member_id: str,
    batches: Iterable[Acknowledged],
    settings: ShareSettings,
    now_ms: int,
) -> Generator[None, None, StateWrite | ShareRefusal]:
    """Apply acknowledgements, all of them or none.

    Errors: INVALID_RECORD_STATE if the member does not hold the records; INVALID_REQUEST for offsets that were
    never acquired.
    """
    write = StateWrite(settings.delivery_count_limit)
    lock = Lock(partition, member_id, settings, now_ms)
    try:
        for each in batches:
            yield
            refusal = yield from _acknowledge(partition, write, lock, each)
            if refusal is not None:
                yield from complete_write(partition, write, False, now_ms)
                return refusal
    except GeneratorExit:
        for _ in complete_write(partition, write, False, now_ms):
            pass
        raise
    return write


def _acknowledge(
    partition: SharePartition, write: StateWrite, lock: Lock, asked: Acknowledged
) -> Generator[None, None, ShareRefusal | None]:
    first, last, types = asked
    if last < partition.start_offset:
        return None
    found = _to_acknowledge(partition, first, last)
    if isinstance(found, ShareRefusal):
        return found
    for batch in found:
        yield
        if batch.last < partition.start_offset:
            continue
        if not batch.divided:
            refused = _check_batch(batch, lock.member_id)
            if refused is not None:
                return refused
        if (
            not batch.divided
            and len(types) == 1
            and first <= batch.first
            and batch.last <= last
            and not batch.first < partition.start_offset <= batch.last
        ):
            run = batch.runs[0]
            if run.state is not ACQUIRED:
                return ShareRefusal(ErrorCode.INVALID_RECORD_STATE, NOT_ACQUIRED)
            refused = _change(partition, write, lock, run, types[0])
            if refused is not None:
                return refused
            continue
        if not batch.divided:
            if batch.runs[0].state is not ACQUIRED:
                return ShareRefusal(ErrorCode.INVALID_RECORD_STATE, PART_NOT_ACQUIRED)
            batch.divided = True
        lowest, highest = max(batch.first, first, partition.start_offset), min(batch.last, last)
        for begin, end, kind in _same_types(types, first, lowest, highest):
            yield
            most = min(MAX_RUNS, lock.settings.max_runs)
            if len(batch.runs) > most and batch.is_divided_by(begin, end):
                return ShareRefusal(ErrorCode.INVALID_RECORD_STATE, TOO_MANY_PARTS)
            refused = _change_part(partition, write, lock, batch, begin, end, kind)
            if refused is not None:
                return refused
    return None


def _to_acknowledge(
    partition: SharePartition, first: int, last: int
) -> list[InFlightBatch] | ShareRefusal:
    """The batches that contain the acknowledged offsets.

    Source: fetchSubMapForAcknowledgementBatch.
    """
    floor = partition.floor(first)
    if floor < 0:
        if first < partition.start_offset <= last:
            floor = partition.floor(partition.start_offset)
        if floor < 0:
            return ShareRefusal(ErrorCode.INVALID_RECORD_STATE, NOT_FOUND)
    found = partition.batches[floor : bisect_right(partition.batches, last, key=_FIRST)]
    if found[-1].last < first:
        return ShareRefusal(ErrorCode.INVALID_REQUEST, FIRST_TOO_HIGH)
    if last > found[-1].last:
        return ShareRefusal(ErrorCode.INVALID_REQUEST, LAST_TOO_HIGH)
    return found


def _check_batch(batch: InFlightBatch, member_id: str) -> ShareRefusal | None:
    run = batch.runs[0]
    message = ""
    if run.member_id == NOBODY:
        message = NOT_ACQUIRED
    elif run.member_id != member_id:
        message = NOT_OWNER
    elif run.write is not None:
        message = IN_TRANSITION
    return ShareRefusal(ErrorCode.INVALID_RECORD_STATE, message) if message else None


def _change_part(
    partition: SharePartition,
    write: StateWrite,
    lock: Lock,
    batch: InFlightBatch,
    begin: int,
    end: int,
    kind: int,
) -> ShareRefusal | None:
    refused = None
    for run in batch.cut(begin, end):
        message = ""
        if run.state is not ACQUIRED:
            message = OFFSET_NOT_ACQUIRED
        elif run.write is not None:
            message = IN_TRANSITION
        elif run.member_id != lock.member_id:
            message = NOT_OWNER_OF_OFFSET
        if message:
            refused = ShareRefusal(ErrorCode.INVALID_RECORD_STATE, message)
        else:
            refused = _change(partition, write, lock, run, kind)
        if refused is not None:
            break
    batch.merge(begin, end)
    return refused


def _change(
    partition: SharePartition, write: StateWrite, lock: Lock, run: StateRun, kind: int
) -> ShareRefusal | None:
    """Change the state of one run, or renew its lock."""
    if kind == RENEW:
        if not lock.settings.renews:
            return ShareRefusal(ErrorCode.INVALID_RECORD_STATE, NO_RENEWAL)
        lock.renew(run)
        return None
    begin_write(partition, write, run, STATE_OF[kind])
    return None


def _same_types(
    types: Sequence[int], first: int, lowest: int, highest: int
) -> Iterator[tuple[int, int, int]]:
    """The (first offset, last offset, type) of adjacent offsets with the same type; the types begin at `first`."""
    if lowest > highest:
        return
    if len(types) == 1:
        yield lowest, highest, types[0]
        return
    begin = lowest
    for offset in range(lowest + 1, highest + 1):
        if types[offset - first] != types[begin - first] or offset - begin >= STEP:
            yield begin, offset - 1, types[begin - first]
            begin = offset
    yield begin, highest, types[begin - first]
