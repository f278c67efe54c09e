"""The cost of a broker for a test: kwire.testing, Apache Kafka 3.9.2 as a child process, and librdkafka's mock. python -m bench.testing

All three serve the same clients (confluent-kafka) and the same tests, in turn, A B C, A B C. Apache Kafka runs as one KRaft node, broker and
controller, with the JVM flags of its own start script; its start includes formatting the directory, as in its container image. It has
group.initial.rebalance.delay.ms=0, as kwire.testing does. The mock belongs to a producer with test.mock.num.brokers=1. It delays the first
rebalance of a group for 3 s, which cannot be changed from Python, and can only create topics automatically. `--write` puts the table into
docs/results/testing.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kwire.testing import Broker, ProcessBroker
from tests.support.broker_process import REPOSITORY
from tests.support.kafka import KAFKA_3, Kafka43Broker

from .broker import BROKER_JVM, note

KWIRE, KAFKA, MOCK = "kwire.testing", f"Apache Kafka {KAFKA_3}", "librdkafka's mock"
FIRST = "ready in process, the first one, with imports"
READY = "ready in process: a namespace of its own"
CPU = "the same, CPU time of the process"
STOPPED = "that one stopped and removed"
CHILD = "ready in a child process"
JOIN = "first group join: from subscribing to the first record"
JOIN_AGAIN = "group join, later ones"
TESTS = "100 tests with a topic each: all of `pytest`"
ROWS = (FIRST, READY, CPU, STOPPED, CHILD, JOIN, JOIN_AGAIN, TESTS)
#: The maximum median time of a namespace. Unit: seconds.
GOAL = 0.005

PAGE = REPOSITORY / "docs" / "results" / "testing.md"
BEGIN = "<!-- Written by `make bench BENCH=testing ARGS=--write`. -->"
END = "<!-- End of what is written. -->"

#: The tests: a topic, a record to it and back. The fixture `address` is the address of the test's broker.
TEST_FILE = """
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

