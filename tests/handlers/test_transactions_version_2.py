"""Version 2 of the transaction protocol, through the handlers of a whole broker."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.messages.api_versions import ApiVersionsRequest
from kwire.messages.list_transactions import ListTransactionsRequest
from kwire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from server.handlers import list_transactions
from server.handlers.ceilings import CEILING_3_9, CEILING_4_3
from server.workers import TookTooLong
from tests.handlers.test_transactions import fetch
from tests.handlers.transaction_broker import ID, TOPIC, Producer, TransactionBroker, run
from tests.support.replicas import batch
from tests.support.requests import produce_request
from tests.support.waiting import InThisProcess

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
OLD = ErrorCode.INVALID_PRODUCER_EPOCH
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
FIRST, SECOND = (TOPIC, 0), (TOPIC, 1)


async def next_producer(broker: TransactionBroker, producer: Producer, committed: bool) -> Producer:
    answer = await broker.finish(producer, committed)
    assert answer.error_code == NONE
    return answer.producer_id, answer.producer_epoch


def test_version_of_the_protocol_is_advertised_with_the_versions_it_needs(tmp_path: Path) -> None:
    """A client uses the second protocol if transaction.version is finalized at 2."""

    async def test(broker: TransactionBroker) -> None:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        answer = await broker.ask(request, 3)
        finalized = {row.name: row.max_version_level for row in answer.finalized_features}
        assert finalized["transaction.version"] == 2
        assert answer.finalized_features_epoch >= 0
        assert answer.supported_features == []  # up to version 3 no level may begin at 0
        rows = (await broker.ask(request, 4)).supported_features
        supported = {row.name: (row.min_version, row.max_version) for row in rows}
        assert supported["transaction.version"] == (0, 2)
        ranges = {row.api_key: row.max_version for row in answer.api_keys}
        assert [ranges[key] for key in (0, 22, 24, 26, 27, 28, 66)] == [13, 5, 5, 5, 2, 5, 2]

    run(tmp_path, test)


def test_version_of_the_protocol_is_no_feature_of_3_9() -> None:
    assert CEILING_3_9.features == {}
    assert CEILING_4_3.features["transaction.version"] == (0, 2)


def test_batches_and_offsets_are_all_a_transaction_needs(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        for turn, committed in enumerate([True, False, True]):
            before, _ = await fetch(broker)
            for number in (0, 1):
                row = broker.send(producer, 0, partition=number, version=12)
                assert row.error_code == 0
                assert broker.send(producer, 1, partition=number, version=12).error_code == 0
                assert not broker.is_stable(number)
            assert await broker.commit_offsets(producer, {FIRST: turn}, 5) == [NONE]
            assert await fetch(broker, True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            old, producer = producer, await next_producer(broker, producer, committed)
            assert producer == (old[0], old[1] + 1)
            assert broker.is_stable(0) and broker.is_stable(1)
            assert await fetch(broker, True) == (turn if committed else before, NONE)
            assert broker.send(old, 2, version=12).error_code == OLD
            assert await broker.commit_offsets(old, {FIRST: 9}, 5) == [OLD]
        aborted = broker.partition().read(0, 100_000, read_committed=True).aborted
        assert aborted == [(producer[0], 3)]

    run(tmp_path, test)


def test_all_partitions_of_a_request_are_added_with_one_write(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        records = batch(
            b"1",
            timestamp=broker.broker.seams.clock.now_ms(),
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=0,
            is_transactional=True,
        )
        rows = [(TOPIC, number, records) for number in (0, 1, 9)]
        request = produce_request(*rows, transactional_id=ID, timeout_ms=9)
        coordinator = broker.broker.rooms.transaction_coordinator
        name = ("__transaction_state", coordinator.partition_for(ID))
        state = broker.broker.rooms.replica_manager.partitions[name]
        before = state.log.log_end_offset
        (topic,) = (await broker.ask(request, 12)).responses
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [row.error_code for row in topic.partition_responses] == [0, 0, unknown]
        assert state.log.log_end_offset == before + 1
        partitions = coordinator.describe(ID).partitions
        assert partitions == {FIRST, SECOND}

    run(tmp_path, test)


def test_batch_that_cannot_be_added_is_told_why(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        assert broker.send((producer[0], 9), 0, version=12).error_code == OLD
        mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert broker.send((7, 0), 0, version=12).error_code == mapping
        assert broker.send(producer, 0, version=12, name="other").error_code == mapping
        wrong = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert broker.send(producer, 0, version=12, name=None).error_code == wrong
        coordinator = broker.broker.rooms.transaction_coordinator
        partition = coordinator.partition_for(ID)
        coordinator.resign(partition)
        row = broker.send(producer, 0, version=12)
        assert row.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert row.error_message.endswith("Underlying error: NOT_COORDINATOR")
        coordinator.lead(partition, 1)
        await broker.loaded()
        assert broker.send(producer, 0, version=12).error_code == 0

    run(tmp_path, test)


def test_batch_that_overtook_the_first_is_refused(tmp_path: Path) -> None:
    """A log without the producer's state would accept any sequence."""

    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        assert broker.send(producer, 1, version=12).error_code == OUT_OF_ORDER
        assert broker.send(producer, 0, version=12).error_code == 0
        assert broker.send(producer, 1, version=12).error_code == 0
        producer = await next_producer(broker, producer, True)
        assert broker.send(producer, 2, version=12).error_code == OUT_OF_ORDER
        assert broker.send(producer, 0, version=12).error_code == 0

    run(tmp_path, test)


