"""Clients of the simulated cluster: they produce, commit offsets and consume over the protocol."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from kwire.errors import ErrorCode
from kwire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.messages.find_coordinator import FindCoordinatorRequest
from kwire.messages.init_producer_id import InitProducerIdRequest
from kwire.messages.metadata import MetadataRequest
from kwire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kwire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.records.batch import iter_batches
from kwire.records.builder import BatchBuilder
from server.metadata.endpoint import Endpoint
from server.metadata.topic_partition import TopicPartition
from server.net.broker_channel import BrokerChannel, ChannelError

from .history import History, Violation
from .network import Network

CLIENT = 1000  # ids of clients on the network begin here
TIMEOUT_MS = 5000


class Client:
    """One client: finds leaders and coordinators, and repeats requests that were not answered."""

    def __init__(
        self, number: int, network: Network, brokers: list[int], rng: Random, history: History
    ) -> None:
        self.id = CLIENT + number
        self.network = network
        self.brokers = brokers
        self.rng = rng
        self.history = history
        self.leaders: dict[TopicPartition, int] = {}
        self.epochs: dict[TopicPartition, int] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.channels: dict[int, BrokerChannel] = {}
        self.stopping = False

    async def ask(self, broker_id: int, request: object, version: int) -> Any:
        """Send one request. Errors: ChannelError; Violation for a response that breaks the protocol."""
        channel = self.channels.get(broker_id)
        if channel is None:
            channel = self.channels[broker_id] = BrokerChannel(
                self.network.host(self.id),
                Endpoint("PLAINTEXT", f"broker{broker_id}", 9092),
                client_id=f"client {self.id}",
                request_timeout_ms=TIMEOUT_MS,
            )
        try:
            return await channel.send(request, version)
        except ChannelError as error:
            if "malformed" in str(error):
                raise Violation(f"client {self.id}: {error}") from error
            raise

    async def pause(self) -> None:
        await asyncio.sleep(0.02 + self.rng.random() * 0.1)

    async def refresh(self) -> None:
        """Ask any broker who leads the partitions."""
        try:
            answer = await self.ask(self.rng.choice(self.brokers), MetadataRequest(topics=None), 12)
        except ChannelError:
            await self.pause()
            return
        for topic in answer.topics:
            self.topic_ids[topic.name] = topic.topic_id
            for row in topic.partitions:
                tp = TopicPartition(topic.name, row.partition_index)
                # As in all clients since KIP-320: never return to a leader that was replaced, regardless of its own
                # view.
                if row.leader_epoch >= self.epochs.get(tp, -1):
                    self.epochs[tp] = row.leader_epoch
                    self.leaders[tp] = row.leader_id

    async def leader(self, tp: TopicPartition) -> int:
        """The known leader; waits until there is one."""
        while self.leaders.get(tp, -1) < 0:
            await self.refresh()
            if self.leaders.get(tp, -1) < 0:
                await self.pause()
        return self.leaders[tp]

    async def verify(self) -> None:
        """Run the checks that are possible after all faults are over."""

    def judge(self) -> None:
        """Compare the committed records at the end with the answers that this client got."""

    async def coordinator(self, key: str) -> int:
        """The coordinator of a group; waits until there is one."""
        while True:
            try:
                request = FindCoordinatorRequest(coordinator_keys=[key], key_type=0)
                answer = await self.ask(self.rng.choice(self.brokers), request, 4)
                row = answer.coordinators[0]
                if not row.error_code:
                    return int(row.node_id)
            except ChannelError:
                pass
            await self.pause()


class Producer(Client):
    """An idempotent producer with acks=all, one batch at a time for each partition."""

    def __init__(self, *args: Any, tps: list[TopicPartition]) -> None:
        super().__init__(*args)
        self.tps = tps
        self.sent = 0
        self.acknowledged = 0

    async def run(self) -> None:
        """Produce until told to stop; requests in flight are still completed."""
        producer_id = await self._producer_id()
        await asyncio.gather(*(self._produce(tp, producer_id) for tp in self.tps))

    async def _producer_id(self) -> int:
        while True:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            try:
                answer = await self.ask(self.rng.choice(self.brokers), request, 4)
                if not answer.error_code:
                    return int(answer.producer_id)
            except ChannelError:
                pass
            await self.pause()

    async def _produce(self, tp: TopicPartition, producer_id: int) -> None:
        sequence = 0
        while not self.stopping:
            count = self.rng.randint(1, 4)
            values = [b"p%d-%d-%d" % (self.id, tp.partition, sequence + n) for n in range(count)]
            builder = BatchBuilder(
                producer_id=producer_id, producer_epoch=0, base_sequence=sequence
            )
            for value in values:
                builder.append(1_700_000_000_000, None, value)
            base_offset = await self._send(tp, builder.build())
            self.sent += count
            if base_offset is None:
                return
            self.acknowledged += count
            for n, value in enumerate(values):
                self.history.acknowledge(tp, value, base_offset + n)
            sequence += count
            await asyncio.sleep(self.rng.random() * 0.7)

    async def _send(self, tp: TopicPartition, records: bytes) -> int | None:
        while True:
            leader = await self.leader(tp)
            row = PartitionProduceData(index=tp.partition, records=records)
            topic = TopicProduceData(name=tp.topic, partition_data=[row])
            request = ProduceRequest(acks=-1, timeout_ms=3000, topic_data=[topic])
            try:
                answer = await self.ask(leader, request, 9)
                found = answer.responses[0].partition_responses[0]
                error = ErrorCode(found.error_code)
                if not error:
                    return int(found.base_offset)
                if error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    return None  # too old for the broker to know the offset
                if not error.retriable and error is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    raise Violation(f"{tp}: producing failed with {error.name}")
                if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    raise Violation(f"{tp}: the broker lost a batch before {records[:80]!r}")
            except ChannelError:
                pass
            await self.pause()
            self.leaders.pop(tp, None)


class Consumer(Client):
    """Reads a partition from the beginning, repeatedly, and commits its position."""

    def __init__(self, *args: Any, tp: TopicPartition, group: str) -> None:
        super().__init__(*args)
        self.tp = tp
        self.group = group
        self.position = 0
        self.committed = -1
        self.seen: dict[int, bytes] = {}

    async def run(self) -> None:
        """Consume until told to stop."""
        while not self.stopping:
            await self._fetch()
            if self.rng.random() < 0.3:
                await self._commit()
            if self.rng.random() < 0.05:
                await self._resume()
            await asyncio.sleep(self.rng.random() * 0.8)

    async def _fetch(self) -> None:
        leader = await self.leader(self.tp)
        row = FetchPartition(
            partition=self.tp.partition, fetch_offset=self.position, partition_max_bytes=2000
        )
        topic = FetchTopic(topic_id=self.topic_ids[self.tp.topic], partitions=[row])
        request = FetchRequest(max_wait_ms=100, min_bytes=1, topics=[topic])
        try:
            answer = await self.ask(leader, request, 13)
        except ChannelError:
            self.leaders.pop(self.tp, None)
            await self.pause()
            return
        found = answer.responses[0].partitions[0] if answer.responses else None
        if found is None or found.error_code:
            self.leaders.pop(self.tp, None)
            await self.pause()
            return
        for batch in iter_batches(bytes(found.records or b"")):
            for record in batch.records():
                if record.offset < self.position:
                    continue
                value = bytes(record.value or b"")
                before = self.seen.setdefault(record.offset, value)
                if before != value:
                    raise Violation(
                        f"{self.tp}: offset {record.offset} was read as {before!r} and {value!r}"
                    )
                self.position = record.offset + 1

    async def _commit(self) -> None:
        offset = self.position
        row = OffsetCommitRequestPartition(
            partition_index=self.tp.partition, committed_offset=offset
        )
        topic = OffsetCommitRequestTopic(name=self.tp.topic, partitions=[row])
        request = OffsetCommitRequest(group_id=self.group, topics=[topic])
        try:
            answer = await self.ask(await self.coordinator(self.group), request, 8)
        except ChannelError:
            self.committed = -1  # from now on it may be the old offset or the new one
            return
        if not answer.topics[0].partitions[0].error_code:
            self.committed = offset
        else:
            self.committed = -1

    async def _resume(self, *, strict: bool = False) -> None:
        """Return to the committed offset, as after a restart."""
        partitions = OffsetFetchRequestTopics(
            name=self.tp.topic, partition_indexes=[self.tp.partition]
        )
        group = OffsetFetchRequestGroup(group_id=self.group, topics=[partitions])
        try:
            answer = await self.ask(
                await self.coordinator(self.group), OffsetFetchRequest(groups=[group]), 8
            )
        except ChannelError:
            return
        found = answer.groups[0]
        if found.error_code or found.topics[0].partitions[0].error_code:
            return
        offset = found.topics[0].partitions[0].committed_offset
        # A coordinator that does not know yet that it was replaced may give an old answer; but an
        # acknowledged offset must never be lost permanently.
        if strict and self.committed >= 0 and offset != self.committed:
            raise Violation(
                f"group {self.group} committed {self.committed} of {self.tp} and is told {offset}"
            )
        self.position = max(offset, 0)

    async def verify(self) -> None:
        """After all faults: the group's offset is the last commit that was acknowledged."""
        self.position = max(self.position, 1)
        await self._resume(strict=self.committed >= 0)
        await self._commit()
        await self._resume(strict=True)
