"""Asks brokers for the facts, in Apache Kafka's protocol.

Each function is a generator: it yields an `Ask`, is sent the response, and returns facts. Whoever runs it has the
connections; `Unavailable` is thrown into it for a request that could not be made.
The end of each replica's log is asked for as a debugging client (replica id -2), which brokers answer even if they
follow. Source: ListOffsetsRequest.DEBUGGING_REPLICA_ID, KIP-392 (records from followers), KIP-664.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from kwire.codec import decode
from kwire.errors import ErrorCode, RecordError, WireError
from kwire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kwire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kwire.messages.describe_groups import DescribeGroupsRequest
from kwire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kwire.messages.describe_transactions import DescribeTransactionsRequest
from kwire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.messages.find_coordinator import FindCoordinatorRequest
from kwire.messages.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kwire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire.messages.list_transactions import ListTransactionsRequest
from kwire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire.messages.offset_fetch import OffsetFetchRequest
from kwire.records.batch import RecordBatch, iter_batches

from ..coordinator.group.partitioner import partition_for
from .facts import (
    GroupFacts,
    GroupMember,
    GroupPartition,
    Marker,
    RecordFacts,
    Replica,
    Transaction,
    TransactionFacts,
)
from .searches import DataSearch, KeySearch, MarkerSearch, OffsetSearch
from .stored_state import OFFSETS_TOPIC, GroupReading

CONSUMER, DEBUGGING = -1, -2
EARLIEST, LATEST = -2, -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
GROUP, TRANSACTION = 0, 1
#: What one Fetch asks for, and what a search for a marker, a key or a group's records reads at most. Unit: bytes.
FETCH_BYTES = 1024 * 1024
SCAN_BYTES = 64 * 1024 * 1024
#: States of a coordinator in which a transaction is open in its partitions.
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
#: Below this lag, it is looked up whether there is anything to read at all.
SMALL_LAG = 1000
TOPIC_CONFIG = 2


class Ask(NamedTuple):
    """A request to make.

    Shape: `to` is the id of a broker, None for any; the version is the highest that both know, at most
    `max_version`.
    """

    request: Any
    to: int | None = None
    max_version: int = 100


class Unavailable(Exception):
    """A request cannot be made: nobody answers, or the broker does not serve it. The text is for the user."""


T = TypeVar("T")
Asking = Generator[Ask, Any, T]


class Placed(NamedTuple):
    """A partition, as Metadata has it."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


# -- records ---------------------------------------------------------------------------------------


def record_facts(
    topic: str, partition: int, offset: int, now_ms: int, key: bytes | None = None
) -> Asking[RecordFacts]:
    """What is known of an offset. Shape: `key` is that of the record, if it is known; with it, or with the copy of a
    follower, it is found out what a record was compacted away for.

    Errors: Unavailable if the partition's leader does not answer.
    """
    facts = RecordFacts(topic, partition, offset, now_ms)
    response = yield Ask(metadata_of([topic]))
    row = response.topics[0]
    if row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return replace(facts, problem="NOT_AUTHORIZED")
    if row.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
        return replace(facts, problem="NO_TOPIC")
    placed = partitions_of(row)
    if partition not in placed:
        return replace(facts, problem="NO_PARTITION", partitions=len(placed))
    leader, replicas, isr = placed[partition]
    copies = tuple(Replica(broker, None, broker in isr) for broker in replicas)
    facts = replace(facts, leader=leader, replicas=copies)
    if leader < 0:
        return replace(facts, problem="NO_LEADER")
    facts = yield from with_bounds(facts, leader)
    if facts.problem is not None or offset >= max(facts.high_watermark, facts.log_end or 0):
        return facts
    if offset < facts.log_start:
        inside = yield from begins_inside(leader, topic, partition, facts.log_start)
        return replace(facts, start_inside=inside)
    if offset >= facts.high_watermark:
        copies = yield from with_ends(facts, leader)
        return replace(facts, replicas=copies)
    facts = yield from with_content(facts, leader, key)
    if facts.problem is None and offset >= facts.last_stable:
        opened = yield from open_transactions(leader, topic, partition)
        facts = replace(facts, open_transactions=opened)
    return facts


