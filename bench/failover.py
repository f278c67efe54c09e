"""Time from kill -9 of a leader to the first acknowledged produce on the new leader. python -m bench.failover

There are three kwire brokers and three Apache Kafka 3.9.2 brokers, with one ZooKeeper and the same session timeout. For each
kind in turn, a broker that leads a partition with three replicas is killed: one that is not the controller, or the controller.
A probe asks the other two brokers every 5 ms who leads, and sends that broker one record with acks=all (min.insync.replicas=2)
until it is acknowledged, so the figure contains no client's back-off. The table also shows when ZooKeeper ended the killed
broker's session, which is what Apache Kafka waits for.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from kwire.api import ApiKey
from tests.support.wire_client import WireClient

from ._clusters import BROKERS, Trio, both, wait_until
from .broker import BROKER_JVM, note, spread
from .log import make_batch

TOPIC = "failover"
PARTITIONS = 12
PROBE_S = 0.005
ONLY, CONTROLLER = "a leader", "a leader that is the controller"
METADATA_VERSION = 5
PRODUCE_VERSION = 7


class Probe:
    """Connections to the remaining brokers."""

    def __init__(self, trio: Trio, victim: int) -> None:
        self.victim = victim
        left = [number for number in range(BROKERS) if number != victim]
        self.clients = {
            number: WireClient(trio.brokers[number].host, trio.brokers[number].port, 60.0)
            for number in left
        }
        self.batch = bytes(make_batch(2048))

    def close(self) -> None:
        """Close them."""
        for client in self.clients.values():
            client.close()

    def leader(self, number: int, partition: int) -> int:
        """The leader according to one broker; -1 if there is none, or if it is the killed broker."""
        answer = self.clients[number].call(
            ApiKey.METADATA, METADATA_VERSION, {"topics": [{"name": TOPIC}]}
        )
        assert answer is not None
        rows = {row["partition_index"]: row for row in answer["topics"][0]["partitions"]}
        found = rows.get(partition, {}).get("leader_id", -1)
        return found if found in self.clients else -1

    def acknowledged(self, number: int, partition: int) -> bool:
        """Whether a broker accepts a record with acks=all."""
        data = [{"index": partition, "records": self.batch}]
        request = {
            "transactional_id": None,
            "acks": -1,
            "timeout_ms": 30_000,
            "topic_data": [{"name": TOPIC, "partition_data": data}],
        }
        answer = self.clients[number].call(ApiKey.PRODUCE, PRODUCE_VERSION, request)
        assert answer is not None
        return answer["responses"][0]["partition_responses"][0]["error_code"] == 0

    def until_acknowledged(self, partition: int) -> None:
        """Ask the brokers in turn until a new leader has acknowledged a record."""
        while True:
            for number in self.clients:
                leader = self.leader(number, partition)
                if leader >= 0 and self.acknowledged(leader, partition):
                    return
            time.sleep(PROBE_S)


class Subject:
    """A cluster and its figures."""

    def __init__(self, trio: Trio) -> None:
        self.trio = trio
        self.name = trio.name
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.session: dict[str, list[float]] = defaultdict(list)

    def prepare(self) -> None:
        """Create the topic."""
        self.trio.create(3, PARTITIONS, [TOPIC])
        wait_until(lambda: self.trio.in_sync(TOPIC), "all in sync")

    def measure(self, kind: str) -> None:
        """Kill a broker, wait, record the figures, and restore the cluster."""
        trio = self.trio
        controller = trio.controller()
        victim = controller if kind == CONTROLLER else (controller + 1) % BROKERS
        rows = trio.topics(controller, TOPIC)[0]["partitions"]
        partition = next(row["partition_index"] for row in rows if row["leader_id"] == victim)
        probe = Probe(trio, victim)
        gone: list[float] = []
        path = f"/brokers/ids/{victim}"
        trio.tree.exists(path, watch=lambda _: gone.append(time.monotonic()))
        begin = time.monotonic()
        trio.brokers[victim].kill()
        probe.until_acknowledged(partition)
        took = time.monotonic() - begin
        probe.close()
        trio.start_again(victim)
        wait_until(lambda: trio.in_sync(TOPIC), "all in sync")
        trio.elect_preferred()
        self.seconds[kind].append(took)
        self.session[kind].append(gone[0] - begin)
        note(f"{self.name}, {kind}: {took:.2f} s, session ended after {gone[0] - begin:.2f} s")


def report(subjects: Sequence[Subject], heading: str) -> None:
    """Print one row for each kind and cluster."""
    print(
        f"Linux {platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()},"
        f" load {os.getloadavg()[1]:.0f}; {heading}\n"
    )
    print("| killed | brokers | s until acknowledged | ratio | s until its session ended |")
    print("|---|---|---|---|---|")
    for kind in (ONLY, CONTROLLER):
        reference = median(subjects[0].seconds[kind])
        for subject in subjects:
            seconds = subject.seconds[kind]
            print(
                f"| {kind} | {subject.name} | {spread(seconds)} | {median(seconds) / reference:.2f}"
                f" | {spread(subject.session[kind])} |"
            )


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.failover")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--session-ms", type=int, default=6000, help="zookeeper.session.timeout.ms")
    options = parser.parse_args()
    settings = {"zookeeper.session.timeout.ms": str(options.session_ms)}
    jvm = tuple("-Xmx512m" if flag == "-Xmx1G" else flag for flag in BROKER_JVM if flag != "-Xms1G")
    with (
        tempfile.TemporaryDirectory() as directory,
        both(Path(directory), settings, jvm) as trios,
    ):
        subjects = [Subject(trio) for trio in trios]
        for subject in subjects:
            subject.prepare()
        for _ in range(options.rounds):
            for kind in (ONLY, CONTROLLER):
                for subject in subjects:
                    subject.measure(kind)
        report(
            subjects,
            f"{options.rounds} rounds, zookeeper.session.timeout.ms={options.session_ms}",
        )


if __name__ == "__main__":
    main()
