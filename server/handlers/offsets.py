"""OffsetCommit, OffsetFetch and OffsetDelete.

Behavior: commit and delete refuse partitions that do not exist one by one; fetch has no offset for
them. The rest is server/coordinator/group/offsets.py.
Versions: OffsetCommit 0-9: v1 generations and timestamps, v2-4 retention, v6 leader epochs
(KIP-320), v7 static members. OffsetFetch 0-9: v2 all partitions and a top-level error, v7
require_stable (KIP-447), v8 several groups (KIP-709), v9 member epochs (KIP-848), which a classic
group does not use. OffsetDelete 0 (KIP-496).
Omitted: version 0 of commit and fetch uses the same store as version 1; Apache Kafka keeps those
offsets in ZooKeeper under /consumers.
"""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Container,
    Generator,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar

from kwire.errors import ErrorCode
from kwire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kwire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kwire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kwire.messages.txn_offset_commit import TxnOffsetCommitRequestTopic, TxnOffsetCommitResponse

from ..coordinator.group.offsets import FetchedOffset
from ..coordinator.group_coordinator import FetchedGroup
from ..turns import each_in_steps
from . import refusals
from .authorization import AclOperation, ResourceType, group
from .registry import handles
from .repeats import partitions_without_many_repeats, without_many_repeats

if TYPE_CHECKING:
    from .context import Later, RequestContext

TopicT = TypeVar(
    "TopicT", OffsetCommitRequestTopic, OffsetDeleteRequestTopic, TxnOffsetCommitRequestTopic
)

TopicResponseT = TypeVar("TopicResponseT", OffsetCommitResponseTopic, OffsetDeleteResponseTopic)

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
MAY_NOT_READ = ErrorCode.TOPIC_AUTHORIZATION_FAILED

#: How many rows are handled in one step, and at most how many offsets are stored in one batch.
ROWS_IN_STEP = 256


@handles(
    OffsetCommitRequest,
    versions="0-9",
    authorize=group(AclOperation.READ),
    refusal=refusals.offset_commit,
)
def offset_commit(
    ctx: RequestContext, request: OffsetCommitRequest
) -> Generator[None, None, OffsetCommitResponse | Later[OffsetCommitResponse]]:
    """Store offsets; the answer comes when they are committed to the log."""
    asked = request.topics
    known, denied = yield from usable(ctx, asked)
    if not known and asked:
        return (yield from commit_response(asked, {}, denied))
    coordinator = ctx.services.group_coordinator
    answers: list[OffsetCommitResponse | Awaitable[OffsetCommitResponse]] = []
    for topics in some_rows(known):
        yield
        part = copy(request)
        part.topics = topics
        answers.append(coordinator.commit_offsets(part))
    if len(answers) == 1 and known is asked:
        (answer,) = answers
        return answer if isinstance(answer, OffsetCommitResponse) else ctx.later(answer)

    def put_back(
        responses: list[OffsetCommitResponse],
    ) -> Generator[None, None, OffsetCommitResponse]:
        errors: dict[tuple[str, int], int] = {}
        for response in responses:
            yield
            errors.update(errors_by_row(response))
        return (yield from commit_response(asked, errors, denied))

    done = [answer for answer in answers if isinstance(answer, OffsetCommitResponse)]
    if len(done) == len(answers):
        return (yield from put_back(done))

    async def stored() -> list[OffsetCommitResponse]:
        return [
            answer if isinstance(answer, OffsetCommitResponse) else await answer
            for answer in answers
        ]

    return ctx.later(stored(), put_back)


def some_rows(topics: list[TopicT]) -> Generator[list[TopicT], None, None]:
    """Cut the rows of a long request into parts; a short one is one part, the list itself."""
    if (
        len(topics) <= ROWS_IN_STEP
        and sum(len(topic.partitions) for topic in topics) <= ROWS_IN_STEP
    ):
        yield topics
        return
    part: list[TopicT] = []
    room = ROWS_IN_STEP
    for topic in topics:
        rows = topic.partitions  # one without rows has no part in it
        first = 0
        while first < len(rows):
            some = rows[first : first + room]
            part.append(type(topic)(name=topic.name, partitions=some))
            first += len(some)
            room -= len(some)
            if not room:
                yield part
                part, room = [], ROWS_IN_STEP
    if part:
        yield part


