"""OffsetCommit, OffsetFetch, OffsetDelete, and the expiry of offsets.

Source: GroupCoordinator.scala (permission to commit), GroupMetadataManager.scala (stored values, and the translation of
the log's errors), KIP-211 (expiry), KIP-447 (require_stable), KIP-496 (delete).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kwire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kwire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kwire.records.layout import NO_LEADER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from kwire.types import ZERO_UUID

from ...metadata.topic_partition import TopicPartition
from ..common.result import Result
from .config import GroupConfig
from .kinds import AnyGroup, CommitSender
from .offset_store import NO_OFFSET, OffsetAndMetadata
from .rebalance import keep_alive
from .records import GroupRecord, OffsetRecord
from .state import CONSUMER_PROTOCOL_TYPE, Group, GroupState

MAX_TIMESTAMP = (1 << 63) - 1

CommitResponse = OffsetCommitResponse | TxnOffsetCommitResponse


class OffsetsStored(NamedTuple):
    """Ticket of a commit; `response` is sent if nothing fails."""

    group_id: str
    tps: list[TopicPartition]
    write_id: int
    producer_id: int
    token: int
    response: CommitResponse


class OffsetsRemoved(NamedTuple):
    """Ticket of tombstones; `response`, if any, answers the request with the token.

    Shape: `group_ids` are groups that may be left without any state.
    """

    group_ids: tuple[str, ...]
    token: int | None
    response: OffsetDeleteResponse | None


class FetchedOffset(NamedTuple):
    """One row of an OffsetFetch answer; offset and leader_epoch are -1 if there is none.

    Shape: `topic_id` identifies the topic for which the offset was committed; None or zeros if it is not known.
    """

    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error: ErrorCode
    topic_id: bytes | None = None


# Commit


def commit_offsets(
    config: GroupConfig,
    group: AnyGroup,
    request: OffsetCommitRequest,
    token: int,
    write_id: int,
    now_ms: int,
    out: Result[Any],
    version: int = -1,
    topic_id: Callable[[str], bytes | None] = lambda name: None,
) -> None:
    """Store the offsets of a member or of a simple consumer."""
    sender = CommitSender(
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        transactional=False,
        version=version,
    )
    error = group.validate_commit(sender) or partitions_error(group, sender, request, topic_id)
    if error is not ErrorCode.NONE:
        out.reply(token, commit_error(request, error))
        return
    if isinstance(group, Group) and (member := group.members.get(request.member_id)) is not None:
        keep_alive(group, member, now_ms, out)
    retention_ms = request.retention_time_ms
    expire_ms = NO_TIMESTAMP
    if retention_ms != NO_TIMESTAMP:
        expire_ms = min(now_ms + retention_ms, MAX_TIMESTAMP)
    records: list[OffsetRecord] = []
    response = OffsetCommitResponse()
    for topic in request.topics:
        rows = []
        for row in topic.partitions:
            metadata = row.committed_metadata or ""
            error = metadata_error(config, metadata)
            if error is ErrorCode.NONE:
                commit_ms = row.commit_timestamp
                value = OffsetAndMetadata(
                    row.committed_offset,
                    row.committed_leader_epoch,
                    metadata,
                    now_ms if commit_ms == NO_TIMESTAMP else commit_ms,
                    expire_ms,
                    topic.topic_id if config.stores_topic_ids else None,
                )
                tp = TopicPartition(topic.name, row.partition_index)
                records.append(OffsetRecord(group.group_id, tp, value))
            rows.append(
                OffsetCommitResponsePartition(partition_index=row.partition_index, error_code=error)
            )
        response.topics.append(
            OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=rows)
        )
    store(group, records, response, token, write_id, None, config, out)


def commit_transactional_offsets(
    config: GroupConfig,
    group: AnyGroup,
    request: TxnOffsetCommitRequest,
    token: int,
    write_id: int,
    now_ms: int,
    out: Result[Any],
    topic_id: Callable[[str], bytes | None] = lambda name: None,
) -> None:
    """Store offsets that take effect when the producer's transaction is committed."""
    sender = CommitSender(
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        transactional=True,
        version=-1,
    )
    error = group.validate_commit(sender) or partitions_error(group, sender, request, topic_id)
    if error is not ErrorCode.NONE:
        out.reply(token, transactional_commit_error(request, error))
        return
    records: list[OffsetRecord] = []
    response = TxnOffsetCommitResponse()
    for topic in request.topics:
        rows = []
        for row in topic.partitions:
            metadata = row.committed_metadata or ""
            error = metadata_error(config, metadata)
            if error is ErrorCode.NONE:
                value = OffsetAndMetadata(
                    row.committed_offset,
                    row.committed_leader_epoch,
                    metadata,
                    now_ms,
                    topic_id=ZERO_UUID if config.stores_topic_ids else None,
                )
                tp = TopicPartition(topic.name, row.partition_index)
                records.append(OffsetRecord(group.group_id, tp, value))
            rows.append(
                TxnOffsetCommitResponsePartition(
                    partition_index=row.partition_index, error_code=error
                )
            )
        response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=rows))
    producer = request.producer_id, request.producer_epoch
    store(group, records, response, token, write_id, producer, config, out)


