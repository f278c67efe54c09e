"""A SharePersister in memory, whose answers come at once or when the test asks for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kwire.errors import ErrorCode
from server.coordinator.share_state.operations import OutcomeT, RowT, StateOperation
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

Key = tuple[str, bytes, int]


@dataclass
class Stored:
    """The state of one share partition. Shape: `states` maps an offset to its (state, count)."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    states: dict[int, tuple[int, int]]

    def batches(self) -> tuple[StateBatch, ...]:
        """The states as batches, as long as they can be."""
        found: list[StateBatch] = []
        for offset, (state, count) in sorted(self.states.items()):
            if found and found[-1][1:] == (offset - 1, state, count):
                found[-1] = found[-1]._replace(last_offset=offset)
            else:
                found.append(StateBatch(offset, offset, state, count))
        return tuple(found)


class MemoryPersister:
    """Share states by (group id, topic id, partition).

    Shape: with `hold` set, an operation is carried out and answered when `release` is called. `errors` maps a key to
    the error that it is refused with. `calls` has the name, group and rows of each operation.
    """

    def __init__(self) -> None:
        self.stored: dict[Key, Stored] = {}
        self.errors: dict[Key, ErrorCode] = {}
        self.calls: list[tuple[str, str, list[Any]]] = []
        self.hold = False
        self.held: list[Callable[[], None]] = []

    def release(self) -> None:
        """Carry out and answer the oldest held operation."""
        self.held.pop(0)()

    def ask(
        self, operation: StateOperation[RowT, OutcomeT], group_id: str, rows: Sequence[RowT]
    ) -> asyncio.Future[list[OutcomeT]]:
        future: asyncio.Future[list[OutcomeT]] = asyncio.get_running_loop().create_future()
        self.calls.append((operation.name, group_id, list(rows)))
        carry_out = getattr(self, operation.name)

        def answer() -> None:
            answers = []
            for row in rows:
                key = (group_id, row.topic_id, row.partition)
                error = self.errors.get(key)
                if error is not None:
                    answers.append(operation.outcome(row.topic_id, row.partition, error))
                else:
                    answers.append(carry_out(row, key))
            if not future.cancelled():
                future.set_result(answers)

        if self.hold:
            self.held.append(answer)
        else:
            answer()
        return future

    def initialize_state(self, row: InitializeState, key: Key) -> StateOutcome:
        stored = self.stored.get(key)
        if stored is not None and stored.state_epoch > row.state_epoch:
            return StateOutcome(row.topic_id, row.partition, ErrorCode.FENCED_STATE_EPOCH)
        self.stored[key] = Stored(row.state_epoch, 0, row.start_offset, -1, {})
        return StateOutcome(row.topic_id, row.partition)

    def read_state(self, row: ReadState, key: Key) -> StateRead:
        stored = self.stored.get(key)
        if stored is None:
            return StateRead(row.topic_id, row.partition)
        if stored.leader_epoch > row.leader_epoch >= 0:
            return StateRead(row.topic_id, row.partition, ErrorCode.FENCED_LEADER_EPOCH)
        stored.leader_epoch = max(stored.leader_epoch, row.leader_epoch)
        return StateRead(
            row.topic_id,
            row.partition,
            state_epoch=stored.state_epoch,
            start_offset=stored.start_offset,
            state_batches=stored.batches(),
        )

    def write_state(self, row: WriteState, key: Key) -> StateOutcome:
        stored = self.stored.get(key)
        error = ErrorCode.NONE
        if stored is None:
            error = ErrorCode.INVALID_REQUEST
        elif stored.leader_epoch > row.leader_epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif stored.state_epoch > row.state_epoch:
            error = ErrorCode.FENCED_STATE_EPOCH
        else:
            stored.leader_epoch = row.leader_epoch
            stored.delivery_complete_count = row.delivery_complete_count
            if row.start_offset != -1:
                stored.start_offset = row.start_offset
            for first, last, state, count in row.state_batches:
                for offset in range(first, last + 1):
                    stored.states[offset] = state, count
            stored.states = {
                offset: state
                for offset, state in stored.states.items()
                if offset >= stored.start_offset
            }
        return StateOutcome(row.topic_id, row.partition, error)

    def delete_state(self, row: StatePartition, key: Key) -> StateOutcome:
        self.stored.pop(key, None)
        return StateOutcome(row.topic_id, row.partition)

    def read_summary(self, row: ReadState, key: Key) -> StateSummary:
        stored = self.stored.get(key)
        if stored is None:
            return StateSummary(row.topic_id, row.partition)
        return StateSummary(
            row.topic_id,
            row.partition,
            state_epoch=stored.state_epoch,
            leader_epoch=stored.leader_epoch,
            start_offset=stored.start_offset,
            delivery_complete_count=stored.delivery_complete_count,
        )
