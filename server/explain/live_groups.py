"""Gets the facts about a group from brokers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from kwire.codec import decode
from kwire.errors import ErrorCode, RecordError, WireError
from kwire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kwire.messages.describe_groups import DescribeGroupsRequest
from kwire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kwire.messages.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kwire.messages.offset_fetch import OffsetFetchRequest
from kwire.messages.share_group_describe import ShareGroupDescribeRequest
from kwire.records.batch import RecordBatch

from ..client.asking import Ask, Asking, coordinator_if_any, end_of, ends_of, fetch, placed_of
from ..client.errors import Unavailable, words_of
from ..client.requests import CONSUMER, EARLIEST, GROUP, READ_COMMITTED
from ..client.visibility import aborted_in, batches_of
from ..coordinator.common.partitioner import partition_for
from .facts import (
    GroupFacts,
    GroupMember,
    GroupPartition,
    PendingTransaction,
)
from .live_transactions import open_transactions
from .searches import DataSearch, scan
from .stored_state import OFFSETS_TOPIC, GroupReading

#: The protocol type of groups whose members have partitions.
CONSUMER_PROTOCOL = "consumer"
#: Below this lag, a search finds out whether there is any record to read.
SMALL_LAG = 1000
#: Up to this lag, and in so many partitions of a group, a look at the remaining records finds out whether all of them are
#: markers of transactions.
MARKER_LAG = 8
MARKER_LOOKS = 100
#: How much is read for that at a time; a broker sends at least one batch.
MARKER_BYTES = 1024


#: The message of brokers, including Apache Kafka's, that give no reason why they do not serve a type of groups; and the
#: reason in that case.
NO_REASON = "The version of API is not supported."
SWITCHED_OFF = "their feature is switched off (group.version, share.version)"


class NotServed(Exception):
    """The coordinator stores the group, but does not serve groups of its type. The text is the reason."""


@dataclass(slots=True)
class DescribedByCoordinator:
    """The coordinator's description of a group.

    Shape: `read` are the partitions with an offset of the group, in rows without the ends of logs.
    """

    kind: str
    state: str
    members: list[GroupMember]
    generation: int | None = None
    assignor: str | None = None
    read: dict[tuple[str, int], GroupPartition] = field(default_factory=dict)


def group_facts(group: str, now_ms: int, *, stored: bool = True) -> Asking[GroupFacts]:
    """The known facts about a group. Shape: without `stored`, logs are not searched, which may take long."""
    try:
        broker = yield from coordinator_if_any(GROUP, group)
        found = None if broker is None else (yield from described(group, broker))
    except NotServed as error:
        return GroupFacts(group, now_ms, "NOT_SERVED", str(error))
    except Unavailable as error:
        return GroupFacts(group, now_ms, "UNAVAILABLE", str(error))
    if found is None:
        return GroupFacts(group, now_ms, "NO_GROUP")
    # The search in the log is for offsets that members commit.
    deep = stored and found.kind != "share"
    reading = (yield from stored_group(group)) if deep else None
    if found.kind == "classic" and reading is not None and reading.generation is not None:
        found.generation = reading.generation
        found.members = [reading.completed(each) for each in found.members]
    partitions = yield from partitions_read(found, reading, deep=deep)
    return GroupFacts(
        group,
        now_ms,
        state=found.state,
        kind=found.kind,
        generation=found.generation,
        leader=None if reading is None else reading.leader,
        assignor=found.assignor,
        coordinator=broker,
        members=tuple(found.members),
        partitions=partitions,
    )


def described(group: str, broker: int) -> Asking[DescribedByCoordinator | None]:
    """The group, of any type; None if there is none.

    Errors: Unavailable, also if the request is refused; NotServed.
    """
    response = yield Ask(DescribeGroupsRequest(groups=[group]), broker, 5)
    row = response.groups[0]
    if row.error_code:
        raise Unavailable(words_of(row.error_code))
    # These versions report groups of the newer types as dead.
    newer = None
    refusals: list[str] = []
    if row.group_state == "Dead":
        newer = yield from optional(
            ConsumerGroupDescribeRequest(group_ids=[group]), broker, refusals
        )
        if newer is None:
            share = yield from optional(
                ShareGroupDescribeRequest(group_ids=[group]), broker, refusals
            )
            if share is not None:
                return (yield from share_group(share, broker))
    offsets = yield Ask(OffsetFetchRequest(group_id=group, topics=None), broker, 7)
    if refusals and offsets.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise NotServed(refusals[0])
    if offsets.error_code:
        raise Unavailable(words_of(offsets.error_code))
    read = {
        (topic.name, part.partition_index): GroupPartition(
            topic.name, part.partition_index, part.committed_offset, metadata=part.metadata or ""
        )
        for topic in offsets.topics
        for part in topic.partitions
        if not part.error_code and part.committed_offset >= 0
    }
    if refusals and newer is None and read:
        raise NotServed(refusals[0])
    if newer is not None:
        return DescribedByCoordinator(
            "consumer",
            newer.group_state,
            [consumer_member(each) for each in newer.members],
            newer.group_epoch,
            newer.assignor_name,
            read,
        )
    if row.group_state == "Dead" and not read:
        return None
    has_partitions = row.protocol_type in (CONSUMER_PROTOCOL, "")
    members = [classic_member(each, has_partitions=has_partitions) for each in row.members]
    return DescribedByCoordinator(
        "classic", row.group_state, members, None, row.protocol_data or None, read
    )


def optional(request: object, broker: int, refusals: list[str]) -> Asking[Any]:
    """The group of a response that describes one; None if the broker has no such group, or no such request.

    Shape: `refusals` gets the reason of a broker that has the request, but does not serve such groups now.
    """
    try:
        response = yield Ask(request, broker)
    except Unavailable:
        return None
    row = response.groups[0]
    if row.error_code == ErrorCode.UNSUPPORTED_VERSION:
        said = row.error_message if row.error_message != NO_REASON else None
        refusals.append((said or SWITCHED_OFF).rstrip("."))
    return None if row.error_code else row


def share_group(row: Any, broker: int) -> Asking[DescribedByCoordinator]:
    """A group of ShareGroupDescribe's response, with its start offsets. Errors: Unavailable."""
    wanted = DescribeShareGroupOffsetsRequestGroup(group_id=row.group_id, topics=None)
    response = yield Ask(DescribeShareGroupOffsetsRequest(groups=[wanted]), broker)
    offsets = response.groups[0]
    if offsets.error_code:
        raise Unavailable(words_of(offsets.error_code))
    read = {
        (topic.topic_name, part.partition_index): GroupPartition(
            topic.topic_name,
            part.partition_index,
            part.start_offset,
            unacknowledged=part.lag if part.lag >= 0 else None,
        )
        for topic in offsets.topics
        for part in topic.partitions
        if not part.error_code
    }
    members = [
        GroupMember(
            each.member_id,
            each.client_id,
            each.client_host,
            None,
            topic_partitions(each.assignment),
            tuple(each.subscribed_topic_names),
            epoch=each.member_epoch,
        )
        for each in row.members
    ]
    return DescribedByCoordinator(
        "share", row.group_state, members, row.group_epoch, row.assignor_name, read
    )