def with_bounds(facts: RecordFacts, leader: int) -> Asking[RecordFacts]:
    """The facts, with where the log begins and ends, and what of the topic's configs matters."""
    topic, partition = facts.topic, facts.partition
    # The end is asked for first: what is committed meanwhile must not look as if it were not.
    end = yield from end_of(leader, topic, partition, DEBUGGING)
    high = yield from end_of(leader, topic, partition, CONSUMER)
    stable = yield from end_of(leader, topic, partition, CONSUMER, READ_COMMITTED)
    start = yield from end_of(leader, topic, partition, CONSUMER, at=EARLIEST)
    if high is None or start is None:
        return replace(facts, problem="NOT_AUTHORIZED")
    configs = yield from configs_of(topic)
    return replace(
        facts,
        log_start=start,
        high_watermark=high,
        last_stable=high if stable is None else stable,
        log_end=None if end is None else max(end, high),
        **configs,
    )


def with_ends(facts: RecordFacts, leader: int) -> Asking[tuple[Replica, ...]]:
    """The replicas, with the ends of their logs."""
    copies = []
    for each in facts.replicas:
        end = facts.log_end if each.broker == leader else None
        if each.broker != leader:
            try:
                end = yield from end_of(each.broker, facts.topic, facts.partition, DEBUGGING)
            except Unavailable:
                pass
        copies.append(replace(each, log_end=end))
    return tuple(copies)


def with_content(facts: RecordFacts, leader: int, key: bytes | None) -> Asking[RecordFacts]:
    """The facts, with what the log has at the offset."""
    topic, partition, offset = facts.topic, facts.partition, facts.offset
    end = facts.high_watermark
    try:
        found, problem = yield from find(leader, topic, partition, offset, facts.log_start, end)
    except RecordError as error:
        return replace(facts, problem="CORRUPT", problem_text=str(error))
    if problem is not None:
        return replace(facts, problem=problem)
    stored, go_on = found.stored, found.next_offset
    if stored is None:
        if key is None:
            others = [each.broker for each in facts.replicas if each.broker != leader]
            key = yield from key_elsewhere(others, topic, partition, offset)
        facts = replace(facts, gap=found.gap(end))
        if key is None:
            return facts
        keys = KeySearch(key, offset)
        at = yield from scan(leader, topic, partition, offset, end, keys.feed)
        return replace(facts, later=keys.later, scanned_to=at)
    if stored.transactional and stored.control is None:
        markers = MarkerSearch(stored.producer_id, offset)
        at = yield from scan(leader, topic, partition, go_on, end, markers.feed)
        marker = markers.marker
        if marker is None and offset < facts.last_stable:
            is_aborted = yield from listed_as_aborted(
                leader, topic, partition, offset, stored.producer_id
            )
            marker = Marker(-1, "ABORT" if is_aborted else "COMMIT")
        stored = replace(stored, marker=marker)
        facts = replace(facts, scanned_to=at)
    return replace(facts, stored=stored)


def metadata_of(topics: Iterable[str]) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=topic) for topic in topics],
        allow_auto_topic_creation=False,
    )


def partitions_of(topic: Any) -> dict[int, Placed]:
    """Partitions by number, of a topic of Metadata's response."""
    return {
        row.partition_index: Placed(row.leader_id, tuple(row.replica_nodes), tuple(row.isr_nodes))
        for row in topic.partitions
    }


def end_of(
    broker: int,
    topic: str,
    partition: int,
    replica_id: int,
    isolation: int = READ_UNCOMMITTED,
    at: int = LATEST,
) -> Asking[int | None]:
    """An end of a log, as the broker has it; None if it refuses. Errors: Unavailable."""
    asked = yield from ends_of(broker, [(topic, partition)], replica_id, isolation, at)
    return asked.get((topic, partition))


def ends_of(
    broker: int,
    tps: Iterable[tuple[str, int]],
    replica_id: int = CONSUMER,
    isolation: int = READ_UNCOMMITTED,
    at: int = LATEST,
) -> Asking[dict[tuple[str, int], int]]:
    """An end of several logs of a broker, without those that it refuses."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for topic, partition in tps:
        topics.setdefault(topic, []).append(
            ListOffsetsPartition(partition_index=partition, timestamp=at)
        )
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=rows) for topic, rows in topics.items()],
    )
    response = yield Ask(request, broker)
    return {
        (topic.name, row.partition_index): row.offset
        for topic in response.topics
        for row in topic.partitions
        if not row.error_code
    }


def configs_of(topic: str) -> Asking[dict[str, Any]]:
    """What of a topic's configs has to do with deletion; empty if that may not be seen."""
    names = ("cleanup.policy", "retention.ms", "retention.bytes", "delete.retention.ms")
    resource = DescribeConfigsResource(
        resource_type=TOPIC_CONFIG, resource_name=topic, configuration_keys=list(names)
    )
    try:
        response = yield Ask(DescribeConfigsRequest(resources=[resource]))
    except Unavailable:
        return {}
    values = {row.name: row.value for row in response.results[0].configs}
    result: dict[str, Any] = {}
    for name in names:
        value = values.get(name)
        if value is not None:
            result[name.replace(".", "_")] = value if name == "cleanup.policy" else int(value)
    return result


