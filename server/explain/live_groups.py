"""Asks brokers what is known of a group."""

from __future__ import annotations

from typing import Any

from kwire.codec import decode
from kwire.errors import RecordError, WireError
from kwire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kwire.messages.describe_groups import DescribeGroupsRequest
from kwire.messages.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kwire.messages.offset_fetch import OffsetFetchRequest
from kwire.records.batch import RecordBatch

from ..coordinator.group.partitioner import partition_for
from .asking import (
    CONSUMER,
    EARLIEST,
    GROUP,
    READ_COMMITTED,
    Ask,
    Asking,
    Unavailable,
    batches_of,
    coordinator_of,
    end_of,
    ends_of,
    fetch,
    placed_of,
    scan,
    words_of,
)
from .facts import (
    GroupFacts,
    GroupMember,
    GroupPartition,
    Transaction,
)
from .live_transactions import open_transactions
from .searches import DataSearch
from .stored_state import OFFSETS_TOPIC, GroupReading

#: Below this lag, it is looked up whether there is anything to read at all.
SMALL_LAG = 1000


def group_facts(group: str, now_ms: int, *, stored: bool = True) -> Asking[GroupFacts]:
    """What is known of a group. Shape: without `stored`, nothing is looked for in logs, which may take long."""
    try:
        broker = yield from coordinator_of(GROUP, group)
        response = yield Ask(DescribeGroupsRequest(groups=[group]), broker, 5)
        offsets = yield Ask(OffsetFetchRequest(group_id=group, topics=None), broker, 7)
    except Unavailable as error:
        return GroupFacts(group, now_ms, "UNAVAILABLE", str(error))
    row = response.groups[0]
    if row.error_code or offsets.error_code:
        return GroupFacts(
            group, now_ms, "UNAVAILABLE", words_of(row.error_code or offsets.error_code)
        )
    committed = {
        (topic.name, part.partition_index): part.committed_offset
        for topic in offsets.topics
        for part in topic.partitions
        if not part.error_code and part.committed_offset >= 0
    }
    state, kind, generation = row.group_state, "classic", None
    assignor: str | None = row.protocol_data or None
    members = [classic_member(each) for each in row.members]
    wanted = {topic for each in row.members for topic in subscribed(each.member_metadata)}
    if state == "Dead":
        newer = yield from consumer_group(group, broker)
        if newer is not None:
            state, kind, generation = newer.group_state, "consumer", newer.group_epoch
            assignor = newer.assignor_name
            members = [consumer_member(each) for each in newer.members]
            wanted = {topic for each in newer.members for topic in each.subscribed_topic_names}
        elif not committed:
            return GroupFacts(group, now_ms, "NO_GROUP")
    reading = (yield from stored_group(group)) if stored else None
    if kind == "classic" and reading is not None and reading.generation is not None:
        generation = reading.generation
        members = [reading.completed(each) for each in members]
    partitions = yield from partitions_read(members, committed, wanted, reading, deep=stored)
    return GroupFacts(
        group,
        now_ms,
        state=state,
        kind=kind,
        generation=generation,
        leader=None if reading is None else reading.leader,
        assignor=assignor,
        coordinator=broker,
        members=tuple(members),
        partitions=partitions,
    )


def classic_member(row: Any) -> GroupMember:
    """A member of DescribeGroups' response."""
    return GroupMember(
        row.member_id,
        row.client_id,
        row.client_host,
        row.group_instance_id,
        assigned_partitions(row.member_assignment),
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
    """The topics that a member of a classic group wants."""
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


def consumer_group(group: str, broker: int) -> Asking[Any]:
    """The group, if it uses the consumer protocol (KIP-848), else None."""
    try:
        response = yield Ask(ConsumerGroupDescribeRequest(group_ids=[group]), broker)
    except Unavailable:
        return None
    row = response.groups[0]
    return None if row.error_code else row


def consumer_member(row: Any) -> GroupMember:
    """A member of ConsumerGroupDescribe's response."""

    def tps(assignment: Any) -> tuple[tuple[str, int], ...]:
        return tuple(
            (topic.topic_name, number)
            for topic in assignment.topic_partitions
            for number in topic.partitions
        )

    return GroupMember(
        row.member_id,
        row.client_id,
        row.client_host,
        row.instance_id,
        tps(row.assignment),
        epoch=row.member_epoch,
        target=tps(row.target_assignment),
    )


def stored_group(group: str) -> Asking[GroupReading | None]:
    """What __consumer_offsets says of a group; None if it may not be read, or is too long."""
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
    members: list[GroupMember],
    committed: dict[tuple[str, int], int],
    wanted: set[str],
    reading: GroupReading | None,
    *,
    deep: bool,
) -> Asking[tuple[GroupPartition, ...]]:
    """What the group has to do with each partition that it reads, has read or wants."""
    assigned = {tp for each in members for tp in each.partitions}
    placed = yield from placed_of({topic for topic, _ in assigned | set(committed)} | wanted)
    tps = sorted(
        assigned
        | set(committed)
        | {(topic, number) for topic in wanted for number in placed.get(topic, ())}
    )
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
            stables |= yield from ends_of(broker, led, isolation=READ_COMMITTED)
        except Unavailable:
            pass
    rows = []
    for tp in tps:
        leader, at, stable, end = (
            leaders.get(tp, -1),
            committed.get(tp, -1),
            stables.get(tp),
            ends.get(tp),
        )
        pinned: tuple[Transaction, ...] = ()
        readable: bool | None = None
        if deep and at >= 0 and stable is not None and end is not None and at < end:
            if at >= stable:
                pinned = yield from open_transactions(leader, *tp)
            elif at >= starts.get(tp, 0) and stable - at <= SMALL_LAG:
                readable = yield from anything_readable(leader, *tp, at, stable)
        rows.append(
            GroupPartition(
                *tp,
                committed=at,
                committed_ms=None if reading is None else reading.committed_ms.get(tp),
                leader=leader >= 0,
                log_start=starts.get(tp),
                end=end,
                last_stable=stable,
                readable=readable,
                open_transactions=pinned,
            )
        )
    return tuple(rows)


def anything_readable(
    leader: int, topic: str, partition: int, begin: int, stable: int
) -> Asking[bool | None]:
    """Whether there is a record for readers with read_committed; None if that is not known."""
    at = begin
    try:
        while at < stable:
            row = yield from fetch(leader, topic, partition, at, READ_COMMITTED)
            aborted = [
                (each.producer_id, each.first_offset) for each in row.aborted_transactions or ()
            ]
            search = DataSearch(at, aborted)
            batches = batches_of(row)
            if row.error_code or not batches:
                return None
            if any(search.feed(batch) for batch in batches):
                return True
            at = search.next_offset
    except (Unavailable, RecordError):
        return None
    return False
