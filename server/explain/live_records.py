"""Gets the facts about a record from brokers.

The end of each replica's log is requested as a debugging client (replica id -2), which brokers answer even if they
follow. Source: ListOffsetsRequest.DEBUGGING_REPLICA_ID, KIP-392 (records from followers).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kwire.errors import ErrorCode, RecordError
from kwire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

from ..client.answers import partitions_of
from ..client.asking import Ask, Asking, end_of, fetch
from ..client.errors import Unavailable, words_of
from ..client.requests import (
    CONSUMER,
    DEBUGGING,
    EARLIEST,
    READ_COMMITTED,
    TOPIC_CONFIG,
    metadata_of,
)
from ..client.visibility import aborted_in, batches_of
from .facts import (
    Marker,
    RecordFacts,
    Replica,
)
from .live_transactions import open_transactions
from .searches import KeySearch, MarkerSearch, OffsetSearch, scan


def record_facts(
    topic: str, partition: int, offset: int, now_ms: int, key: bytes | None = None
) -> Asking[RecordFacts]:
    """The known facts about an offset.

    Shape: `key` is that of the record, if it is known. With it, or with the copy of a follower, the later record is
    found because of which a record was compacted away.
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
    """The facts, with the start and end of the log, and the relevant configs of the topic."""
    topic, partition = facts.topic, facts.partition
    # The end is requested first: records committed in the meantime must not appear as uncommitted.
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
    """The facts, with the log's content at the offset."""
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


def configs_of(topic: str) -> Asking[dict[str, Any]]:
    """The configs of a topic that concern deletion; empty without the permission to see them."""
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
        aborted_id == producer_id and first_offset <= offset
        for aborted_id, first_offset in aborted_in(row)
    )
