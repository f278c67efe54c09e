"""CPU seconds of a broker per GB produced and consumed, compared with Apache Kafka 3.9.2. python -m bench.broker

The same clients (Apache Kafka's kafka-producer-perf-test and kafka-consumer-perf-test) do the same work against each broker in
turn, A B C, A B C, ...: 1 KB records, one topic of six partitions, acks=all. All brokers keep running, idle except for the one
being measured. All are first warmed up with the same work, and each topic is deleted after its run. `kwire deep` checks every
record, as Apache Kafka does; `kwire` checks batch headers and CRC (docs/omissions.md). Figures are user plus system CPU seconds
of the broker process per GB of record values: medians, with the spread, and the ratio to Apache Kafka.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from tests.support.broker_process import BrokerProcess, KwireBroker, cpu_seconds
from tests.support.kafka import KAFKA_3, Kafka39Broker, java_command

RECORD_BYTES = 1000
PARTITIONS = 6
BATCHES = (16_384, 131_072)
#: The JVM options of Apache Kafka's own start script.
BROKER_JVM = (
    *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
)
CLIENT_JVM = ("-Xmx512m",)
WARM_UP_GB = 2.0


class Subject:
    """A broker under measurement, with its figures by (work, batch size)."""

    def __init__(self, name: str, broker: BrokerProcess) -> None:
        self.name = name
        self.broker = broker
        self.cpu: dict[tuple[str, int], list[float]] = defaultdict(list)
        self.rate: dict[tuple[str, int], list[float]] = defaultdict(list)

    def measure(self, batch: int, gigabytes: float, *, keep: bool = True) -> None:
        """Produce and consume this much with a separate topic, then delete the topic."""
        records = int(gigabytes * 1e9 / RECORD_BYTES)
        topic = f"bench-{time.monotonic_ns()}"
        admin = KafkaAdminClient(bootstrap_servers=self.broker.bootstrap)
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        try:
            for work, run in (("produce", self._produce), ("consume", self._consume)):
                before = cpu_seconds(self.broker.pid)
                rate = run(topic, batch, records)
                used = cpu_seconds(self.broker.pid) - before
                if keep:
                    self.cpu[(work, batch)].append(used / (records * RECORD_BYTES / 1e9))
                    self.rate[(work, batch)].append(rate)
        finally:
            admin.delete_topics([topic])
            admin.close()

    def _produce(self, topic: str, batch: int, records: int) -> float:
        out = self._tool(
            "ProducerPerformance",
            *("--topic", topic, "--num-records", str(records)),
            *("--record-size", str(RECORD_BYTES), "--throughput", "-1", "--producer-props"),
            *(f"bootstrap.servers={self.broker.bootstrap}", f"batch.size={batch}"),
            *("acks=all", "linger.ms=5", "buffer.memory=67108864"),
        )
        return float(out.strip().splitlines()[-1].split(",")[1].split()[0])

    def _consume(self, topic: str, batch: int, records: int) -> float:
        out = self._tool(
            "ConsumerPerformance",
            *("--bootstrap-server", self.broker.bootstrap, "--topic", topic),
            *("--messages", str(records), "--timeout", "30000"),
        )
        return float(out.strip().splitlines()[-1].split(",")[5])

    @staticmethod
    def _tool(name: str, *arguments: str) -> str:
        command = [
            *java_command(KAFKA_3, flags=CLIENT_JVM),
            f"org.apache.kafka.tools.{name}",
            *arguments,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{name} failed: {done.stdout[-500:]}{done.stderr[-1500:]}")
        return done.stdout


def note(text: str) -> None:
    """Print progress to standard error, apart from the table."""
    print(text, file=sys.stderr, flush=True)


def spread(values: Sequence[float]) -> str:
    """Median and range."""
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def report(subjects: Sequence[Subject], gigabytes: float, rounds: int) -> None:
    """Print one row for each broker, work and batch size."""
    cores = os.cpu_count()
    print(f"Linux {platform.release()}, {cores} cores, Python {platform.python_version()};")
    print(f"{rounds} rounds of {gigabytes} GB, 1 KB records, {PARTITIONS} partitions, acks=all\n")
    print("| work | batch | broker | CPU s per GB | ratio | records/s | ratio |")
    print("|---|---|---|---|---|---|---|")
    reference = subjects[0]
    for work in ("produce", "consume"):
        for batch in BATCHES:
            for subject in subjects:
                cpu, rate = subject.cpu[(work, batch)], subject.rate[(work, batch)]
                of_cpu = median(cpu) / median(reference.cpu[(work, batch)])
                of_rate = median(rate) / median(reference.rate[(work, batch)])
                print(
                    f"| {work} | {batch // 1024} KiB | {subject.name} | {spread(cpu)} | "
                    f"{of_cpu:.2f} | {median(rate):,.0f} | {of_rate:.2f} |"
                )


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.broker")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--gb", type=float, default=1.0, help="GB produced and consumed in each run"
    )
    parser.add_argument(
        "--warm-up", type=float, default=WARM_UP_GB, help="GB to warm up each broker with"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        deep, standard = ({"kwire.produce.validation": name} for name in ("deep", "standard"))
        # A deleted topic's files must not fill the disk while the next run is measured.
        quick = {"log.segment.delete.delay.ms": "1000"}
        subjects = [
            Subject(
                "Apache Kafka 3.9.2", Kafka39Broker(root / "kafka", config=quick, jvm=BROKER_JVM)
            ),
            Subject("kwire", KwireBroker(root / "kwire", config=quick | standard)),
            Subject("kwire deep", KwireBroker(root / "deep", config=quick | deep)),
        ]
        started = []
        try:
            for subject in subjects:
                subject.broker.start()
                started.append(subject.broker)
            for subject in subjects:
                note(f"warming up {subject.name}")
                for batch in BATCHES:
                    subject.measure(batch, options.warm_up / 2, keep=False)
            for number in range(options.rounds):
                for batch in BATCHES:
                    for subject in subjects:
                        subject.measure(batch, options.gb)
                        note(
                            f"round {number + 1} {batch // 1024} KiB {subject.name}: produce "
                            f"{subject.cpu[('produce', batch)][-1]:.2f}, consume "
                            f"{subject.cpu[('consume', batch)][-1]:.2f} CPU s per GB"
                        )
        finally:
            for broker in started:
                broker.stop()
        report(subjects, options.gb, options.rounds)


if __name__ == "__main__":
    main()