@pytest.mark.parametrize("number", range(100))
def test_record_comes_back(address, number):
    topic = f"orders-{number}"
    servers = {"bootstrap.servers": address}
    if CREATES:
        admin = AdminClient(servers)
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer({**servers, "linger.ms": 0})
    producer.produce(topic, b"one pizza", partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer({**servers, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(10).value() == b"one pizza"
    consumer.close()
"""
FIXTURES = {
    KWIRE: """
CREATES = True

@pytest.fixture
def address(kafka):
    return kafka.bootstrap_servers
""",
    KAFKA: """
import os, pathlib
from bench.testing import KRaftNode
CREATES = True

@pytest.fixture(scope="session")
def address(tmp_path_factory):
    broker = KRaftNode.new(tmp_path_factory.mktemp("kafka"))
    broker.start()
    yield broker.bootstrap
    broker.stop()
""",
    MOCK: """
from bench.testing import mock_address
CREATES = False

@pytest.fixture
def address():
    owner, found = mock_address()
    yield found
""",
}


class KRaftNode(Kafka43Broker):
    """Apache Kafka 3.9.2, broker and controller in one KRaft process."""

    version = KAFKA_3

    @classmethod
    def new(cls, directory: Path) -> KRaftNode:
        """A node that has not been started."""
        settings = {
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
        return cls(directory, config=settings, jvm=BROKER_JVM)


def mock_address() -> tuple[Producer, str]:
    """A new mock and its address. Shape: it lives as long as the producer."""
    owner = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    [broker] = owner.list_topics(timeout=30).brokers.values()
    return owner, f"{broker.host}:{broker.port}"


class Subject(ABC):
    """A kind of broker and its figures: seconds for each row, one for each measurement."""

    name: str

    def __init__(self) -> None:
        self.figures: dict[str, list[float]] = {row: [] for row in ROWS}

    def add(self, row: str, began: float) -> None:
        """Record the time since the start."""
        self.figures[row].append(time.perf_counter() - began)

    @abstractmethod
    def measure(self, times: int) -> None:
        """One round, with `times` repetitions of short work."""

    def joins(self, address: str, times: int) -> None:
        """Groups on a broker that has not had any."""
        producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "log_level": 0})
        if self.name != MOCK:
            admin = AdminClient({"bootstrap.servers": address})
            admin.create_topics([NewTopic("joined", 1, 1)])["joined"].result(60)
        producer.produce("joined", b"x")
        producer.flush(60)
        for number in range(times):
            consumer = Consumer(
                {
                    "bootstrap.servers": address,
                    "group.id": f"g{number}",
                    "auto.offset.reset": "earliest",
                    "log_level": 0,
                }
            )
            began = time.perf_counter()
            consumer.subscribe(["joined"])
            while (message := consumer.poll(60)) is not None:
                error = message.error()
                if error is None:
                    break
                if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise RuntimeError(error)
            assert message is not None
            self.add(JOIN_AGAIN if number else JOIN, began)
            consumer.close()

    def tests(self) -> None:
        """100 tests, each with its own topic, in a run of pytest."""
        self.figures[TESTS].append(run_tests(f"import pytest\n{FIXTURES[self.name]}{TEST_FILE}"))


def run_tests(text: str) -> float:
    """Run a file of tests, and return the duration in seconds. Errors: RuntimeError if a test failed."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_it.py").write_text(text)
        began = time.perf_counter()
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:randomly",
            "-p",
            "no:cacheprovider",
            folder,
        ]
        ran = subprocess.run(
            [*command, f"--rootdir={folder}", "-c", os.devnull],
            capture_output=True,
            text=True,
            check=False,
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )
        taken = time.perf_counter() - began
    if ran.returncode:
        raise RuntimeError(ran.stdout[-3000:] + ran.stderr[-1000:])
    return taken


class Kwire(Subject):
    """Brokers in this process, except for the row that says otherwise."""

    name = KWIRE

    def measure(self, times: int) -> None:
        code = (
            "import time; began = time.perf_counter()\n"
            "from kwire.testing import Broker\n"
            "broker = Broker().start(); print(time.perf_counter() - began); broker.stop()"
        )
        printed = subprocess.check_output([sys.executable, "-c", code], cwd=REPOSITORY)
        self.figures[FIRST].append(float(printed))
        Broker().start().stop()
        for _ in range(times):
            began, worked = time.perf_counter(), time.process_time()
            broker = Broker().start()
            self.add(READY, began)
            self.figures[CPU].append(time.process_time() - worked)
            began = time.perf_counter()
            broker.stop()
            self.add(STOPPED, began)
        began = time.perf_counter()
        child = ProcessBroker().start()
        self.add(CHILD, began)
        child.kill()
        child.__exit__()
        with Broker() as broker:
            self.joins(broker.bootstrap_servers, times // 4)
        self.tests()


class Kafka(Subject):
    """A separate process."""

    name = KAFKA

    def measure(self, times: int) -> None:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            broker = KRaftNode.new(folder)
            began = time.perf_counter()
            broker.start()
            stack.callback(broker.stop)
            self.add(CHILD, began)
            self.joins(broker.bootstrap, times // 4)
        self.tests()


class Mock(Subject):
    """Mocks in this process."""

    name = MOCK

    def measure(self, times: int) -> None:
        for _ in range(times):
            began, worked = time.perf_counter(), time.process_time()
            owner, _address = mock_address()
            self.add(READY, began)
            self.figures[CPU].append(time.process_time() - worked)
            began = time.perf_counter()
            del owner
            self.add(STOPPED, began)
        _owner, address = mock_address()
        self.joins(address, 3)
        self.tests()


def said(values: Sequence[float]) -> str:
    """Median and range, in a suitable unit."""
    if not values:
        return ""
    unit, factor, digits = ("s", 1.0, 1) if median(values) >= 1 else ("ms", 1000.0, 0)
    if median(values) < 0.1:
        digits = 1
    middle, least, most = (
        f"{each * factor:.{digits}f}" for each in (median(values), min(values), max(values))
    )
    return f"{middle} {unit}" if len(values) == 1 else f"{middle} {unit} ({least} to {most})"


def table(subjects: Sequence[Subject], rounds: int, floor: float, load: Any) -> str:
    """The table and its conditions, in Markdown."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    ).stdout.strip()
    lines = [
        f"Measured on {date.today()} with kwire {commit}: {os.cpu_count()} cores, {memory:.1f} GiB, Linux {platform.release()},"
        f" Python {platform.python_version()}, {java.splitlines()[0]}, confluent-kafka {confluent_kafka.__version__}"
        f" (librdkafka {confluent_kafka.libversion()[0]}); load average before {', '.join(f'{each:.1f}' for each in load)}."
        f" {rounds} rounds in turn; medians, with the least and the most in brackets.",
        "",
        f"| | {' | '.join(each.name for each in subjects)} |",
        f"|---|{'---|' * len(subjects)}",
    ]
    lines += [
        f"| {row} | {' | '.join(said(each.figures[row]) for each in subjects)} |" for row in ROWS
    ]
    return "\n".join([*lines, "", f"100 tests that do nothing take pytest {said([floor])} here."])


def main() -> None:
    """Run the rounds, and print the table or write it."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.testing")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--times", type=int, default=40, help="how often to repeat short measurements"
    )
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/results/testing.md"
    )
    options = parser.parse_args()
    load = os.getloadavg()
    subjects: list[Subject] = [Kwire(), Kafka(), Mock()]
    for number in range(options.rounds):
        for subject in subjects:
            note(f"round {number + 1}: {subject.name}")
            subject.measure(options.times)
    empty = "import pytest\n@pytest.mark.parametrize('n', range(100))\ndef test_it(n): pass"
    text = table(subjects, options.rounds, run_tests(empty), load)
    print(text)
    ready = median(subjects[0].figures[READY])
    note(
        f"{READY}: {ready * 1000:.1f} ms, {'met' if ready <= GOAL else 'MISSED'}: at most {GOAL * 1000:.0f} ms"
    )
    if options.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


if __name__ == "__main__":
    main()
