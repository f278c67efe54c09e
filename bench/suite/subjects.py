"""The brokers: started as a user would start them, queried over the wire, measured from outside."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kwire.api import ApiKey
from tests.support.broker_process import (
    BrokerProcess,
    KwireBroker,
    metadata_answer,
    resident_bytes,
)
from tests.support.kafka import KAFKA_3, KAFKA_4, KafkaProcess, kafka_broker
from tests.support.wire_client import WireClient

from ..broker import BROKER_JVM

KAFKA_39, KAFKA_43, KWIRE = f"Apache Kafka {KAFKA_3}", f"Apache Kafka {KAFKA_4}", "kwire"
PURE = "kwire in pure Python"
NAMES = (KAFKA_39, KAFKA_43, KWIRE, PURE)

#: The environments of kwire's forms: as installed here, and without compiled parts.
FORMS_OF_KWIRE: Mapping[str, Mapping[str, str]] = {
    KWIRE: {},
    PURE: {"KWIRE_PURE": "1", "KWIRE_LOOP": "asyncio"},
}

#: Settings of all brokers. A deleted topic's files must not fill the disk while the next run is measured.
SETTINGS: Mapping[str, str] = {
    "log.segment.delete.delay.ms": "0",
    "auto.create.topics.enable": "false",
}

#: Tests need quick detection of a killed broker; here Apache Kafka's own defaults apply.
SETTINGS_43: Mapping[str, str] = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
}


def _processes(pid: int) -> list[int]:
    """A process and its children, such as kwire's workers."""
    found = [pid]
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += _processes(int(child))
    except OSError:
        pass  # the process has ended in the meantime
    return found


def _sum(pids: Iterable[int], of: Any) -> float:
    total = 0.0
    for pid in pids:
        try:
            total += of(pid)
        except OSError:
            pass
    return total


def _cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process, including ended ones, in nanosecond precision (/proc has ticks of 10 ms)."""
    return time.clock_gettime((~pid << 3) | 2)  # clock_getcpuclockid(3)


def _kernel_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[12]) / os.sysconf("SC_CLK_TCK")


class CpuTime:
    """Broker CPU time between entering and leaving. Unit: seconds; kernel is part of used."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.used = self.kernel = 0.0

    def __enter__(self) -> CpuTime:
        """Begin."""
        self._before = self._subject.cpu(), self._subject.kernel_cpu()
        return self

    def __exit__(self, *exc: object) -> None:
        """End."""
        self.used = self._subject.cpu() - self._before[0]
        self.kernel = self._subject.kernel_cpu() - self._before[1]

    def per(self, gigabytes: float) -> dict[str, float]:
        """The figures of a run that moved this many GB."""
        return {
            "cpu_s_per_gb": self.used / gigabytes,
            "kernel_s_per_gb": self.kernel / gigabytes,
        }


