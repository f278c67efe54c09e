"""Clients without transactions: producers (idempotent or not), group members, and the last readers."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from .answers import answers_commits, waits_for_coordinator
from .checker.history import READ_COMMITTED
from .clients import PATIENCE_S, Client, ClientFailed, Phase, Place, at, positions

#: A commit whose outcome the client has not reported by then is lost. librdkafka gives up a connection after 60 s
#: without an answer.
COMMIT_PATIENCE_S = 45.0
#: For so long, librdkafka may close a consumer that has lost a commit.
CLOSE_PATIENCE_S = 10.0


class CommitLost(Exception):
    """The client says nothing about a commit, and waits for no answer either."""


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
        #: What became of the last commit, and the last statistics, as far as they have come.
        self._committed: bool | None = None
        self._statistics = ""

    def work(self) -> None:
        """Be one member after another until everything is read."""
        while not self.phase.drained.is_set():
            self._statistics = ""
            consumer = self.member(
                self.group,
                self.isolation,
                **{"partition.assignment.strategy": self.strategy},
            )
            self.note_rebalances(consumer, self.topics)
            try:
                self._read(consumer, time.monotonic() + self.choice.uniform(5, 20))
            except CommitLost:
                self._leave_behind(consumer)
            else:
                consumer.close()

    def settings(self) -> dict[str, Any]:
        """Let a consumer tell what became of commits, and what it waits for."""
        return {
            "on_commit": self._note_committed,
            "stats_cb": self._note_statistics,
            "statistics.interval.ms": int(COMMIT_PATIENCE_S * 1000 / 9),
        }

    def _note_committed(
        self, error: KafkaError | None, partitions: list[TopicPartition] | None
    ) -> None:
        self._committed = error is None and all(tp.error is None for tp in partitions or ())

    def _note_statistics(self, statistics: str) -> None:
        self._statistics = statistics

    def _read(self, consumer: Consumer, until: float) -> None:
        while not self.phase.drained.is_set():
            if time.monotonic() > until and not self.phase.stopping.is_set():
                break
            parts = self._gather(consumer)
            if self.is_fenced:
                break
            if parts and self.choice.random() < 0.3:
                self._commit(consumer, positions(parts))

    def _gather(self, consumer: Consumer) -> list[Any]:
        return self.gather(consumer, 200, 0.25, group=self.group, isolation=self.isolation)

    def _commit(self, consumer: Consumer, offsets: list[TopicPartition]) -> None:
        """Commit, and continue to read until the client reports the outcome.

        Not by commit(asynchronous=False), which librdkafka can leave waiting forever. Errors: CommitLost, ClientFailed.
        """
        self._committed = None
        self.recorder.note("invoke", "commit", at(offsets), group=self.group)
        consumer.commit(offsets=offsets, asynchronous=True)
        deadline = time.monotonic() + COMMIT_PATIENCE_S
        while self._committed is None and time.monotonic() < deadline:
            self._gather(consumer)
        # Refused or unanswered: it is not certain that nothing was written.
        outcome = "ok" if self._committed else "info"
        self.recorder.note(outcome, "commit", at(offsets), group=self.group)
        if self._committed is None:
            self._look_into_lost_commit()
            raise CommitLost

    def _look_into_lost_commit(self) -> None:
        """Make sure that it is the client who has lost a commit. Errors: ClientFailed."""
        if waits_for_coordinator(self._statistics, COMMIT_PATIENCE_S / 2):
            raise ClientFailed(f"{self.name}: the coordinator of {self.group} does not answer")
        if not answers_commits(self.place.bootstrap, self.group):
            raise ClientFailed(f"{self.name}: nobody answers commits of {self.group}")
        self.commits_lost += 1

    def _leave_behind(self, consumer: Consumer) -> None:
        """Close a consumer that may never end, and listen to it no more."""
        self.left_behind = consumer
        closing = threading.Thread(target=consumer.close, daemon=True)
        closing.start()
        closing.join(CLOSE_PATIENCE_S)


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