def fetch(
    broker: int,
    topic: str,
    partition: int,
    offset: int,
    isolation: int = READ_UNCOMMITTED,
    max_bytes: int = FETCH_BYTES,
) -> Asking[Any]:
    """The partition's row of a Fetch, with whole batches from the one that has the offset on."""
    row = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=[FetchTopic(topic=topic, partitions=[row])],
    )
    # Up to version 12, topics are named.
    response = yield Ask(request, broker, 12)
    return response.responses[0].partitions[0]


def batches_of(row: Any) -> list[RecordBatch]:
    return [] if row.records is None else list(iter_batches(row.records))


PROBLEMS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "NOT_AUTHORIZED",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "NO_TOPIC",
    ErrorCode.CORRUPT_MESSAGE: "CORRUPT",
}


def find(
    leader: int, topic: str, partition: int, offset: int, start: int, end: int
) -> Asking[tuple[OffsetSearch, str | None]]:
    """Look an offset up. Errors: RecordError for a damaged batch; Unavailable."""
    search = OffsetSearch(offset, offset if offset > start else start)
    at = offset
    while at < end:
        row = yield from fetch(leader, topic, partition, at)
        if row.error_code:
            problem = PROBLEMS.get(row.error_code)
            if problem is None:
                raise Unavailable(words_of(row.error_code))
            return search, problem
        batches = batches_of(row)
        if not batches or any(search.feed(batch) for batch in batches):
            break
        at = search.next_offset
    return search, None


def scan(
    leader: int,
    topic: str,
    partition: int,
    begin: int,
    end: int,
    feed: Callable[[RecordBatch], bool],
) -> Asking[int | None]:
    """Feed batches until the search is over; returns where it was given up, None if it was not."""
    at, read = begin, 0
    while at < end:
        if read > SCAN_BYTES:
            return at
        row = yield from fetch(leader, topic, partition, at)
        batches = batches_of(row)
        if row.error_code or not batches:
            return at
        for batch in batches:
            read += batch.header.size
            at = batch.header.next_offset
            if feed(batch):
                return None
    return None


def key_elsewhere(
    brokers: Iterable[int], topic: str, partition: int, offset: int
) -> Asking[bytes | None]:
    """The key of a record that the leader has compacted away, from a follower that has not."""
    for broker in brokers:
        try:
            row = yield from fetch(broker, topic, partition, offset)
            search = OffsetSearch(offset, offset)
            if row.error_code:
                continue
            any(search.feed(batch) for batch in batches_of(row))
            if search.stored is not None and search.stored.control is None:
                return search.key
        except (Unavailable, RecordError):
            pass
    return None


def begins_inside(leader: int, topic: str, partition: int, start: int) -> Asking[bool | None]:
    """Whether the log begins inside a batch."""
    try:
        row = yield from fetch(leader, topic, partition, start, max_bytes=1)
    except Unavailable:
        return None
    batches = batches_of(row)
    return bool(batches and batches[0].header.base_offset < start) or None


def listed_as_aborted(
    leader: int, topic: str, partition: int, offset: int, producer_id: int
) -> Asking[bool]:
    """Whether the broker lists an aborted transaction of the producer around the offset."""
    row = yield from fetch(leader, topic, partition, offset, READ_COMMITTED, max_bytes=1)
    return any(
        each.producer_id == producer_id and each.first_offset <= offset
        for each in row.aborted_transactions or ()
    )


# -- transactions ----------------------------------------------------------------------------------


def producers_of(leader: int, topic: str, partition: int) -> Asking[list[Any]]:
    """Producers with an open transaction in a partition, the earliest first."""
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=[partition])]
    )
    try:
        response = yield Ask(request, leader)
    except Unavailable:
        return []
    row = response.topics[0].partitions[0]
    found = [each for each in row.active_producers if each.current_txn_start_offset >= 0]
    return sorted(found, key=lambda each: int(each.current_txn_start_offset))


