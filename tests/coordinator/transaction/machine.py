"""Drives a TransactionShard step by step, with a log of bytes, a clock, answers and partitions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from kwire.errors import ErrorCode
from server.coordinator.common.result import Result, Timer
from server.coordinator.transaction.config import TransactionConfig
from server.coordinator.transaction.markers import Markers
from server.coordinator.transaction.records import decode_record
from server.coordinator.transaction.shard import TransactionShard
from server.coordinator.transaction.state import TransactionMetadata, TransactionState
from server.coordinator.transaction.tickets import (
    End,
    Ended,
    Initialized,
    NeedsProducerId,
    Producer,
    TimeoutNeedsProducerId,
)
from server.metadata.topic_partition import TopicPartition
from tests.support.clock import ManualClock

ID = "id"
TIMEOUT_MS = 60_000
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Machine:
    """A shard, and a replacement for the runtime.

    Writes are committed immediately, unless `hold` is set: then `commit()` or `fail(error)` ends them one after
    another. Markers wait in `to_send`, unless `deliver` is set.
    """

    def __init__(self, **config: Any) -> None:
        self.config = TransactionConfig(**config)
        self.clock = ManualClock()
        self.shard = TransactionShard(0, self.config)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.in_flight: list[tuple[list[tuple[bytes, bytes | None]], Any]] = []
        self.to_send: list[Markers] = []
        self.hold = False
        self.deliver = True
        #: Of the producers; a broker of an older one has no such clients.
        self.client_version = self.config.transaction_version
        #: The client that sends the requests.
        self.account: Hashable = "127.0.0.1"
        self.last_token = 0
        self.last_producer_id = 999
        self.answers: dict[int, Any] = {}
        self.timers: dict[tuple[str, tuple[str, ...]], Timer] = {}
        self.apply(self.shard.loaded(self.now))

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    # The runtime's part

    def apply(self, result: Result) -> None:
        for token, value in result.replies:
            self.answers[token] = value
        for timer in result.timers:
            self.timers[timer.op_name, timer.key] = timer
        if result.ticket is not None:
            records = [self.shard.encode(r) for r in result.records]
            if result.on_appended is not None:
                result.on_appended(sum(len(key) + len(value or b"") for key, value in records))
            self.in_flight.append((records, result.ticket))
            if not self.hold:
                self.commit()
        for effect in result.effects:
            if isinstance(effect, TimeoutNeedsProducerId):
                name = effect.transactional_id
                self.apply(self.shard.time_out(name, self.new_producer_id(), self.now))
                continue
            self.to_send.append(effect)
            if self.deliver:
                self.send()

    def new_producer_id(self) -> int:
        self.last_producer_id += 1
        return self.last_producer_id

    def send(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Let the first waiting markers be written, or fail."""
        markers = self.to_send.pop(0)
        self.written(markers, dict.fromkeys(markers.partitions, error))

    def written(self, markers: Markers, errors: dict[TopicPartition, ErrorCode]) -> None:
        self.apply(self.shard.markers_written(markers, list(errors.items()), self.now))

    def commit(self) -> None:
        """Commit the first pending write: replay what was stored, and continue."""
        records, ticket = self.in_flight.pop(0)
        self.store(records)
        self.apply(self.shard.completed(ticket, ErrorCode.NONE, self.now))

    def store(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        for key, value in records:
            self.log.append((key, value))
            record = decode_record(key, value)
            assert record is not None
            self.shard.replay(record, len(self.log))

    def fail(self, error: ErrorCode) -> None:
        """Let the first pending write fail."""
        _, ticket = self.in_flight.pop(0)
        self.apply(self.shard.completed(ticket, error, self.now))

    def advance(self, ms: int) -> None:
        """Advance time, firing due timers in order."""
        end = self.now + ms
        while True:
            due = min(self.timers.values(), key=lambda t: t.at_ms, default=None)
            if due is None or due.at_ms > end:
                break
            del self.timers[due.op_name, due.key]
            if due.at_ms > self.now:
                self.clock.advance(due.at_ms - self.now)
            self.apply(self.shard.fire(due, self.now))
        self.clock.advance(end - self.now)

    def reload(self) -> TransactionShard:
        """Return the state of a new coordinator that loaded the committed log, before it begins to serve."""
        shard = TransactionShard(0, self.config)
        for position, (key, value) in enumerate(self.log):
            record = decode_record(key, value)
            assert record is not None
            shard.replay(record, position)
        return shard

    def restart(self) -> None:
        """Continue as a coordinator that has just loaded the log; waiting requests are lost."""
        self.timers.clear()
        self.in_flight.clear()
        self.to_send.clear()
        self.shard = self.reload()
        self.apply(self.shard.loaded(self.now))
        self.advance(0)

    # Requests

    def init(
        self, name: str = ID, producer: tuple[int, int] = (-1, -1), timeout_ms: int = TIMEOUT_MS
    ) -> int:
        """InitProducerId as the coordinator does it, with a new id if one is needed."""
        self.last_token += 1
        token = self.last_token
        asked = Producer(name, timeout_ms, *producer, self.account)
        self.apply(self.shard.init_producer_id(asked, None, token, self.now))
        if isinstance(self.answers.get(token), NeedsProducerId):
            del self.answers[token]
            new_id = self.new_producer_id()
            self.apply(self.shard.init_producer_id(asked, new_id, token, self.now))
        return token

    def producer(self, name: str = ID) -> tuple[int, int]:
        """A new producer's id and epoch."""
        answer = self.answers[self.init(name)]
        assert answer.error is ErrorCode.NONE, answer
        return answer.producer_id, answer.producer_epoch

    def add(self, producer: tuple[int, int], *tps: TopicPartition, name: str = ID) -> int:
        self.last_token += 1
        token = self.last_token
        self.apply(
            self.shard.add_partitions(
                name, *producer, frozenset(tps), token, self.now, self.client_version
            )
        )
        return token

    def end(self, producer: tuple[int, int], committed: bool, name: str = ID) -> int:
        """EndTxn in the version of `client_version`."""
        self.last_token += 1
        token = self.last_token
        asked = End(name, *producer, committed, self.client_version)
        self.apply(self.shard.end_transaction(asked, None, token, self.now))
        if isinstance(self.answers.get(token), NeedsProducerId):
            del self.answers[token]
            new_id = self.new_producer_id()
            self.apply(self.shard.end_transaction(asked, new_id, token, self.now))
        return token

    # Results

    def error(self, token: int) -> ErrorCode | None:
        """The error of an answer; None while there is no answer."""
        answer = self.answers.get(token)
        return answer.error if isinstance(answer, (Initialized, Ended)) else answer

    def ended(self, token: int) -> tuple[ErrorCode, int, int]:
        """The whole answer to an EndTxn."""
        answer = self.answers[token]
        assert isinstance(answer, Ended)
        return answer

    def stored(self, name: str = ID) -> TransactionMetadata:
        stored = self.shard.transactions[name].stored
        assert stored is not None
        return stored

    @property
    def state(self) -> TransactionState:
        return self.stored().state


def hard_state(shard: TransactionShard) -> dict[str, TransactionMetadata]:
    """The state of a shard that must survive."""
    return {n: t.stored for n, t in shard.transactions.items() if t.stored is not None}