def answered(
    asked: Iterable[OffsetCommitRequestTopic | OffsetDeleteRequestTopic],
    errors: Mapping[tuple[str, int], int],
    denied: Container[str],
    topic_of: type[TopicResponseT],
    row_of: Callable[..., Any],
) -> Generator[None, None, list[TopicResponseT]]:
    """The response's topics, in the order of the request.

    Shape: `topic_of` and `row_of` are the response's classes of topics and partitions. Partitions without
    an entry in `errors` are denied or do not exist.
    """
    topics: list[TopicResponseT] = []
    for topic in asked:
        yield
        otherwise = MAY_NOT_READ if topic.name in denied else UNKNOWN
        rows: list[Any] = []
        topics.append(topic_of(name=topic.name, partitions=rows))
        for row in topic.partitions:
            yield
            number = row.partition_index
            error = errors.get((topic.name, number), otherwise)
            rows.append(row_of(partition_index=number, error_code=error))
    return topics


def commit_response(
    asked: list[OffsetCommitRequestTopic],
    errors: Mapping[tuple[str, int], int],
    denied: Container[str],
) -> Generator[None, None, OffsetCommitResponse]:
    topics = yield from answered(
        asked, errors, denied, OffsetCommitResponseTopic, OffsetCommitResponsePartition
    )
    return OffsetCommitResponse(topics=topics)


@handles(OffsetDeleteRequest, versions="0", authorize=group(AclOperation.DELETE))
def offset_delete(
    ctx: RequestContext, request: OffsetDeleteRequest
) -> Generator[None, None, OffsetDeleteResponse | Later[OffsetDeleteResponse]]:
    """Remove offsets of topics to which no member is subscribed."""
    asked = request.topics
    known, denied = yield from usable(ctx, asked)
    request.topics = known

    def put_back(response: OffsetDeleteResponse) -> Generator[None, None, OffsetDeleteResponse]:
        if response.error_code != ErrorCode.NONE or known is asked:
            return response
        return (yield from delete_response(asked, errors_by_row(response), denied))

    answer = ctx.services.group_coordinator.delete_offsets(request)
    if isinstance(answer, OffsetDeleteResponse):
        return (yield from put_back(answer))
    return ctx.later(answer, put_back)


def delete_response(
    asked: list[OffsetDeleteRequestTopic],
    errors: Mapping[tuple[str, int], int],
    denied: Container[str],
) -> Generator[None, None, OffsetDeleteResponse]:
    topics = yield from answered(
        asked, errors, denied, OffsetDeleteResponseTopic, OffsetDeleteResponsePartition
    )
    return OffsetDeleteResponse(topics=topics)


def usable(
    ctx: RequestContext, asked: list[TopicT]
) -> Generator[None, None, tuple[list[TopicT], Container[str]]]:
    """Return the topics with only those partitions that exist, and the names of topics that the client may not read.

    Shape: the first is the list itself if it may read all topics and all partitions exist.
    """
    topics = ctx.services.metadata().topics
    known: list[TopicT] = []
    denied: set[str] = set()
    all_exist = True
    for topic in asked:
        yield
        if not ctx.allows(AclOperation.READ, ResourceType.TOPIC, topic.name):
            denied.add(topic.name)
            all_exist = False
            continue
        found = topics.get(topic.name)
        if found is None:
            all_exist = False
            continue
        kept: list[Any] = []
        rows = topic.partitions
        for first in range(0, len(rows), ROWS_IN_STEP):
            yield
            some = rows[first : first + ROWS_IN_STEP]
            kept += [row for row in some if row.partition_index in found.partitions]
        if len(kept) == len(rows):
            known.append(topic)
        else:
            all_exist = False
            if kept:
                known.append(type(topic)(name=topic.name, partitions=kept))
    return asked if all_exist else known, denied


def errors_by_row(
    response: OffsetCommitResponse | OffsetDeleteResponse | TxnOffsetCommitResponse,
) -> dict[tuple[str, int], int]:
    return {
        (topic.name, row.partition_index): row.error_code
        for topic in response.topics
        for row in topic.partitions
    }


def _asked(row: OffsetFetchRequestGroup) -> Hashable:
    # Only a request for everything makes the response larger than the request.
    return row.group_id if row.topics is None else id(row)


def _partitions(
    topics: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
) -> Generator[None, None, Sequence[tuple[str, Sequence[int]]] | None]:
    """The partitions asked for; None for all."""
    if topics is None:
        return None
    asked = yield from each_in_steps(lambda topic: (topic.name, topic.partition_indexes), topics)
    return (yield from partitions_without_many_repeats(asked))