def open_transactions(leader: int, topic: str, partition: int) -> Asking[tuple[Transaction, ...]]:
    """The open transactions of a partition, with what their coordinators say."""
    producers = yield from producers_of(leader, topic, partition)
    if not producers:
        return ()
    listed, complete = yield from listed_transactions([each.producer_id for each in producers])
    described: dict[int, Any] = {}
    for producer_id, (transactional_id, broker) in listed.items():
        try:
            response = yield Ask(
                DescribeTransactionsRequest(transactional_ids=[transactional_id]), broker
            )
        except Unavailable:
            continue
        if not response.transaction_states[0].error_code:
            described[producer_id] = response.transaction_states[0]
    # A marker may have been written between the two questions.
    again = yield from producers_of(leader, topic, partition)
    still = {(each.producer_id, each.current_txn_start_offset) for each in again}
    result = []
    for each in producers:
        found = described.get(each.producer_id)
        takes_part = found is not None and any(
            row.topic == topic and partition in row.partitions for row in found.topics
        )
        is_open = found is not None and found.transaction_state in OPEN_STATES and takes_part
        result.append(
            Transaction(
                each.producer_id,
                each.producer_epoch,
                each.current_txn_start_offset,
                each.last_timestamp,
                found.transactional_id if found is not None else None,
                found.transaction_state if found is not None else None,
                found.transaction_start_time_ms if is_open and found is not None else None,
                found.transaction_timeout_ms if is_open and found is not None else None,
                hanging=not is_open
                and (complete or found is not None)
                and (each.producer_id, each.current_txn_start_offset) in still,
            )
        )
    return tuple(result)


def listed_transactions(
    producer_ids: list[int],
) -> Asking[tuple[dict[int, tuple[str, int]], bool]]:
    """Transactional id and coordinator by producer id, and whether every broker has answered."""
    response = yield Ask(metadata_of([]))
    found: dict[int, tuple[str, int]] = {}
    complete = True
    for broker in response.brokers:
        request = ListTransactionsRequest(producer_id_filters=producer_ids)
        try:
            answer = yield Ask(request, broker.node_id)
        except Unavailable:
            complete = False
            continue
        complete = complete and not answer.error_code
        for row in answer.transaction_states:
            found[row.producer_id] = (row.transactional_id, broker.node_id)
    return found, complete


def coordinator_of(kind: int, name: str) -> Asking[int]:
    """The broker that coordinates a group or transactional id. Errors: Unavailable."""
    response = yield Ask(FindCoordinatorRequest(key=name, key_type=kind), None, 3)
    if response.error_code:
        raise Unavailable(words_of(response.error_code))
    node: int = response.node_id
    return node


def words_of(error_code: int) -> str:
    """An error code in words."""
    try:
        return ErrorCode(error_code).name.replace("_", " ").lower()
    except ValueError:
        return f"error {error_code}"


def transaction_facts(transactional_id: str, now_ms: int) -> Asking[TransactionFacts]:
    """What is known of a transactional id."""
    try:
        broker = yield from coordinator_of(TRANSACTION, transactional_id)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        response = yield Ask(request, broker)
    except Unavailable as error:
        return TransactionFacts(transactional_id, now_ms, "UNAVAILABLE", str(error))
    row = response.transaction_states[0]
    if row.error_code:
        problem = (
            "NO_TRANSACTIONAL_ID"
            if row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            else "UNAVAILABLE"
        )
        return TransactionFacts(transactional_id, now_ms, problem, words_of(row.error_code))
    tps = [(topic.topic, number) for topic in row.topics for number in topic.partitions]
    placed = yield from placed_of({topic for topic, _ in tps})
    held: list[tuple[str, int, int, int]] = []
    lost = []
    for topic, number in tps:
        leader = placed[topic][number].leader if number in placed.get(topic, {}) else -1
        if leader < 0:
            lost.append((topic, number))
            continue
        try:
            for producer in (yield from producers_of(leader, topic, number)):
                if producer.producer_id == row.producer_id:
                    first = producer.current_txn_start_offset
                    high = yield from end_of(leader, topic, number, CONSUMER)
                    held.append((topic, number, first, max(0, (high or first) - first)))
        except Unavailable:
            lost.append((topic, number))
    return TransactionFacts(
        transactional_id,
        now_ms,
        state=row.transaction_state,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        start_ms=row.transaction_start_time_ms if row.transaction_start_time_ms >= 0 else None,
        timeout_ms=row.transaction_timeout_ms,
        coordinator=broker,
        partitions=tuple(sorted(tps)),
        without_leader=tuple(lost),
        holds_back=tuple(held),
    )


def placed_of(topics: Iterable[str]) -> Asking[dict[str, dict[int, Placed]]]:
    """Partitions by topic, without topics that do not exist or may not be seen."""
    names = sorted(topics)
    if not names:
        return {}
    response = yield Ask(metadata_of(names))
    return {topic.name: partitions_of(topic) for topic in response.topics if not topic.error_code}


# -- groups ----------------------------------------------------------------------------------------


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
