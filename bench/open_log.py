"""Time to open 20 GiB in 2,000 partitions, compared with Apache Kafka 3.9.2. python -m bench.open_log

Both brokers get the same partitions of five segments each. The batches are hard links to one file, so that they fit on a small
disk; indexes, snapshots and checkpoints are separate files. The brokers are started in turn, A B, A B, ...: after a clean stop,
and after kill -9 with unflushed records in a few partitions. The time is from the start of the process to the first ListOffsets
response without an error for every partition. Memory is the resident set at that moment and 5 s later. For both brokers, the
files are in the page cache. ZooKeeper keeps running.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from kwire.api import ApiKey
from server.log.checkpoint import HIGH_WATERMARK, RECOVERY_POINT, format_checkpoint
from server.log.log_config import LogConfig
from tests.support.broker_process import BrokerProcess, KwireBroker, resident_bytes
from tests.support.kafka import Kafka39Broker, KafkaProcess
from tests.support.wire_client import WireClient

from .broker import BROKER_JVM, note, spread
from .log import NOW_MS, make_batch, open_log

TOPIC_PARTITIONS = 100
SEGMENTS = 5
BATCH_BYTES = 16_384
UNFLUSHED_PARTITIONS = 5
RECORD = os.urandom(1000)


def make_partition(folder: Path, size: int) -> int:
    """Write one partition's files, with this many bytes in five segments; returns the end offset."""
    config = replace(LogConfig(), segment_bytes=size // SEGMENTS)
    log = open_log(str(folder), config)
    batch = bytes(make_batch(BATCH_BYTES))
    while log.size_bytes < size:
        log.append_as_leader(memoryview(bytearray(batch)), 0, NOW_MS)
    end_offset: int = log.log_end_offset
    log.close()
    return end_offset


class Subject:
    """A broker under measurement, with its figures by kind of stop."""

    def __init__(self, name: str, broker: BrokerProcess, topics: int) -> None:
        self.name = name
        self.broker = broker
        self.topics = [f"stored-{number}" for number in range(topics)]
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.at_once: dict[str, list[float]] = defaultdict(list)
        self.later: dict[str, list[float]] = defaultdict(list)
        self.stop_seconds: list[float] = []

    def prepare(self, template: Path, end_offset: int) -> None:
        """Make the broker create the partitions, then give each the template's content."""
        self.broker.start()
        admin = KafkaAdminClient(bootstrap_servers=self.broker.bootstrap)
        for name in self.topics:
            admin.create_topics([NewTopic(name, TOPIC_PARTITIONS, 1)], timeout_ms=60_000)
        admin.close()
        self._stop()
        rows = []
        for name in self.topics:
            for number in range(TOPIC_PARTITIONS):
                rows.append((name, number, end_offset))
                own = name == self.topics[0] and number < UNFLUSHED_PARTITIONS
                fill(self.broker.log_dir / f"{name}-{number}", template, linked=not own)
        for checkpoint in (RECOVERY_POINT, HIGH_WATERMARK):
            (self.broker.log_dir / checkpoint).write_bytes(format_checkpoint(rows))

    def measure(self, kind: str) -> None:
        """Start the broker and wait until every partition is served."""
        begin = time.monotonic()
        self.broker.start(300.0)
        self._wait_for_all(begin + 300)
        self.seconds[kind].append(time.monotonic() - begin)
        self.at_once[kind].append(resident_bytes(self.broker.pid) / 1e6)
        time.sleep(5)
        self.later[kind].append(resident_bytes(self.broker.pid) / 1e6)
        note(f"{self.name}, {kind}: {self.seconds[kind][-1]:.2f} s, {self.later[kind][-1]:.0f} MB")

    def _wait_for_all(self, deadline: float) -> None:
        rows: list[dict[str, Any]] = [
            {"partition_index": number, "current_leader_epoch": -1, "timestamp": -1}
            for number in range(TOPIC_PARTITIONS)
        ]
        request = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": name, "partitions": rows} for name in self.topics],
        }
        client = WireClient(self.broker.host, self.broker.port, 60.0)
        try:
            while time.monotonic() < deadline:
                answer = client.call(ApiKey.LIST_OFFSETS, 5, request)
                assert answer is not None
                found = [row for topic in answer["topics"] for row in topic["partitions"]]
                if all(row["error_code"] == 0 and row["offset"] > 0 for row in found):
                    return
                time.sleep(0.02)
        finally:
            client.close()
        raise TimeoutError(f"{self.name} does not serve all partitions")

    def leave_unflushed(self, megabytes: int) -> None:
        """Write to a few partitions, and kill the broker once offsets are checkpointed."""
        producer = KafkaProducer(
            bootstrap_servers=self.broker.bootstrap, acks="all", linger_ms=5, batch_size=BATCH_BYTES
        )
        for number in range(UNFLUSHED_PARTITIONS * megabytes * 1000):
            producer.send(self.topics[0], RECORD, partition=number % UNFLUSHED_PARTITIONS)
        producer.flush()
        producer.close()
        time.sleep(6)
        self.broker.kill()

    def stop(self) -> None:
        """Stop the broker cleanly, but not ZooKeeper."""
        begin = time.monotonic()
        self._stop()
        self.stop_seconds.append(time.monotonic() - begin)

    def _stop(self) -> None:
        if isinstance(self.broker, KafkaProcess):
            BrokerProcess.stop(self.broker)
        else:
            self.broker.stop()


