"""The transactional APIs and the check of transactional batches, over the wire format."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kwire.messages.delete_topics import DeleteTopicsRequest
from kwire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kwire.messages.describe_transactions import DescribeTransactionsRequest
from kwire.messages.list_transactions import ListTransactionsRequest
from kwire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kwire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kwire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from server.handlers.ceilings import CEILING_3_9
from server.handlers.produce import produce
from server.handlers.transactions import add_partitions_to_txn
from server.turns import exhaust
from tests.handlers.transaction_broker import GROUP, ID, TOPIC, TransactionBroker, run
from tests.support.replicas import turns, values
from tests.support.versions import versions

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
FENCED = ErrorCode.PRODUCER_FENCED
OLD = ErrorCode.INVALID_PRODUCER_EPOCH
NOT_MAPPED = ErrorCode.INVALID_PRODUCER_ID_MAPPING
FIRST, SECOND = (TOPIC, 0), (TOPIC, 1)


def read(broker: TransactionBroker, number: int = 0) -> tuple[list[bytes], Any]:
    """The view of read_committed on a partition: the values below the stable offset, and the aborted ones."""
    found = broker.partition(number).read(0, 100_000, read_committed=True)
    return values(found.data), found.aborted


@pytest.mark.parametrize("committed", [True, False])
def test_transaction_ends_in_all_partitions(tmp_path: Path, committed: bool) -> None:
    async def test(broker: TransactionBroker) -> None:
        for version in range(5):
            producer = await broker.producer()
            added = await broker.add(producer, FIRST, SECOND, version=min(version, 3))
            assert added == [NONE, NONE]
            for number in (0, 1):
                assert broker.send(producer, 0, partition=number).error_code == 0
                assert not broker.is_stable(number)
            assert await broker.end(producer, committed, version) is NONE
            assert broker.is_stable(0) and broker.is_stable(1)
        aborted = [] if committed else [(producer[0], offset) for offset in range(0, 10, 2)]
        assert read(broker)[1] == aborted

    run(tmp_path, test)


def test_many_partitions_get_their_markers_in_turns_of_the_loop(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        count = 3
        broker.let_markers_take_turns()
        await broker.create("wide", count)
        producer = await broker.producer()
        tps = [("wide", number) for number in range(count)]
        assert set(await broker.add(producer, *tps)) == {NONE}
        assert await broker.end(producer, True) is NONE
        marked = [broker.partition(number, "wide").log.log_end_offset for number in range(count)]
        assert marked == [1, 0, 0]
        assert await broker.add(producer, FIRST) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        while await broker.add(producer, FIRST) != [NONE]:
            await asyncio.sleep(0)
        marked = [broker.partition(number, "wide").log.log_end_offset for number in range(count)]
        assert marked == [1] * count

    run(tmp_path, test)


def test_deleted_partition_does_not_hold_a_transaction_up(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        await broker.create("gone", 1)
        await broker.add(producer, FIRST, ("gone", 0))
        await broker.ask(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=10_000), 3)
        assert await broker.end(producer, True) is NONE
        assert await broker.add(producer, FIRST) == [NONE]

    run(tmp_path, test)


# Refusals


def test_outdated_producer_is_told_as_its_version_knows_it(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        old = await broker.producer()
        await broker.producer()
        for version in range(4):
            expected = OLD if version < 2 else FENCED
            assert await broker.add(old, FIRST, version=version) == [expected]
        for version in range(5):
            expected = OLD if version < 2 else FENCED
            assert await broker.add_offsets(old, version) is expected
            assert await broker.end(old, True, version) is expected
        for version in (3, 4, 5):
            named = {"producer_id": old[0], "producer_epoch": old[1]}
            answer = await broker.init(version, **named)
            assert answer.error_code == (OLD if version < 4 else FENCED)
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)

    run(tmp_path, test)


def test_init_of_wrong_form_is_refused(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        async def error(name: str | None = ID, **fields: int) -> ErrorCode:
            return ErrorCode((await broker.init(5, name, **fields)).error_code)

        assert await error("") is ErrorCode.INVALID_REQUEST
        assert await error(producer_id=5) is ErrorCode.INVALID_REQUEST
        assert await error(producer_epoch=5) is ErrorCode.INVALID_REQUEST
        assert await error(None, producer_id=5) is ErrorCode.INVALID_REQUEST
        too_long = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert await error(transaction_timeout_ms=900_001) is too_long
        assert await error(transaction_timeout_ms=0) is too_long
        assert await error() is NONE

    run(tmp_path, test)


def test_idempotent_producer_needs_no_coordinator(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        first, second = [await broker.init(name=None) for _ in range(2)]
        assert first.producer_id != second.producer_id
        assert first.producer_epoch == second.producer_epoch == 0

    run(tmp_path, test)


# AddPartitionsToTxn


def test_partition_that_cannot_be_added_keeps_the_others_out(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        for version in versions(add_partitions_to_txn):
            errors = await broker.add(producer, FIRST, (TOPIC, 9), version=version)
            assert errors == [ErrorCode.OPERATION_NOT_ATTEMPTED, UNKNOWN]
        errors = await broker.add(producer, FIRST, ("__consumer_offsets", 0))
        assert errors == [
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ]
        assert await broker.end(producer, True) is ErrorCode.INVALID_TXN_STATE

    run(tmp_path, test)


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_add_or_only_verify(tmp_path: Path, version: int) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()

        async def verify(*tps: tuple[str, int]) -> list[ErrorCode]:
            return await broker.add(producer, *tps, version=version, verify_only=True)

        abortable = ErrorCode.TRANSACTION_ABORTABLE
        assert await verify(FIRST) == [abortable]
        assert await broker.add(producer, FIRST, version=version) == [NONE]
        assert await verify(FIRST, SECOND) == [NONE, abortable]
        assert await broker.add((7, 7), FIRST, version=version) == [NOT_MAPPED]

    run(tmp_path, test)


# Produce


def test_batch_of_a_partition_that_was_not_added_is_refused(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        await broker.add(producer, FIRST)
        for version in (3, 10):
            row = broker.send(producer, 0, partition=1, version=version)
            assert row.error_code == ErrorCode.INVALID_TXN_STATE
            if version > 7:
                assert row.error_message == "Partition was not added to the transaction"
        row = broker.send(producer, 0, partition=1)
        assert row.error_code == ErrorCode.TRANSACTION_ABORTABLE
        assert broker.send((producer[0], 9), 0).error_code == OLD
        assert broker.send((producer[0] + 1, 0), 0).error_code == NOT_MAPPED
        assert broker.send(producer, 0, name="other").error_code == NOT_MAPPED
        wrong = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert broker.send(producer, 0, name=None).error_code == wrong
        assert broker.send(producer, 0).error_code == 0

    run(tmp_path, test)


@pytest.mark.parametrize("in_steps", [False, True])
def test_wrong_acks_are_told_after_the_verification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_steps: bool
) -> None:
    """As in Apache Kafka 3.9.2; in requests of many rows too."""
    if in_steps:
        monkeypatch.setattr(produce, "function", produce.in_steps)

    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        await broker.add(producer, FIRST)
        row = broker.send(producer, 0, partition=1, version=10, acks=-2)
        assert row.error_code == ErrorCode.INVALID_TXN_STATE
        row = broker.send(producer, 0, acks=-2)
        assert row.error_code == ErrorCode.INVALID_REQUIRED_ACKS

    run(tmp_path, test)


def test_epoch_that_the_partition_knows_as_older_is_refused_before_the_coordinator_is_asked(
    tmp_path: Path,
) -> None:
    """As in Apache Kafka 4.3, whether or not a transaction is open there."""

    async def test(broker: TransactionBroker) -> None:
        older = await broker.producer()
        producer = await broker.producer()
        await broker.add(producer, FIRST)
        assert broker.send(producer, 0).error_code == 0
        for _ in ("open", "ended"):
            for more in ({"version": 10}, {}, {"name": "other"}):
                row = broker.send(older, 0, **more)
                assert (row.error_code, row.log_start_offset) == (OLD, -1)
            await broker.end(producer, True)

    run(tmp_path, test)


def test_coordinator_is_asked_about_an_epoch_that_the_partition_knows_as_older(
    tmp_path: Path,
) -> None:
    """As in Apache Kafka 3.9; with an open transaction, the log refuses it."""

    async def test(broker: TransactionBroker) -> None:
        services = replace(broker.broker.rooms.services, ceiling=CEILING_3_9.name)
        broker.broker.rooms = replace(broker.broker.rooms, services=services)
        producer = await broker.producer()
        newer = (producer[0], producer[1] + 1)
        entry = broker.partition().log.producers.entry_for(newer[0])
        entry.producer_epoch = newer[1]
        assert broker.send(producer, 0, version=10).error_code == ErrorCode.INVALID_TXN_STATE
        assert broker.send(producer, 0, name="other").error_code == NOT_MAPPED
        await broker.add(producer, FIRST)
        assert broker.send(producer, 0).error_code == OLD
        entry.current_txn_first_offset = 0
        row = broker.send(producer, 0, name="other")
        assert (row.error_code, row.log_start_offset) == (OLD, 0)

    run(tmp_path, test)


def test_batch_that_comes_after_the_end_opens_nothing(tmp_path: Path) -> None:
    """KIP-890: it would never be closed."""

    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        await broker.add(producer, FIRST)
        assert broker.send(producer, 0).error_code == 0
        await broker.end(producer, True)
        assert broker.send(producer, 1).error_code == ErrorCode.TRANSACTION_ABORTABLE
        assert broker.is_stable()

    run(tmp_path, test)


def test_batch_that_waits_is_verified_again_when_it_is_appended(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        await broker.add(producer, FIRST)
        large = [bytes(1000) for _ in range(200)]
        waiting = broker.send(producer, 0, *large)
        assert isinstance(waiting, asyncio.Future)
        assert await broker.end(producer, False) is NONE
        # The marker does not wait behind the batch.
        assert (await waiting).error_code == ErrorCode.TRANSACTION_ABORTABLE
        await turns(20)
        assert broker.send(producer, 0).error_code == ErrorCode.TRANSACTION_ABORTABLE
        assert broker.is_stable()
        assert broker.partition().append_queues is None

    run(tmp_path, test, compression_type="gzip")


def test_verification_can_be_switched_off(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        assert broker.send(producer, 0).error_code == 0

    run(tmp_path, test, {"transaction.partition.verification.enable": "false"})


def test_producer_tries_again_while_the_coordinator_is_away(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        await broker.add(producer, FIRST)
        coordinator = broker.broker.rooms.transaction_coordinator
        partition = coordinator.partition_for(ID)
        coordinator.resign(partition)
        row = broker.send(producer, 0)
        assert row.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert row.error_message.endswith("Underlying error: NOT_COORDINATOR")
        assert await broker.end(producer, True) is ErrorCode.NOT_COORDINATOR
        coordinator.lead(partition, 1)
        row = broker.send(producer, 0)
        assert row.error_message.endswith("Underlying error: COORDINATOR_LOAD_IN_PROGRESS")
        await broker.loaded()
        assert broker.send(producer, 0).error_code == 0
        assert await broker.end(producer, True) is NONE
        assert read(broker) == ([b"value"], [])

    run(tmp_path, test)


# Offsets


async def fetch(broker: TransactionBroker, stable: bool = False) -> tuple[int, ErrorCode]:
    group = OffsetFetchRequestGroup(
        group_id=GROUP, topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
    )
    answer = await broker.ask(OffsetFetchRequest(groups=[group], require_stable=stable), 8)
    row = answer.groups[0].topics[0].partitions[0]
    return row.committed_offset, ErrorCode(row.error_code)


def test_offsets_count_when_their_transaction_is_committed(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        for version, committed in [(0, True), (1, False), (2, True), (3, False), (4, True)]:
            before, _ = await fetch(broker)
            assert await broker.add_offsets(producer, version) is NONE
            assert await broker.commit_offsets(producer, {FIRST: version}, version) == [NONE]
            assert await fetch(broker) == (before, NONE)
            assert await fetch(broker, True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            assert await broker.end(producer, committed) is NONE
            assert await fetch(broker, True) == (version if committed else before, NONE)

    run(tmp_path, test)


def test_offsets_of_a_group_that_was_not_added_are_refused(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        await broker.add(producer, FIRST)
        for version in range(5):
            expected = ErrorCode.INVALID_TXN_STATE
            if version == 4:
                expected = ErrorCode.TRANSACTION_ABORTABLE
            errors = await broker.commit_offsets(producer, {FIRST: 1, ("none", 0): 1}, version)
            assert errors == [expected, UNKNOWN]
        assert await broker.commit_offsets((producer[0], 9), {FIRST: 1}) == [OLD]
        assert await broker.commit_offsets(producer, {("none", 0): 1}) == [UNKNOWN]
        # Apache Kafka 4 verifies before it creates a group; 3.9 does so afterwards.
        coordinator = broker.broker.rooms.group_coordinator
        assert exhaust(coordinator.list_groups())[1] == []
        coordinator.reconfigure(replace(coordinator.config, verifies_first=False))
        await broker.commit_offsets(producer, {FIRST: 1})
        (row,) = exhaust(coordinator.list_groups())[1]
        assert row.group_state == "Empty"

    run(tmp_path, test)


def test_unknown_partition_does_not_keep_other_offsets_out(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        await broker.add_offsets(producer)
        errors = await broker.commit_offsets(producer, {("none", 0): 1, FIRST: 5, (TOPIC, 9): 1})
        assert errors == [UNKNOWN, NONE, UNKNOWN]
        await broker.end(producer, True)
        assert await fetch(broker) == (5, NONE)

    run(tmp_path, test)


def test_old_producer_is_not_told_that_the_coordinator_loads(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        coordinator = broker.broker.rooms.transaction_coordinator
        coordinator.lead(coordinator.partition_for(ID), 1)
        errors = [(await broker.commit_offsets(producer, {FIRST: 1}, v))[0] for v in (1, 2)]
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert errors == [ErrorCode.COORDINATOR_NOT_AVAILABLE, loading]
        await broker.loaded()

    run(tmp_path, test)


# WriteTxnMarkers


async def mark(
    broker: TransactionBroker, marker: dict[str, int], *tps: tuple[str, int], version: int = 1
) -> list[ErrorCode]:
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                **marker,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=t, partition_indexes=[p]) for t, p in tps],
            )
        ]
    )
    (row,) = (await broker.ask(request, version)).markers
    assert row.producer_id == marker["producer_id"]
    return [ErrorCode(p.error_code) for t in row.topics for p in t.partitions]


def test_markers_are_written_for_another_coordinator(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer_id, epoch = producer = await broker.producer()
        await broker.add(producer, FIRST, SECOND)
        for number in (0, 1):
            broker.send(producer, 0, partition=number)
        marker = {"producer_id": producer_id, "producer_epoch": epoch, "coordinator_epoch": 4}
        assert await mark(broker, marker, FIRST, (TOPIC, 9), version=0) == [NONE, UNKNOWN]
        assert (broker.is_stable(0), broker.is_stable(1)) == (True, False)
        older = marker | {"coordinator_epoch": 3}
        assert await mark(broker, older, FIRST) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
        assert await mark(broker, marker, SECOND) == [NONE]
        assert read(broker, 1)[1] == [(producer_id, 0)]

    run(tmp_path, test)


# Views


def test_transactions_are_described_and_listed(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        await broker.producer("idle")
        await broker.add(producer, SECOND, FIRST)
        broker.send(producer, 0)
        names = [ID, "idle", "none", ""]
        answer = await broker.ask(DescribeTransactionsRequest(transactional_ids=names), 0)
        rows = answer.transaction_states
        assert [row.transactional_id for row in rows] == names
        assert [row.error_code for row in rows] == [
            *(NONE, NONE),
            *(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.INVALID_REQUEST),
        ]
        first = rows[0]
        assert (first.producer_id, first.producer_epoch) == producer
        assert (first.transaction_state, first.transaction_timeout_ms) == ("Ongoing", 60_000)
        assert first.transaction_start_time_ms > 0
        assert [(t.topic, t.partitions) for t in first.topics] == [(TOPIC, [0, 1])]
        assert (rows[1].transaction_state, rows[1].topics) == ("Empty", [])

        async def listed(version: int = 1, **filters: Any) -> set[str]:
            answer = await broker.ask(ListTransactionsRequest(**filters), version)
            assert answer.error_code == 0
            return {row.transactional_id for row in answer.transaction_states}

        assert await listed(0) == {ID, "idle"}
        assert await listed(state_filters=["Empty"]) == {"idle"}
        assert await listed(producer_id_filters=[producer[0]]) == {ID}
        assert await listed(state_filters=["Ongoing"], duration_filter=60_000) == set()
        answer = await broker.ask(ListTransactionsRequest(state_filters=["Nonsense"]), 1)
        assert (answer.unknown_state_filters, answer.transaction_states) == (["Nonsense"], [])
        coordinator = broker.broker.rooms.transaction_coordinator
        coordinator.lead(0, 1)
        answer = await broker.ask(ListTransactionsRequest(), 1)
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await broker.loaded()

    run(tmp_path, test)


def test_producers_of_a_partition_are_described(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        await broker.add(producer, FIRST)
        broker.send(producer, 0, b"1", b"2")
        request = DescribeProducersRequest(
            topics=[TopicRequest(name=TOPIC, partition_indexes=[0, 1, 9, 0])]
        )
        ((open_one, idle, none),) = [
            topic.partitions for topic in (await broker.ask(request, 0)).topics
        ]
        (row,) = open_one.active_producers
        assert (row.producer_id, row.producer_epoch) == producer
        assert (row.last_sequence, row.coordinator_epoch) == (1, -1)
        assert (row.current_txn_start_offset, row.last_timestamp > 0) == (0, True)
        assert (idle.error_code, idle.active_producers) == (0, [])
        assert none.error_code == UNKNOWN
        await broker.end(producer, True)
        (ended,) = (await broker.ask(request, 0)).topics[0].partitions[0].active_producers
        assert (ended.current_txn_start_offset, ended.coordinator_epoch) == (-1, 0)

    run(tmp_path, test)


def test_mistake_of_ours_is_told_in_every_row(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        topics = [AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])]
        request = AddPartitionsToTxnRequest(v3_and_below_topics=topics)
        (row,) = broker.refuse(request, 3, error).results_by_topic_v3_and_below
        assert row.results_by_partition[0].partition_error_code == error
        assert broker.refuse(AddPartitionsToTxnRequest(), 4, error).error_code == error
        rows = [TxnOffsetCommitRequestPartition(partition_index=1, committed_offset=1)]
        offsets = [TxnOffsetCommitRequestTopic(name=TOPIC, partitions=rows)]
        answer = broker.refuse(TxnOffsetCommitRequest(topics=offsets), 4, error)
        assert answer.topics[0].partitions[0].error_code == error
        marked = [WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[1])]
        marker = WritableTxnMarker(topics=marked)
        answer = broker.refuse(WriteTxnMarkersRequest(markers=[marker]), 1, error)
        assert answer.markers[0].topics[0].partitions[0].error_code == error
        answer = broker.refuse(DescribeTransactionsRequest(transactional_ids=[ID]), 0, error)
        assert answer.transaction_states[0].error_code == error
        asked = [TopicRequest(name=TOPIC, partition_indexes=[0])]
        answer = broker.refuse(DescribeProducersRequest(topics=asked), 0, error)
        assert answer.topics[0].partitions[0].error_code == error

    run(tmp_path, test)


# Restarts


@pytest.mark.parametrize("committed", [True, False])
def test_transaction_goes_on_after_a_restart(tmp_path: Path, committed: bool) -> None:
    producers = []

    async def before(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        producers.append(producer)
        await broker.add(producer, FIRST)
        await broker.add_offsets(producer)
        broker.send(producer, 0)
        await broker.commit_offsets(producer, {FIRST: 7})

    async def after(broker: TransactionBroker) -> None:
        (producer,) = producers
        assert not broker.is_stable()
        assert broker.send(producer, 1).error_code == 0
        assert await broker.end(producer, committed) is NONE
        assert read(broker)[0] == [b"value", b"value"]
        assert len(read(broker)[1]) == (0 if committed else 1)
        assert await fetch(broker, True) == (7 if committed else -1, NONE)

    run(tmp_path, before)
    run(tmp_path, after)
