"""Clients without transactions: producers (idempotent or not), group members, and the last readers."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from .checker.history import READ_COMMITTED
from .clients import PATIENCE_S, Client, ClientFailed, Phase, Place, at, positions


class Sender(Client):
    """A producer that sends a handful of records at a time and waits for all of them."""

    def __init__(
        self, place: Place, phase: Phase, name: str, topic: str, *, idempotent: bool
    ) -> None:
        super().__init__(place, phase, name)
        self.topic = topic
        self.idempotent = idempotent

    def work(self) -> None:
        """Send until told to stop."""
        producer = self.producer(**{"enable.idempotence": self.idempotent})
        while not self.phase.stopping.is_set():
            began = time.monotonic()
            sends = self.new_sends(self.topic, 60)
            self.recorder.note("invoke", "send", sends)
            errors = self.send_all(producer, sends)
            self.recorder.note("info" if errors else "ok", "send", sends)
            if errors:
                raise ClientFailed(f"{self.name}: {errors[0]}")
            self.phase.note_acknowledged(sends)
            self.pause(len(sends), began)


class GroupMember(Client):
    """A group member that leaves and returns, with or without a commit."""

    def __init__(
        self,
        place: Place,
        phase: Phase,
        name: str,
        *,
        group: str,
        topics: Sequence[str],
        isolation: str = READ_COMMITTED,
        strategy: str = "range",
    ) -> None:
        super().__init__(place, phase, name)
        self.group = group
        self.topics = list(topics)
        self.isolation = isolation
        self.strategy = strategy

    def work(self) -> None:
        """Be one member after another until everything is read."""
        while not self.phase.drained.is_set():
            consumer = self.member(
                self.group,
                self.isolation,
                **{"partition.assignment.strategy": self.strategy},
            )
            self.note_rebalances(consumer, self.topics)
            self._read(consumer, time.monotonic() + self.choice.uniform(5, 20))
            consumer.close()

    def _read(self, consumer: Consumer, until: float) -> None:
        whose = {"group": self.group, "isolation": self.isolation}
        while not self.phase.drained.is_set():
            if time.monotonic() > until and not self.phase.stopping.is_set():
                break
            parts = self.gather(consumer, 200, 0.25, **whose)
            if self.is_fenced:
                break
            if parts and self.choice.random() < 0.3:
                self._commit(consumer, positions(parts))

    def _commit(self, consumer: Consumer, offsets: list[TopicPartition]) -> None:
        self.recorder.note("invoke", "commit", at(offsets), group=self.group)
        try:
            answer = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            answer = None  # refused or unanswered: it is not certain that nothing was written
        done = answer is not None and all(tp.error is None for tp in answer)
        self.recorder.note("ok" if done else "info", "commit", at(offsets), group=self.group)


class LastReader(Client):
    """A consumer that reads every partition from beginning to end, after everything else is over."""

    def __init__(
        self, place: Place, phase: Phase, name: str, topics: Sequence[str], isolation: str
    ) -> None:
        super().__init__(place, phase, name)
        self.topics = topics
        self.isolation = isolation

    def work(self) -> None:
        """Read all partitions to their ends."""
        consumer = self.consumer(
            self.name,
            self.isolation,
            **{"enable.partition.eof": True, "auto.offset.reset": "error"},
        )
        partitions = [
            TopicPartition(topic, partition, 0)
            for topic in self.topics
            for partition in range(self.place.partitions)
        ]
        self.recorder.note("ok", "assign", at(partitions))
        consumer.assign(partitions)
        left = {(tp.topic, tp.partition) for tp in partitions}
        deadline = time.monotonic() + 3 * PATIENCE_S
        while left:
            if time.monotonic() > deadline:
                raise ClientFailed(f"{self.name}: the ends of {sorted(left)} were not reached")
            began = time.monotonic_ns()
            messages = consumer.consume(1000, 1.0)
            parts = self.polled(messages)
            if parts:
                self.recorder.note("ok", "poll", parts, isolation=self.isolation, invoked=began)
            for message in messages:
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    left.discard((message.topic(), message.partition()))
                    end = TopicPartition(message.topic(), message.partition(), message.offset())
                    self.recorder.note("ok", "end", at([end]), isolation=self.isolation)
        consumer.close()