def fill(folder: Path, template: Path, *, linked: bool) -> None:
    """Put the template's files into a partition's directory."""
    for old in folder.glob("0*"):
        old.unlink()
    for path in template.iterdir():
        if linked and path.suffix == ".log":
            os.link(path, folder / path.name)
        else:
            shutil.copyfile(path, folder / path.name)


def report(subjects: Sequence[Subject], kinds: Sequence[str], heading: str) -> None:
    """Print one row for each kind of stop and broker."""
    print(
        f"Linux {platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()};"
    )
    print(f"{heading}\n")
    print("| start after | broker | s until all is served | ratio | MB then | MB 5 s later |")
    print("|---|---|---|---|---|---|")
    for kind in kinds:
        reference = median(subjects[0].seconds[kind])
        for subject in subjects:
            seconds = subject.seconds[kind]
            print(
                f"| {kind} | {subject.name} | {spread(seconds)} | {median(seconds) / reference:.2f}"
                f" | {median(subject.at_once[kind]):.0f} | {median(subject.later[kind]):.0f} |"
            )
    for subject in subjects:
        print(f"\n{subject.name}: clean stop in {spread(subject.stop_seconds)} s", end="")
    print()


def main() -> None:
    """Make the partitions, run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.open_log")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gib", type=float, default=20.0, help="size of all files, in GiB")
    parser.add_argument(
        "--partitions", type=int, default=2000, help="number of partitions, a multiple of 100"
    )
    parser.add_argument(
        "--unflushed-mb",
        type=int,
        default=20,
        help="MB of unflushed records in each of five partitions",
    )
    options = parser.parse_args()
    topics = options.partitions // TOPIC_PARTITIONS
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed kwire is compiled
    clean, killed = "a clean stop", "kill -9"
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        template = root / "template"
        size = int(options.gib * 2**30 / options.partitions)
        end_offset = make_partition(template, size)
        # Otherwise the creation of partitions of the brokers' internal topics would also be timed.
        config = {"auto.create.topics.enable": "false"}
        subjects = [
            Subject(
                "Apache Kafka 3.9.2",
                Kafka39Broker(root / "kafka", config=config, jvm=BROKER_JVM),
                topics,
            ),
            Subject("kwire", KwireBroker(root / "kwire", config=config), topics),
        ]
        try:
            for subject in subjects:
                note(f"preparing {subject.name}")
                subject.prepare(template, end_offset)
            for _ in range(options.rounds):
                for subject in subjects:
                    subject.measure(clean)
                    subject.leave_unflushed(options.unflushed_mb)
                for subject in subjects:
                    subject.measure(killed)
                    subject.stop()
        finally:
            for subject in subjects:
                subject.broker.stop()
        report(
            subjects,
            (clean, killed),
            f"{options.rounds} rounds, {options.gib:g} GiB in {options.partitions} partitions of "
            f"{SEGMENTS} segments; {options.unflushed_mb} MB in each of {UNFLUSHED_PARTITIONS} "
            "partitions not flushed before kill -9",
        )


if __name__ == "__main__":
    main()