def classic_member(row: Any, *, has_partitions: bool) -> GroupMember:
    """A member of DescribeGroups' response; without `has_partitions`, such as Kafka Connect's, it has no topics."""
    return GroupMember(
        row.member_id,
        row.client_id,
        row.client_host,
        row.group_instance_id,
        assigned_partitions(row.member_assignment) if has_partitions else (),
        tuple(subscribed(row.member_metadata)) if has_partitions else (),
    )


def assigned_partitions(assignment: bytes) -> tuple[tuple[str, int], ...]:
    """The partitions in a member's assignment; none if it is of another kind, such as Kafka Connect's."""
    if not assignment:
        return ()
    version = min(int.from_bytes(assignment[:2], "big"), 3)
    try:
        message = decode(ConsumerProtocolAssignment, bytes(assignment), version, 2)
    except WireError:
        return ()
    return tuple(
        (topic.topic, number)
        for topic in message.assigned_partitions
        for number in topic.partitions
    )


def subscribed(metadata: bytes) -> list[str]:
    """The topics in the subscription of a classic group's member."""
    try:
        if not metadata:
            return []
        version = int.from_bytes(metadata[:2], "big")
        topics: list[str] = decode(
            ConsumerProtocolSubscription, bytes(metadata), min(version, 3), 2
        ).topics
        return topics
    except WireError:
        return []


def consumer_member(row: Any) -> GroupMember:
    """A member of ConsumerGroupDescribe's response."""
    return GroupMember(
        row.member_id,
        row.client_id,
        row.client_host,
        row.instance_id,
        topic_partitions(row.assignment),
        tuple(row.subscribed_topic_names),
        epoch=row.member_epoch,
        target=topic_partitions(row.target_assignment),
    )


def topic_partitions(assignment: Any) -> tuple[tuple[str, int], ...]:
    """The partitions of a member of the newer types of groups."""
    return tuple(
        (topic.topic_name, number)
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )


def stored_group(group: str) -> Asking[GroupReading | None]:
    """The state of a group in __consumer_offsets; None if the topic may not be read, or is too long."""
    placed = (yield from placed_of([OFFSETS_TOPIC])).get(OFFSETS_TOPIC)
    if not placed:
        return None
    partition = partition_for(group, len(placed))
    leader = placed[partition].leader
    if leader < 0:
        return None
    reading = GroupReading(group)

    def feed(batch: RecordBatch) -> bool:
        reading.feed(batch)
        return False

    try:
        start = yield from end_of(leader, OFFSETS_TOPIC, partition, CONSUMER, at=EARLIEST)
        end = yield from end_of(leader, OFFSETS_TOPIC, partition, CONSUMER)
        if start is None or end is None:
            return None
        stopped = yield from scan(leader, OFFSETS_TOPIC, partition, start, end, feed)
    except (Unavailable, RecordError):
        return None
    return reading if stopped is None else None


def partitions_read(
    found: DescribedByCoordinator, reading: GroupReading | None, *, deep: bool
) -> Asking[tuple[GroupPartition, ...]]:
    """The group's state in each partition that it reads, has read or subscribes to.

    Shape: only with `deep`, open transactions and readable records are searched.
    """
    mine = {tp for each in found.members for tp in each.partitions} | set(found.read)
    wanted = {topic for each in found.members for topic in each.subscribed}
    placed = yield from placed_of({topic for topic, _ in mine} | wanted)
    tps = sorted(mine | {(topic, each) for topic in wanted for each in placed.get(topic, ())})
    leaders = {
        (topic, number): placed[topic][number].leader
        for topic, number in tps
        if number in placed.get(topic, ())
    }
    starts: dict[tuple[str, int], int] = {}
    ends: dict[tuple[str, int], int] = {}
    stables: dict[tuple[str, int], int] = {}
    for broker in sorted(set(leaders.values()) - {-1}):
        led = [tp for tp in tps if leaders.get(tp) == broker]
        try:
            starts |= yield from ends_of(broker, led, at=EARLIEST)
            ends |= yield from ends_of(broker, led)
            if deep:
                stables |= yield from ends_of(broker, led, isolation=READ_COMMITTED)
        except Unavailable:
            pass
    rows = []
    looks = MARKER_LOOKS
    for tp in tps:
        row = found.read.get(tp) or GroupPartition(*tp)
        leader, at, stable, end = leaders.get(tp, -1), row.committed, stables.get(tp), ends.get(tp)
        pinned: tuple[PendingTransaction, ...] = ()
        readable: bool | None = None
        if at >= 0 and stable is not None and end is not None and at < end:
            if at >= stable:
                pinned = yield from open_transactions(leader, *tp)
            elif at >= starts.get(tp, 0) and stable - at <= SMALL_LAG:
                readable = yield from anything_readable(leader, *tp, at, stable)
        markers = 0
        if (
            row.unacknowledged is None
            and not readable
            and not pinned
            and looks
            and end is not None
            and 0 <= max(at, starts.get(tp, 0)) == at < end <= at + MARKER_LAG
        ):
            looks -= 1
            if (yield from only_markers(leader, *tp, at, end)):
                markers = end - at
        rows.append(
            replace(
                row,
                committed_ms=None if reading is None else reading.committed_ms.get(tp),
                leader=leader >= 0,
                log_start=starts.get(tp),
                end=end,
                last_stable=stable,
                readable=readable,
                markers=markers,
                open_transactions=pinned,
            )
        )
    return tuple(rows)


def only_markers(leader: int, topic: str, partition: int, begin: int, end: int) -> Asking[bool]:
    """Whether all offsets from `begin` to `end` are markers of transactions; False if that is not known."""
    at = begin
    try:
        while at < end:
            row = yield from fetch(leader, topic, partition, at, max_bytes=MARKER_BYTES)
            batches = batches_of(row)
            if row.error_code or not batches:
                return False
            for batch in batches:
                if not batch.header.is_control or batch.header.base_offset > at:
                    return False  # data, or a gap where there was some
                at = batch.header.next_offset
    except (Unavailable, RecordError):
        return False
    return True


def anything_readable(
    leader: int, topic: str, partition: int, begin: int, stable: int
) -> Asking[bool | None]:
    """Whether there is a record for readers with read_committed; None if that is not known."""
    at = begin
    try:
        while at < stable:
            row = yield from fetch(leader, topic, partition, at, READ_COMMITTED)
            search = DataSearch(at, aborted_in(row))
            batches = batches_of(row)
            if row.error_code or not batches:
                return None
            if any(search.feed(batch) for batch in batches):
                return True
            at = search.next_offset
    except (Unavailable, RecordError):
        return None
    return False
