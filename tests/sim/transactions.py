"""A client with transactions on partitions and a group's offsets, and the check of their outcome.

Each transaction writes to several partitions and commits its number as the group's offset. The
group's offset therefore shows how the last one ended, even if its EndTxn was not answered.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kwire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kwire.messages.end_txn import EndTxnRequest
from kwire.messages.find_coordinator import FindCoordinatorRequest
from kwire.messages.init_producer_id import InitProducerIdRequest
from kwire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kwire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kwire.records.batch import RecordBatch
from kwire.records.builder import BatchBuilder
from kwire.records.control import ControlType, control_type
from server.metadata.topic_partition import TopicPartition
from server.net.broker_channel import ChannelError

from .clients import Client
from .history import Committed, History, Violation

GROUP, TRANSACTION = 0, 1
STATE_TOPICS = ("__consumer_offsets", "__transaction_state")
TIMEOUT_MS = 15_000

#: Errors that end a transaction and the producer's epoch: it took too long, or another one began.
LOST = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)


class Lost(Exception):
    """The transaction cannot continue."""


class Written(NamedTuple):
    """The values that one transaction wrote, by partition, in order."""

    number: int
    values: dict[TopicPartition, list[bytes]]


class Transactor(Client):
    """Runs one transaction after another; most of them end with a commit."""

    def __init__(self, *args: Any, tps: list[TopicPartition], name: str, group: str) -> None:
        super().__init__(*args)
        self.tps = tps
        self.name = name
        self.group = group
        self.producer = (-1, -1)
        self.sequences: dict[TopicPartition, int] = {}
        self.committed: list[Written] = []
        self.aborted: list[Written] = []
        #: The last one, if it is not known whether it was committed.
        self.open: Written | None = None
        self.count = 0

    async def run(self) -> None:
        """Run transactions until told to stop, and leave none open."""
        await self._begin()
        while not self.stopping:
            try:
                await self._transaction()
            except Lost:
                await self._begin()
            await self.pause()
        await self._begin()

    def judge(self) -> None:
        """Check that each transaction is visible entirely and once, or not at all."""
        check_transactions(self.history, self.tps, self.committed, self.aborted)

    # Asking

    async def _coordinator(self, key: str, key_type: int) -> int:
        """The coordinator of a key, but never one that was replaced.

        FindCoordinator does not give the leader epoch. A coordinator that is cut off does not know
        what its successor has done, and could report an old transaction's outcome as that of the
        last one (in Apache Kafka too, with version 0 of the transaction protocol).
        """
        tp = TopicPartition(STATE_TOPICS[key_type], 0)  # there is one partition of each
        while tp not in self.epochs:
            try:
                request = FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
                await self.ask(self.rng.choice(self.brokers), request, 4)
            except ChannelError:
                pass
            await self.pause()
            await self.refresh()
        return await self.leader(tp)

    async def _insist(
        self, key: str, key_type: int, request: Any, version: int, error_of: Any
    ) -> Any:
        """Ask a coordinator until it has an answer. Errors: Lost."""
        while True:
            coordinator = await self._coordinator(key, key_type)
            try:
                answer = await self.ask(coordinator, request, version)
            except ChannelError:
                self.leaders.clear()
                await self.pause()
                continue
            error = ErrorCode(error_of(answer))
            if not error:
                return answer
            if error in LOST:
                raise Lost(error.name)
            if not error.retriable and error is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise Violation(f"{self.name}: {type(request).__name__} failed: {error.name}")
            self.leaders.clear()
            await self.pause()

    # A producer's life

    async def _begin(self) -> None:
        """Fence earlier producers, including this one, and find out how the last transaction ended."""
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=TIMEOUT_MS
        )
        answer = await self._insist(
            self.name, TRANSACTION, request, 4, lambda answer: answer.error_code
        )
        self.producer = answer.producer_id, answer.producer_epoch
        self.sequences.clear()
        last = max((each.number for each in self.committed), default=-1)
        found = await self._committed_offset()
        if self.open is not None and found == self.open.number:
            self.committed.append(self.open)
        elif found != last:
            raise Violation(f"{self.name}: the group is at {found}, and {last} was committed")
        elif self.open is not None:
            self.aborted.append(self.open)
        self.open = None

    async def _committed_offset(self) -> int:
        topics = [OffsetFetchRequestTopics(name=self.tps[0].topic, partition_indexes=[0])]
        asked = OffsetFetchRequestGroup(group_id=self.group, topics=topics)

        def error_of(answer: Any) -> int:
            group = answer.groups[0]
            return int(group.error_code or group.topics[0].partitions[0].error_code)

        answer = await self._insist(
            self.group, GROUP, OffsetFetchRequest(groups=[asked], require_stable=True), 8, error_of
        )
        return int(answer.groups[0].topics[0].partitions[0].committed_offset)

    async def _transaction(self) -> None:
        self.count += 1
        number = self.count
        chosen = self.rng.sample(self.tps, self.rng.randint(1, len(self.tps)))
        values = {
            tp: [b"x%d-%d-%d-%d" % (self.id, number, tp.partition, n) for n in range(count)]
            for tp in sorted(chosen)
            for count in [self.rng.randint(1, 3)]
        }
        commits = self.rng.random() < 0.75
        written = Written(number, values)
        self.aborted.append(written)  # until a commit was requested
        await self._add_partitions(values)
        for tp, contents in values.items():
            await self._produce(tp, contents)
        await self._send_offset(number)
        if commits:
            self.aborted.pop()
            self.open = written
        await self._end(commits)
        if commits:
            self.committed.append(written)
            self.open = None

    async def _add_partitions(self, values: dict[TopicPartition, list[bytes]]) -> None:
        topic = AddPartitionsToTxnTopic(
            name=self.tps[0].topic, partitions=[tp.partition for tp in values]
        )
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer[0],
            v3_and_below_producer_epoch=self.producer[1],
            v3_and_below_topics=[topic],
        )

        def error_of(answer: Any) -> int:
            (row,) = answer.results_by_topic_v3_and_below
            errors = {int(each.partition_error_code) for each in row.results_by_partition}
            return min(errors)  # the cause; the other rows were not attempted because of it

        await self._insist(self.name, TRANSACTION, request, 3, error_of)

    async def _send_offset(self, number: int) -> None:
        added = AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            group_id=self.group,
        )
        await self._insist(self.name, TRANSACTION, added, 3, lambda answer: answer.error_code)
        row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=number)
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.group,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            topics=[TxnOffsetCommitRequestTopic(name=self.tps[0].topic, partitions=[row])],
        )
        await self._insist(
            self.group,
            GROUP,
            request,
            3,
            lambda answer: answer.topics[0].partitions[0].error_code,
        )

    async def _end(self, commits: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            committed=commits,
        )
        await self._insist(self.name, TRANSACTION, request, 3, lambda answer: answer.error_code)

    async def _produce(self, tp: TopicPartition, contents: list[bytes]) -> None:
        sequence = self.sequences.get(tp, 0)
        builder = BatchBuilder(
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=sequence,
            is_transactional=True,
        )
        for value in contents:
            builder.append(1_700_000_000_000, None, value)
        records = builder.build()
        self.sequences[tp] = sequence + len(contents)
        while True:
            leader = await self.leader(tp)
            row = PartitionProduceData(index=tp.partition, records=records)
            topic = TopicProduceData(name=tp.topic, partition_data=[row])
            request = ProduceRequest(
                transactional_id=self.name, acks=-1, timeout_ms=3000, topic_data=[topic]
            )
            try:
                answer = await self.ask(leader, request, 9)
            except ChannelError:
                answer = None
            if answer is not None:
                error = ErrorCode(answer.responses[0].partition_responses[0].error_code)
                if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    return
                if error in LOST:
                    raise Lost(error.name)
                if not error.retriable:
                    raise Violation(f"{tp}: producing in a transaction failed: {error.name}")
            await self.pause()
            self.leaders.pop(tp, None)


def visible(batches: list[Committed]) -> tuple[list[bytes], set[int]]:
    """The values that a reader of committed records sees, and producers with an open transaction.

    Shape: records outside of transactions are left out.
    """
    seen: list[bytes] = []
    pending: dict[int, list[bytes]] = {}
    for committed in batches:
        batch = RecordBatch(memoryview(committed.content))
        header = batch.header
        if not header.is_transactional:
            continue
        if header.is_control:
            ended = pending.pop(header.producer_id, [])
            (record,) = batch.records()
            if control_type(record.key) is ControlType.COMMIT:
                seen += ended
            continue
        values = pending.setdefault(header.producer_id, [])
        values += [bytes(record.value or b"") for record in batch.records()]
    return seen, set(pending)


def check_transactions(
    history: History, tps: list[TopicPartition], committed: list[Written], aborted: list[Written]
) -> None:
    """Compare the visible records with the committed ones. Errors: Violation."""
    for tp in tps:
        seen, pending = visible(history.follow(tp).batches)
        if pending:
            raise Violation(f"{tp}: the transactions of producers {sorted(pending)} never end")
        expected = [value for each in committed for value in each.values.get(tp, [])]
        if seen == expected:
            continue
        for each in aborted:
            if found := set(each.values.get(tp, [])) & set(seen):
                raise Violation(f"{tp}: {sorted(found)} of an aborted transaction are visible")
        if missing := [value for value in expected if value not in seen]:
            raise Violation(f"{tp}: {missing[:3]} of committed transactions are not visible")
        raise Violation(f"{tp}: records of transactions are there twice, or in another order")
