"""One compaction of the same log by Apache Kafka 3.9.2 and by kwire, on one core each. python -m bench.compaction

Both brokers get a copy of one directory: logs of closed segments of 64 MB in which each key occurs four times on average. Small
logs of the same shape are compacted first, to warm up the JVM, then the large ones, one at a time. CPU seconds are given for the
cleaner's thread or worker process, and for the whole broker with its child processes. The elapsed time starts when the topic's
min.cleanable.dirty.ratio is lowered, which both brokers notice within 0.1 s, and ends when the checkpoint names the log.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.support.broker_process import BrokerProcess, KwireBroker
from tests.support.kafka import Kafka39Broker, KafkaProcess

from .broker import BROKER_JVM, note, spread
from .cleaner import SEGMENT_BYTES, children, cpu_of, fill, opened

SHAPES = {"1 KB": (1000, 0), "1 KB lz4": (1000, 3), "100 B": (100, 0)}
CORE = 0
RATIO = "min.cleanable.dirty.ratio"
SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "1.0",
    "log.segment.delete.delay.ms": "100",
    "log.retention.check.interval.ms": "100000",
}
LOGGING = """log4j.rootLogger=WARN, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.Target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.kafka.log.LogCleaner=INFO
"""


class Measured(NamedTuple):
    """One compaction. Unit: seconds, bytes."""

    wall_s: float
    cleaner_cpu_s: float
    broker_cpu_s: float
    peak_bytes: int
    before: int
    after: int


def topic_of(shape: str, warm_up: bool = False) -> str:
    """The name of a shape's topic."""
    return shape.replace(" ", "-") + ("-warm-up" if warm_up else "")


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mb", type=int, default=512, help="size of each log to compact, in MB")
    options = parser.parse_args()
    found: dict[tuple[str, str], list[Measured]] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        zookeeper = prepare(root / "original", options.mb)
        try:
            for number in range(options.rounds):
                for name in ("Apache Kafka 3.9.2", "kwire"):
                    copy = root / "copy"
                    shutil.copytree(root / "original" / "data", copy / "data")
                    broker = broker_of(name, copy, zookeeper)
                    for shape, measured in compactions(broker).items():
                        found.setdefault((shape, name), []).append(measured)
                        note(f"{number + 1}: {shape}, {name}: {measured}")
                    shutil.rmtree(copy)
        finally:
            zookeeper.zookeeper.stop()
    report(found)


def prepare(folder: Path, megabytes: int) -> Kafka39Broker:
    """Create the directory of broker 0, and the ZooKeeper that knows its topics."""
    broker = Kafka39Broker(folder, config={"log.cleaner.enable": "false"})
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    settings = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)}
    names = [topic_of(shape, warm) for shape in SHAPES for warm in (False, True)]
    for made in admin.create_topics([NewTopic(n, 1, 1, config=settings) for n in names]).values():
        made.result(30)
    KafkaProcess.stop(broker)
    manager = opened(broker.log_dir)
    for log in manager.logs():
        for shape, (record_bytes, codec) in SHAPES.items():
            for warm in (False, True):
                if log.tp.topic == topic_of(shape, warm):
                    fill(log, (64 if warm else megabytes) << 20, record_bytes, codec)
    manager.shutdown(int(time.time() * 1000))
    return broker


def broker_of(name: str, folder: Path, original: Kafka39Broker) -> BrokerProcess:
    """One of the two brokers, not started."""
    if name == "kwire":
        store = ("--node-id", "0", "--zookeeper", original.zookeeper.address)
        return KwireBroker(folder, config=SETTINGS, arguments=store)
    logging = folder / "log4j.properties"
    logging.write_text(LOGGING)
    jvm = (*BROKER_JVM, f"-Dlog4j.configuration=file:{logging}")
    kafka = Kafka39Broker(folder, config=SETTINGS, jvm=jvm)
    kafka.zookeeper = original.zookeeper
    return kafka


