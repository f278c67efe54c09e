"""Wherever a coordinator stops, a transaction ends in the same way in all of its partitions."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kwire.errors import ErrorCode
from server.coordinator.transaction.markers import Markers
from server.coordinator.transaction.memory import state_bytes
from server.coordinator.transaction.records import TransactionRecord
from server.coordinator.transaction.state import LAST_EPOCH
from server.metadata.topic_partition import TopicPartition
from tests.coordinator.transaction.machine import A0, A1, B0, TxnMachine, hard_state

names = st.sampled_from(["one", "two"])
tps = st.sampled_from([A0, A1, B0])
times = st.sampled_from([0, 99, 100, 9_999, 10_000, 60_000, 7 * 86_400_000])
errors = st.sampled_from(
    [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.MESSAGE_TOO_LARGE]
)
marker_errors = st.sampled_from(
    [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS]
)


class Partition:
    """A partition's leader and its state of producers: see ProducerStateManager."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}  # producer id -> number of its transaction
        self.epochs: dict[int, int] = {}

    def append(self, producer: tuple[int, int], transaction: int) -> None:
        self.open.setdefault(producer[0], transaction)
        self.epochs[producer[0]] = producer[1]

    def mark(self, markers: Markers) -> tuple[ErrorCode, int | None]:
        known = self.epochs.get(markers.producer_id, -1)
        is_late = markers.transaction_version >= 2 and markers.producer_id in self.open
        if markers.producer_epoch < known or (is_late and markers.producer_epoch == known):
            return ErrorCode.INVALID_PRODUCER_EPOCH, None
        self.epochs[markers.producer_id] = markers.producer_epoch
        return ErrorCode.NONE, self.open.pop(markers.producer_id, None)