def partitions_error(
    group: AnyGroup,
    sender: CommitSender,
    request: OffsetCommitRequest | TxnOffsetCommitRequest,
    topic_id: Callable[[str], bytes | None],
) -> ErrorCode:
    """Check whether the sender may commit for each partition; one forbidden partition refuses the whole request."""
    check = group.partition_check(sender)
    if check is None:
        return ErrorCode.NONE
    for topic in request.topics:
        id_of_topic = topic_id(topic.name)
        for row in topic.partitions:
            error = check(id_of_topic, row.partition_index)
            if error is not ErrorCode.NONE:
                return error
    return ErrorCode.NONE


def store(
    group: AnyGroup,
    records: list[OffsetRecord],
    response: CommitResponse,
    token: int,
    write_id: int,
    producer: tuple[int, int] | None,
    config: GroupConfig,
    out: Result[Any],
) -> None:
    more = group.offsets.more_bytes((r.tp, r.value) for r in records if r.value is not None)
    full = group.memory.refuses_offsets(config, group.client, more)
    if full is not ErrorCode.NONE:
        refuse_stored(response, full)
        out.reply(token, response)
        return
    if not records:
        out.reply(token, response)
        return
    tps = [record.tp for record in records]
    producer_id = NO_PRODUCER_ID if producer is None else producer[0]
    group.offsets.prepare(tps, write_id, producer_id)
    ticket = OffsetsStored(group.group_id, tps, write_id, producer_id, token, response)
    out.write(records, ticket, producer)


def offsets_stored(
    group: AnyGroup | None, ticket: OffsetsStored, error: ErrorCode, out: Result[Any]
) -> None:
    """Answer a commit.

    A timeout means only that the answer cannot wait any longer. The write may still be committed, so the partitions
    stay unstable until the outcome is known.
    """
    if group is not None and error is not ErrorCode.REQUEST_TIMED_OUT:
        group.offsets.settle(ticket.tps, ticket.write_id, ticket.producer_id)
    if error is not ErrorCode.NONE:
        refuse_stored(ticket.response, commit_error_for(error))
    out.reply(ticket.token, ticket.response)


def refuse_stored(response: CommitResponse, error: ErrorCode) -> None:
    """Put an error into each row that has none of its own."""
    for topic in response.topics:
        for row in topic.partitions:
            if row.error_code == ErrorCode.NONE:
                row.error_code = error


def metadata_error(config: GroupConfig, metadata: str) -> ErrorCode:
    """Check the length of an offset's metadata, which Java counts in UTF-16 units."""
    limit = config.offset_metadata_max_bytes
    # One character is one unit or two.
    if (
        2 * len(metadata) <= limit
        or len(metadata.encode("utf-16-be", "surrogatepass")) <= 2 * limit
    ):
        return ErrorCode.NONE
    return ErrorCode.OFFSET_METADATA_TOO_LARGE


def commit_error(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """The response that refuses the whole request."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=row.partition_index, error_code=error
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def transactional_commit_error(
    request: TxnOffsetCommitRequest, error: ErrorCode
) -> TxnOffsetCommitResponse:
    """The response that refuses the whole request."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=row.partition_index, error_code=error
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


_UNAVAILABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})
_TOO_LARGE = frozenset(
    {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE}
)


def commit_error_for(error: ErrorCode) -> ErrorCode:
    """Translate the log's error for a commit. Source: maybeConvertOffsetCommitError."""
    if error in _UNAVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in _MOVED:
        return ErrorCode.NOT_COORDINATOR
    if error in _TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    if error is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return error