def _fetch(
    ctx: RequestContext,
    group_id: str,
    topics: Sequence[tuple[str, Sequence[int]]] | None,
    require_stable: bool,
) -> Generator[None, None, FetchedGroup]:
    """Read the offsets of a group, of all partitions that the client may know of if `topics` is None.

    Errors: GROUP_AUTHORIZATION_FAILED; TOPIC_AUTHORIZATION_FAILED in the rows of single topics.
    """
    coordinator = ctx.services.group_coordinator
    yield
    if not ctx.allows(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        return FetchedGroup(ErrorCode.GROUP_AUTHORIZATION_FAILED, [])
    if topics is None:
        topics = coordinator.committed_partitions(group_id)
        yield
        topics = [each for each in topics if may_describe(ctx, each[0])]
    found: list[tuple[str, list[FetchedOffset]]] = []
    error, _ = coordinator.fetch_offsets(group_id, (), require_stable)
    for topic, numbers in topics:
        yield
        rows: list[FetchedOffset] = []
        found.append((topic, rows))
        if not may_describe(ctx, topic):
            yield
            rows += [not_described(number) for number in numbers]
            continue
        for first in range(0, len(numbers), ROWS_IN_STEP):
            yield
            some = numbers[first : first + ROWS_IN_STEP]
            error, part = coordinator.fetch_offsets(group_id, [(topic, some)], require_stable)
            if error is not ErrorCode.NONE:
                return FetchedGroup(error, [])
            rows += part[0][1]
    return FetchedGroup(error, found)


def may_describe(ctx: RequestContext, topic: str) -> bool:
    return ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)


def not_described(number: int) -> FetchedOffset:
    """The row of a partition whose topic the client may not know of."""
    return FetchedOffset(number, -1, -1, "", ErrorCode.TOPIC_AUTHORIZATION_FAILED)


@handles(OffsetFetchRequest, versions="0-9", authorize=None, refusal=refusals.offset_fetch)
def offset_fetch(
    ctx: RequestContext, request: OffsetFetchRequest
) -> Generator[None, None, OffsetFetchResponse]:
    """Read the committed offsets of one group, or since version 8 of several."""
    if ctx.version < 8:
        return (yield from fetch_one_group(ctx, request))
    groups = []
    for asked in (yield from without_many_repeats(request.groups, _asked)):
        topics = yield from _partitions(asked.topics)
        error, found = yield from _fetch(ctx, asked.group_id, topics, request.require_stable)
        row = OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error, topics=[])
        groups.append(row)
        for name, offsets in found:
            yield
            partitions: list[OffsetFetchResponsePartitions] = []
            row.topics.append(OffsetFetchResponseTopics(name=name, partitions=partitions))
            for each in offsets:
                yield
                partitions.append(
                    OffsetFetchResponsePartitions(
                        partition_index=each.partition,
                        committed_offset=each.offset,
                        committed_leader_epoch=each.leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error,
                    )
                )
    return OffsetFetchResponse(groups=groups)


def fetch_one_group(
    ctx: RequestContext, request: OffsetFetchRequest
) -> Generator[None, None, OffsetFetchResponse]:
    """Answer up to version 7. Before version 2 an error of the group is in every row."""
    topics = yield from _partitions(request.topics)
    error, found = yield from _fetch(ctx, request.group_id, topics, request.require_stable)
    response = OffsetFetchResponse(error_code=error, topics=[])
    if error != ErrorCode.NONE:
        for name, numbers in [] if ctx.version >= 2 else topics or []:
            yield
            rows: list[OffsetFetchResponsePartition] = []
            response.topics.append(OffsetFetchResponseTopic(name=name, partitions=rows))
            for number in numbers:
                yield
                rows.append(fetch_error(number, error))
        return response
    for name, offsets in found:
        yield
        rows = []
        response.topics.append(OffsetFetchResponseTopic(name=name, partitions=rows))
        for each in offsets:
            yield
            rows.append(fetched(each))
    return response


def fetched(row: FetchedOffset) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=row.partition,
        committed_offset=row.offset,
        committed_leader_epoch=row.leader_epoch,
        metadata=row.metadata,
        error_code=row.error,
    )


def fetch_error(partition: int, error: ErrorCode) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition,
        committed_offset=-1,
        committed_leader_epoch=-1,
        metadata="",
        error_code=error,
    )
