"""Kafka Connect's distributed workers: a file copied through a topic while workers are killed."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from ..support.broker_process import BrokerProcess, free_port
from ..support.kafka import KAFKA_3, write_properties
from ..support.kafka_apps import CONNECT_WORKER, KafkaApp

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

TOPIC = "lines"
SOURCE = {
    "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
    "topic": TOPIC,
    "tasks.max": "1",
    "batch.size": "40",  # a transaction for each batch
    "exactly.once.support": "required",
}
SINK = {
    "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
    "topics": TOPIC,
    "tasks.max": "1",
    "consumer.override.isolation.level": "read_committed",
}


class Worker:
    """One worker of the Connect cluster and its REST server."""

    def __init__(self, broker: BrokerProcess, folder: Path, name: str) -> None:
        port = free_port()
        self.id = f"127.0.0.1:{port}"
        properties = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "workers",
            "listeners": f"http://{self.id}",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "exactly.once.source.support": "enabled",
            "plugin.discovery": "service_load",
            "connector.client.config.override.policy": "All",
            "offset.flush.interval.ms": "500",
            "session.timeout.ms": "3000",
            "heartbeat.interval.ms": "500",
            "scheduled.rebalance.max.delay.ms": "500",
            "status.storage.partitions": "2",
            "offset.storage.partitions": "2",
            "reconnect.backoff.max.ms": "200",
        }
        for storage in ("config", "offset", "status"):
            properties[f"{storage}.storage.topic"] = f"connect-{storage}"
            properties[f"{storage}.storage.replication.factor"] = "1"
        path = write_properties(folder / f"{name}.properties", properties)
        self.app = KafkaApp(KAFKA_3, folder / f"{name}.log", CONNECT_WORKER, str(path))

    def ask(self, method: str, path: str, body: object = None, timeout_s: float = 180.0) -> Any:
        """Return the REST server's answer; ask again while the workers rebalance."""
        url = f"http://{self.id}{path}"
        data = None if body is None else json.dumps(body).encode()
        deadline = time.monotonic() + timeout_s
        while True:
            request = urllib.request.Request(
                url, data, {"Content-Type": "application/json"}, method=method
            )
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    content = answer.read()
                    return json.loads(content) if content else None
            except (OSError, urllib.error.HTTPError) as failure:
                said = failure.read() if isinstance(failure, urllib.error.HTTPError) else b""
                late = time.monotonic() > deadline
                assert self.app.running and not late, (path, failure, said, self.app.tail)
                time.sleep(0.1)

    def wait_for_state(self, connector: str, state: str, timeout_s: float = 180.0) -> str:
        """Wait until the connector and its task are in a state; return the task's worker."""
        deadline = time.monotonic() + timeout_s
        while True:
            status = self.ask("GET", f"/connectors/{connector}/status")
            parts = [status["connector"], *status["tasks"]]
            tasks = 0 if state == "STOPPED" else 1
            if len(parts) == 1 + tasks and all(part["state"] == state for part in parts):
                return str(parts[-1]["worker_id"])
            assert time.monotonic() < deadline, (status, self.app.tail)
            time.sleep(0.1)


class Writer:
    """A thread that appends numbered lines to a file until stopped."""

    def __init__(self, path: Path) -> None:
        self.lines: list[str] = []
        self._stop = threading.Event()
        self._path = path
        path.touch()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._path.open("a") as file:
            while not self._stop.wait(0.05):
                more = [f"line {len(self.lines) + n} of the file" for n in range(10)]
                file.writelines(f"{line}\n" for line in more)
                file.flush()
                self.lines += more

    def wait_for(self, more: int) -> None:
        """Wait until this many more lines are written."""
        wanted = len(self.lines) + more
        while len(self.lines) < wanted:
            time.sleep(0.02)

    def finish(self) -> None:
        """Stop writing."""
        self._stop.set()
        self._thread.join()


def committed_lines(bootstrap: str, count: int) -> list[str]:
    """Return the topic's committed lines, at least count of them, up to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    lines: list[str] = []
    at_end, deadline = False, time.monotonic() + 180
    while not (at_end and len(lines) >= count):
        assert time.monotonic() < deadline, (len(lines), count)
        for message in consumer.consume(2000, timeout=0.2):
            error = message.error()
            if error is None:
                value = message.value()
                assert isinstance(value, bytes)
                lines.append(value.decode())
            at_end = error is not None and error.code() == KafkaError._PARTITION_EOF
    consumer.close()
    return lines


def wait_for_lines(path: Path, lines: list[str], workers: list[Worker]) -> list[str]:
    """Wait until a file contains each of the lines; return the file's lines."""
    wanted, deadline = set(lines), time.monotonic() + 180
    while True:
        found = path.read_text().splitlines() if path.exists() else []
        if wanted <= set(found):
            return found
        assert time.monotonic() < deadline, (
            len(found),
            len(wanted - set(found)),
            [worker.app.tail for worker in workers],
        )
        time.sleep(0.2)