def test_older_batch_that_overtook_one_that_could_not_be_verified_is_refused(
    tmp_path: Path,
) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        assert broker.send(producer, 0).error_code == ErrorCode.TRANSACTION_ABORTABLE
        await broker.add(producer, FIRST)
        assert broker.send(producer, 1).error_code == OUT_OF_ORDER
        assert broker.send(producer, 0).error_code == 0
        assert broker.partition().log.producers.verifying == {}

    run(tmp_path, test)


def test_batch_that_overtook_one_that_could_not_be_added_is_refused(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        newer = producer[0], producer[1] + 1
        assert broker.send(newer, 0, version=12).error_code == OLD
        await broker.add(producer, FIRST)
        assert broker.send(producer, 1).error_code == OUT_OF_ORDER
        assert broker.send(producer, 0).error_code == 0

    run(tmp_path, test)


async def wide(broker: TransactionBroker) -> Producer:
    """A producer whose last transaction has several partitions, so that its end takes a while."""
    count = 3
    coordinator = broker.broker.rooms.transaction_coordinator
    # A batch waits 100 ms for that, which is little on a busy machine.
    coordinator.config = replace(coordinator.config, add_retry_max_ms=600_000)
    broker.let_markers_take_turns()
    await broker.create("wide", count)
    producer = await broker.producer()
    await broker.add(producer, *[("wide", number) for number in range(count)])
    return await next_producer(broker, producer, True)


def test_batch_waits_while_the_transaction_before_is_ending(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer = await wide(broker)
        waiting = broker.send(producer, 0, version=12)
        offsets = broker.commit_offsets(producer, {FIRST: 3}, 5)
        assert isinstance(waiting, asyncio.Future)
        assert broker.partition().append_queues is None  # others are not held up
        assert (await waiting).error_code == 0
        assert await offsets == [NONE]
        producer = await next_producer(broker, producer, True)
        while not broker.is_stable():
            await asyncio.sleep(0)
        while (found := await fetch(broker, True)) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT):
            await asyncio.sleep(0)
        assert found == (3, NONE)

    run(tmp_path, test)


def test_batch_that_waited_too_long_is_told_so(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        coordinator = broker.broker.rooms.transaction_coordinator
        sent: list[Any] = []
        coordinator.marker_sender.send = lambda markers, written: iter(sent.append(markers) or ())
        assert broker.send(producer, 0, version=12).error_code == 0
        producer = await next_producer(broker, producer, True)
        assert len(sent) == 1
        row = await broker.send(producer, 0, version=12)
        assert row.error_code == CONCURRENT
        assert await broker.commit_offsets(producer, {FIRST: 3}, 5) == [CONCURRENT]
        old = broker.send(producer, 0, version=11)  # whose clients do not expect that error
        assert old.error_code == ErrorCode.NOT_ENOUGH_REPLICAS

    run(tmp_path, test)


def test_topics_are_named_by_id_from_version_13_on(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        topic = broker.broker.rooms.publisher.current().topic(TOPIC)
        assert topic is not None
        records = batch(b"1", timestamp=broker.broker.seams.clock.now_ms())

        def topics(*ids: bytes) -> list[TopicProduceData]:
            return [
                TopicProduceData(
                    name="",
                    topic_id=one,
                    partition_data=[PartitionProduceData(index=0, records=memoryview(records))],
                )
                for one in ids
            ]

        asked = topics(bytes(15) + b"7", topic.topic_id, bytes(16))
        request = ProduceRequest(acks=-1, timeout_ms=9, topic_data=asked)
        answer = await broker.ask(request, 13)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
        assert [
            (row.topic_id, row.partition_responses[0].error_code) for row in answer.responses
        ] == [(asked[0].topic_id, unknown), (topic.topic_id, NONE), (bytes(16), unknown)]

    run(tmp_path, test)


# Markers


def test_marker_that_comes_late_does_not_end_the_next_transaction(tmp_path: Path) -> None:
    """KIP-1228: its epoch is that of batches appended after it."""

    async def mark(broker: TransactionBroker, producer: Producer, version: int) -> ErrorCode:
        marker = WritableTxnMarker(
            producer_id=producer[0],
            producer_epoch=producer[1],
            transaction_result=False,
            coordinator_epoch=0,
            transaction_version=2,
            topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])],
        )
        answer = await broker.ask(WriteTxnMarkersRequest(markers=[marker]), version)
        return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)

    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        broker.send(producer, 0, version=12)
        producer = await next_producer(broker, producer, True)
        assert await mark(broker, producer, 2) is NONE  # once more, with nothing to end
        broker.send(producer, 0, version=12)
        assert await mark(broker, producer, 2) is OLD
        assert not broker.is_stable()
        assert await mark(broker, (producer[0], producer[1] - 1), 2) is OLD
        assert await mark(broker, producer, 1) is NONE  # in an older version this cannot be known
        assert broker.is_stable()

    run(tmp_path, test)


