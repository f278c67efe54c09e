"""A coordinator that stops at any step of the two phases: all orders of all steps, exhaustively.

Unlike in test_never_half.py, nothing is random. The steps in which a transaction ends are: the
outcome is stored; the producer is informed; each partition gets its marker and the coordinator is
informed; the completion is stored. In addition, one fault may occur at any point (two in the long form):

    the coordinator stops, and its unfinished write may be in its log; the next one loads the log, and
    markers of the previous one may still arrive, even after the next transaction has begun
    a marker fails and has to be sent again
    a write of the coordinator fails, or only seems to fail and is in its log

In every case, each partition ends the transaction once and with the outcome that the producer got;
the producer can continue; and its next transaction is not ended.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from kwire.errors import ErrorCode
from server.coordinator.transaction.markers import Markers
from server.coordinator.transaction.records import TransactionRecord
from server.coordinator.transaction.state import LAST_EPOCH, TransactionState
from server.log.producer_state import ProducerStateManager
from server.metadata.topic_partition import TopicPartition
from tests.coordinator.transaction.machine import A0, A1, B0, ID, TIMEOUT_MS, TxnMachine, hard_state

LONG = bool(os.environ.get("KWIRE_LONG"))
Producer = tuple[int, int]


class Choices:
    """One path through all possible steps; `following` is the next one."""

    def __init__(self, path: list[tuple[int, int]]) -> None:
        self.path = path
        self.at = 0

    def choose(self, count: int) -> int:
        """Choose one of 0..count-1."""
        if self.at == len(self.path):
            self.path.append((0, count))
        taken, known = self.path[self.at]
        assert known == count, "a run does not depend on its choices alone"
        self.at += 1
        return taken

    def following(self) -> Choices | None:
        """The path that differs in the last choice that can differ; None after the last path."""
        path = self.path[: self.at]
        while path and path[-1][0] == path[-1][1] - 1:
            path.pop()
        if not path:
            return None
        taken, count = path.pop()
        return Choices([*path, (taken + 1, count)])


class Partition:
    """The state of producers in one partition, and how transactions ended there."""

    def __init__(self) -> None:
        self.producers = ProducerStateManager(expiration_ms=1 << 60)
        self.end_offset = 0
        self.outcomes: list[bool] = []
        self.refuses_late_markers = True

    def append(self, producer: Producer, sequence: int) -> None:
        entry = self.producers.producers.get(producer[0])
        if entry is not None:
            refused = self.producers.check(
                entry, producer[1], sequence, from_client=True, transactional=True
            )
            assert refused is None, refused
        self.producers.append_data(*producer, sequence, 0, self.end_offset, 0, True)
        self.end_offset += 1

    @property
    def is_open(self) -> bool:
        return bool(self.producers.ongoing)

    def mark(self, markers: Markers) -> ErrorCode:
        producer_id, epoch = markers.producer_id, markers.producer_epoch
        checks = self.refuses_late_markers and markers.transaction_version >= 2
        if checks and self.producers.is_stale_marker(producer_id, epoch):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        entry = self.producers.entry_for(producer_id)
        refused = self.producers.check_marker(entry, epoch, markers.coordinator_epoch)
        if refused is not None and self.refuses_late_markers:
            return refused.error
        if self.is_open:
            self.outcomes.append(markers.committed)
        self.producers.append_marker(
            producer_id,
            epoch,
            markers.coordinator_epoch,
            self.end_offset,
            0,
            committed=markers.committed,
        )
        self.end_offset += 1
        return ErrorCode.NONE


class Case(NamedTuple):
    """How a transaction is ended, and by which version of the protocol."""

    name: str
    version: int
    is_last_epoch: bool = False


class World:
    """One transactional id with an open transaction, about to end."""

    def __init__(self, case: Case, tps: tuple[TopicPartition, ...], faults: int) -> None:
        self.case = case
        self.faults = faults
        self.coordinator_epoch = 0
        self.partitions = {tp: Partition() for tp in tps}
        self.under_way: list[tuple[Markers, TopicPartition]] = []  # not written yet
        self.to_tell: list[
            tuple[Markers, TopicPartition, ErrorCode]
        ] = []  # written, but not reported
        self.of_old_coordinators: list[tuple[Markers, TopicPartition]] = []
        self.machine = machine = TxnMachine(transaction_version=case.version)
        machine.deliver = False
        self.producer = machine.producer()
        if case.is_last_epoch:
            value = machine.stored()._replace(producer_epoch=LAST_EPOCH)
            machine.store([machine.shard.encode(TransactionRecord(ID, value))])
            self.producer = (self.producer[0], LAST_EPOCH)
        machine.add(self.producer, *tps)
        for partition in self.partitions.values():
            partition.append(self.producer, 0)
        machine.hold = True
        self.token: int | None = None
        if case.name == "timeout":
            machine.advance(TIMEOUT_MS + machine.config.timeout_check_interval_ms)
        elif case.name == "fence":
            machine.init()
        else:
            self.token = machine.end(self.producer, case.name == "commit")

    # Possible steps

    def steps(self) -> Iterator[Callable[[], None]]:
        """All possible next steps, apart from faults."""
        machine = self.machine
        while machine.to_send:
            markers = machine.to_send.pop(0)._replace(coordinator_epoch=self.coordinator_epoch)
            self.under_way += [(markers, tp) for tp in markers.partitions]
        if machine.in_flight:
            yield machine.commit
        for one in self.under_way:
            yield lambda one=one: self.write(*one)  # type: ignore[misc]
        for word in self.to_tell:
            yield lambda word=word: self.tell(*word)  # type: ignore[misc]

    def possible_faults(self) -> Iterator[Callable[[], None]]:
        yield lambda: self.stop(0)
        if self.machine.in_flight:
            yield lambda: self.stop(1)
            yield lambda: self.machine.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
            yield self.time_out_and_commit
        for one in self.under_way:
            yield lambda one=one: self.fail(*one)  # type: ignore[misc]

    def write(self, markers: Markers, tp: TopicPartition) -> None:
        self.under_way.remove((markers, tp))
        self.to_tell.append((markers, tp, self.partitions[tp].mark(markers)))

    def fail(self, markers: Markers, tp: TopicPartition) -> None:
        self.under_way.remove((markers, tp))
        self.to_tell.append((markers, tp, ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def tell(self, markers: Markers, tp: TopicPartition, error: ErrorCode) -> None:
        self.to_tell.remove((markers, tp, error))
        self.machine.written(markers, {tp: error})

    def time_out_and_commit(self) -> None:
        """The producer's request times out; then the write is committed."""
        _, ticket = self.machine.in_flight[0]
        machine = self.machine
        machine.apply(machine.shard.completed(ticket, ErrorCode.REQUEST_TIMED_OUT, machine.now))
        machine.commit()

    def stop(self, kept: int) -> None:
        """The coordinator stops; the next one loads the committed state."""
        for records, _ in self.machine.in_flight[:kept]:
            self.machine.log.extend(records)
        self.of_old_coordinators += self.under_way
        self.under_way.clear()
        self.to_tell.clear()
        self.coordinator_epoch += 1
        self.machine.restart()

    # From the first step to the end

    def run(self, choices: Choices) -> None:
        while True:
            steps = list(self.steps())
            if not steps:
                if self.is_over():
                    return
                self.let_time_pass()
                continue
            if self.faults:
                faults = list(self.possible_faults())
                steps += faults
                taken = choices.choose(len(steps))
                self.faults -= taken >= len(steps) - len(faults)
            else:
                taken = 0  # without further faults, the order of the rest does not matter
            steps[taken]()

    def is_over(self) -> bool:
        return self.machine.state.is_idle and not self.machine.in_flight

    def let_time_pass(self) -> None:
        """Let time pass without requests: failed steps are retried, open transactions time out."""
        machine = self.machine
        before = machine.now
        machine.advance(machine.config.marker_retry_ms)
        if not machine.in_flight and not machine.to_send:
            machine.advance(TIMEOUT_MS + machine.config.timeout_check_interval_ms)
        assert machine.now - before < 10 * TIMEOUT_MS

    # Invariants

    def check(self) -> None:
        machine = self.machine
        assert hard_state(machine.reload()) == hard_state(machine.shard)
        committed = machine.state is TransactionState.COMPLETE_COMMIT
        assert committed or machine.state is TransactionState.COMPLETE_ABORT
        for partition in self.partitions.values():
            assert partition.outcomes == [committed]
            assert not partition.is_open
        told = None if self.token is None else machine.error(self.token)
        if told is ErrorCode.NONE:
            assert committed is (self.case.name == "commit")
        if committed:
            assert self.case.name == "commit"

    def check_what_comes_next(self) -> None:
        """Check that the producer can continue, and that no late marker ends its next transaction."""
        machine = self.machine
        machine.hold = False
        producer = machine.stored().producer_id, machine.stored().producer_epoch
        if producer != self.producer and self.case.version >= 2 and self.token is not None:
            committed = machine.state is TransactionState.COMPLETE_COMMIT
            again = machine.ended(machine.end(self.producer, committed))
            assert again == (ErrorCode.NONE, *producer)
        tps = tuple(self.partitions)
        assert machine.error(machine.add(producer, *tps)) is ErrorCode.NONE
        sequence = 1 if producer == self.producer else 0
        for partition in self.partitions.values():
            partition.append(producer, sequence)
        for markers, tp in self.of_old_coordinators:
            self.partitions[tp].mark(markers)
        for partition in self.partitions.values():
            assert partition.is_open
            assert len(partition.outcomes) == 1


