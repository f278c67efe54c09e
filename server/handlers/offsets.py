"""OffsetCommit, OffsetFetch and OffsetDelete.

Behavior: commit and delete refuse partitions that do not exist one by one; fetch has no offset for
them, nor for a topic that was made again since the commit. The rest is
server/coordinator/group/offsets.py.
Versions: OffsetCommit 0-10: v1 generations and timestamps, v2-4 retention, v6 leader epochs
(KIP-320), v7 static members, v10 topics by id (KIP-848). A member of a group that is not known has
ILLEGAL_GENERATION, as from 4.x on GROUP_ID_NOT_FOUND since v9. OffsetFetch 0-10: v2 all partitions and
a top-level error, v7 require_stable (KIP-447), v8 several groups (KIP-709), v9 member epochs
(KIP-848), which a classic group does not use, v10 topics by id. OffsetDelete 0 (KIP-496).
Omitted: version 0 of commit and fetch uses the same store as version 1; Apache Kafka keeps those
offsets in ZooKeeper under /consumers.
"""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Generator,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

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
from kwire.types import ZERO_UUID

from ..coordinator.group.offsets import FetchedOffset
from ..turns import each_in_steps
from .authorization import AclOperation, ResourceType, group
from .ceilings import CEILING_3_9
from .registry import handles
from .repeats import partitions_without_many_repeats, without_many_repeats

if TYPE_CHECKING:
    from .context import Later, RequestContext

TopicT = TypeVar(
    "TopicT", OffsetCommitRequestTopic, OffsetDeleteRequestTopic, TxnOffsetCommitRequestTopic
)

TopicResponseT = TypeVar("TopicResponseT", OffsetCommitResponseTopic, OffsetDeleteResponseTopic)

#: The versions of OffsetCommit and OffsetFetch since which topics are named by id.
TOPIC_IDS_SINCE = 10
#: The first OffsetCommit version that can report an unknown group (in Apache Kafka 4).
UNKNOWN_GROUPS_SINCE = 9

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
MAY_NOT_READ = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NOTHING_REFUSED: Mapping[str, ErrorCode] = MappingProxyType({})

#: The number of rows that are handled in one step, and the maximum number of offsets that are stored in one batch.
ROWS_IN_STEP = 256


@handles(
    OffsetCommitRequest,
    versions="0-10",
    authorize=group(AclOperation.READ),
)
def offset_commit(
    ctx: RequestContext, request: OffsetCommitRequest
) -> Generator[None, None, OffsetCommitResponse | Later[OffsetCommitResponse]]:
    """Store offsets; the answer is sent when they are committed to the log."""
    asked = request.topics
    known, refused = yield from usable(ctx, asked, (yield from _named(ctx, asked)))
    if not known and asked:
        return (yield from commit_response(asked, {}, refused))
    coordinator = ctx.services.group_coordinator
    account = ctx.connection.account
    unknown_group = ErrorCode.ILLEGAL_GENERATION
    if ctx.version >= UNKNOWN_GROUPS_SINCE and ctx.services.ceiling != CEILING_3_9.name:
        unknown_group = ErrorCode.GROUP_ID_NOT_FOUND
    answers: list[OffsetCommitResponse | Awaitable[OffsetCommitResponse]] = []
    for topics in some_rows(known):
        yield
        part = copy(request)
        part.topics = topics
        answers.append(coordinator.commit_offsets(part, unknown_group, ctx.version, account))
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
        return (yield from commit_response(asked, errors, refused))

    done = [answer for answer in answers if isinstance(answer, OffsetCommitResponse)]
    if len(done) == len(answers):
        return (yield from put_back(done))

    async def stored() -> list[OffsetCommitResponse]:
        return [
            answer if isinstance(answer, OffsetCommitResponse) else await answer
            for answer in answers
        ]

    return ctx.later(stored(), put_back)


def _named(
    ctx: RequestContext, asked: list[OffsetCommitRequestTopic]
) -> Generator[None, None, dict[str, ErrorCode]]:
    """Complete each topic by its name or id; return the topics to refuse.

    Shape: an id that does not exist has the name "".
    """
    image = ctx.services.metadata()
    if ctx.version < TOPIC_IDS_SINCE:
        for topic in asked:
            yield
            found = image.topics.get(topic.name)
            if found is not None:
                topic.topic_id = found.topic_id
        return {}
    for topic in asked:
        yield
        found = image.topics_by_id.get(topic.topic_id)
        topic.name = "" if found is None else found.name
    return {"": ErrorCode.UNKNOWN_TOPIC_ID}


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
            part.append(_with_rows(topic, some))
            first += len(some)
            room -= len(some)
            if not room:
                yield part
                part, room = [], ROWS_IN_STEP
    if part:
        yield part


def _with_rows(topic: TopicT, rows: list[Any]) -> TopicT:
    """The same topic with these partitions."""
    part = copy(topic)
    part.partitions = rows
    return part