def group_error_for(error: ErrorCode) -> ErrorCode:
    """Translate the log's error for group members. Source: GroupMetadataManager.storeGroup."""
    if error in _UNAVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in _MOVED:
        return ErrorCode.NOT_COORDINATOR
    if error in _TOO_LARGE:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if error is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return error


# Fetch


def fetch_offsets(
    group: AnyGroup | None,
    topics: Sequence[tuple[str, Sequence[int]]] | None,
    require_stable: bool,
) -> list[tuple[str, list[FetchedOffset]]]:
    """Return committed offsets of the named partitions, or of all if `topics` is None.

    Shape: rows in the order of the request, in any state of the group, since simple consumers use this too.
    """
    if group is None or group.is_dead:
        group = None
    if topics is None:
        topics = committed_partitions(group)
    return [
        (topic, [fetch_offset(group, topic, p, require_stable) for p in partitions])
        for topic, partitions in topics
    ]


def committed_partitions(group: AnyGroup | None) -> list[tuple[str, list[int]]]:
    """Return the partitions, by topic, for which a group has offsets."""
    by_topic: dict[str, list[int]] = {}
    if group is not None and not group.is_dead:
        for tp in group.offsets.committed:
            by_topic.setdefault(tp.topic, []).append(tp.partition)
    return list(by_topic.items())


def fetch_offset(
    group: AnyGroup | None, topic: str, partition: int, require_stable: bool
) -> FetchedOffset:
    error = ErrorCode.NONE
    if group is not None:
        tp = TopicPartition(topic, partition)
        if require_stable and group.offsets.is_unstable(tp):
            error = ErrorCode.UNSTABLE_OFFSET_COMMIT
        elif (stored := group.offsets.committed.get(tp)) is not None:
            value = stored.value
            return FetchedOffset(
                partition, value.offset, value.leader_epoch, value.metadata, error, value.topic_id
            )
    return FetchedOffset(partition, NO_OFFSET, NO_LEADER_EPOCH, "", error)


# Delete and expire


def delete_offsets(
    config: GroupConfig,
    group: AnyGroup,
    request: OffsetDeleteRequest,
    token: int,
    now_ms: int,
    out: Result[Any],
) -> bool:
    """Remove offsets of an empty group, or of topics that no member of a consumer group reads.

    Shape: False if nothing could be removed and the group stays unchanged.
    """
    if group.is_dead or not group.keeps_offsets:
        out.reply(token, OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND))
        return False
    is_empty = group.is_empty
    if not is_empty and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        out.reply(token, OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP))
        return False
    response = OffsetDeleteResponse()
    chosen: list[TopicPartition] = []
    for topic in request.topics:
        in_use = not is_empty and group.is_subscribed_to(topic.name)
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if in_use else ErrorCode.NONE
        rows = []
        for row in topic.partitions:
            if not in_use:
                chosen.append(TopicPartition(topic.name, row.partition_index))
            rows.append(
                OffsetDeleteResponsePartition(partition_index=row.partition_index, error_code=error)
            )
        response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=rows))
    keep = config.keeps_unused
    records = remove_offsets(group, chosen, now_ms, keep=keep) if chosen else []
    if records:
        ticket = OffsetsRemoved(() if keep else (group.group_id,), token, response)
        out.write(records, ticket)
    else:
        out.reply(token, response)
    return bool(chosen) and not keep


def remove_offsets(
    group: AnyGroup, tps: Iterable[TopicPartition], now_ms: int, *, keep: bool = False
) -> list[OffsetRecord | GroupRecord]:
    """Return tombstones for those of the partitions that have an offset.

    Shape: a group that is empty and without offsets afterwards becomes dead, unless `keep` is set; its own tombstone is
    included if it ever had a generation. Without any tombstone nothing changes.
    """
    known = group.offsets.known_partitions(tps)
    records: list[OffsetRecord | GroupRecord] = [
        OffsetRecord(group.group_id, tp, None) for tp in known
    ]
    if keep or not isinstance(group, Group):
        return records  # a consumer group without members and offsets is removed separately
    if group.is_empty and group.offsets.nothing_left_without(known):
        if group.is_stored():
            records.append(GroupRecord(group.group_id, None))
        if records:
            group.transition_to(GroupState.DEAD, now_ms)
    return records
