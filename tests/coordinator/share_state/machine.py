"""Drives a ShareShard: the operations of share coordinators."""

from __future__ import annotations

from typing import Any

from kwire.errors import ErrorCode
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
from tests.support.driven_shard import DrivenShard, Stored

GROUP, TOPIC = "g", bytes(15) + b"\x01"
KEY = ShareKey(GROUP, TOPIC, 0)


class ShareStateMachine(DrivenShard):
    """A shard of the share coordinator."""

    def __init__(self, **config: Any) -> None:
        self.config = ShareCoordinatorConfig(**config)
        self.partitions = {TOPIC: 2}
        super().__init__()

    def new_shard(self) -> ShareShard:
        return ShareShard(0, self.config, lambda topic_id: self.partitions.get(topic_id, 0))

    def replay(self, shard: ShareShard, entry: Stored, position: int) -> None:
        record = decode_record(*entry)
        assert record is not None
        shard.replay(record, 0)

    def time_out(self) -> None:
        self.apply(
            self.shard.completed(self.in_flight[0][1], ErrorCode.REQUEST_TIMED_OUT, self.now)
        )

    def written(self) -> list[ShareRecord]:
        found = [decode_record(key, value) for key, value in self.log]
        return [record for record in found if record is not None]

    # Operations: the answer, or None while it waits

    def ask(self, operation: Any, row: StatePartition, group: str = GROUP) -> Any:
        token = self.token()
        self.apply(operation(group, row, token, self.now))
        return self.answers.get(token)

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
