"""`kwire cluster` and `kwire zookeeper` as processes: ready, death of a part, stop, start again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from tests.support.broker_process import REPOSITORY, metadata_answer

pytestmark = pytest.mark.e2e

BROKERS = 3


class Command:
    """A command of kwire, run as a process."""

    def __init__(self, directory: Path, *words: str) -> None:
        self.log_path = directory / "log"
        self.began = time.monotonic()
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "server", *words],
                cwd=REPOSITORY,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def line(self) -> str:
        """The next line of standard output."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log()
        return line.strip()

    def log(self) -> str:
        """The text written to standard error."""
        return self.log_path.read_text()

    def until_logged(self, pattern: str) -> re.Match[str]:
        """Wait for a line of the log, since nothing else notifies us."""
        deadline = time.monotonic() + 60
        while (found := re.search(pattern, self.log())) is None:
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)
        return found

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


class ClusterCommand(Command):
    """A running `kwire cluster`."""

    def __init__(self, directory: Path, *words: str) -> None:
        places = ("--listen", "127.0.0.1:0", "--data-dir", str(directory / "data"))
        store = () if "--zookeeper" in words else ("--zookeeper-listen", "127.0.0.1:0")
        count = ("--brokers", str(BROKERS))
        super().__init__(directory, "cluster", *count, *places, *store, *words)
        self.zookeeper = ""
        if store:
            said = self.line()
            assert said.startswith("kwire zookeeper ready "), said
            self.zookeeper = said.split()[-1]

    def ready(self) -> list[str]:
        """The brokers' addresses, once all are registered."""
        said = self.line()
        assert said.startswith("kwire ready "), said
        addresses = said.split()[-1].split(",")
        assert len(addresses) == BROKERS
        return addresses


def answers(address: str) -> bool:
    """Whether a broker answers."""
    host, port = address.rsplit(":", 1)
    try:
        return bool(metadata_answer(host, int(port)))
    except OSError:
        return False


