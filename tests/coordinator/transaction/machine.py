"""Drives a TransactionShard: requests of producers, and the markers that it sends."""

from __future__ import annotations

from typing import Any

from kwire.errors import ErrorCode
from server.coordinator.common.result import Result
from server.coordinator.transaction.config import TransactionConfig
from server.coordinator.transaction.markers import Markers
from server.coordinator.transaction.records import decode_record
from server.coordinator.transaction.shard import TransactionShard
from server.coordinator.transaction.state import TransactionMetadata, TransactionState
from server.coordinator.transaction.tickets import (
    End,
    EndedTransaction,
    Initialized,
    NeedsProducerId,
    Producer,
    TimeoutNeedsProducerId,
)
from server.metadata.topic_partition import TopicPartition
from tests.support.driven_shard import DrivenShard, Stored

ID = "id"
TIMEOUT_MS = 60_000
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class TxnMachine(DrivenShard):
    """A shard of the transaction coordinator. Shape: markers wait in `to_send`, unless `deliver` is set."""

    may_answer_again = True

    def __init__(self, **config: Any) -> None:
        self.config = TransactionConfig(**config)
        self.to_send: list[Markers] = []
        self.deliver = True
        #: Of the producers; a broker of an older one has no such clients.
        self.client_version = self.config.transaction_version
        self.last_producer_id = 999
        super().__init__()

    def new_shard(self) -> TransactionShard:
        return TransactionShard(0, self.config)

    def replay(self, shard: TransactionShard, entry: Stored, position: int) -> None:
        record = decode_record(*entry)
        assert record is not None
        shard.replay(record, position)

    def apply(self, result: Result) -> None:
        super().apply(result)
        effects, self.effects = self.effects, []
        for effect in effects:
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

    def restart(self) -> None:
        self.to_send.clear()
        super().restart()
        self.advance(0)

    # Requests

    def init(
        self, name: str = ID, producer: tuple[int, int] = (-1, -1), timeout_ms: int = TIMEOUT_MS
    ) -> int:
        """InitProducerId as the coordinator does it, with a new id if one is needed."""
        token = self.token()
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
        token = self.token()
        self.apply(
            self.shard.add_partitions(
                name, *producer, frozenset(tps), token, self.now, self.client_version
            )
        )
        return token

    def end(self, producer: tuple[int, int], committed: bool, name: str = ID) -> int:
        """EndTxn in the version of `client_version`."""
        token = self.token()
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
        return answer.error if isinstance(answer, (Initialized, EndedTransaction)) else answer

    def ended(self, token: int) -> tuple[ErrorCode, int, int]:
        """The whole answer to an EndTxn."""
        answer = self.answers[token]
        assert isinstance(answer, EndedTransaction)
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