def group_offset(bootstrap: str, group: str) -> int:
    """Return a group's committed offset for the topic; -1 if there is none."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    asked = ConsumerGroupTopicPartitions(group)
    rows = admin.list_consumer_group_offsets([asked])[group].result(60).topic_partitions
    return next((row.offset for row in rows if row.topic == TOPIC), -1)


@pytest.fixture
def cluster(
    new_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> Iterator[tuple[BrokerProcess, Callable[[str], Worker]]]:
    """Give a broker and a function that starts one more worker; all end with the test."""
    broker = new_broker()
    with contextlib.ExitStack() as stack:

        def start(name: str) -> Worker:
            worker = Worker(broker, tmp_path, name)
            stack.callback(worker.app.close)
            return worker

        yield broker, start


@pytest.mark.compat(
    "java-apps 3.9.2", "Connect: file source exactly once, file sink, workers killed"
)
@pytest.mark.timeout(1200)
def test_file_is_copied_exactly_once_while_workers_are_killed(
    cluster: tuple[BrokerProcess, Callable[[str], Worker]], long_form: bool, tmp_path: Path
) -> None:
    """The worker that reads the file is killed; in the long form, again and again, the broker too."""
    broker, start = cluster
    kills = 20 if long_form else 1
    workers = [start("worker0"), start("worker1")]
    source_file, sink_file = tmp_path / "source.txt", tmp_path / "sink.txt"
    writer = Writer(source_file)
    for worker in workers:
        worker.ask("GET", "/connectors")
    first = workers[0]
    first.ask("PUT", "/connectors/source/config", SOURCE | {"file": str(source_file)})
    first.ask("PUT", "/connectors/sink/config", SINK | {"file": str(sink_file)})
    first.wait_for_state("sink", "RUNNING")
    for kill in range(kills):
        reader = workers[0].wait_for_state("source", "RUNNING")
        wait_for_lines(sink_file, writer.lines[:100], workers)
        writer.wait_for(200)
        killed = next(worker for worker in workers if worker.id == reader)
        killed.app.kill()
        workers.remove(killed)
        moved = time.monotonic()
        while workers[0].wait_for_state("source", "RUNNING") != workers[0].id:
            assert time.monotonic() - moved < 180, workers[0].app.tail
            time.sleep(0.1)
        while workers[0].wait_for_state("sink", "RUNNING") != workers[0].id:
            assert time.monotonic() - moved < 180, workers[0].app.tail
            time.sleep(0.1)
        moved = time.monotonic() - moved
        print(f"\nthe other worker took over in {moved:.1f} s")
        broker.kill()
        broker.start()
        if kill + 1 < kills:
            workers.append(start(f"worker{kill + 2}"))
            workers[-1].ask("GET", "/connectors")
    writer.wait_for(200)
    writer.finish()
    copied = wait_for_lines(sink_file, writer.lines, workers)
    print(f"{len(writer.lines)} lines, {len(copied) - len(writer.lines)} twice in the sink")
    assert committed_lines(broker.bootstrap, len(writer.lines)) == writer.lines
    check_offsets(broker, workers[0], source_file)


def check_offsets(broker: BrokerProcess, worker: Worker, source_file: Path) -> None:
    """Stop both connectors, compare their offsets with the work that was done, and delete these."""
    for connector in ("source", "sink"):
        worker.ask("PUT", f"/connectors/{connector}/stop")
        worker.wait_for_state(connector, "STOPPED")
    source = worker.ask("GET", "/connectors/source/offsets")["offsets"]
    assert source == [
        {
            "partition": {"filename": str(source_file)},
            "offset": {"position": source_file.stat().st_size},
        }
    ]
    sink = worker.ask("GET", "/connectors/sink/offsets")["offsets"]
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "check"})
    end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=60)[1]
    consumer.close()
    offset = group_offset(broker.bootstrap, "connect-sink")
    partition = {"kafka_topic": TOPIC, "kafka_partition": 0}
    assert sink == [{"partition": partition, "offset": {"kafka_offset": offset}}]
    assert end - 1 <= offset <= end  # a marker may follow the last record
    for connector in ("source", "sink"):
        worker.ask("DELETE", f"/connectors/{connector}/offsets")
        assert worker.ask("GET", f"/connectors/{connector}/offsets")["offsets"] == []
    assert group_offset(broker.bootstrap, "connect-sink") == -1