def answered(
    asked: Iterable[TopicT],
    errors: Mapping[tuple[str, int], int],
    refused: Mapping[str, ErrorCode],
    topic_of: Callable[[TopicT], TopicResponseT],
    row_of: Callable[..., Any],
) -> Generator[None, None, list[TopicResponseT]]:
    """The response's topics, in the order of the request.

    Shape: `topic_of` makes the response's topic of one that was asked for, still without partitions, and `row_of`
    is the response's class of partitions. Partitions without an entry in `errors` have the error of their
    topic in `refused`, or do not exist.
    """
    topics: list[TopicResponseT] = []
    for topic in asked:
        yield
        otherwise = refused.get(topic.name, UNKNOWN)
        answer = topic_of(topic)
        rows: list[Any] = answer.partitions
        topics.append(answer)
        for row in topic.partitions:
            yield
            number = row.partition_index
            error = errors.get((topic.name, number), otherwise)
            rows.append(row_of(partition_index=number, error_code=error))
    return topics


def commit_response(
    asked: list[OffsetCommitRequestTopic],
    errors: Mapping[tuple[str, int], int],
    refused: Mapping[str, ErrorCode],
) -> Generator[None, None, OffsetCommitResponse]:
    topics = yield from answered(
        asked,
        errors,
        refused,
        lambda topic: OffsetCommitResponseTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=[]
        ),
        OffsetCommitResponsePartition,
    )
    return OffsetCommitResponse(topics=topics)


@handles(OffsetDeleteRequest, versions="0", authorize=group(AclOperation.DELETE))
def offset_delete(
    ctx: RequestContext, request: OffsetDeleteRequest
) -> Generator[None, None, OffsetDeleteResponse | Later[OffsetDeleteResponse]]:
    """Remove offsets of topics to which no member is subscribed."""
    asked = request.topics
    known, refused = yield from usable(ctx, asked)
    request.topics = known

    def put_back(response: OffsetDeleteResponse) -> Generator[None, None, OffsetDeleteResponse]:
        if response.error_code != ErrorCode.NONE or known is asked:
            return response
        return (yield from delete_response(asked, errors_by_row(response), refused))

    answer = ctx.services.group_coordinator.delete_offsets(request)
    if isinstance(answer, OffsetDeleteResponse):
        return (yield from put_back(answer))
    return ctx.later(answer, put_back)


def delete_response(
    asked: list[OffsetDeleteRequestTopic],
    errors: Mapping[tuple[str, int], int],
    refused: Mapping[str, ErrorCode],
) -> Generator[None, None, OffsetDeleteResponse]:
    topics = yield from answered(
        asked,
        errors,
        refused,
        lambda topic: OffsetDeleteResponseTopic(name=topic.name, partitions=[]),
        OffsetDeleteResponsePartition,
    )
    return OffsetDeleteResponse(topics=topics)


def usable(
    ctx: RequestContext, asked: list[TopicT], refused: Mapping[str, ErrorCode] = NOTHING_REFUSED
) -> Generator[None, None, tuple[list[TopicT], Mapping[str, ErrorCode]]]:
    """Return the topics with only those partitions that exist, and the names of topics to be refused with their errors.

    Shape: the first is the list itself if the client may read all topics and all partitions exist. The second
    has those in `refused` and those that the client may not read.
    """
    topics = ctx.services.metadata().topics
    known: list[TopicT] = []
    errors = dict(refused)
    all_exist = True
    for topic in asked:
        yield
        if topic.name not in errors and not ctx.allows(
            AclOperation.READ, ResourceType.TOPIC, topic.name
        ):
            errors[topic.name] = MAY_NOT_READ
        if topic.name in errors:
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
                known.append(_with_rows(topic, kept))
    return asked if all_exist else known, errors


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


class AskedTopic(NamedTuple):
    """A topic whose offsets are read. Shape: zeros for the id of a name, None for the name of an id that does not exist."""

    name: str | None
    topic_id: bytes


class GroupOffsetRows(NamedTuple):
    """The result for one group: an error, or rows by topic."""

    error: ErrorCode
    topics: list[tuple[AskedTopic, list[FetchedOffset]]]


def _partitions(
    ctx: RequestContext,
    topics: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
) -> Generator[None, None, Sequence[tuple[AskedTopic, Sequence[int]]] | None]:
    """The requested partitions; None for all."""
    if topics is None:
        return None
    image = ctx.services.metadata()

    def named(
        topic: OffsetFetchRequestTopic | OffsetFetchRequestTopics,
    ) -> tuple[AskedTopic, Sequence[int]]:
        if ctx.version < TOPIC_IDS_SINCE or isinstance(topic, OffsetFetchRequestTopic):
            found = image.topics.get(topic.name)
            topic_id = ZERO_UUID if found is None else found.topic_id
            return AskedTopic(topic.name, topic_id), topic.partition_indexes
        found = image.topics_by_id.get(topic.topic_id)
        name = None if found is None else found.name
        return AskedTopic(name, topic.topic_id), topic.partition_indexes

    asked = yield from each_in_steps(named, topics)
    return (yield from partitions_without_many_repeats(asked))


