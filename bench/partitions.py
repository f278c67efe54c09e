"""1,000 topics of 10 partitions on three brokers, compared with Apache Kafka 3.9.2. python -m bench.partitions

Each partition has one replica (3,333 per broker) or three (10,000 per broker). Each measurement uses a new cluster, and the
clusters run one after the other. A time ends when a sample of 50 topics is in the expected state on the brokers; all topics are
checked afterwards:

- create: from the first CreateTopics request, of 100 topics each, until every broker reports a leader for each partition and,
  with three replicas, all replicas are in sync;
- failover: from kill -9 of the controller until both other brokers report another leader for the partitions that it led, or no
  leader if it had the only replica; also the time at which ZooKeeper ended its session;
- restart: from the start of the killed broker until all replicas have a leader and are in sync again.

Memory is the largest resident set of the three brokers, 10 s after the topics were created.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.broker_process import cpu_seconds, resident_bytes
from tests.support.kafka import ZooKeeperProcess

from ._clusters import BROKERS, KAFKA, KWIRE, Trio, wait_until
from .broker import BROKER_JVM, note

PARTITIONS = 10
BATCH = 100
SAMPLE = 50
SESSION_MS = 10_000

Row = dict[str, Any]


class Figures(NamedTuple):
    """The figures of one cluster. Unit: seconds, CPU seconds of all brokers, megabytes."""

    create: float
    create_cpu: float
    memory: float
    files: int
    failover: float
    session: float
    restart: float


class Cell:
    """One kind of cluster with a number of replicas for each partition."""

    def __init__(self, trio: Trio, topics: int, factor: int) -> None:
        self.trio = trio
        self.names = [f"topic-{number}" for number in range(topics)]
        self.factor = factor
        self.sample = sorted(random.Random(1).sample(self.names, min(SAMPLE, topics)))
        self.sample.append(self.names[-1])

    def shows(self, number: int, names: list[str], right: Callable[[Row], bool]) -> bool:
        """Whether a broker knows these topics, and every partition is as expected."""
        try:
            rows = self.trio.topics(number, *names)
        except OSError:
            return False
        found = [row for row in rows if not row["error_code"] and not row["is_internal"]]
        return len(found) == len(names or self.names) and all(
            len(row["partitions"]) == PARTITIONS and all(map(right, row["partitions"]))
            for row in found
        )

    def until(self, numbers: list[int], right: Callable[[Row], bool], what: str) -> float:
        """Wait for the sample, take the time, then check all topics; returns the time."""
        wait_until(lambda: all(self.shows(n, self.sample, right) for n in numbers), what, 600)
        then = time.monotonic()
        wait_until(lambda: all(self.shows(n, [], right) for n in numbers), f"{what}, all", 600)
        late = time.monotonic() - then
        if late > 10:
            note(f"{self.trio.name}: {what} for all {late:.0f} s after the sample")
        return then

    def complete(self, row: Row) -> bool:
        """Whether a partition has a leader and all its replicas are in sync."""
        return row["leader_id"] >= 0 and len(row["isr_nodes"]) == self.factor

    def measure(self) -> Figures:
        """Create the topics, kill the controller, start it again."""
        trio, everyone = self.trio, list(range(BROKERS))
        cpu = sum(cpu_seconds(broker.pid) for broker in trio.brokers)
        began = time.monotonic()
        for first in range(0, len(self.names), BATCH):
            trio.create(self.factor, PARTITIONS, self.names[first : first + BATCH])
        create = self.until(everyone, self.complete, "created") - began
        cpu = sum(cpu_seconds(broker.pid) for broker in trio.brokers) - cpu
        note(f"{trio.name}, {self.factor}: created in {create:.1f} s")
        time.sleep(10)
        memory = max(resident_bytes(broker.pid) for broker in trio.brokers) / 1e6
        files = max(len(os.listdir(f"/proc/{broker.pid}/fd")) for broker in trio.brokers)

        victim = trio.controller()
        left = [number for number in everyone if number != victim]
        gone: list[float] = []
        trio.tree.exists(f"/brokers/ids/{victim}", watch=lambda _: gone.append(time.monotonic()))
        began = time.monotonic()
        trio.brokers[victim].kill()
        alone = self.factor == 1

        def moved(row: Row) -> bool:
            had_it = row["replica_nodes"] == [victim]
            return row["leader_id"] == -1 if alone and had_it else row["leader_id"] in left

        failover = self.until(left, moved, "others lead") - began
        wait_until(lambda: gone, "the session ends")
        session = gone[0] - began
        note(f"{trio.name}, {self.factor}: failover in {failover:.1f} s, session {session:.1f} s")
        time.sleep(5)
        began = time.monotonic()
        trio.brokers[victim].start(300.0)
        restart = self.until(everyone, self.complete, "restarted") - began
        note(f"{trio.name}, {self.factor}: restarted in {restart:.1f} s")
        return Figures(create, cpu, memory, files, failover, session, restart)


def report(figures: dict[tuple[int, str], Figures], topics: int) -> None:
    """Print one row for each number of replicas and kind of cluster."""
    print(
        f"Linux {platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()}, load"
        f" {os.getloadavg()[2]:.0f}; {topics} topics of {PARTITIONS} partitions,"
        f" zookeeper.session.timeout.ms={SESSION_MS}\n"
    )
    print(
        "| replicas | brokers | create s | CPU s | MB | open files | failover s | its session s | restart s |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for (factor, name), each in figures.items():
        print(
            f"| {factor} | {name} | {each.create:.1f} | {each.create_cpu:.1f} | {each.memory:.0f}"
            f" | {each.files:,} | {each.failover:.1f} | {each.session:.1f} | {each.restart:.1f} |"
        )


def main() -> None:
    """Measure all four and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.partitions")
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--replicas", type=int, nargs="*", default=[1, 3])
    options = parser.parse_args()
    settings = {
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        # With one replica, two cannot be in sync.
        "min.insync.replicas": "1",
    }
    figures: dict[tuple[int, str], Figures] = {}
    for factor in options.replicas:
        for name in (KAFKA, KWIRE):
            with tempfile.TemporaryDirectory() as directory:
                zookeeper = ZooKeeperProcess(Path(directory) / "zookeeper")
                zookeeper.start()
                trio = Trio(name, Path(directory), zookeeper, settings, BROKER_JVM)
                try:
                    trio.start()
                    figures[factor, name] = Cell(trio, options.topics, factor).measure()
                finally:
                    trio.stop()
                    zookeeper.stop()
    report(figures, options.topics)


if __name__ == "__main__":
    main()