class Subject:
    """One broker under measurement, and its directory."""

    def __init__(self, name: str, root: Path, settings: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.root = root
        config = {**SETTINGS, **(settings or {})}
        self.broker: BrokerProcess
        if name in FORMS_OF_KWIRE:
            self.broker = KwireBroker(root, config=config, environment=FORMS_OF_KWIRE[name])
        else:
            version = KAFKA_3 if name == KAFKA_39 else KAFKA_4
            if name == KAFKA_43:
                config.update(SETTINGS_43)
            self.broker = kafka_broker(version, root, config=config, jvm=BROKER_JVM)
        self.is_running = False
        self._peak = 0.0
        self._topics = 0
        self._began = 0.0

    def start(self, timeout_s: float = 300.0) -> float:
        """Start the broker; return the seconds until its first Metadata response.

        ZooKeeper is started, and KRaft's storage formatted, before the clock starts.
        """
        self.broker.start(timeout_s)
        begin = time.monotonic()
        metadata_answer(self.broker.host, self.broker.port, timeout_s)
        self.is_running = True
        return self.broker.started_in_s + time.monotonic() - begin

    def stop(self, *, everything: bool = True) -> float:
        """Stop cleanly (with or without ZooKeeper); return the duration in seconds."""
        begin = time.monotonic()
        self.is_running = False
        if everything or not isinstance(self.broker, KafkaProcess):
            self.broker.stop()
        else:
            BrokerProcess.stop(self.broker)
        return time.monotonic() - begin

    @property
    def address(self) -> str:
        """host:port."""
        return self.broker.bootstrap

    def cpu(self) -> float:
        """CPU seconds so far, user and system, of all the broker's processes (without ZooKeeper)."""
        return _sum(_processes(self.broker.pid), _cpu_seconds)

    def kernel_cpu(self) -> float:
        """The part of cpu() that was spent in the kernel."""
        return _sum(_processes(self.broker.pid), _kernel_seconds)

    def megabytes(self) -> float:
        """Current resident set of all the broker's processes; shared pages are counted for each."""
        return _sum(_processes(self.broker.pid), resident_bytes) / 1e6

    @contextmanager
    def watched_memory(self) -> Iterator[list[float]]:
        """Yield a list whose last element becomes the largest resident set seen during the block, in MB."""
        peak = [self.megabytes()]
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.2):
                peak[0] = max(peak[0], self.megabytes())

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield peak
        finally:
            over.set()
            thread.join()

    # Requests

    def ask(self, api: ApiKey, version: int, values: dict[str, Any]) -> dict[str, Any]:
        """Send one request on a separate connection. Errors: ConnectionError, TimeoutError."""
        client = WireClient(self.broker.host, self.broker.port, 180.0)
        try:
            answer = client.call(api, version, values)
        finally:
            client.close()
        if answer is None:
            raise ConnectionError(f"{self.name} closed the connection")
        return answer

    def create(self, names: list[str], partitions: int, settings: Mapping[str, str] = {}) -> None:
        """Create topics and return when every partition has a leader that answers."""
        configs = [{"name": name, "value": value} for name, value in settings.items()]
        for first in range(0, len(names), 100):
            rows = [
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": configs,
                }
                for name in names[first : first + 100]
            ]
            request = {"topics": rows, "timeout_ms": 120_000, "validate_only": False}
            for row in self.ask(ApiKey.CREATE_TOPICS, 4, request)["topics"]:
                if row["error_code"]:
                    raise RuntimeError(f"{self.name}: {row}")
        self.wait_served(names, partitions)

    def new_topic(self, partitions: int, settings: Mapping[str, str] = {}) -> str:
        """Create a topic with a new name."""
        self._topics += 1
        name = f"bench-{os.getpid()}-{self._topics}"
        self.create([name], partitions, settings)
        return name

    def wait_served(self, names: list[str], partitions: int, timeout_s: float = 300.0) -> None:
        """Wait until the broker returns the end offset of every partition."""
        deadline = time.monotonic() + timeout_s
        left = list(names)
        while left:
            several = left[:50]
            rows = self._end_rows(several, partitions)
            if all(row["error_code"] == 0 for row in rows):
                left = left[50:]
            elif time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} does not serve {several[0]} and others")
            else:
                time.sleep(0.02)

    def _end_rows(self, names: list[str], partitions: int) -> list[dict[str, Any]]:
        wanted = [
            {"partition_index": number, "current_leader_epoch": -1, "timestamp": -1}
            for number in range(partitions)
        ]
        topics = [{"name": name, "partitions": wanted} for name in names]
        request = {"replica_id": -1, "isolation_level": 0, "topics": topics}
        answer = self.ask(ApiKey.LIST_OFFSETS, 5, request)
        return [row for topic in answer["topics"] for row in topic["partitions"]]

    def record_count(self, name: str, partitions: int) -> int:
        """The sum of a topic's end offsets."""
        rows = self._end_rows([name], partitions)
        wrong = [row for row in rows if row["error_code"]]
        if wrong:
            raise RuntimeError(f"{self.name}: {wrong[0]}")
        return sum(row["offset"] for row in rows)

    def wait_count(
        self, name: str, partitions: int, records: int, timeout_s: float = 60.0
    ) -> float:
        """Wait until the topic has exactly this many records, and return the duration in seconds.

        A producer without acknowledgements may end before the broker has everything.
        Errors: RuntimeError if there are more, or if no more arrive.
        """
        begin = time.monotonic()
        while True:
            count = self.record_count(name, partitions)
            waited = time.monotonic() - begin
            if count == records:
                return waited
            if count > records or waited > timeout_s:
                raise RuntimeError(f"{self.name}: {count} records in {name}, not {records}")
            time.sleep(0.01)

    def delete(self, *names: str) -> None:
        """Delete topics."""
        for first in range(0, len(names), 100):
            request = {"topic_names": list(names[first : first + 100]), "timeout_ms": 120_000}
            for row in self.ask(ApiKey.DELETE_TOPICS, 3, request)["responses"]:
                if row["error_code"]:
                    raise RuntimeError(f"{self.name}: {row}")

    def drop_from_page_cache(self, topic: str) -> int:
        """Flush a topic's segments and drop them from the page cache; return their size in bytes."""
        size = 0
        for path in self.broker.log_dir.glob(f"{topic}-*/*.log"):
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)  # unwritten pages would stay
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                size += os.fstat(fd).st_size
            finally:
                os.close(fd)
        return size