def _all_partitions(
    ctx: RequestContext, group_id: str
) -> Generator[None, None, Sequence[tuple[AskedTopic, Sequence[int]]]]:
    """The partitions with offsets of a group that the client may see.

    Shape: an answer by id leaves out topics that do not exist.
    """
    image = ctx.services.metadata()
    known = []
    for name, numbers in ctx.services.group_coordinator.committed_partitions(group_id):
        yield
        found = image.topics.get(name)
        if found is None and ctx.version >= TOPIC_IDS_SINCE:
            continue
        if may_describe(ctx, name):
            topic_id = ZERO_UUID if found is None else found.topic_id
            known.append((AskedTopic(name, topic_id), numbers))
    return known


def _fetch(
    ctx: RequestContext,
    group_id: str,
    topics: Sequence[tuple[AskedTopic, Sequence[int]]] | None,
    require_stable: bool,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> Generator[None, None, GroupOffsetRows]:
    """Read the offsets of a group, of all partitions that the client may know of if `topics` is None.

    Errors: GROUP_AUTHORIZATION_FAILED; TOPIC_AUTHORIZATION_FAILED and UNKNOWN_TOPIC_ID in the rows of single topics.
    """
    coordinator = ctx.services.group_coordinator
    yield
    if not ctx.allows(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        return GroupOffsetRows(ErrorCode.GROUP_AUTHORIZATION_FAILED, [])
    if topics is None:
        topics = yield from _all_partitions(ctx, group_id)
    found: list[tuple[AskedTopic, list[FetchedOffset]]] = []
    error, _ = coordinator.fetch_offsets(group_id, (), require_stable, member_id, member_epoch)
    if error is not ErrorCode.NONE:
        return GroupOffsetRows(error, [])
    for topic, numbers in topics:
        yield
        rows: list[FetchedOffset] = []
        found.append((topic, rows))
        name, topic_id = topic
        if name is None or not may_describe(ctx, name):
            yield
            refused = ErrorCode.UNKNOWN_TOPIC_ID if name is None else MAY_NOT_READ
            rows += [no_offset(number, refused) for number in numbers]
            continue
        for first in range(0, len(numbers), ROWS_IN_STEP):
            yield
            some = numbers[first : first + ROWS_IN_STEP]
            error, part = coordinator.fetch_offsets(group_id, [(name, some)], require_stable)
            if error is not ErrorCode.NONE:
                return GroupOffsetRows(error, [])
            rows += [
                row if is_of(row, topic_id) else no_offset(row.partition, row.error)
                for row in part[0][1]
            ]
    return GroupOffsetRows(error, found)


def may_describe(ctx: RequestContext, topic: str) -> bool:
    return ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)


def is_of(row: FetchedOffset, topic_id: bytes) -> bool:
    """Whether an offset was committed for this topic, not for an earlier one with the same name, as far as is known.

    Source: OffsetMetadataManager.isMismatchedTopicId.
    """
    of = row.topic_id
    return of is None or of in (topic_id, ZERO_UUID) or topic_id == ZERO_UUID


def no_offset(number: int, error: ErrorCode) -> FetchedOffset:
    """The row of a partition whose offset is unknown or not disclosed."""
    return FetchedOffset(number, -1, -1, "", error)


@handles(OffsetFetchRequest, versions="0-10", authorize=None)
def offset_fetch(
    ctx: RequestContext, request: OffsetFetchRequest
) -> Generator[None, None, OffsetFetchResponse]:
    """Read the committed offsets of one group, or since version 8 of several."""
    if ctx.version < 8:
        return (yield from fetch_one_group(ctx, request))
    groups = []
    for asked in (yield from without_many_repeats(request.groups, _asked)):
        topics = yield from _partitions(ctx, asked.topics)
        error, found = yield from _fetch(
            ctx,
            asked.group_id,
            topics,
            request.require_stable,
            asked.member_id,
            asked.member_epoch,
        )
        row = OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error, topics=[])
        groups.append(row)
        for topic, offsets in found:
            yield
            partitions: list[OffsetFetchResponsePartitions] = []
            row.topics.append(
                OffsetFetchResponseTopics(
                    name=topic.name or "", topic_id=topic.topic_id, partitions=partitions
                )
            )
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
    topics = yield from _partitions(ctx, request.topics)
    error, found = yield from _fetch(ctx, request.group_id, topics, request.require_stable)
    response = OffsetFetchResponse(error_code=error, topics=[])
    if error != ErrorCode.NONE:
        for topic, numbers in [] if ctx.version >= 2 else topics or []:
            yield
            rows: list[OffsetFetchResponsePartition] = []
            response.topics.append(OffsetFetchResponseTopic(name=topic.name or "", partitions=rows))
            for number in numbers:
                yield
                rows.append(fetch_error(number, error))
        return response
    for topic, offsets in found:
        yield
        rows = []
        response.topics.append(OffsetFetchResponseTopic(name=topic.name or "", partitions=rows))
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
