"""The only way to read several partitions, for consumers and followers: at once or after a wait.

A fetch reads its partitions in order, within its limits. If that is less than it asks for and
nothing is wrong, it waits in the purgatory and reads once more when enough was appended or its time
is over. A partition may return its records later (from a slow store, or converted for an old
client): then the fetch waits for those, and for nothing else.
Source: ReplicaManager.fetchMessages, readFromLog, DelayedFetch, DelayedRemoteFetch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Generator, Hashable, Mapping
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kwire.errors import ErrorCode

from .. import native
from ..cause import cause
from ..shares import NOBODY
from .partition import Partition
from .purgatory import FetchWaiter
from .read_result import FollowerFetch, LaterRead, ReadResult, maker, read_result, refused

if TYPE_CHECKING:
    from ..metadata.image import MetadataImage, TopicImage
    from .fetch_session import FetchContext, FetchedPartition, Key
    from .replica_manager import ReplicaManager
    from .replication_quota import ReplicationQuota

logger = logging.getLogger(__name__)

#: The number of partitions that are read in one step, if there are many.
STEP = 64

#: How many partitions all fetches that wait may watch together, at about 700 bytes each, and how many a fetch may watch
#: without being counted. A fetch of a client that has its share is answered with what there is.
MAX_WATCHED = 200_000
FEW_WATCHED = 16

#: How long a fetch waits for delayed records. Source: remote.fetch.max.wait.ms.
LATER_READ_WAIT_MS = 500

#: Errors that are answered immediately, because the client has to look for the leader.
WRONG_BROKER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

#: The errors of partitions that are not in the metadata, or that the client may not read. Their rows come last,
#: those with unknown topic ids first.
MISSING = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)

#: One partition of a fetch: its session key, the requested position, the topic's name, and the result. A plain tuple,
#: because every partition of every fetch makes one.
FetchRow = tuple["Key", "FetchedPartition", str, ReadResult]


class Convert(Protocol):
    """Converts records that were read from an offset, for a client that waits its turn."""

    client: Hashable

    async def __call__(
        self, partition: Partition | None, result: ReadResult, fetch_offset: int
    ) -> ReadResult: ...


class FetchParams(NamedTuple):
    """The parameters of a fetch, which apply to all its partitions; source: FetchParams.

    Shape: `replica_id` is -1 for a consumer; `in_rack` are the live brokers in a consumer's rack, which it may be
    redirected to. With `by_id`, topics are looked up by id, otherwise by name. `refuse` returns the reason why a client
    may not read a partition; `convert` converts the records from an offset for an old client; `denies` says whether a
    client may not read a topic ("" for one whose id is unknown). They are None if not needed.
    Unit: at most `max_bytes` are read; `min_bytes` is waited for only up to `allowed_bytes`.
    """

    max_bytes: int
    allowed_bytes: int
    min_bytes: int
    max_wait_ms: int
    read_committed: bool
    leader_only: bool
    always_one_batch: bool
    by_id: bool
    replica_id: int = -1
    replica_epoch: int = -1
    in_rack: Collection[int] = ()
    refuse: Callable[[Partition], ErrorCode] | None = None
    convert: Convert | None = None
    denies: Callable[[str], bool] | None = None


class FollowerThrottle(NamedTuple):
    """The partitions that a leader currently withholds from a follower.

    Unit: there may be room again in `pause_ms`.
    """

    quota: ReplicationQuota
    held_back: frozenset[Key]
    pause_ms: int


class Pending(NamedTuple):
    """A row with delayed records, and the leader epoch in which they were requested."""

    row: int
    partition: Partition
    leader_epoch: int
    later: asyncio.Future[ReadResult]


class Reading(NamedTuple):
    """One pass over the partitions of a fetch.

    Shape: `waiting` has each partition from which more can be read, and from which offset on;
    `pending` has the rows that are read later; until then they are in `rows` without records.
    `throttle` is None unless a replica fetches and some partitions are throttled.
    """

    rows: list[FetchRow]
    size: int
    answer_now: bool
    waiting: list[tuple[Partition, int]]
    pending: list[Pending]
    throttle: FollowerThrottle | None = None


fetch_params = maker(FetchParams)
_reading = maker(Reading)


class WaitingFetch(NamedTuple):
    """A fetch whose `future` completes when it can be answered; `read` then returns the answer.

    Shape: `end` ends the wait when the answer is no longer wanted.
    """

    future: asyncio.Future[Any]
    read: Callable[[], Reading]
    end: Callable[[], object]


def fetch_records(
    replicas: ReplicaManager,
    metadata: Callable[[], MetadataImage],
    context: FetchContext,
    params: FetchParams,
    now_ms: int,
    reading: Reading | None = None,
) -> Reading | WaitingFetch:
    """Read the partitions of a fetch, now or when there are enough bytes or the time is over.

    Shape: `reading` is the result of reading many partitions in steps; after a wait they are read in the same way.

    Errors, by partition: those of `Partition.read` and `ReplicaManager.why_missing`, UNKNOWN_TOPIC_ID, and those that
    `params.refuse` and `params.convert` return.
    """
    max_wait_ms = params.max_wait_ms
    if reading is None:
        may_wait = max_wait_ms > 0 and min(params.min_bytes, params.allowed_bytes) > 0
        reading = _read(replicas, metadata, context, params, now_ms, may_wait=may_wait)
    elif _has_grown(reading, params):
        max_wait_ms = min(max_wait_ms, 1)
    throttle = reading.throttle
    is_held_back = throttle is not None and throttle.held_back
    if (
        max_wait_ms <= 0
        or reading.answer_now
        or (missing := min(params.min_bytes, params.allowed_bytes) - reading.size) <= 0
        or reading.pending
        or not (reading.waiting or is_held_back)
        or not _may_watch(replicas, reading, params)
    ):
        if reading.pending or params.convert is not None:
            return _later(_finish(reading, replicas, params))
        if not reading.rows and context.partitions:  # left out, as it was to wait
            reading = _read(replicas, metadata, context, params, now_ms)
        return reading
    if throttle is not None and is_held_back:
        max_wait_ms = min(max_wait_ms, throttle.pause_ms)
    if reading.size:
        close_slices(reading)
    many = len(reading.waiting) > FEW_WATCHED
    waiter = FetchWaiter(
        asyncio.get_running_loop(),
        reading.waiting,
        missing_bytes=missing,
        max_wait_ms=max_wait_ms,
        read_committed=params.read_committed,
        of_replica=params.replica_id >= 0,
        in_turns=partial(replicas.turns.start, owner=cause()) if many else None,
    )
    if many and params.replica_id < 0:
        account, count = _account(), len(reading.waiting)
        replicas.watched.hold(account, count)
        waiter.future.add_done_callback(lambda _: replicas.watched.hold(account, -count))
    read_again = partial(_read, replicas, metadata, context, params, None)
    if params.convert is not None:
        return _later(_wait_and_finish(waiter, read_again, replicas, params))
    return WaitingFetch(waiter.future, partial(_read_now, read_again), waiter.end)


def _may_watch(replicas: ReplicaManager, reading: Reading, params: FetchParams) -> bool:
    """Whether a fetch may wait: followers may always, and a client as long as it has a share left."""
    count = len(reading.waiting)
    if count <= FEW_WATCHED or params.replica_id >= 0:
        return True
    return not replicas.watched.refuses(_account(), count, MAX_WATCHED)


def _account() -> Hashable:
    """The client for which the partitions that a fetch watches are counted."""
    return getattr(cause(), "account", NOBODY)


def _has_grown(reading: Reading, params: FetchParams) -> bool:
    """Whether more can be read by now from a partition that was read in an earlier turn."""
    if params.replica_id >= 0:
        return any(each.log.log_end_offset > offset for each, offset in reading.waiting)
    return any(each.log.high_watermark > offset for each, offset in reading.waiting)


def read_many(
    replicas: ReplicaManager,
    metadata: Callable[[], MetadataImage],
    context: FetchContext,
    params: FetchParams,
    noted_ms: int | None,
) -> Generator[None, None, Reading]:
    """Read many partitions in steps; otherwise as `_read`."""
    rows: list[FetchRow] = []
    missing: list[FetchRow] = []
    waiting: list[tuple[Partition, int]] = []
    pending: dict[Key, Pending] = {}
    size = 0
    answer_now = False
    throttle: FollowerThrottle | None = None
    budget, min_one_batch = params.max_bytes, True
    asked = list(context.partitions.items())
    try:
        for first in range(0, len(asked), STEP):
            yield
            some = copy(context)
            some.partitions = dict(asked[first : first + STEP])
            limited = params._replace(max_bytes=budget)
            part = _read(replicas, metadata, some, limited, noted_ms, min_one_batch)
            pending.update((part.rows[each.row][0], each) for each in part.pending)
            for row in part.rows:
                (missing if row[3].error in MISSING else rows).append(row)
            size += part.size
            budget = max(0, budget - part.size)
            min_one_batch = params.always_one_batch or not (size or pending)
            answer_now = answer_now or part.answer_now
            waiting += part.waiting
            if part.throttle is not None:
                before = frozenset[Key]() if throttle is None else throttle.held_back
                throttle = part.throttle._replace(held_back=before | part.throttle.held_back)
    except GeneratorExit:
        close_slices(Reading(rows, size, True, [], []))
        for each in pending.values():
            _give_up(each.later)
        raise
    rows += sorted(missing, key=_rank_of_missing)
    places = {row[0]: number for number, row in enumerate(rows)} if pending else {}
    later = [each._replace(row=places[key]) for key, each in pending.items()]
    return Reading(rows, size, answer_now, waiting, later, throttle)


def count_throttled(replicas: ReplicaManager, reading: Reading) -> None:
    """Count the bytes sent from throttled partitions against the quota."""
    if reading.throttle is None:
        return
    quota = reading.throttle.quota
    size = sum(
        len(result.data)
        for _, asked, topic, result in reading.rows
        if result.data and quota.is_throttled(topic, asked.partition)
    )
    if size:
        quota.record(size, replicas.clock.monotonic_ms())


def close_slices(reading: Reading) -> None:
    """Release records that were read and will not be sent."""
    for _, _, _, result in reading.rows:
        result.close()


def _read(
    replicas: ReplicaManager,
    metadata: Callable[[], MetadataImage],
    context: FetchContext,
    params: FetchParams,
    noted_ms: int | None,
    min_one_batch: bool = True,
    *,
    may_wait: bool = False,
) -> Reading:
    """Read every partition once, in the session's order, within the limits of the request.

    Shape: partitions that are not in the metadata, or may not be read, come last, as in Apache Kafka's answers. With
    `noted_ms` the follower's progress is noted; a fetch that has waited noted it before. A fetch that `may_wait` does so
    if nothing can be read anywhere: then the rows may be left out.
    """
    image = metadata()
    if min_one_batch:
        reading = _read_natively(replicas, image, context, params, may_wait)
        if reading is not None:
            return reading
    return _read_each(replicas, image, context, params, noted_ms, min_one_batch)


def _read_natively(
    replicas: ReplicaManager,
    image: MetadataImage,
    context: FetchContext,
    params: FetchParams,
    may_wait: bool,
) -> Reading | None:
    """Read natively for a consumer that may read all partitions of its request, in the ordinary case."""
    natively = native.read_partitions
    if (
        natively is None
        or params.replica_id >= 0
        or params.in_rack
        or params.refuse is not None
        or params.denies is not None
        or params.convert is not None
    ):
        return None
    try:
        found = natively(
            context.partitions,
            replicas.partitions,
            image.topics_by_id if params.by_id else None,
            params.read_committed,
            params.leader_only,
            params.max_bytes,
            params.always_one_batch,
            may_wait,
            ErrorCode.NONE,
            read_result,
        )
    except Exception:  # noqa: BLE001 - read again, which costs only the partition that fails
        return None
    if found is None:
        return None
    rows, size, answer_now, waiting = found
    return _reading((rows, size, answer_now, waiting, [], None))


def _read_each(  # noqa: C901 - one pass over the partitions
    replicas: ReplicaManager,
    image: MetadataImage,
    context: FetchContext,
    params: FetchParams,
    noted_ms: int | None,
    min_one_batch: bool,
) -> Reading:
    by_id: Mapping[bytes, TopicImage] | None = image.topics_by_id if params.by_id else None
    # A plain tuple hashes and compares like a TopicPartition, and costs less to make.
    partitions: dict[Any, Partition] = replicas.partitions
    read_committed = params.read_committed
    budget = params.max_bytes
    replica_id, replica_epoch = params.replica_id, params.replica_epoch
    in_rack, refuse, denies = params.in_rack, params.refuse, params.denies
    follower: FollowerFetch | None = None
    rows: list[FetchRow] = []
    missing: list[FetchRow] = []
    size = 0
    answer_now = False
    waiting: list[tuple[Partition, int]] = []
    pending: list[Pending] = []
    may_idle = context.incremental and replica_id >= 0
    throttle = _throttle(replicas, image, context, replica_id) if replica_id >= 0 else None
    held_back: Collection[Key] = () if throttle is None else throttle.held_back
    for key, asked in context.partitions.items():
        if asked.idle is not None and may_idle:
            idle, state, end_offset = asked.idle
            if (
                asked.high_watermark == idle.log.high_watermark
                and asked.log_start_offset == idle.log.log_start_offset
                and idle.idles(state, end_offset, replica_id, replica_epoch, noted_ms)
            ):
                waiting.append((idle, end_offset))
                continue
            asked.idle = None
        topic = asked.topic
        if by_id is not None:
            found = by_id.get(asked.topic_id)
            topic = "" if found is None else found.name
            asked.topic = topic or asked.topic
        partition = partitions.get((topic, asked.partition))
        if partition is None or (denies is not None and denies(topic)):
            result = _missing(replicas, image, asked, by_id, denies)
            answer_now = answer_now or result.error not in MISSING
            (missing if result.error in MISSING else rows).append((key, asked, topic, result))
            continue
        if (
            in_rack
            and partition.is_leader
            and (preferred := partition.preferred_replica(asked.fetch_offset, in_rack)) >= 0
        ):
            result = partition.redirected(preferred)
            answer_now = True
        elif refuse is not None and (why := refuse(partition)):
            result = _refused(why)
            answer_now = True
        else:
            if replica_id >= 0:
                follower = FollowerFetch(replica_id, replica_epoch, asked.follower_log_start)
            limit = 0 if key in held_back else min(asked.max_bytes, budget)
            result_or_later: ReadResult | LaterRead
            try:
                result_or_later = partition.read(
                    asked.fetch_offset,
                    limit,
                    current_leader_epoch=asked.current_leader_epoch,
                    last_fetched_epoch=asked.last_fetched_epoch,
                    read_committed=read_committed,
                    min_one_batch=min_one_batch and key not in held_back,
                    leader_only=params.leader_only,
                    follower=follower,
                    now_ms=noted_ms,
                )
            except Exception as error:  # noqa: BLE001 - a bad index, or a bug of ours
                result_or_later = _failed(replicas, partition, error)
            if type(result_or_later) is LaterRead:
                result = result_or_later.now
                epoch = partition.state.leader_epoch
                pending.append(Pending(len(rows), partition, epoch, result_or_later.later))
                budget = max(0, budget - limit)  # the size is not known yet
                min_one_batch = params.always_one_batch
            else:
                result = result_or_later
                read = len(result.data)
                if read:
                    size += read
                    budget = max(0, budget - read)
                    min_one_batch = params.always_one_batch
                if result.error or result.diverging:
                    answer_now = True
                elif key not in held_back:
                    if follower is not None:
                        until = partition.log.log_end_offset
                        if asked.fetch_offset == until:
                            asked.idle = (partition, partition.state, until)
                    else:
                        until = (
                            result.last_stable_offset if read_committed else result.high_watermark
                        )
                    # Do not wait for records that exist but are in the next segment or beyond a
                    # limit.
                    answer_now = answer_now or result.next_offset < until
                    waiting.append((partition, result.next_offset))
        rows.append((key, asked, topic, result))
    rows += sorted(missing, key=_rank_of_missing) if missing else ()
    return _reading((rows, size, answer_now, waiting, pending, throttle))


def _rank_of_missing(row: FetchRow) -> int:
    return int(row[3].error is not ErrorCode.UNKNOWN_TOPIC_ID)


def _missing(
    replicas: ReplicaManager,
    image: MetadataImage,
    asked: FetchedPartition,
    by_id: Mapping[bytes, TopicImage] | None,
    denies: Callable[[str], bool] | None,
) -> ReadResult:
    """The result for a partition that may not be read, has no replica here, or whose topic id is unknown.

    Shape: a session remembers the name of a topic id, see `FetchedPartition.topic`.
    """
    topic, number = asked.topic, asked.partition
    if denies is not None and denies(topic):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif by_id is None or asked.topic_id in by_id:
        error = replicas.why_missing(image, topic, number)
    elif not topic:
        error = ErrorCode.UNKNOWN_TOPIC_ID
    elif image.partition(topic, number) is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:  # deleted, and created again with another id
        error = ErrorCode.INCONSISTENT_TOPIC_ID
    return _refused(error) if error in MISSING else refused(error)


def _refused(error: ErrorCode) -> ReadResult:
    # A partition that is refused before its replica is consulted has an empty list of aborted transactions.
    return refused(error)._replace(aborted=[])


def _throttle(
    replicas: ReplicaManager, image: MetadataImage, context: FetchContext, replica_id: int
) -> FollowerThrottle | None:
    """The partitions of a follower's fetch that get no records for now.

    Source: ReplicaManager.shouldLeaderThrottle.
    """
    quota = replicas.leader_quota
    if quota is None or not quota.throttled:
        return None
    pause_ms = quota.pause_ms(replicas.clock.monotonic_ms())
    held_back: list[Key] = []
    for key, asked in context.partitions.items() if pause_ms else ():
        found = image.topics_by_id.get(asked.topic_id)
        topic = asked.topic if found is None else found.name
        if quota.is_throttled(topic, asked.partition):
            partition = replicas.get(topic, asked.partition)
            if partition is not None and replica_id not in partition.isr.isr:
                held_back.append(key)
    return FollowerThrottle(quota, frozenset(held_back), pause_ms)


# -- delayed records ----------------------------------------------------------------------------


def _read_now(read: Callable[[], Reading]) -> Reading:
    """Read after a wait, without waiting again: delayed records are given up."""
    reading = read()
    if reading.pending:
        give_up_pending(reading)
    return reading


def give_up_pending(reading: Reading) -> None:
    """Stop waiting for delayed records: their rows stay empty."""
    for each in reading.pending:
        _give_up(each.later)


def _later(finishing: Coroutine[Any, Any, Reading]) -> WaitingFetch:
    task = asyncio.get_running_loop().create_task(finishing)
    return WaitingFetch(task, task.result, task.cancel)


async def _wait_and_finish(
    waiter: FetchWaiter,
    read: Callable[[], Reading],
    replicas: ReplicaManager,
    params: FetchParams,
) -> Reading:
    try:
        await waiter.future
    finally:
        waiter.end()
    return await _finish(read(), replicas, params)


async def _finish(reading: Reading, replicas: ReplicaManager, params: FetchParams) -> Reading:
    """Fill in delayed records, and convert records that an old client cannot read."""
    rows = reading.rows
    try:
        if reading.pending:
            await _take_pending(reading, replicas)
        if params.convert is not None:
            async with replicas.converting.permit(params.convert.client):
                for index, (key, asked, topic, result) in enumerate(rows):
                    partition = replicas.get(topic, asked.partition)
                    if result.data:
                        result = await params.convert(partition, result, asked.fetch_offset)
                        rows[index] = (key, asked, topic, result)
    except asyncio.CancelledError:
        close_slices(reading)
        raise
    return reading


async def _take_pending(reading: Reading, replicas: ReplicaManager) -> None:
    try:
        await asyncio.wait(
            [each.later for each in reading.pending], timeout=LATER_READ_WAIT_MS / 1000
        )
    except asyncio.CancelledError:
        for each in reading.pending:
            _give_up(each.later)
        raise
    for each in reading.pending:
        key, asked, topic, now = reading.rows[each.row]
        reading.rows[each.row] = (key, asked, topic, _taken(each, now, replicas))


def _taken(each: Pending, now: ReadResult, replicas: ReplicaManager) -> ReadResult:
    """The result of a later read; `now` if it is not ready and must be asked for again."""
    later, partition = each.later, each.partition
    if not later.done():
        later.cancel()
    if later.cancelled() or not later.done():
        return now
    error = later.exception()
    if error is not None:
        return _failed(replicas, partition, error)
    if (
        partition.state.leader_epoch != each.leader_epoch
        or replicas.get(*partition.tp) is not partition
    ):
        later.result().close()
        return refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return later.result()


def _failed(replicas: ReplicaManager, partition: Partition, error: BaseException) -> ReadResult:
    """The result for a partition that could not be read, in a fetch whose other partitions are answered.

    Shape: logged once, since clients try again at once. Source: ReplicaManager.readFromLog.
    """
    said = repr(error)
    if replicas.failed_reads.get(partition.tp) != said:
        replicas.failed_reads[partition.tp] = said
        logger.error("records of %s could not be read", partition.tp, exc_info=error)
    is_storage = isinstance(error, OSError)
    return refused(ErrorCode.KAFKA_STORAGE_ERROR if is_storage else ErrorCode.UNKNOWN_SERVER_ERROR)


def _give_up(later: asyncio.Future[ReadResult]) -> None:
    if not later.done():
        later.cancel()
    elif not later.cancelled() and later.exception() is None:
        later.result().close()
