"""The transaction coordinator as handlers use it: finds the shard, and refuses requests for other coordinators' ids.

A transactional id belongs to the broker that leads its partition of __transaction_state.
Source: TransactionCoordinator.scala, TransactionStateManager.scala.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from kwire.errors import ErrorCode
from kwire.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

from ...clock import Clock
from ...coordination.store import StoreError
from ...metadata.internal_topics import TRANSACTION_STATE_TOPIC
from ...metadata.topic_partition import TopicPartition
from ...turns import Steps, Turns
from ..common.front_desk import FrontDesk
from ..common.pattern import InvalidPattern, Pattern
from ..common.result import Result
from ..common.runtime import CoordinatorLog
from .config import TransactionConfig
from .ends import TransactionEnds
from .markers import Markers, MarkerSender, Outcomes
from .memory import TransactionMemory
from .shard import TransactionShard
from .state import Transaction, TransactionMetadata, TransactionState
from .tickets import (
    End,
    EndedTransaction,
    Initialized,
    NeedsProducerId,
    Producer,
    TimeoutNeedsProducerId,
)

log = logging.getLogger(__name__)

T = TypeVar("T")


class ProducerIdSource(Protocol):
    """The source of new producer ids."""

    def next_now(self) -> int | None: ...

    async def next(self) -> int: ...


class DescribedTransaction(NamedTuple):
    """A transactional id as DescribeTransactions and ListTransactions show it."""

    transactional_id: str
    metadata: TransactionMetadata
    partitions: frozenset[TopicPartition]


class Listed(NamedTuple):
    """Transactional ids to be listed, and the pattern that they have yet to match."""

    error: ErrorCode
    rows: list[DescribedTransaction]
    pattern: Pattern | None


class TransactionCoordinator(FrontDesk[TransactionConfig, TransactionShard]):
    """All transactional ids that this broker coordinates.

    Shape: each operation returns its answer, or an awaitable of the answer if the operation has to wait.
    """

    topic = TRANSACTION_STATE_TOPIC
    no_key = ErrorCode.INVALID_REQUEST

    def __init__(
        self,
        config: TransactionConfig,
        coordinator_log: CoordinatorLog,
        clock: Clock,
        producer_ids: ProducerIdSource,
        marker_sender: MarkerSender,
        turns: Turns | None = None,
    ) -> None:
        self.memory = TransactionMemory()
        self.producer_ids = producer_ids
        self.marker_sender = marker_sender
        super().__init__(
            config,
            config.state_topic_partitions,
            coordinator_log,
            clock,
            lambda partition: TransactionShard(partition, self.config, self.memory),
            lambda: self.config.write_timeout_ms,
            turns,
        )
        self.ends = TransactionEnds(self.runtime.turns)
        self.reserving: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Give up all partitions."""
        for task in self.reserving:
            task.cancel()
        super().close()

    # Operations

    def init_producer_id(self, asked: Producer) -> Initialized | Awaitable[Initialized]:
        """Give a producer its id and epoch; see TransactionShard.init_producer_id.

        Errors: INVALID_REQUEST for an empty id, INVALID_TRANSACTION_TIMEOUT beyond
        transaction.max.timeout.ms.
        """
        if not asked.transactional_id:
            return Initialized(ErrorCode.INVALID_REQUEST)
        if (asked.producer_id == NO_PRODUCER_ID) is not (asked.producer_epoch == NO_PRODUCER_EPOCH):
            return Initialized(ErrorCode.INVALID_REQUEST)
        if not 0 < asked.timeout_ms <= self.config.max_timeout_ms:
            return Initialized(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        return self.with_producer_id(
            asked.transactional_id,
            lambda shard, new_id, token, now_ms: shard.init_producer_id(
                asked, new_id, token, now_ms
            ),
            Initialized,
        )

    def with_producer_id(
        self,
        transactional_id: str,
        operation: Callable[[TransactionShard, int | None, int, int], Result[T | NeedsProducerId]],
        refusal: Callable[[ErrorCode], T],
    ) -> T | Awaitable[T]:
        """Run `operation(shard, new_producer_id, token, now_ms)`, and run it again with an id if it needs one."""

        def run(new_id: int | None) -> T | NeedsProducerId | asyncio.Future[T | NeedsProducerId]:
            return self.run(
                transactional_id,
                lambda shard, token, now_ms: operation(shard, new_id, token, now_ms),
                refusal,
            )

        async def run_with_next_id() -> T:
            answer = given(run(await self.producer_ids.next()))
            return await answer if isinstance(answer, asyncio.Future) else answer

        answer = run(None)
        if not isinstance(answer, NeedsProducerId):
            return given(answer)
        producer_id = self.producer_ids.next_now()
        return run_with_next_id() if producer_id is None else given(run(producer_id))

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        tps: frozenset[TopicPartition],
        client_version: int = 0,
    ) -> ErrorCode | Awaitable[ErrorCode]:
        """Add partitions to a transaction; see TransactionShard.add_partitions."""
        return self.run(
            transactional_id,
            lambda shard, token, now_ms: shard.add_partitions(
                transactional_id, producer_id, producer_epoch, tps, token, now_ms, client_version
            ),
            lambda error: error,
        )

    def end_transaction(self, asked: End) -> EndedTransaction | Awaitable[EndedTransaction]:
        """Commit or abort a transaction; see TransactionShard.end_transaction."""
        return self.with_producer_id(
            asked.transactional_id,
            lambda shard, new_id, token, now_ms: shard.end_transaction(
                asked, new_id, token, now_ms
            ),
            EndedTransaction,
        )

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, tp: TopicPartition
    ) -> ErrorCode:
        """Check whether a partition is part of an open transaction; see TransactionShard.verify."""
        _, shard = self.find(transactional_id)
        if isinstance(shard, ErrorCode):
            return shard
        return shard.verify(transactional_id, producer_id, producer_epoch, tp)

    # Views

    def describe(self, transactional_id: str) -> ErrorCode | DescribedTransaction:
        """Describe one id. Errors: those of find, TRANSACTIONAL_ID_NOT_FOUND."""
        _, shard = self.find(transactional_id)
        if isinstance(shard, ErrorCode):
            return shard
        transaction = shard.transactions.get(transactional_id)
        described = None if transaction is None else describe(transaction)
        return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if described is None else described

    def transactions(
        self,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> Generator[None, None, Listed]:
        """List the ids that pass all given filters except the pattern, in steps.

        Shape: states are named as in TransactionState; `longer_than_ms` counts from the start of the transaction, -1
        means any. The pattern is only compiled, because another process may have to match it.
        Errors: COORDINATOR_LOAD_IN_PROGRESS or INVALID_REGULAR_EXPRESSION, with an empty list.
        """
        if self.runtime.is_loading():
            return Listed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [], None)
        try:
            compiled = Pattern(pattern) if pattern else None
        except InvalidPattern as error:
            log.info("invalid pattern in a request to list transactions: %s", error)
            return Listed(ErrorCode.INVALID_REGULAR_EXPRESSION, [], None)
        wanted_states = yield from set_of(states)
        wanted_ids = yield from set_of(producer_ids)
        now_ms = self.runtime.now_ms()
        found = []
        for _, shard in list(self.runtime.active()):
            for transaction in list(shard.transactions.values()):
                yield
                row = describe(transaction)
                if (
                    row is not None
                    and (not wanted_states or row.metadata.state.title in wanted_states)
                    and (not wanted_ids or row.metadata.producer_id in wanted_ids)
                    and (longer_than_ms < 0 or now_ms - row.metadata.start_ms > longer_than_ms)
                ):
                    found.append(row)
        return Listed(ErrorCode.NONE, found, compiled)

    # Effects of a shard

    def perform(self, partition: int, leader_epoch: int, effect: Any) -> None:
        """Carry out a shard's effect."""
        if isinstance(effect, TimeoutNeedsProducerId):
            task = asyncio.get_running_loop().create_task(
                self.time_out(partition, leader_epoch, effect.transactional_id)
            )
            self.reserving.add(task)  # the loop itself keeps only a weak reference
            task.add_done_callback(self.reserving.discard)
        else:
            self.send_markers(partition, leader_epoch, effect)

    async def time_out(self, partition: int, leader_epoch: int, transactional_id: str) -> None:
        """Abort a transaction whose producer needs a new id."""
        try:
            producer_id = await self.producer_ids.next()
        except StoreError as error:
            log.warning(
                "cannot abort %r, which has been open for longer than its timeout: %s",
                transactional_id,
                error,
            )
            return  # still due at the next check for timeouts
        slot = self.runtime.slots.get(partition)
        if slot is not None and slot.leader_epoch == leader_epoch:
            self.runtime.start(
                partition,
                lambda shard, now_ms: shard.time_out(transactional_id, producer_id, now_ms),
            )

    def send_markers(self, partition: int, leader_epoch: int, markers: Markers) -> None:
        """Have markers written, and report the outcomes to the shard that sent them, in turns."""
        markers = markers._replace(coordinator_epoch=leader_epoch)

        def written(outcomes: Outcomes) -> None:
            self.ends.tell(markers.client, lambda: record(outcomes))

        def record(outcomes: Outcomes) -> None:
            slot = self.runtime.slots.get(partition)
            if slot is not None and slot.leader_epoch == leader_epoch:
                self.runtime.start(
                    partition,
                    lambda shard, now_ms: shard.markers_written(markers, outcomes, now_ms),
                )

        self.ends.send(markers.client, self.sending(markers, written))

    def sending(self, markers: Markers, written: Callable[[Outcomes], None]) -> Steps[None]:
        """Write markers in steps; if that fails, all are written again, since it is not known which are missing."""
        try:
            yield from self.marker_sender.send(markers, written)
        except Exception:  # a bug of ours must not keep the transaction open
            log.exception("markers of %r are not written", markers.transactional_id)
            written([(tp, ErrorCode.UNKNOWN_SERVER_ERROR) for tp in markers.partitions])


def given(
    answer: T | NeedsProducerId | asyncio.Future[T | NeedsProducerId],
) -> T | asyncio.Future[T]:
    """The answer of an operation that has its producer id: a shard asks for an id only in its immediate answer, and
    only if it was given none.
    """
    assert not isinstance(answer, NeedsProducerId)
    return cast("T | asyncio.Future[T]", answer)


def set_of(items: Iterable[T]) -> Generator[None, None, set[T]]:
    """A set of many items, made in steps."""
    made = set()
    for item in items:
        yield
        made.add(item)
    return made


def describe(transaction: Transaction) -> DescribedTransaction | None:
    """Describe an id as stored; a prepared transaction with the partitions that lack their marker."""
    stored = transaction.stored
    if stored is None or transaction.pending is TransactionState.DEAD:
        return None
    partitions = stored.partitions
    if stored.state.is_prepared:
        partitions = frozenset(transaction.unmarked)
    return DescribedTransaction(transaction.transactional_id, stored, partitions)