class Transactions(RuleBasedStateMachine):
    """Old and new producers, partitions, and a coordinator whose writes are committed, fail, or are interrupted by a
    stop: a prefix of the unfinished writes is then in the log.
    """

    transaction_version = 0

    def __init__(self) -> None:
        super().__init__()
        self.machine = TxnMachine(transaction_version=self.transaction_version)
        self.machine.deliver = False
        self.partitions = {tp: Partition() for tp in (A0, A1, B0)}
        self.producers: dict[str, list[tuple[int, int]]] = {"one": [], "two": []}
        self.asked: dict[int, tuple[str, int, bool]] = {}  # EndTxn: token -> name, number, how
        self.ends: dict[int, str] = {}  # every EndTxn: token -> name
        self.numbers: dict[str, int] = {}  # transactional id -> number of its open transaction
        self.last_number = 0
        self.told: dict[int, bool] = {}  # by number: the outcome that the client got
        self.outcomes: dict[int, set[bool]] = {}  # by number: the outcomes that partitions got
        self.words: list[tuple[Markers, list[tuple[TopicPartition, ErrorCode]]]] = []

    # Producers

    @rule(name=names, recover=st.booleans())
    def init(self, name: str, recover: bool) -> None:
        known = self.producers[name]
        token = self.machine.init(name, known[-1] if known and recover else (-1, -1))
        answer = self.machine.answers.get(token)
        if answer is not None and answer.error is ErrorCode.NONE:
            known.append((answer.producer_id, answer.producer_epoch))

    def producer(self, name: str, old: bool) -> tuple[int, int] | None:
        known = self.producers[name]
        return known[-2 if old and len(known) > 1 else -1] if known else None

    @rule(name=names, added=st.sets(tps, min_size=1), old=st.booleans())
    def add(self, name: str, added: set[TopicPartition], old: bool) -> None:
        producer = self.producer(name, old)
        if producer is None:
            self.init(name, False)
        else:
            self.machine.add(producer, *added, name=name)

    @rule(name=names, added=st.sets(tps, min_size=1))
    def add_and_produce(self, name: str, added: set[TopicPartition]) -> None:
        self.add(name, added, False)
        self.transactions_are_numbered_as_they_open()
        for tp in sorted(added):
            self.produce(name, tp, False)

    @rule(name=names, tp=tps, old=st.booleans())
    def produce(self, name: str, tp: TopicPartition, old: bool) -> None:
        producer = self.producer(name, old)
        if producer is None:
            return
        partition = self.partitions[tp]
        if partition.epochs.get(producer[0], -1) > producer[1]:
            return
        if self.machine.shard.verify(name, *producer, tp) is ErrorCode.NONE:
            partition.append(producer, self.numbers[name])

    @rule(name=names, committed=st.booleans(), old=st.booleans())
    def end(self, name: str, committed: bool, old: bool) -> None:
        producer = self.producer(name, old)
        if producer is not None:
            is_open = name in self.machine.shard.open
            token = self.machine.end(producer, committed, name)
            if is_open:
                self.asked[token] = (name, self.numbers[name], committed)
            self.ends[token] = name
            self.listen()

    # The coordinator and its log

    @rule()
    def hold_writes(self) -> None:
        self.machine.hold = True

    @precondition(lambda self: self.machine.in_flight)
    @rule()
    def commit_one(self) -> None:
        self.machine.commit()

    @precondition(lambda self: self.machine.in_flight)
    @rule(error=errors)
    def fail_one(self, error: ErrorCode) -> None:
        self.machine.fail(error)

    @rule(kept=st.integers(0, 3), hold=st.booleans())
    def stop_and_start(self, kept: int, hold: bool) -> None:
        """Stop after the first pending writes have reached the log, before anything was reported."""
        for records, _ in self.machine.in_flight[:kept]:
            self.machine.log.extend(records)
        self.words.clear()
        self.machine.hold = hold
        self.machine.restart()

    @rule(ms=times)
    def pass_time(self, ms: int) -> None:
        self.machine.advance(ms)

    # Markers

    @precondition(lambda self: self.machine.to_send)
    @rule(fates=st.lists(marker_errors, min_size=3, max_size=3))
    def write_markers(self, fates: list[ErrorCode]) -> None:
        markers = self.machine.to_send.pop(0)
        word = []
        for tp, fate in zip(markers.partitions, fates, strict=False):
            error = fate
            if fate is ErrorCode.NONE:
                error, number = self.partitions[tp].mark(markers)
                if number is not None:
                    self.outcomes.setdefault(number, set()).add(markers.committed)
            word.append((tp, error))
        self.words.append((markers, word))

    @precondition(lambda self: self.words)
    @rule()
    def tell_of_markers(self) -> None:
        markers, word = self.words.pop(0)
        self.machine.written(markers, dict(word))

    # Invariants

    def listen(self) -> None:
        for token, name in list(self.ends.items()):
            if self.machine.error(token) is not None:
                del self.ends[token]
                error, *producer = self.machine.ended(token)
                if error is ErrorCode.NONE and producer[0] >= 0:
                    self.producers[name].append((producer[0], producer[1]))
        for token, (_, number, committed) in list(self.asked.items()):
            error = self.machine.error(token)
            if error is not None:
                del self.asked[token]
                if error is ErrorCode.NONE:
                    self.told[number] = committed

    @invariant()
    def transactions_are_numbered_as_they_open(self) -> None:
        self.listen()
        for name in list(self.numbers):
            if name not in self.machine.shard.open:
                del self.numbers[name]
        for name in self.machine.shard.open:
            if name not in self.numbers:
                self.last_number += 1
                self.numbers[name] = self.last_number

    @invariant()
    def hard_state_is_what_the_log_says(self) -> None:
        assert hard_state(self.machine.reload()) == hard_state(self.machine.shard)

    @invariant()
    def no_transaction_is_half_committed(self) -> None:
        for number, outcomes in self.outcomes.items():
            assert len(outcomes) == 1, number
            assert self.told.get(number) in (None, *outcomes), number

    @invariant()
    def pending_only_while_a_write_is(self) -> None:
        if not self.machine.in_flight:
            for transaction in self.machine.shard.transactions.values():
                assert transaction.pending is None
                assert transaction.stored is not None

    @invariant()
    def memory_is_counted(self) -> None:
        known = self.machine.shard.transactions
        held = sum(state_bytes(name, each.stored) for name, each in known.items())
        assert self.machine.shard.memory.used == held

    def teardown(self) -> None:
        """Check that everything that is open ends without further requests."""
        machine = self.machine
        machine.hold = False
        while machine.in_flight:
            machine.commit()
        self.stop_and_start(0, False)
        for _ in range(10):
            machine.advance(70_000)
            while machine.to_send:
                self.write_markers([ErrorCode.NONE] * 3)
                self.tell_of_markers()
        self.no_transaction_is_half_committed()
        for transaction in machine.shard.transactions.values():
            assert transaction.stored is not None
            assert transaction.stored.state.is_idle, transaction
        for tp, partition in self.partitions.items():
            assert not partition.open, tp


class Transactions2(Transactions):
    """The same in version 2 of the protocol, where each transaction has its own epoch."""

    transaction_version = 2

    @rule(name=names, ahead=st.integers(0, 3))
    def use_epochs_up(self, name: str, ahead: int) -> None:
        """Jump to a state in which a producer id has few epochs left, as after many transactions."""
        machine = self.machine
        transaction = machine.shard.transactions.get(name)
        if (
            machine.in_flight
            or transaction is None
            or transaction.stored is None
            or not transaction.stored.state.is_idle
            or transaction.stored.producer_epoch >= LAST_EPOCH - ahead
        ):
            return
        value = transaction.stored._replace(producer_epoch=LAST_EPOCH - ahead)
        machine.store([machine.shard.encode(TransactionRecord(name, value))])
        self.producers[name].append((value.producer_id, value.producer_epoch))


SETTINGS = settings(max_examples=60, stateful_step_count=50, deadline=None, print_blob=True)
TestTransactions = Transactions.TestCase
TestTransactions.settings = SETTINGS
TestTransactions2 = Transactions2.TestCase
TestTransactions2.settings = SETTINGS
