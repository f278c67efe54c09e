"""Gets the facts about transactions from brokers. Source: KIP-664."""

from __future__ import annotations

from typing import Any

from kwire.errors import ErrorCode
from kwire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kwire.messages.describe_transactions import DescribeTransactionsRequest
from kwire.messages.list_transactions import ListTransactionsRequest

from ..client.asking import Ask, Asking, coordinator_if_any, end_of, placed_of
from ..client.errors import Unavailable, words_of
from ..client.requests import CONSUMER, TRANSACTION, metadata_of
from .facts import (
    PendingTransaction,
    TransactionFacts,
)

#: States of a coordinator in which a transaction is open in its partitions.
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")


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


def open_transactions(
    leader: int, topic: str, partition: int
) -> Asking[tuple[PendingTransaction, ...]]:
    """The open transactions of a partition, with the state at their coordinators."""
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
    # A marker may have been written between the two requests.
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
            PendingTransaction(
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


def transaction_facts(transactional_id: str, now_ms: int) -> Asking[TransactionFacts]:
    """The known facts about a transactional id."""
    try:
        broker = yield from coordinator_if_any(TRANSACTION, transactional_id)
        if broker is None:
            return TransactionFacts(transactional_id, now_ms, "NO_TRANSACTIONAL_ID")
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
