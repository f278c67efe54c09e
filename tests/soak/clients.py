"""The common parts of all clients under load: a thread, a rate, a history, and a patient producer or consumer."""

from __future__ import annotations

import logging
import random
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from .checker.history import READ_COMMITTED
from .recorder import Recorder

PATIENCE_S = 120.0

_SILENT = logging.getLogger(f"{__name__}.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

#: Longer than a broker may hold a fetch. librdkafka asks for a coordinator over the connection on which it fetches, so the answer
#: waits behind the fetch; a commit that it repeats sooner is dropped as soon as the coordinator is known, and so on for as long as
#: the answers take longer than this (compat/confluent-kafka/FINDINGS.md).
_CONSUMER: dict[str, Any] = {
    "fetch.wait.max.ms": 100,
    "retry.backoff.ms": 250,
    "retry.backoff.max.ms": 250,
}

_PATIENT: dict[str, Any] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "socket.connection.setup.timeout.ms": 5000,
    "log_level": 0,
    "logger": _SILENT,  # a fenced producer reports it on standard error at every level
}


class ClientFailed(Exception):
    """A client saw something that no kill of a broker explains."""


class NoAnswer(ClientFailed):
    """Raised if a request was neither acknowledged nor refused."""


@dataclass(frozen=True, slots=True)
class Place:
    """The environment of the load: brokers, topics, rates.

    Unit: rate in records a second for each producer. Shape: with both protocols, a member joins by the classic one or by
    that of KIP-848.
    """

    bootstrap: str
    directory: Path
    partitions: int
    rate: float
    seed: int
    both_protocols: bool = False


