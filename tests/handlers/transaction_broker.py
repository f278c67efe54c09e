"""A whole broker on this event loop, called through its handlers; messages cross the wire format."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kwire.api import request_class, response_class
from kwire.codec import decode, encode
from kwire.errors import ErrorCode
from kwire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kwire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kwire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire.messages.end_txn import EndTxnRequest
from kwire.messages.find_coordinator import FindCoordinatorRequest
from kwire.messages.init_producer_id import InitProducerIdRequest
from server.broker import Broker
from server.config import BrokerConfig
from server.coordinator.transaction.ends import STEPS_IN_TURN
from server.coordinator.transaction.markers import Markers, Outcomes
from server.handlers.context import Later, RequestContext
from server.handlers.table import HANDLERS
from server.net.connection_info import ConnectionInfo
from server.replication.partition import Partition
from server.turns import SLICE_STEPS, SLICE_US, Steps, Turns
from tests.support.replicas import batch
from tests.support.requests import produce_request, txn_commit_request
from tests.support.steps import finished

ID = "id"
GROUP = "group"
TOPIC = "topic"
Producer = tuple[int, int]
BY_KEY = {handler.api_key: handler for handler in HANDLERS}


class TransactionBroker:
    """Broker 1 with `topic` of two partitions and coordinators for both kinds of keys."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    async def start(self, **configs: str) -> None:
        await self.broker.start()
        # Markers are long work. In a slice that does not end, they are written before the request is answered, however busy
        # the machine is.
        self.turns._slice_us = 60_000_000
        if self.broker.rooms.replica_manager.get(TOPIC, 0) is None:
            await self.create(TOPIC, 2, **configs)
        for key_type in (0, 1):
            await self.ask(FindCoordinatorRequest(key="any", key_type=key_type), 3)
        await self.loaded()

    @property
    def turns(self) -> Turns:
        return self.broker.rooms.services.turns

    async def create(self, topic: str, partitions: int, **configs: str) -> None:
        rows = [CreatableTopicConfig(name=n.replace("_", "."), value=v) for n, v in configs.items()]
        asked = CreatableTopic(
            name=topic, num_partitions=partitions, replication_factor=1, configs=rows
        )
        answer = await self.ask(CreateTopicsRequest(topics=[asked], timeout_ms=10_000), 5)
        assert [row.error_code for row in answer.topics] == [0]

    async def loaded(self) -> None:
        await self.broker.rooms.group_coordinator.runtime.wait_until_loaded()
        await self.broker.rooms.transaction_coordinator.runtime.wait_until_loaded()

    def call(self, request: Any, version: int) -> Any:
        """Call a handler; return the response as a client reads it, or a future of it."""
        handler = next(h for h in HANDLERS if h.request_class is type(request))
        stored = decode(type(request), encode(request, version), version)
        services = self.broker.rooms.services
        ctx = RequestContext(
            handler,
            version,
            1,
            "client",
            services.clock.now_ms(),
            ConnectionInfo("1", client_host="10.0.0.7", local_host="10.0.0.1"),
            services,
        )
        response = response_class(handler.api_key)

        def read(answer: Any) -> Any:
            return decode(response, encode(answer, version), version)

        answer = finished(handler(ctx, stored))
        if not isinstance(answer, Later):
            return read(answer)

        async def later() -> Any:
            found = await answer.awaitable
            return read(found if answer.finish is None else finished(answer.finish(found)))

        return asyncio.ensure_future(later())

    async def ask(self, request: Any, version: int) -> Any:
        """Like `call`, and wait for the response."""
        answer = self.call(request, version)
        return await answer if isinstance(answer, asyncio.Future) else answer

    def refuse(self, request: Any, version: int, error: ErrorCode) -> Any:
        """The response to a request that failed because of a bug in its handler."""
        key = next(k for k in BY_KEY if request_class(k) is type(request))
        handler = BY_KEY[key]
        ctx = RequestContext(
            handler, version, 1, "", 0, ConnectionInfo("1"), self.broker.rooms.services
        )
        answer = handler.refuse(ctx, request, error)
        return decode(response_class(key), encode(answer, version), version)

    def let_markers_take_turns(self) -> None:
        """Let each marker of a transaction, except the first, be written in a later turn of the loop."""
        self.turns._slice_us = SLICE_US
        sender = self.broker.rooms.transaction_coordinator.marker_sender
        send = sender.send

        def slowly(markers: Markers, written: Callable[[Outcomes], None]) -> Steps[None]:
            for _ in send(markers, written):
                for _ in range(STEPS_IN_TURN * SLICE_STEPS):
                    yield

        sender.send = slowly  # type: ignore[method-assign]

    # Requests of a producer

    async def init(self, version: int = 5, name: str | None = ID, **fields: Any) -> Any:
        request = InitProducerIdRequest(
            transactional_id=name, **{"transaction_timeout_ms": 60_000, **fields}
        )
        return await self.ask(request, version)

    async def producer(self, name: str = ID) -> Producer:
        answer = await self.init(name=name)
        assert answer.error_code == 0
        return answer.producer_id, answer.producer_epoch

    async def add(
        self,
        producer: Producer,
        *tps: tuple[str, int],
        version: int = 3,
        name: str = ID,
        verify_only: bool = False,
    ) -> list[ErrorCode]:
        """Add partitions, one topic row each; return their errors."""
        topics = [AddPartitionsToTxnTopic(name=t, partitions=[p]) for t, p in tps]
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=topics,
            )
            rows = (await self.ask(request, version)).results_by_topic_v3_and_below
        else:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=producer[0],
                producer_epoch=producer[1],
                verify_only=verify_only,
                topics=topics,
            )
            answer = await self.ask(AddPartitionsToTxnRequest(transactions=[transaction]), version)
            (result,) = answer.results_by_transaction
            assert result.transactional_id == name
            rows = result.topic_results
        return [ErrorCode(p.partition_error_code) for row in rows for p in row.results_by_partition]

    def send(
        self,
        producer: Producer,
        sequence: int,
        *values: bytes,
        partition: int = 0,
        topic: str = TOPIC,
        version: int = 11,
        name: str | None = ID,
        acks: int = -1,
    ) -> Any:
        """Produce a transactional batch; return its row, or a future of it."""
        records = batch(
            *(values or (b"value",)),
            timestamp=self.broker.seams.clock.now_ms(),  # an older one would have the segment rolled
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            is_transactional=True,
        )
        request = produce_request(
            (topic, partition, records), transactional_id=name, acks=acks, timeout_ms=10_000
        )
        answer = self.call(request, version)
        if not isinstance(answer, asyncio.Future):
            return answer.responses[0].partition_responses[0]

        async def row() -> Any:
            return (await answer).responses[0].partition_responses[0]

        return asyncio.ensure_future(row())

    async def end(
        self, producer: Producer, committed: bool, version: int = 4, name: str = ID
    ) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=committed,
        )
        return ErrorCode((await self.ask(request, version)).error_code)

    async def finish(self, producer: Producer, committed: bool, name: str = ID) -> Any:
        """EndTxn in version 5: its answer."""
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=committed,
        )
        return await self.ask(request, 5)

    async def add_offsets(self, producer: Producer, version: int = 4) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=ID,
            producer_id=producer[0],
            producer_epoch=producer[1],
            group_id=GROUP,
        )
        return ErrorCode((await self.ask(request, version)).error_code)

    async def commit_offsets(
        self, producer: Producer, offsets: dict[tuple[str, int], int], version: int = 4
    ) -> list[ErrorCode]:
        request = txn_commit_request(
            *((topic, number, offset) for (topic, number), offset in offsets.items()),
            transactional_id=ID,
            group_id=GROUP,
            producer_id=producer[0],
            producer_epoch=producer[1],
        )
        answer = await self.ask(request, version)
        return [ErrorCode(row.error_code) for t in answer.topics for row in t.partitions]

    # Results

    def partition(self, number: int = 0, topic: str = TOPIC) -> Partition:
        found = self.broker.rooms.replica_manager.get(topic, number)
        assert found is not None
        return found

    def is_stable(self, number: int = 0) -> bool:
        """Whether no transaction is open in a partition."""
        log = self.partition(number).log
        return log.last_stable_offset == log.log_end_offset


def run(
    tmp_path: Path,
    test: Callable[[TransactionBroker], Awaitable[None]],
    settings: dict[str, str] | None = None,
    **configs: str,
) -> None:
    """Run a test with its own broker; `configs` are the topic's."""

    async def main() -> None:
        config = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(tmp_path),
            "broker.id": "1",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.num.partitions": "2",
            **(settings or {}),
        }
        broker = TransactionBroker(Broker(BrokerConfig(config)))
        await broker.start(**configs)
        try:
            await test(broker)
        finally:
            await broker.broker.stop()

    asyncio.run(main())
