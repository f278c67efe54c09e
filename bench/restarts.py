"""How clients fare while brokers are restarted. python -m bench.restarts --subject kwire

Three brokers of one kind, kwire or Apache Kafka 3.9.2, are stopped with SIGTERM and started again in turn, each once all
replicas are in sync. Meanwhile each client, in a process of its own and with its default settings, copies a topic: it
polls up to five records, and writes them and its group's offsets in one transaction. kafka-python produces without
transactions (acks=all, idempotent) and reads its own records as a group. In the end a new consumer (read_committed)
compares each copy with the offsets that the group has committed.

A client is a program with the arguments BOOTSTRAP SOURCE TARGET NAME (NAME is its group and transactional id) that works
until its standard input ends. Lines of its output: "call NAME MILLISECONDS", "again ..." (an error of a call that is
retriable, so that the call is repeated; its time counts from the first attempt), "abort ..." (an error after which the
transaction was aborted and repeated), "fatal ..." (an error after which the client had to be made anew).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from aiokafka.errors import KafkaError as AiokafkaError
from kafka.errors import KafkaError as KafkaPythonError

from tests.support.broker_process import REPOSITORY
from tests.support.java_programs import java_program
from tests.support.kafka import KAFKA_3, KAFKA_4, QUICK_JVM, ZooKeeperProcess

from ._clusters import BROKERS, KAFKA, KWIRE, Trio, wait_until
from .broker import note

PARTITIONS = 3
RECORDS = 15_000
AT_ONCE = 5
PAUSE_S = 0.2
PATIENCE_S = 120.0
LONG_MS = 5000


def say(*words: object) -> None:
    """Print a line for the parent, in one write: a client may have several threads."""
    sys.stdout.write(" ".join(" ".join(map(str, words)).split()) + "\n")
    sys.stdout.flush()


def stopping() -> threading.Event:
    """An event that is set when standard input ends."""
    event = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        event.set()

    threading.Thread(target=wait, daemon=True).start()
    return event


def call(action: Callable[..., Any], *arguments: Any, retriable: Callable[[Any], bool]) -> Any:
    """Time a call, and repeat it as long as its error is retriable. Errors: those that are not."""
    began = time.monotonic()
    try:
        while True:
            try:
                return action(*arguments)
            except Exception as error:
                if not retriable(error):
                    raise
                say("again", action.__name__, repr(error))
    finally:
        say("call", action.__name__, round((time.monotonic() - began) * 1000))


# The clients


class ConfluentCopier:
    """librdkafka, with transactions."""

    def __init__(self, bootstrap: str, source: str, target: str, name: str) -> None:
        self.target = target
        self.common: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.name = name
        reading = {"group.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self.consumer = confluent_kafka.Consumer(self.common | reading)
        self.consumer.subscribe([source])

    def call(self, action: Callable[..., Any], *arguments: Any) -> Any:
        """A call that is repeated if librdkafka says so."""
        return call(action, *arguments, retriable=lambda error: error.args[0].retriable())

    def open(self) -> None:
        """Make a producer."""
        self.producer = confluent_kafka.Producer(self.common | {"transactional.id": self.name})
        self.call(self.producer.init_transactions, PATIENCE_S)

    def copy(self, records: list[confluent_kafka.Message]) -> None:
        """One transaction. Errors: KafkaException."""
        producer = self.producer
        ends: dict[tuple[str, int], int] = {}
        producer.begin_transaction()
        for record in records:
            producer.produce(self.target, record.value(), partition=record.partition())
            ends[record.topic(), record.partition()] = record.offset() + 1
        offsets = [confluent_kafka.TopicPartition(*place, end) for place, end in ends.items()]
        group = self.consumer.consumer_group_metadata()
        self.call(producer.send_offsets_to_transaction, offsets, group, PATIENCE_S)
        self.call(producer.commit_transaction, PATIENCE_S)

    def go_back(self) -> None:
        """Read again from the committed offsets. Errors: KafkaException."""
        for place in self.consumer.committed(self.consumer.assignment(), PATIENCE_S):
            place.offset = max(0, place.offset)
            self.consumer.seek(place)

    def run(self) -> None:
        """Copy until told to stop."""
        stop = stopping()
        self.open()
        while not stop.is_set():
            records = [each for each in self.consumer.consume(AT_ONCE, 0.5) if not each.error()]
            if not records:
                continue
            try:
                self.copy(records)
            except confluent_kafka.KafkaException as error:
                try:
                    self.call(self.producer.abort_transaction, PATIENCE_S)
                    say("abort", error)
                except confluent_kafka.KafkaException as worse:
                    say("fatal", error, "then", worse)
                    self.open()
                self.go_back()
            time.sleep(PAUSE_S)
        self.consumer.close()


async def aiokafka_call(action: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    """`call` for coroutines. Errors: those that are not retriable."""
    began = time.monotonic()
    try:
        while True:
            try:
                return await action(*arguments)
            except AiokafkaError as error:
                if not error.retriable:
                    raise
                say("again", action.__name__, repr(error))
    finally:
        say("call", action.__name__, round((time.monotonic() - began) * 1000))


async def copy_with_aiokafka(bootstrap: str, source: str, target: str, name: str) -> None:
    """aiokafka, with transactions."""
    stop = stopping()
    common: dict[str, Any] = {"bootstrap_servers": bootstrap}
    reading = {"group_id": name, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = aiokafka.AIOKafkaConsumer(source, **common, **reading)
    await consumer.start()

    async def opened() -> aiokafka.AIOKafkaProducer:
        producer = aiokafka.AIOKafkaProducer(**common, transactional_id=name)
        await aiokafka_call(producer.start)
        return producer

    async def copy(found: dict[Any, list[Any]]) -> None:
        await producer.begin_transaction()
        for place, records in found.items():
            for record in records:
                await aiokafka_call(producer.send, target, record.value, None, place.partition)
        offsets = {place: records[-1].offset + 1 for place, records in found.items()}
        await aiokafka_call(producer.send_offsets_to_transaction, offsets, name)
        await aiokafka_call(producer.commit_transaction)

    producer = await opened()
    while not stop.is_set():
        found = await consumer.getmany(timeout_ms=500, max_records=AT_ONCE)
        if not found:
            continue
        try:
            await copy(found)
        except AiokafkaError as error:
            try:
                await aiokafka_call(producer.abort_transaction)
                say("abort", repr(error))
            except (AiokafkaError, AssertionError) as worse:
                say("fatal", repr(error), "then", repr(worse))
                with suppress(AiokafkaError, AssertionError):
                    await producer.stop()
                producer = await opened()
            for place in consumer.assignment():
                consumer.seek(place, await consumer.committed(place) or 0)
        await asyncio.sleep(PAUSE_S)
    await producer.stop()
    await consumer.stop()


def copy_with_kafka_python(bootstrap: str, source: str, target: str, name: str) -> None:
    """kafka-python: a producer of the target, and a group that reads it. The source is not used."""
    stop = stopping()

    def retriable(error: Any) -> bool:
        return isinstance(error, KafkaPythonError) and error.retriable

    def produce() -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, acks="all", enable_idempotence=True
        )

        def send(number: int) -> None:
            partition = number % PARTITIONS
            value = f"{partition}:{number // PARTITIONS}".encode()
            producer.send(target, value, partition=partition).get(PATIENCE_S)

        number = 0
        while not stop.is_set():
            try:
                call(send, number, retriable=lambda _: False)
            except KafkaPythonError as error:
                say("fatal", repr(error))
            number += 1
            time.sleep(PAUSE_S / AT_ONCE)
        producer.close()

    producing = threading.Thread(target=produce)
    producing.start()
    consumer = kafka.KafkaConsumer(
        target,
        bootstrap_servers=bootstrap,
        group_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    last = False
    while not last:
        last = not producing.is_alive()
        if consumer.poll(2000 if last else 500):
            try:
                call(consumer.commit, retriable=retriable)
            except KafkaPythonError as error:
                say("abort", repr(error))
    consumer.close()


CLIENTS: dict[str, Callable[[str, str, str, str], None]] = {
    "kafka-python": copy_with_kafka_python,
    "confluent-kafka": lambda *arguments: ConfluentCopier(*arguments).run(),
    "aiokafka": lambda *arguments: asyncio.run(copy_with_aiokafka(*arguments)),
}
JAVA = {f"java-{release}": release for release in (KAFKA_3, KAFKA_4)}
GO = "franz-go"
NAMES = (*CLIENTS, *JAVA, GO)


def label(name: str) -> str:
    """A client with its version."""
    if name in CLIENTS:
        return f"{name} {version(name)}"
    if name == GO:
        wanted = (REPOSITORY / "compat" / "franz-go" / "go.mod").read_text().split()
        return f"{name} {wanted[wanted.index('github.com/twmb/franz-go') + 1][1:]}"
    return f"kafka-clients {JAVA[name]}"


def program(name: str, directory: Path) -> list[str]:
    """The command line of a client, without its arguments."""
    if name in CLIENTS:
        return [sys.executable, "-m", "bench.restarts", "--client", name]
    if name in JAVA:
        return java_program("CopyInTransactions", JAVA[name], flags=(*QUICK_JVM, "-Xmx128m"))
    made = directory / "copier"
    folder = REPOSITORY / "compat" / "franz-go"
    subprocess.run(["go", "build", "-o", str(made), "./copier"], cwd=folder, check=True)
    return [str(made)]


# The measurement


class Workload:
    """A client at work, and what it said."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        self.name = name
        self.calls = 0
        self.long: list[int] = []
        self.longest = (0, "none")
        self.errors: dict[str, list[str]] = {"again": [], "abort": [], "fatal": []}
        #: The current restart and when it began; named with what was long, and with errors.
        self.restart = (0, time.monotonic())
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.thread = threading.Thread(target=self._listen)
        self.thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                what, _, rest = line.strip().partition(" ")
                if what == "call":
                    self._note_call(*rest.split())
                else:
                    self.errors[what].append(rest)
                    self._note(line.strip()[:300])

    def _note_call(self, name: str, milliseconds: str) -> None:
        took = int(milliseconds)
        self.calls += 1
        self.longest = max(self.longest, (took, name))
        if took > LONG_MS:
            self.long.append(took)
            self._note(f"{name} took {took} ms")

    def _note(self, what: str) -> None:
        number, began = self.restart
        note(f"{time.monotonic() - began:.1f} s after stop {number}: {self.name}: {what}")

    def finish(self) -> None:
        """Let it stop; counts as an error if it does not, or did before."""
        assert self.process.stdin is not None
        ended = self.process.poll()
        with suppress(OSError):
            self.process.stdin.close()
        try:
            ended = self.process.wait(PATIENCE_S) or ended
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.errors["fatal"].append("it did not stop")
        self.thread.join()
        if ended:
            self.errors["fatal"].append(f"it ended with status {ended}")
            note(f"{self.name}: ended with status {ended}")

    def row(self, trio: Trio, copied: tuple[int, bool]) -> str:
        """Its row of the table."""
        again, abort, fatal = (len(each) for each in self.errors.values())
        figures = (self.calls, f"{self.longest[0] / 1000:.1f} ({self.longest[1]})", len(self.long))
        errors = (again, abort, fatal, f"{copied[0]:,}", "yes" if copied[1] else "**no**")
        return f"| {label(self.name)} | {trio.name} | {' | '.join(map(str, figures + errors))} |"