def runs(pid: str) -> bool:
    """Whether the process is running, and not a zombie."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends while this is read
        return False


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterCommand]:
    """A cluster that is starting."""
    command = ClusterCommand(tmp_path)
    yield command
    command.end()


def test_cluster_runs_loses_a_broker_and_says_so(cluster: ClusterCommand) -> None:
    addresses = cluster.ready()
    assert all(map(answers, addresses))
    client = KazooClient(hosts=cluster.zookeeper)
    client.start(60)
    try:
        assert set(client.get_children("/brokers/ids")) == {"0", "1", "2"}
    finally:
        client.stop()
        client.close()
    children = Path(f"/proc/{cluster.process.pid}/task/{cluster.process.pid}/children")
    pids = children.read_text().split()
    assert len(pids) == BROKERS
    os.kill(int(pids[1]), signal.SIGKILL)
    found = cluster.until_logged(
        r"broker (\d) \(process (\d+)\) was killed by SIGKILL; .* 2 still running"
    )
    assert found[2] == pids[1]
    dead = int(found[1])
    again = cluster.until_logged(r"to restart it: kwire (.*)")[1]
    assert again.startswith(f"serve --node-id {dead} --listen {addresses[dead]} --data-dir ")
    assert f"/broker-{dead} --zookeeper {cluster.zookeeper} " in again
    assert [answers(address) for address in addresses] == [n != dead for n in range(BROKERS)]
    assert cluster.end() == 1  # a part failed
    assert not any(map(answers, addresses))


def test_client_is_told_the_same_addresses_by_every_broker(tmp_path: Path) -> None:
    # The last --listen counts: clients use 127.0.0.1, which is not the brokers' registered name.
    cluster = ClusterCommand(tmp_path, "--listen", "localhost:0")
    try:
        ports = [int(address.rsplit(":", 1)[1]) for address in cluster.ready()]
        deadline = time.monotonic() + 60
        while True:
            (answer, *others) = (metadata_answer("127.0.0.1", port) for port in ports)
            if others == [answer] * (BROKERS - 1) and answer.count(b"localhost") == BROKERS:
                break
            assert time.monotonic() < deadline, (answer, others)
            time.sleep(0.1)
    finally:
        cluster.end()


def test_cluster_told_to_stop_stops_the_brokers_before_the_store(cluster: ClusterCommand) -> None:
    cluster.ready()
    assert cluster.end() == 0
    log = cluster.log()
    assert len(re.findall(r"^broker \d: .* run: stopped$", log, re.MULTILINE)) == BROKERS
    # A broker that lost its store first would log it.
    assert "lost" not in log.lower()
    assert log.rstrip().endswith("cluster_processes: stopped")


def test_killed_cluster_leaves_no_broker_and_starts_again_at_once(tmp_path: Path) -> None:
    long_sessions = ("-o", "zookeeper.session.timeout.ms=40000")
    first = ClusterCommand(tmp_path, *long_sessions)
    addresses = first.ready()
    pids = Path(f"/proc/{first.process.pid}/task/{first.process.pid}/children").read_text().split()
    first.end(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while any(map(runs, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not any(map(answers, addresses))
    again = ClusterCommand(tmp_path, *long_sessions)
    again.ready()
    assert again.end() == 0
    assert "is registered by session" not in again.log(), "it waited for those of the killed run"


def test_workers_told_to_stop_while_they_start_do_so(tmp_path: Path) -> None:
    words = ("--workers", "2", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    workers = Command(tmp_path, "serve", *words)
    workers.until_logged("sessions may resume")
    assert workers.end() == 0, workers.log()


def test_broker_that_cannot_start_ends_the_cluster(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "broker-1").write_text("a file where a folder should be")
    cluster = ClusterCommand(tmp_path)
    assert cluster.process.wait(60) == 1
    assert "before the cluster was ready; stopping the others" in cluster.log()
    assert cluster.end() == 1


@pytest.mark.usefixtures("hangup_not_ignored")
def test_worker_that_dies_is_restarted_with_its_address_and_its_data(tmp_path: Path) -> None:
    words = ("--workers", "2", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    workers = Command(tmp_path, "serve", *words)
    try:
        said = workers.line()
        assert said.startswith("kwire ready "), said
        addresses = said.split()[-1].split(",")
        config = {"bootstrap.servers": addresses[0]}
        admin = AdminClient(config)
        admin.create_topics([NewTopic("t", 4, 1)])["t"].result(30)
        sent = send_to_each(config, 4)
        workers.process.send_signal(signal.SIGHUP)
        for number in (0, 1):
            workers.until_logged(
                rf"worker {number}: .* reopening the log file and reading the certificates again"
            )
        children = Path(f"/proc/{workers.process.pid}/task/{workers.process.pid}/children")
        os.kill(int(children.read_text().split()[1]), signal.SIGKILL)
        dead = int(workers.until_logged(r"worker (\d) .* SIGKILL; it is restarted in 0.1 s")[1])
        deadline = time.monotonic() + 60
        while not answers(addresses[dead]):
            assert time.monotonic() < deadline, workers.log()
            time.sleep(0.1)
        assert send_to_each(config, 4) == [offset + 1 for offset in sent]
    finally:
        status = workers.end()
    assert status == 0, workers.log()
    assert not any(map(answers, addresses))


def send_to_each(config: dict[str, str], partitions: int) -> list[int]:
    """Send a record to each partition of topic t; returns their offsets."""
    offsets: dict[int, int] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None
        offsets[message.partition()] = message.offset()

    producer = Producer(config)
    for partition in range(partitions):
        producer.produce("t", b"value", partition=partition, on_delivery=delivered)
    assert producer.flush(30) == 0
    return [offsets[partition] for partition in range(partitions)]


def test_cluster_uses_the_store_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    store = Command(
        tmp_path / "store",
        "zookeeper",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        str(tmp_path / "s"),
    )
    address = store.line().split()[-1]
    print(f"\nkwire zookeeper: ready after {time.monotonic() - store.began:.2f} s")
    cluster = ClusterCommand(tmp_path, "--zookeeper", f"{address}/chroot")
    assert all(map(answers, cluster.ready()))
    client = KazooClient(hosts=address)
    client.start(60)
    assert set(client.get_children("/chroot/brokers/ids")) == {"0", "1", "2"}
    assert cluster.end() == 0
    assert client.get_children("/chroot/brokers/ids") == []
    client.stop()
    client.close()
    assert store.end() == 0
    assert "not replicated" in store.log()


def test_store_in_use_is_refused(tmp_path: Path) -> None:
    words = ("zookeeper", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "s"))
    first = Command(tmp_path, *words)
    first.line()
    (tmp_path / "second").mkdir()
    second = Command(tmp_path / "second", *words)
    assert second.process.wait(60) == 1
    assert "in use by another process" in second.log()
    second.end()
    assert first.end() == 0