@dataclass(slots=True)
class Phase:
    """The progress of the run, which clients check between two operations.

    Shape: `acknowledged` is the last such offset of each partition, `passed` the last one that each
    group got; each client adds what it knows. `settled` is what share groups are done with, as far as they know; what
    `passed` has of them is the last offset before the first that they are not done with.
    """

    stopping: threading.Event = field(default_factory=threading.Event)  # send no more
    drained: threading.Event = field(default_factory=threading.Event)  # read no more
    acknowledged: dict[str, int] = field(default_factory=dict)
    passed: dict[tuple[str, str], int] = field(default_factory=dict)
    settled: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note_acknowledged(self, parts: list[list[Any]]) -> None:
        """Record that offsets are certainly in the log."""
        with self._lock:
            for kind, tp, *rest in parts:
                if kind == "send" and rest[1] is not None:
                    self.acknowledged[tp] = max(rest[1], self.acknowledged.get(tp, -1))

    def note_passed(self, group: str, parts: list[list[Any]]) -> None:
        """Record offsets that a group has read."""
        with self._lock:
            for tp, offset in ((part[1], part[2][-1][0]) for part in parts if part[0] == "poll"):
                self.passed[group, tp] = max(offset, self.passed.get((group, tp), -1))

    def note_delivered(self, group: str, records: list[tuple[str, int]]) -> None:
        """Record that a share group has unsettled records again."""
        with self._lock:
            for tp, offset in records:
                self.settled.setdefault((group, tp), set()).discard(offset)
                if offset <= self.passed.get((group, tp), -1):
                    self.passed[group, tp] = offset - 1

    def note_settled(self, group: str, records: list[tuple[str, int]]) -> None:
        """Record that a share group has settled records."""
        with self._lock:
            for tp, offset in records:
                done = self.settled.setdefault((group, tp), set())
                done.add(offset)
                last = self.passed.get((group, tp), min(done) - 1)
                while last + 1 in done:
                    last += 1
                self.passed[group, tp] = last

    def behind(self, group: str, topics: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return where a group is behind the acknowledged offsets: its position and its goal."""
        with self._lock:
            return {
                tp: (self.passed.get((group, tp), -1), offset)
                for tp, offset in self.acknowledged.items()
                if tp.rpartition("-")[0] in topics and self.passed.get((group, tp), -1) < offset
            }


class Client(threading.Thread, ABC):
    """One process of the history; a member of `group` reads `topics`."""

    group = ""
    topics: Sequence[str] = ()

    def __init__(self, place: Place, phase: Phase, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.place = place
        self.phase = phase
        self.choice = random.Random(f"{place.seed} {name}")
        self.recorder = Recorder(place.directory, name)
        self.failure: Exception | None = None
        self.active = time.monotonic()  # when something last came to it
        self.busy = False  # with something that came to it
        self.errors: list[str] = []  # what polls gave instead of records
        self.is_fenced = False  # for good: another consumer has to take its place
        self.left_behind: Consumer | None = None  # its rebalances are no longer relevant
        self.protocol = ""  # by which it is a member
        self.polled_by: Counter[str] = Counter()  # the number of records received, by protocol
        self.commits_lost = 0  # those that the client did not report
        self._sent = 0
        self._gathered: list[Message] = []
        self._whose: dict[str, str] = {}
        self._began = 0

    @abstractmethod
    def work(self) -> None:
        """Do operations until the phase is over."""

    def run(self) -> None:
        """Work, and keep any error for the thread that checks the clients."""
        try:
            self.work()
        except Exception as error:  # noqa: BLE001  # the root of a thread
            self.failure = error
        finally:
            self.recorder.close()

    def new_value(self) -> str:
        """Return a value that was never sent before."""
        self._sent += 1
        return f"{self.name}.{self._sent}"

    def new_sends(self, topic: str, most: int) -> list[list[Any]]:
        """Return up to `most` sends to random partitions, in the form of the history."""
        return [
            ["send", f"{topic}-{self.choice.randrange(self.place.partitions)}", value, None]
            for value in (self.new_value() for _ in range(self.choice.randint(1, most)))
        ]

    def pause(self, records: int, began: float) -> None:
        """Wait as long as the rate requires, or until sending is over."""
        self.phase.stopping.wait(max(0.0, records / self.place.rate - (time.monotonic() - began)))

    def producer(self, **settings: Any) -> Producer:
        """Return a producer that keeps trying while a broker is down."""
        return Producer(
            {
                "bootstrap.servers": self.place.bootstrap,
                "client.id": self.name,
                "acks": "all",
                "linger.ms": 1,
                "batch.num.messages": 10,  # several batches in flight for each operation
                "delivery.timeout.ms": int(PATIENCE_S * 1000),
                **_PATIENT,
                **settings,
            }
        )

    def consumer(self, group: str, isolation: str = READ_COMMITTED, **settings: Any) -> Consumer:
        """Return a consumer that commits only on request."""
        return Consumer(
            {
                "bootstrap.servers": self.place.bootstrap,
                "client.id": self.name,
                "group.id": group,
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "check.crcs": True,
                **_PATIENT,
                **_CONSUMER,
                **settings,
            }
        )

    def member(self, group: str, isolation: str = READ_COMMITTED, **classic: Any) -> Consumer:
        """Return a group's consumer, of either protocol if the plan has both; `classic` applies to the classic one."""
        self.is_fenced = False
        self.protocol = self._protocol()
        if self.protocol == "consumer":
            return self.consumer(
                group,
                isolation,
                **{"group.protocol": "consumer", "error_cb": self._note_fence},
                **self.settings(),
            )
        return self.consumer(
            group,
            isolation,
            **{"session.timeout.ms": 3000, "heartbeat.interval.ms": 300, **classic},
            **self.settings(),
        )

    def _protocol(self) -> str:
        """Return the protocol by which to join: at first members with odd numbers have the newer one, later chance decides."""
        if not self.place.both_protocols:
            return "classic"
        newer = self.choice.random() < 0.5 if self.protocol else self.name.endswith("1")
        return "consumer" if newer else "classic"

    def settings(self) -> dict[str, Any]:
        """Return further settings of a group's consumer, of either protocol."""
        return {}

    def _note_fence(self, error: KafkaError) -> None:
        """Note that the group was downgraded to a classic one, as in Apache Kafka.

        The sessions of all members of the other protocol had ended, which ends a consumer of librdkafka
        (GROUP_ID_NOT_FOUND).
        """
        if error.code() == KafkaError._FATAL or error.fatal():
            self.is_fenced = True

    def send_all(
        self, producer: Producer, sends: list[list[Any]], patience_s: float = PATIENCE_S + 10
    ) -> list[str]:
        """Send, wait for every answer and fill in the offsets; return the errors.

        Errors: NoAnswer if answers are missing for that long.
        """
        errors: list[str] = []

        def delivered(send: list[Any], error: KafkaError | None, message: Message) -> None:
            if error is None:
                send[3] = message.offset()
            else:
                errors.append(str(error))

        for send in sends:
            topic, _, partition = send[1].rpartition("-")
            producer.produce(
                topic,
                send[2].encode(),
                partition=int(partition),
                on_delivery=lambda error, message, send=send: delivered(send, error, message),
            )
            producer.poll(0)
        deadline = time.monotonic() + patience_s
        while producer.flush(1.0):
            if time.monotonic() > deadline:
                raise NoAnswer(f"{self.name}: no answer to a send")
        if not errors:
            self.active = time.monotonic()
        return errors

    def polled(self, messages: Iterable[Message]) -> list[list[Any]]:
        """Return the polled records in the form of the history.

        Shape: adjacent records of one partition are grouped. Errors: ClientFailed for an error that an unavailable
        broker does not explain.
        """
        parts: list[list[Any]] = []
        for message in messages:
            error = message.error()
            if error is not None:
                if error.fatal() or error.code() in (
                    KafkaError._AUTO_OFFSET_RESET,
                    KafkaError.OFFSET_OUT_OF_RANGE,
                    KafkaError._BAD_MSG,
                ):
                    raise ClientFailed(f"{self.name}: {error}")
                if error.code() != KafkaError._PARTITION_EOF:
                    self.errors.append(str(error))
                continue
            tp = f"{message.topic()}-{message.partition()}"
            value = message.value()
            assert value is not None
            if not parts or parts[-1][1] != tp:
                parts.append(["poll", tp, []])
            parts[-1][2].append([message.offset(), value.decode()])
        if parts:
            self.active = time.monotonic()
        return parts

    def note_rebalances(self, consumer: Consumer, topics: list[str]) -> None:
        """Subscribe, and record assigned and revoked partitions in order with the polls."""

        def given(_: Consumer, partitions: list[TopicPartition]) -> None:
            changed("assign", partitions)

        def taken(_: Consumer, partitions: list[TopicPartition]) -> None:
            changed("revoke", partitions)

        def changed(op: str, partitions: list[TopicPartition]) -> None:
            if consumer is not self.left_behind:
                self._note_gathered()
                self.recorder.note("ok", op, at(partitions, -1))

        consumer.subscribe(topics, on_assign=given, on_revoke=taken, on_lost=taken)

    def gather(self, consumer: Consumer, most: int, timeout_s: float, **whose: str) -> list[Any]:
        """Poll up to the given number of records, record them, and return them in the form of the history.

        One by one, because a rebalance may happen between any two: the records polled before it are recorded before it
        and not returned, because other members may own those partitions now.
        """
        self._whose = whose
        self._began = time.monotonic_ns()
        deadline = time.monotonic() + timeout_s
        while len(self._gathered) < most:
            wait = 0.0 if self._gathered else max(0.0, deadline - time.monotonic())
            message = consumer.poll(wait)
            if message is None:
                break
            self._gathered.append(message)
        return self._note_gathered()

    def _note_gathered(self) -> list[Any]:
        parts = self.polled(self._gathered)
        self._gathered.clear()
        if parts:
            self.recorder.note("ok", "poll", parts, invoked=self._began, **self._whose)
            self.polled_by[self.protocol] += sum(len(part[2]) for part in parts)
            self.got(parts)
        return parts

    def got(self, parts: list[list[Any]]) -> None:
        """Record the position of the group."""
        self.phase.note_passed(self.group, parts)


def at(partitions: Iterable[TopicPartition], offset: int | None = None) -> list[list[Any]]:
    """Return partitions with their offsets, or all with one, as the history has them."""
    return [
        ["at", f"{tp.topic}-{tp.partition}", tp.offset if offset is None else offset]
        for tp in partitions
    ]


def positions(parts: list[list[Any]]) -> list[TopicPartition]:
    """Return the end of the polled records in each partition."""
    ends = {part[1]: part[2][-1][0] + 1 for part in parts}
    return [
        TopicPartition(tp.rpartition("-")[0], int(tp.rpartition("-")[2]), offset)
        for tp, offset in ends.items()
    ]


def patiently(action: Callable[[], object]) -> KafkaError | None:
    """Repeat an operation until it is answered; return the error if repeating does not help."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            action()
            return None
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            transient = error.retriable() or error.code() in (
                KafkaError._TIMED_OUT,
                KafkaError._TRANSPORT,
                KafkaError._ALL_BROKERS_DOWN,
            )
            if error.fatal() or error.txn_requires_abort() or not transient:
                return error
            if time.monotonic() > deadline:
                return error
            time.sleep(0.02)