def bootstrap(trio: Trio) -> str:
    """The addresses of all brokers."""
    return ",".join(broker.bootstrap for broker in trio.brokers)


def fill(trio: Trio, topics: list[str]) -> None:
    """Write the records to copy: "PARTITION:OFFSET"."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap(trio), "linger.ms": 20})
    for number in range(RECORDS):
        partition, offset = number % PARTITIONS, number // PARTITIONS
        for topic in topics:
            producer.produce(topic, f"{partition}:{offset}", partition=partition)
        producer.poll(0)
        if number % 1000 == 0:
            producer.flush()
    assert producer.flush(PATIENCE_S) == 0


def copied(trio: Trio, name: str) -> tuple[int, bool]:
    """How many records a new consumer finds in a copy, and whether these are exactly those before the group's offsets."""
    settings = {
        "bootstrap.servers": bootstrap(trio),
        "group.id": name,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = confluent_kafka.Consumer(settings)
    group_reads = f"{name}-out" if name == "kafka-python" else f"{name}-in"
    partitions = range(PARTITIONS)
    asked = [confluent_kafka.TopicPartition(group_reads, each) for each in partitions]
    committed = {each.partition: max(0, each.offset) for each in consumer.committed(asked, 60.0)}
    consumer.assign([confluent_kafka.TopicPartition(f"{name}-out", each, 0) for each in partitions])
    found: Counter[str] = Counter()
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        record = consumer.poll(60.0)
        if record is None:
            break
        if record.error() is None:
            found[(record.value() or b"").decode()] += 1
        else:
            ended.add(record.partition() or 0)
    consumer.close()
    wanted = Counter(f"{each}:{number}" for each in partitions for number in range(committed[each]))
    if found != wanted:
        note(f"{name}: missing {(wanted - found).total()}, too many {(found - wanted).total()}")
    return found.total(), found == wanted and len(ended) == PARTITIONS


def all_in_sync(trio: Trio) -> bool:
    """Whether every replica of every topic is in sync, according to the controller."""
    try:
        topics = trio.topics(max(0, trio.controller()))
    except OSError:
        return False
    rows = [row for topic in topics for row in topic["partitions"]]
    return all(len(row["isr_nodes"]) == len(row["replica_nodes"]) for row in rows)


def measure(trio: Trio, options: argparse.Namespace, directory: Path, cleanup: ExitStack) -> None:
    """Run the clients through all restarts, and print the table."""
    names = options.clients
    commands = {name: program(name, directory) for name in names}
    topics = [f"{name}-{end}" for name in names for end in ("in", "out")]
    trio.create(BROKERS, PARTITIONS, topics)
    wait_until(lambda: all_in_sync(trio), "all in sync")
    fill(trio, [topic for topic in topics if topic.endswith("-in")])
    workloads = []
    for name in names:
        arguments = [bootstrap(trio), f"{name}-in", f"{name}-out", name]
        workload = Workload(name, [*commands[name], *arguments], directory / f"{name}.log")
        cleanup.callback(workload.process.kill)
        workloads.append(workload)
    wait_until(lambda: all(each.calls > AT_ONCE for each in workloads), "all clients at work")
    began = time.monotonic()
    down: list[float] = []
    for number in range(options.restarts):
        stopped = time.monotonic()
        for workload in workloads:
            workload.restart = (number + 1, stopped)
        trio.brokers[number % BROKERS].stop()
        ended = time.monotonic()
        time.sleep(options.down)
        trio.start_again(number % BROKERS)
        down.append(time.monotonic() - stopped)
        synced = wait_until(lambda: all_in_sync(trio), "all in sync")
        note(
            f"restart {number + 1}: stop {ended - stopped:.1f} s, stop to ready {down[-1]:.1f} s,"
            f" all in sync after {synced:.1f} s more"
        )
        time.sleep(options.pause)
    took = time.monotonic() - began
    for workload in workloads:
        workload.finish()
    print(
        f"Linux {platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()}, load"
        f" {os.getloadavg()[1]:.0f}; {options.restarts} restarts in {took:.0f} s, a broker away for"
        f" {sum(down) / len(down):.1f} s each time\n"
    )
    print(
        "| client | brokers | calls | longest, s | over 5 s | repeated | aborted | not retriable"
        " | records | exactly once |\n|---|---|--:|--:|--:|--:|--:|--:|--:|---|"
    )
    for workload in workloads:
        print(workload.row(trio, copied(trio, workload.name)), flush=True)


def main() -> None:
    """Start the brokers and the clients."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.restarts")
    parser.add_argument("--subject", choices=("kwire", "kafka"), default="kwire")
    parser.add_argument("--restarts", type=int, default=30)
    parser.add_argument("--clients", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--down", type=float, default=1.0, help="seconds between stop and start")
    parser.add_argument("--pause", type=float, default=5.0, help="seconds from in sync to stop")
    parser.add_argument("--keep", type=Path, help="a directory for data and logs, which stays")
    parser.add_argument("--client", choices=tuple(CLIENTS), help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        CLIENTS[options.client](*options.arguments)
        return
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as cleanup:
        directory = options.keep or Path(temporary)
        zookeeper = ZooKeeperProcess(directory / "zookeeper")
        cleanup.callback(zookeeper.stop)
        zookeeper.start()
        settings = {"auto.leader.rebalance.enable": "true"}
        name = KWIRE if options.subject == "kwire" else KAFKA
        trio = Trio(name, directory, zookeeper, settings, QUICK_JVM)
        cleanup.callback(trio.stop)
        trio.start()
        measure(trio, options, directory, cleanup)


if __name__ == "__main__":
    main()
