"""Brokers to be attacked: kwire of any checkout and interpreter, or Apache Kafka 3.9.2."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from pathlib import Path

from tests.support.broker_process import BrokerProcess, KwireBroker, resident_bytes
from tests.support.kafka import KAFKA_3, Kafka39Broker

from .meter import TURN

MEGABYTE = 1e6
METER = Path(__file__).with_name("meter.py")
ROOT = METER.parents[2]

#: Settings of an ordinary operator; the internal topics are small, so that a broker starts immediately.
SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "group.max.session.timeout.ms": "1800000",
    "auto.create.topics.enable": "true",
}
#: The options in Apache Kafka's own start script.
KAFKA_JVM = (
    *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
)


class MeteredKwire(KwireBroker):
    """kwire of a checkout; its turns of the loop are measured from outside its code."""

    measured = True

    def __init__(self, directory: Path, *, root: Path, python: str, **options: object) -> None:
        super().__init__(directory, **options)  # type: ignore[arg-type]
        self.config = {**SETTINGS, **self.config}
        self.root = root
        self.python = python
        self.turn_path = directory / "turn"

    def command(self) -> list[str]:
        self.clear_turn()
        words = super().command()
        serve = words[words.index("serve") :]
        return [self.python, str(METER), str(self.root), str(self.turn_path), *serve]

    def _environment(self) -> dict[str, str]:
        # No module of this checkout may precede the measured one.
        return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def clear_turn(self) -> None:
        """Forget the longest turn so far."""
        with self.turn_path.open("r+b" if self.turn_path.exists() else "w+b") as file:
            file.write(bytes(TURN.size))

    def longest_turn_s(self) -> float:
        """CPU seconds of the longest turn since it was cleared."""
        return float(TURN.unpack(self.turn_path.read_bytes())[0])


class AttackedKafka(Kafka39Broker):
    """Apache Kafka 3.9.2 with the JVM options of its start script."""

    measured = False

    def __init__(self, directory: Path, **options: object) -> None:
        super().__init__(directory, jvm=KAFKA_JVM, **options)  # type: ignore[arg-type]
        self.config = {**SETTINGS, **self.config}


Target = MeteredKwire | AttackedKafka


def make_target(directory: Path, root: Path | None, python: str | None) -> Target:
    """A broker that is not started; Apache Kafka without a checkout."""
    if root is None:
        return AttackedKafka(directory)
    if python is None:
        own = root / ".venv" / "bin" / "python"
        python = str(own) if own.exists() else sys.executable
    return MeteredKwire(directory, root=root, python=python)


def described(target: Target) -> str:
    """A text about the broker, for a table's heading."""
    return f"Apache Kafka {KAFKA_3}" if isinstance(target, AttackedKafka) else str(target.root)


def copied(stage: Target, directory: Path) -> Target:
    """A broker with a copy of a stopped broker's data."""
    assert isinstance(stage, MeteredKwire)
    shutil.copytree(stage.log_dir, directory / "data")
    return MeteredKwire(directory, root=stage.root, python=stage.python, config=stage.config)


def peak_bytes(pid: int) -> int:
    """The largest resident set of a process so far."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def children_of(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:  # the process has ended
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


class MemoryWatch:
    """The resident sets of a broker and of its worker processes during an attack.

    Workers may end at any time, so they are checked every 50 ms.
    """

    def __init__(self, broker: BrokerProcess) -> None:
        self.pid = broker.pid
        self.before = resident_bytes(self.pid)
        self.workers = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        largest: dict[int, int] = {}
        while not self._ended.wait(0.05):
            for child in children_of(self.pid):
                try:
                    largest[child] = max(largest.get(child, 0), peak_bytes(child))
                except OSError:
                    continue
            self.workers = max(largest.values(), default=0)

    def stop(self) -> tuple[int, int, int]:
        """The broker's memory before, at its peak, and that of its largest worker. Unit: bytes."""
        self._ended.set()
        self._thread.join()
        return self.before, peak_bytes(self.pid), self.workers
