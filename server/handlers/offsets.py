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

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, TypeVar

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

from . import refusals
from .authorization import AclOperation, group
from .registry import handles
from .repeats import partitions_without_many_repeats, without_many_repeats

if TYPE_CHECKING:
    from ..coordinator.group.offsets import FetchedOffset
    from ..metadata.image import MetadataImage
    from .context import Later, RequestContext

TopicT = TypeVar(
    "TopicT", OffsetCommitRequestTopic, OffsetDeleteRequestTopic, TxnOffsetCommitRequestTopic
)

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@handles(
    OffsetCommitRequest,
    versions="0-9",
    authorize=group(AclOperation.READ),
    refusal=refusals.offset_commit,
)
def offset_commit(
    ctx: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Later[OffsetCommitResponse]:
    """Store offsets; the answer comes when they are committed to the log."""
    asked = request.topics
    known = existing(ctx.services.metadata(), asked)
    finish: Callable[[OffsetCommitResponse], OffsetCommitResponse] | None = None
    if known is not asked:
        if not known:
            return commit_response(asked, {})
        request.topics = known

        def put_back(response: OffsetCommitResponse) -> OffsetCommitResponse:
            return commit_response(asked, errors_by_row(response))

        finish = put_back
    answer = ctx.services.group_coordinator.commit_offsets(request)
    if isinstance(answer, OffsetCommitResponse):
        return answer if finish is None else finish(answer)
    return ctx.later(answer, finish)


def commit_response(
    asked: list[OffsetCommitRequestTopic], errors: dict[tuple[str, int], int]
) -> OffsetCommitResponse:
    """Answer in the order of the request; partitions without an entry in `errors` do not exist."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=row.partition_index,
                        error_code=errors.get((topic.name, row.partition_index), UNKNOWN),
                    )
                    for row in topic.partitions
                ],
            )
            for topic in asked
        ]
    )


@handles(OffsetDeleteRequest, versions="0", authorize=group(AclOperation.DELETE))
def offset_delete(
    ctx: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Later[OffsetDeleteResponse]:
    """Remove offsets of topics to which no member is subscribed."""
    asked = request.topics
    known = existing(ctx.services.metadata(), asked)
    request.topics = known

    def put_back(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        if response.error_code != ErrorCode.NONE or known is asked:
            return response
        return delete_response(asked, errors_by_row(response))

    answer = ctx.services.group_coordinator.delete_offsets(request)
    if isinstance(answer, OffsetDeleteResponse):
        return put_back(answer)
    return ctx.later(answer, put_back)


def delete_response(
    asked: list[OffsetDeleteRequestTopic], errors: dict[tuple[str, int], int]
) -> OffsetDeleteResponse:
    """Answer in the order of the request; partitions without an entry in `errors` do not exist."""
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=row.partition_index,
                        error_code=errors.get((topic.name, row.partition_index), UNKNOWN),
                    )
                    for row in topic.partitions
                ],
            )
            for topic in asked
        ]
    )


def existing(image: MetadataImage, asked: list[TopicT]) -> list[TopicT]:
    """Return the topics with only those partitions that exist: the list itself if all do."""
    topics = image.topics
    for topic in asked:
        found = topics.get(topic.name)
        if found is None or not all(
            row.partition_index in found.partitions for row in topic.partitions
        ):
            break
    else:
        return asked
    known: list[TopicT] = []
    for topic in asked:
        found = topics.get(topic.name)
        if found is not None:
            rows = [row for row in topic.partitions if row.partition_index in found.partitions]
            if rows:
                known.append(type(topic)(name=topic.name, partitions=rows))
    return known


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
) -> Sequence[tuple[str, Sequence[int]]] | None:
    """The partitions asked for; None for all."""
    if topics is None:
        return None
    return partitions_without_many_repeats(
        [(topic.name, topic.partition_indexes) for topic in topics]
    )


@handles(OffsetFetchRequest, versions="0-9", authorize=None, refusal=refusals.offset_fetch)
def offset_fetch(ctx: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Read the committed offsets of one group, or since version 8 of several."""
    if ctx.version < 8:
        return fetch_one_group(ctx, request)
    coordinator = ctx.services.group_coordinator
    groups = []
    for asked in without_many_repeats(request.groups, _asked):
        topics = _partitions(asked.topics)
        error, rows = coordinator.fetch_offsets(asked.group_id, topics, request.require_stable)
        groups.append(
            OffsetFetchResponseGroup(
                group_id=asked.group_id,
                error_code=error,
                topics=[
                    OffsetFetchResponseTopics(
                        name=name,
                        partitions=[
                            OffsetFetchResponsePartitions(
                                partition_index=row.partition,
                                committed_offset=row.offset,
                                committed_leader_epoch=row.leader_epoch,
                                metadata=row.metadata,
                                error_code=row.error,
                            )
                            for row in found
                        ],
                    )
                    for name, found in rows
                ],
            )
        )
    return OffsetFetchResponse(groups=groups)


def fetch_one_group(ctx: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Answer up to version 7. Before version 2 an error of the group is in every row."""
    topics = _partitions(request.topics)
    error, rows = ctx.services.group_coordinator.fetch_offsets(
        request.group_id, topics, request.require_stable
    )
    if error != ErrorCode.NONE:
        refused = [] if ctx.version >= 2 else topics or []
        return OffsetFetchResponse(
            error_code=error,
            topics=[
                OffsetFetchResponseTopic(
                    name=name, partitions=[fetch_error(number, error) for number in partitions]
                )
                for name, partitions in refused
            ],
        )
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(name=name, partitions=[fetched(row) for row in found])
            for name, found in rows
        ]
    )


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
