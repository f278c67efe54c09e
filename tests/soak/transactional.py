"""Clients with transactions: some only write, some read and write, some consume, transform and produce."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from .checker.history import READ_COMMITTED
from .clients import (
    PATIENCE_S,
    Client,
    ClientFailed,
    NoAnswer,
    Phase,
    Place,
    at,
    patiently,
    positions,
)

#: How transactions end, and how often. `abandon`: the producer disappears and one with the same id starts; `abandon
#: commit`: the same just after it requested the commit; `zombie`: it requests the commit after the other has started.
FATES = {"commit": 74, "abort": 14, "abandon": 5, "abandon commit": 3, "zombie": 4}


#: How long the records of one transaction may take to be acknowledged, before the producer is replaced.
SENDING_S = 40.0


class Transactor(Client):
    """A producer that sends a few records in each transaction."""

    def __init__(self, place: Place, phase: Phase, name: str, topic: str) -> None:
        super().__init__(place, phase, name)
        self.topic = topic
        self._producer: Producer | None = None

    def open(self) -> None:
        """Prepare what the transactions need."""

    def work(self) -> None:
        """Run transactions until told to stop, and leave none open."""
        self.open()
        self._replace_producer()
        while not self.phase.stopping.is_set():
            began = time.monotonic()
            self.pause(self.transaction(), began)
        self._replace_producer()

    def transaction(self) -> int:
        """Run one transaction; return how many records it sent."""
        sends = self.new_sends(self.topic, 12)
        self.run_transaction(sends)
        return len(sends)

    def _replace_producer(self) -> Producer:
        """Replace the producer by a new one with the same id, which aborts its open transaction."""
        producer = self.producer(
            **{"transactional.id": self.name, "transaction.timeout.ms": int(PATIENCE_S * 1000)}
        )
        error = patiently(lambda: producer.init_transactions(10))
        if error is not None:
            raise ClientFailed(f"{self.name}: init_transactions: {error}")
        self._producer = producer
        return producer

    def within(self, producer: Producer, parts: list[list[Any]]) -> bool:
        """Do the rest of the transaction, adding to its parts; False aborts it."""
        return True

    def run_transaction(self, sends: list[list[Any]], group: str | None = None) -> str:
        """Run one transaction to its end, and return its outcome."""
        producer = self._producer
        assert producer is not None
        parts: list[list[Any]] = list(sends)
        fate = self.choice.choices(list(FATES), weights=list(FATES.values()))[0]
        mine = {"txn": self.name, "isolation": READ_COMMITTED, "group": group}
        self.recorder.note("invoke", "txn", parts, **mine)
        outcome, ending = self._conduct(producer, sends, parts, fate)
        self.recorder.note(outcome, "txn", parts, ending=ending, **mine)
        if outcome == "ok":
            self.phase.note_acknowledged(sends)
        return outcome

    def _conduct(
        self, producer: Producer, sends: list[list[Any]], parts: list[list[Any]], fate: str
    ) -> tuple[str, int | None]:
        """Return the outcome, and when the commit was requested."""
        try:
            producer.begin_transaction()
            whole = not self.send_all(producer, sends, SENDING_S) and self.within(producer, parts)
        except KafkaException:
            whole = False  # the producer reports the reason when it is asked to abort
        except NoAnswer:
            # After its coordinator has moved, librdkafka sometimes stops adding partitions for minutes, while the
            # cluster serves all others. Its successor aborts the transaction.
            self._replace_producer()
            return "fail", None
        if not whole or fate == "abort":
            return self._abort(producer), None
        if fate == "abandon":
            self._replace_producer()
            return "fail", None
        if fate == "zombie":
            self._replace_producer()
            ending = time.monotonic_ns()
            refused = patiently(lambda: producer.commit_transaction(10))
            return "ok" if refused is None else "fail", ending
        ending = time.monotonic_ns()
        if fate == "abandon commit":
            try:
                producer.commit_transaction(self.choice.uniform(0.0005, 0.004))
                return "ok", ending
            except KafkaException:
                self._replace_producer()
                return "info", ending
        error = patiently(lambda: producer.commit_transaction(10))
        if error is None:
            return "ok", ending
        if error.txn_requires_abort() and not error.fatal():
            return self._abort(producer), ending
        self._replace_producer()
        return "info", ending

    def _abort(self, producer: Producer) -> str:
        """Abort the transaction, by a request or by a successor if this producer failed."""
        if producer is not self._producer:
            return "fail"  # it has a successor already
        if patiently(lambda: producer.abort_transaction(10)) is not None:
            self._replace_producer()
        return "fail"


class Mixer(Transactor):
    """A producer and consumer of one topic, so that transactions depend on each other in both directions."""

    def open(self) -> None:
        """Read all partitions from their beginnings."""
        self.consuming = self.consumer(self.name, **{"auto.offset.reset": "error"})
        everything = [
            TopicPartition(self.topic, partition, 0) for partition in range(self.place.partitions)
        ]
        self.recorder.note("ok", "assign", at(everything))
        self.consuming.assign(everything)

    def within(self, producer: Producer, parts: list[list[Any]]) -> bool:
        """Read records that others have committed in the meantime."""
        parts += self.polled(self.consuming.consume(50, 0.05))
        return True


class Transformer(Transactor):
    """A group member that writes one record for each that it reads, with the offsets in the transaction."""

    HANGING_S = 8.0

    def __init__(
        self, place: Place, phase: Phase, name: str, *, group: str, source: str, target: str
    ) -> None:
        super().__init__(place, phase, name, target)
        self.group = group
        self.topics = (source,)
        self._polled: list[list[Any]] = []
        self.consuming: Consumer | None = None

    def open(self) -> None:
        """Become a member of the group."""
        if self.consuming is not None:
            self.consuming.close()
        self.consuming = self.member(self.group)
        self.note_rebalances(self.consuming, list(self.topics))

    def work(self) -> None:
        """Transform until everything is read."""
        self.open()
        self._replace_producer()
        while not self.phase.drained.is_set():
            self.transaction()
        self._replace_producer()
        assert self.consuming is not None
        self.consuming.close()

    def transaction(self) -> int:
        """Transform the records of one poll."""
        assert self.consuming is not None
        whose = {"group": self.group, "isolation": READ_COMMITTED}
        parts = self.gather(self.consuming, 30, 0.2, **whose)
        if not parts:
            if self.is_fenced:
                self.open()
            return 0
        self._polled = parts
        self.busy = True
        sends = [
            ["send", f"{self.topic}-{tp.rpartition('-')[2]}", f"{self.new_value()}<{value}", None]
            for _, tp, records in parts
            for _, value in records
        ]
        outcome = self.run_transaction(sends, self.group)
        if outcome == "fail":
            self._go_back()
        else:
            self.phase.note_passed(self.group, parts)
        if outcome == "info":  # only the group knows where to continue
            self.open()
        self.busy = False
        return len(sends)

    def got(self, parts: list[list[Any]]) -> None:
        """Record nothing yet: polled records count when their transaction is complete."""

    def within(self, producer: Producer, parts: list[list[Any]]) -> bool:
        """Make the group's offsets part of the transaction."""
        assert self.consuming is not None
        ends = positions(self._polled)
        parts += at(ends)
        metadata = self.consuming.consumer_group_metadata()
        errors: list[KafkaError | None] = []

        def ask() -> None:
            ask_once = functools.partial(producer.send_offsets_to_transaction, ends, metadata, 10)
            errors.append(patiently(ask_once))

        # librdkafka waits forever if the coordinator is unavailable at the wrong moment (its issue 5456).
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(self.HANGING_S)
        if not errors:
            self._replace_producer()
        return bool(errors) and errors[0] is None  # a KafkaError cannot be compared with None

    def _go_back(self) -> None:
        """Continue at the group's offsets, which must be before the aborted records."""
        consuming = self.consuming
        assert consuming is not None
        asked = [TopicPartition(tp.topic, tp.partition) for tp in positions(self._polled)]
        found: list[TopicPartition] = []
        error = patiently(lambda: found.extend(consuming.committed(asked, 10)))
        try:
            if error is not None or any(tp.error for tp in found):
                raise KafkaException(error)
            for tp in found:
                consuming.seek(TopicPartition(tp.topic, tp.partition, max(tp.offset, 0)))
        except KafkaException:  # it has lost the partitions
            self.open()
        else:
            self.recorder.note("ok", "assign", at(found, -1))
