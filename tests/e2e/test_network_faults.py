"""Three brokers and their store, each on its own host: killed, paused, cut off, with stalled disks.

The hosts are network namespaces, which require root and Linux. The clients of tests/soak run during the faults, and
none of them may get an error; at the end their histories must show every acknowledged record, once. KWIRE_LONG=1
repeats the faults many times, and adds the clients with transactions; KWIRE_SEED=N repeats the choices of a run.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ..soak.clients import Client
from ..soak.harness import Killable, Nemesis, Plan, run
from ..support.broker_process import REPOSITORY, KwireBroker, end_process
from ..support.network import Host, Network, NotHere, StallingDisk

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

LONG = os.environ.get("KWIRE_LONG", "") not in ("", "0")
SESSION_S = 2.0
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "share.coordinator.state.topic.num.partitions": "3",
    "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
    "replica.lag.time.max.ms": "3000",
}


class PlacedBroker(KwireBroker):
    """A broker on a host, perhaps with its data on a disk that can stall."""

    def __init__(self, directory: Path, number: int, host: Host, zookeeper: str) -> None:
        super().__init__(
            directory,
            config={**SETTINGS, "broker.id": str(number)},
            port=9092,
            arguments=("--zookeeper", zookeeper),
        )
        self.number = number
        self.place = host
        self.host = host.address

    def command(self) -> list[str]:
        """Return the command line, run on the host."""
        return self.place.command(super().command())


class Cluster:
    """The hosts, the store and the brokers. Errors: NotHere."""

    def __init__(self, directory: Path) -> None:
        with ExitStack() as stack:
            self.network = Network()
            stack.callback(self.network.close)
            self.disk = StallingDisk(directory / "broker-2" / "data", directory / "disk")
            stack.callback(self.disk.close)
            self.store_host = self.network.host()
            self._store = self._start_store(directory)
            stack.callback(end_process, self._store)
            assert self._store.stdout is not None
            stack.callback(self._store.stdout.close)
            zookeeper = self._store.stdout.readline().split()[-1].decode()
            self.brokers = [
                PlacedBroker(directory / f"broker-{n}", n, self.network.host(), zookeeper)
                for n in range(3)
            ]
            for broker in self.brokers:
                stack.callback(broker.kill)
            with ThreadPoolExecutor() as pool:
                list(pool.map(PlacedBroker.start, self.brokers))
            self._stack = stack.pop_all()
        bootstrap = ",".join(broker.bootstrap for broker in self.brokers)
        settings = {"bootstrap.servers": bootstrap, "socket.timeout.ms": 3000, "log_level": 0}
        self.admin = AdminClient(settings)

    def _start_store(self, directory: Path) -> subprocess.Popen[bytes]:
        listen = f"{self.store_host.address}:2181"
        words = ["--listen", listen, "--data-dir", str(directory / "store"), "--tick-ms", "500"]
        with (directory / "store.log").open("ab") as log:
            return subprocess.Popen(
                self.store_host.command([sys.executable, "-m", "server", "zookeeper", *words]),
                cwd=REPOSITORY,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def close(self) -> None:
        """End all of it."""
        self.disk.thaw()
        self._stack.close()

    def controller(self) -> PlacedBroker:
        """The broker that is controller. Errors: KafkaException."""
        return self.brokers[self.admin.list_topics(timeout=5).controller_id]

    def leader(self, choice: random.Random) -> PlacedBroker:
        """A broker that leads something. Errors: KafkaException."""
        partitions = self.admin.list_topics("once", timeout=5).topics["once"].partitions
        return self.brokers[choice.choice([part.leader for part in partitions.values()])]

    def in_sync(self) -> bool:
        """Whether every replica of every partition is in sync, as far as this is known."""
        try:
            topics = self.admin.list_topics(timeout=2).topics.values()
        except KafkaException:
            return False
        parts = [part for topic in topics for part in topic.partitions.values()]
        return bool(parts) and all(len(part.isrs) == len(part.replicas) == 3 for part in parts)


class Faults(Nemesis):
    """Injects one fault after another, and lets the cluster recover in between."""

    def __init__(
        self,
        cluster: Cluster,
        rounds: int,
        brokers: Sequence[Killable],
        plan: Plan,
        clients: Sequence[Client],
    ) -> None:
        super().__init__(brokers, plan, clients)
        self.cluster = cluster
        self.network = cluster.network
        self.rounds = rounds
        self.done: dict[str, int] = {}

    def run(self) -> None:
        """Go through all faults, in another order each time."""
        faults = [self.kill, self.pause, self.cut_off, self.part, self.lose_store, self.stall]
        self.settle()
        for number in range(self.rounds):
            self.choice.shuffle(faults)
            for fault in faults:
                began = time.monotonic()
                fault()
                # In long runs some faults hit a cluster that has not recovered from the previous one.
                if number == 0 or self.choice.random() < 0.7:
                    self.settle()
                name = fault.__name__
                self.done[name] = self.done.get(name, 0) + 1
                self.plan.say(f"{name}: {time.monotonic() - began:.1f} s until all was in sync")
        self.settle()
        self.recorder.close()

    def settle(self) -> None:
        """Wait until every replica is in sync, and check the clients in the meantime."""
        deadline = time.monotonic() + 180
        while not self.cluster.in_sync():
            assert time.monotonic() < deadline, "the replicas do not get in sync"
            self.wait(0.2)

    def find(self, who: Callable[[], PlacedBroker]) -> PlacedBroker:
        """Ask until there is an answer, since the cluster may be recovering."""
        deadline = time.monotonic() + 60
        while True:
            try:
                found = who()
            except (KafkaException, IndexError):
                assert time.monotonic() < deadline, "nobody answers"
                self.wait(0.2)
            else:
                self.recorder.note("ok", "kill", [], broker=found.bootstrap)
                self.kills += 1
                return found

    def leader(self) -> PlacedBroker:
        """A broker that leads something, to be hit by a fault."""
        return self.find(lambda: self.cluster.leader(self.choice))

    def controller(self) -> PlacedBroker:
        """The controller, to be hit by a fault."""
        return self.find(self.cluster.controller)

    def kill(self) -> None:
        """SIGKILL the controller, or a leader; start it again when the others have taken over."""
        broker = self.choice.choice([self.leader, self.controller])()
        broker.kill()
        self.wait(SESSION_S * self.choice.uniform(0.2, 2.0))
        began = time.monotonic()
        broker.start()
        self.restart_s.append(time.monotonic() - began)

    def pause(self) -> None:
        """Suspend a leader for longer than its session: it continues to believe that it leads."""
        broker = self.leader()
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            self.wait(SESSION_S * self.choice.uniform(1.3, 2.0))
        finally:
            os.kill(broker.pid, signal.SIGCONT)

    def cut_off(self) -> None:
        """Pull the cable of a leader, or of the controller."""
        broker = self.choice.choice([self.leader, self.controller])()
        self.network.unplug(broker.place)
        try:
            self.wait(SESSION_S * self.choice.uniform(1.0, 2.0))
        finally:
            self.network.plug(broker.place)

    def part(self) -> None:
        """Cut a leader off from a follower, in one direction or both; store and clients reach both."""
        one = self.leader()
        other = self.choice.choice([broker for broker in self.cluster.brokers if broker is not one])
        ways = [(other.place, one.place), (one.place, other.place)]
        ways = ways[: self.choice.choice((1, 2))]
        for way in ways:
            self.network.silence(*way)
        try:
            self.wait(self.choice.uniform(2.0, 5.0))
        finally:
            for way in ways:
                self.network.hear(*way)

    def lose_store(self) -> None:
        """Drop the controller's packets to the store, long enough for another controller to be elected."""
        broker = self.controller()
        self.network.silence(broker.place, self.cluster.store_host)
        try:
            self.wait(SESSION_S * self.choice.uniform(1.0, 2.0))
        finally:
            self.network.hear(broker.place, self.cluster.store_host)

    def stall(self) -> None:
        """Freeze a broker's disk for a while, three times."""
        self.find(lambda: self.cluster.brokers[2])
        for _ in range(3):
            self.cluster.disk.freeze()
            try:
                self.wait(SESSION_S * self.choice.uniform(0.2, 0.9))
            finally:
                self.cluster.disk.thaw()
            self.wait(0.3)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A running cluster on its own hosts."""
    try:
        made = Cluster(tmp_path)
    except NotHere as why:
        pytest.skip(str(why))
    yield made
    made.close()


@pytest.mark.timeout(7200)
def test_faults_of_machines_and_network_lose_and_repeat_nothing_acknowledged(
    cluster: Cluster, tmp_path: Path
) -> None:
    rounds = int(os.environ.get("KWIRE_ROUNDS", "15" if LONG else "1"))
    plan = Plan(
        kills=rounds * 6,
        seed=int(os.environ.get("KWIRE_SEED", random.randrange(1 << 32))),
        directory=tmp_path / "history",
        replication_factor=3,
        topic_config={"min.insync.replicas": "2"},
        java=False,
        transactions=LONG,
    )
    seen: list[Faults] = []

    def faults(brokers: Sequence[Killable], plan: Plan, clients: Sequence[Client]) -> Faults:
        seen.append(Faults(cluster, rounds, brokers, plan, clients))
        return seen[0]

    outcome = run(cluster.brokers, plan, faults)
    print(f"\n{seen[0].done}\n{outcome}\nerrors of polls {outcome.poll_errors}")
    assert outcome.verdict.passed, str(outcome)
    assert seen[0].done == dict.fromkeys(seen[0].done, rounds) and len(seen[0].done) == 6
    for topic in ("once", "plain"):
        assert outcome.verdict.counts[f"records acknowledged in {topic}"] > 50 * rounds
