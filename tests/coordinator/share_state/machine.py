"""Drives a ShareShard step by step, with a log of bytes and a clock."""

from __future__ import annotations

from typing import Any

from kwire.errors import ErrorCode
from server.coordinator.common.result import Result, Timer
from server.coordinator.share_state.config import ShareCoordinatorConfig
from server.coordinator.share_state.records import ShareKey, ShareRecord, decode_record
from server.coordinator.share_state.rows import (
    InitializeState,
    ReadState,
    StateBatch,
    StateOutcome,
    StatePartition,
    StateRead,
    StateSummary,
    WriteState,
)
from server.coordinator.share_state.shard import ShareShard
from tests.support.clock import ManualClock

GROUP, TOPIC = "g", bytes(15) + b"\x01"
KEY = ShareKey(GROUP, TOPIC, 0)


class Machine:
    """A shard, and a replacement for the runtime: writes are committed immediately unless `hold` is set."""

    def __init__(self, **config: Any) -> None:
        self.config = ShareCoordinatorConfig(**config)
        self.clock = ManualClock()
        self.partitions = {TOPIC: 2}
        self.log: list[tuple[bytes, bytes | None]] = []
        self.in_flight: list[tuple[list[ShareRecord], Any]] = []
        self.hold = False
        self.answers: dict[int, Any] = {}
        self.timers: dict[str, Timer] = {}
        self.effects: list[Any] = []
        self.token = 0
        self.shard = self.loaded_shard()

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    def loaded_shard(self) -> ShareShard:
        shard = ShareShard(0, self.config, lambda topic_id: self.partitions.get(topic_id, 0))
        for key, value in self.log:
            record = decode_record(key, value)
            assert record is not None
            shard.replay(record, 0)
        for timer in shard.loaded(self.now).timers:
            self.timers[timer.op_name] = timer
        return shard

    def apply(self, result: Result[Any]) -> None:
        for token, value in result.replies:
            assert token not in self.answers
            self.answers[token] = value
        for timer in result.timers:
            self.timers[timer.op_name] = timer
        self.effects += result.effects
        if result.ticket is not None:
            self.in_flight.append((result.records, result.ticket))
            if not self.hold:
                self.commit()

    def commit(self) -> None:
        records, ticket = self.in_flight.pop(0)
        self.log += [self.shard.encode(each) for each in records]
        for record in records:
            self.shard.replay(record, 0)
        self.apply(self.shard.completed(ticket, ErrorCode.NONE, self.now))

    def fail(self, error: ErrorCode) -> None:
        _, ticket = self.in_flight.pop(0)
        self.apply(self.shard.completed(ticket, error, self.now))

    def time_out(self) -> None:
        self.apply(
            self.shard.completed(self.in_flight[0][1], ErrorCode.REQUEST_TIMED_OUT, self.now)
        )

    def fire(self, name: str) -> None:
        timer = self.timers.pop(name)
        self.clock.advance(timer.at_ms - self.now)
        self.apply(self.shard.fire(timer, self.now))

    def written(self) -> list[ShareRecord]:
        found = []
        for key, value in self.log:
            record = decode_record(key, value)
            assert record is not None
            found.append(record)
        return found

    # Operations: the answer, or None while it waits

    def ask(self, operation: Any, row: StatePartition, group: str = GROUP) -> Any:
        self.token += 1
        self.apply(operation(group, row, self.token, self.now))
        return self.answers.get(self.token)

    def initialize(self, state_epoch: int = 0, start: int = 0, partition: int = 0) -> StateOutcome:
        row = InitializeState(TOPIC, partition, state_epoch, start)
        return self.ask(self.shard.initialize_state, row)

    def write(
        self,
        *batches: tuple[int, int, int, int],
        start: int = 0,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        complete: int = 0,
        partition: int = 0,
    ) -> StateOutcome:
        rows = tuple(StateBatch(*each) for each in batches)
        row = WriteState(TOPIC, partition, state_epoch, leader_epoch, start, rows, complete)
        return self.ask(self.shard.write_state, row)

    def read(self, leader_epoch: int = 0, partition: int = 0) -> StateRead:
        return self.ask(self.shard.read_state, ReadState(TOPIC, partition, leader_epoch))

    def summary(self, partition: int = 0) -> StateSummary:
        return self.ask(self.shard.read_summary, ReadState(TOPIC, partition, -1))

    def delete(self, partition: int = 0) -> StateOutcome:
        return self.ask(self.shard.delete_state, StatePartition(TOPIC, partition))