def every_run(case: Case, tps: tuple[TopicPartition, ...], faults: int) -> int:
    """Run a case in every possible way; return the number of ways."""
    choices: Choices | None = Choices([])
    runs = 0
    while choices is not None:
        runs += 1
        world = World(case, tps, faults)
        try:
            world.run(choices)
            world.check()
            world.check_what_comes_next()
        except BaseException as error:
            error.add_note(f"{case}, choices {[taken for taken, _ in choices.path]}")
            raise
        choices = choices.following()
    return runs


CASES = [
    Case(name, version, is_last_epoch)
    for name in ("commit", "abort", "timeout", "fence")
    for version, is_last_epoch in ((0, False), (0, True), (2, False), (2, True))
]


by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))


@by_case
def test_one_fault_at_any_step_leaves_nothing_half(case: Case) -> None:
    assert every_run(case, (A0, B0), 1) > 25


@pytest.mark.slow
@by_case
def test_two_faults_at_any_steps_leave_nothing_half(case: Case) -> None:
    """With two partitions, or three for one fault in the long form: 32,000 runs in 70 s."""
    if LONG:
        assert every_run(case, (A0, A1, B0), 1) > 400
    assert every_run(case, (A0, B0) if LONG else (A0,), 2) > 75


def planted_in_coordinator(world: World) -> None:
    """The outcome is forgotten by the next coordinator: it aborts."""
    stop = world.stop

    def forgetful(kept: int) -> None:
        stop(kept)
        transaction = world.machine.shard.transactions[ID]
        stored = transaction.stored
        if stored is not None and stored.state is TransactionState.PREPARE_COMMIT:
            transaction.stored = stored._replace(state=TransactionState.PREPARE_ABORT)
            world.machine.to_send[:] = [m._replace(committed=False) for m in world.machine.to_send]

    world.stop = forgetful  # type: ignore[method-assign]


def planted_in_partition(world: World) -> None:
    """A leader that accepts every marker, as before KIP-890."""
    for partition in world.partitions.values():
        partition.refuses_late_markers = False


@pytest.mark.parametrize("plant", [planted_in_coordinator, planted_in_partition])
def test_planted_mistake_is_found(
    plant: Callable[[World], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shows that the checks can fail."""
    first = World.__init__

    def with_mistake(world: World, case: Case, tps: tuple[TopicPartition, ...], n: int) -> None:
        first(world, case, tps, n)
        plant(world)

    monkeypatch.setattr(World, "__init__", with_mistake)
    with pytest.raises(AssertionError):
        every_run(Case("commit", 2), (A0, B0), 1)