def compactions(broker: BrokerProcess) -> dict[str, Measured]:
    """Start the broker on one core and have it compact one log after the other."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {CORE})
    try:
        broker.start()
    finally:
        os.sched_setaffinity(0, own)
    try:
        found = {}
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        while not {topic_of(shape) for shape in SHAPES} <= admin.list_topics().topics.keys():
            time.sleep(0.1)  # the controller has not informed the broker yet
        set_ratio(broker, [topic_of(shape) for shape in SHAPES], "1.0")
        for shape in SHAPES:
            compact(broker, topic_of(shape, warm_up=True))
        for shape in SHAPES:
            found[shape] = compact(broker, topic_of(shape))
        return found
    finally:
        if isinstance(broker, Kafka39Broker):
            KafkaProcess.stop(broker)
        else:
            broker.stop()


def compact(broker: BrokerProcess, topic: str) -> Measured:
    """Compact one log."""
    directory = broker.log_dir / f"{topic}-0"
    for path in directory.glob("*.log"):
        path.read_bytes()  # so that both read from the page cache
    before = stored_bytes(directory)
    thread_before, all_before = cleaner_cpu(broker.pid), broker_cpu(broker.pid)
    started = time.monotonic()
    set_ratio(broker, [topic], "0.001")
    checkpoint = broker.log_dir / "cleaner-offset-checkpoint"
    while not checkpoint.exists() or f"{topic} 0 " not in checkpoint.read_text():
        time.sleep(0.02)
        if time.monotonic() - started > 600:
            raise TimeoutError(f"{broker.kind} does not compact {topic}\n{broker.log_tail()}")
    wall = time.monotonic() - started
    measured = Measured(
        wall,
        cleaner_cpu(broker.pid) - thread_before,
        broker_cpu(broker.pid) - all_before,
        sum(peak_bytes(pid) for pid in (broker.pid, *children(broker.pid))),
        before,
        stored_bytes(directory),
    )
    set_ratio(broker, [topic], "1.0")
    return measured


def set_ratio(broker: BrokerProcess, topics: list[str], ratio: str) -> None:
    """Set the ratio that decides whether logs are compacted."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    entry = ConfigEntry(RATIO, ratio, incremental_operation=AlterConfigOpType.SET)
    resources = [
        ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry]) for topic in topics
    ]
    for done in admin.incremental_alter_configs(resources).values():
        done.result(30)


def stored_bytes(directory: Path) -> int:
    """The total size of the log's segments."""
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def broker_cpu(pid: int) -> float:
    """CPU seconds of the broker and its children."""
    return sum(cpu_of(Path(f"/proc/{each}/stat")) for each in (pid, *children(pid)))


def cleaner_cpu(pid: int) -> float:
    """CPU seconds of the cleaner thread, or of the worker process."""
    threads = [
        task / "stat"
        for task in Path(f"/proc/{pid}/task").iterdir()
        if (task / "comm").read_text().startswith("kafka-log-clean")
    ]
    if threads:
        return sum(cpu_of(thread) for thread in threads)
    return sum(cpu_of(Path(f"/proc/{each}/stat")) for each in children(pid))


def peak_bytes(pid: int) -> int:
    """The peak memory of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) * 1024


def report(found: dict[tuple[str, str], list[Measured]]) -> None:
    """Print a table of medians."""
    print(
        "| records | broker | MB/s | cleaner CPU s per GB | ratio | broker CPU s per GB | peak MB | kept |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for shape in SHAPES:
        base = None
        for (each, name), runs in found.items():
            if each != shape:
                continue
            per_gb = [run.cleaner_cpu_s / run.before * 1e9 for run in runs]
            base = base or statistics.median(per_gb)
            print(
                f"| {shape} | {name} "
                f"| {spread([run.before / run.wall_s / 1e6 for run in runs])} "
                f"| {spread(per_gb)} | {statistics.median(per_gb) / base:.2f} "
                f"| {spread([run.broker_cpu_s / run.before * 1e9 for run in runs])} "
                f"| {max(run.peak_bytes for run in runs) / 1e6:.0f} "
                f"| {statistics.median(run.after / run.before for run in runs):.0%} |"
            )


if __name__ == "__main__":
    main()