# After a restart, and at the last epoch


@pytest.mark.parametrize("committed", [True, False])
def test_end_is_told_again_after_a_restart(tmp_path: Path, committed: bool) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        broker.send(producer, 0, version=12)
        after = await next_producer(broker, producer, committed)
        coordinator = broker.broker.rooms.transaction_coordinator
        coordinator.lead(coordinator.partition_for(ID), 1)
        await broker.loaded()
        assert await next_producer(broker, producer, committed) == after
        refused = await broker.finish(producer, not committed)
        assert refused.error_code == ErrorCode.INVALID_TXN_STATE
        assert (refused.producer_id, refused.producer_epoch) == (-1, -1)

    run(tmp_path, test)


def test_last_epoch_gives_a_new_producer_id(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        producer = await broker.producer()
        coordinator = broker.broker.rooms.transaction_coordinator
        transaction = coordinator.find(ID)[1].transactions[ID]
        transaction.stored = transaction.stored._replace(producer_epoch=32766)
        last = (producer[0], 32766)
        assert broker.send(last, 0, version=12).error_code == 0
        after = await next_producer(broker, last, True)
        assert after[0] != last[0] and after[1] == 0
        assert broker.send(last, 1, version=12).error_code == OLD  # though the id has no producer
        assert broker.is_stable()
        assert broker.send(after, 0, version=12).error_code == 0
        await next_producer(broker, after, True)

    run(tmp_path, test)


def test_timeout_at_the_last_epoch_gives_a_new_producer_id(tmp_path: Path) -> None:
    async def test(broker: TransactionBroker) -> None:
        answer = await broker.init(transaction_timeout_ms=1)
        coordinator = broker.broker.rooms.transaction_coordinator
        transaction = coordinator.find(ID)[1].transactions[ID]
        transaction.stored = transaction.stored._replace(producer_epoch=32766)
        assert broker.send((answer.producer_id, 32766), 0, version=12).error_code == 0
        async with asyncio.timeout(5):
            while not broker.is_stable():
                await asyncio.sleep(0.01)
        assert transaction.stored.producer_id != answer.producer_id
        assert transaction.stored.producer_epoch == 0

    interval = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    run(tmp_path, test, {interval: "20"})


# Views


def test_transactions_are_listed_by_pattern(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(broker: TransactionBroker) -> None:
        for name in ("app-1", "app-2", "other"):
            await broker.producer(name)

        async def listed(pattern: str | None) -> Any:
            answer = await broker.ask(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
            return sorted(row.transactional_id for row in answer.transaction_states) or (
                answer.error_code
            )

        assert await listed("app-[0-9]+") == ["app-1", "app-2"]
        assert await listed("app") == 0
        assert await listed(None) == await listed("") == ["app-1", "app-2", "other"]
        assert await listed("app-(") == ErrorCode.INVALID_REGULAR_EXPRESSION
        executor = InThisProcess()
        monkeypatch.setattr(broker.broker.seams.executor, "in_worker", executor.in_worker)
        assert await listed("(?i)APP-.*") == ["app-1", "app-2"]
        assert executor.calls == 0
        monkeypatch.setattr(list_transactions, "INLINE_MATCHING", 10)
        assert await listed("(?i)APP-.*") == ["app-1", "app-2"]
        assert executor.calls == 1

        async def too_long(*_: object) -> None:
            raise TookTooLong("after 1 s")

        monkeypatch.setattr(broker.broker.seams.executor, "in_worker", too_long)
        assert await listed("(?i)APP-.*") == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert "matching 3 transactional ids costs too much: after 1 s" in caplog.text

    run(tmp_path, test)
