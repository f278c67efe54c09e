"""Test docker-compose.yml on an engine, under load, while a broker and a ZooKeeper node are killed. python -m compat.docker.run

Starts the services, produces with acks=all to a topic with three replicas, and reads the topic as a group. Kills the
controller's container and that of ZooKeeper's leader, starts both again, and counts. The exit status is 1 if a client received
an error, or if an acknowledged record is missing or occurs twice. The variables that docker-compose.yml reads choose the images
and what these are built from.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

REPOSITORY = Path(__file__).resolve().parents[2]
BOOTSTRAP = "localhost:9092,localhost:9093,localhost:9094"
NUMBERS = (1, 2, 3)
PARTITIONS = 6
RATE = 400  # records a second


def say(text: str) -> None:
    """Print with the time, immediately."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def until(condition: Callable[[], object], what: str, timeout_s: float = 120.0) -> float:
    """Wait for containers; returns the seconds it took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > timeout_s:
            raise TimeoutError(what)
        time.sleep(0.1)
    return time.monotonic() - began


def compose_command() -> str:
    """The compose that there is."""
    return "docker-compose" if shutil.which("docker-compose") else "docker compose"


class Project:
    """The services, under one name, on one network."""

    def __init__(self, program: list[str], host: bool, name: str) -> None:
        network = "docker-compose.host.yml" if host else "docker-compose.override.yml"
        self.command = [*program, "-f", "docker-compose.yml", "-f", network, "-p", name]

    def compose(self, *words: str) -> str:
        """The standard output of a compose command."""
        ran = subprocess.run(
            [*self.command, *words], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True
        )
        return ran.stdout

    def docker(self, *words: str) -> str:
        """The output of a docker command."""
        return subprocess.run(
            ["docker", *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    def container(self, service: str) -> str:
        """The container of a service, running or not."""
        return self.compose("ps", "-a", "-q", service).strip()

    def healthy(self, service: str) -> bool:
        """Whether the engine calls it so."""
        state = self.docker("inspect", "-f", "{{.State.Health.Status}}", self.container(service))
        return state == "healthy"

    def kill(self, service: str) -> None:
        """SIGKILL, by the engine."""
        self.docker("kill", self.container(service))

    def zookeeper_leader(self) -> str:
        """The service whose server leads the ensemble."""
        for number in NUMBERS:
            service = f"zookeeper-{number}"
            ask = f"exec 3<>/dev/tcp/{service}/{2180 + number}; echo srvr >&3; cat <&3"
            if "Mode: leader" in self.docker("exec", self.container(service), "bash", "-c", ask):
                return service
        raise RuntimeError("no ZooKeeper server leads")


class Load:
    """A producer and a consumer, each in a thread, and their results."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.errors: list[str] = []
        self.sent = 0
        self.acknowledged: set[bytes] = set()
        self.read: Counter[bytes] = Counter()
        self.longest_ack_s = 0.0
        self.stopping = threading.Event()
        self.drained = threading.Event()
        self.threads = [threading.Thread(target=self._send), threading.Thread(target=self._read)]
        for thread in self.threads:
            thread.start()

    def _send(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": BOOTSTRAP,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        began = time.monotonic()

        def delivered(at: float) -> Callable[[KafkaError | None, Message], None]:
            def note(error: KafkaError | None, message: Message) -> None:
                self.longest_ack_s = max(self.longest_ack_s, time.monotonic() - at)
                if error is not None:
                    self.errors.append(f"produce: {error}")
                else:
                    self.acknowledged.add(message.value() or b"")

            return note

        while not self.stopping.is_set():
            due = int((time.monotonic() - began) * RATE)
            for _ in range(max(0, due - self.sent)):
                producer.produce(
                    self.topic, b"%d" % self.sent, on_delivery=delivered(time.monotonic())
                )
                self.sent += 1
            producer.poll(0.02)
        producer.flush(120)

    def _read(self) -> None:
        settings = {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": f"{self.topic}-readers",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        consumer = Consumer(settings)
        consumer.subscribe([self.topic])
        while not self.drained.is_set():
            message = consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                self.errors.append(f"consume: {error}")
            else:
                self.read[message.value() or b""] += 1
        consumer.close()

    def finish(self) -> None:
        """Send no more, wait for the acknowledgements, read until they are all there."""
        self.stopping.set()
        self.threads[0].join()
        try:
            until(lambda: len(self.read) >= len(self.acknowledged), "everything read", 60)
        except TimeoutError:
            pass  # the count shows it
        time.sleep(2)  # wait for records that must not come
        self.drained.set()
        self.threads[1].join()

    @property
    def twice(self) -> int:
        """Records that were read more than once."""
        return sum(1 for count in self.read.values() if count > 1)

    def lost(self) -> int:
        """Records that were acknowledged and not read."""
        return len(self.acknowledged - self.read.keys())


def in_sync(admin: AdminClient, topic: str, count: int) -> bool:
    """Whether every partition has this many replicas in sync."""
    partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions.values()
    return bool(partitions) and all(len(partition.isrs) == count for partition in partitions)


def exercise(project: Project, between_s: float) -> int:
    """Kill and start again under load; returns the exit status."""
    services = [f"{kind}-{number}" for kind in ("zookeeper", "kwire") for number in NUMBERS]
    took = until(lambda: all(map(project.healthy, services)), "health")
    say(f"all healthy {took:.1f} s after they were started")
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP, "log_level": 0})
    topic = f"kept-{time.time_ns()}"
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(30)
    until(lambda: in_sync(admin, topic, 3), "in sync")
    load = Load(topic)
    time.sleep(between_s)
    broker = f"kwire-{admin.list_topics(timeout=10).controller_id}"
    say(f"docker kill {broker}, the controller; {len(load.acknowledged)} records acknowledged")
    project.kill(broker)
    took = until(lambda: in_sync(admin, topic, 2), "two in sync")
    say(f"the others lead everything {took:.1f} s later")
    time.sleep(between_s)
    node = project.zookeeper_leader()
    say(f"docker kill {node}, ZooKeeper's leader; {len(load.acknowledged)} records acknowledged")
    project.kill(node)
    time.sleep(between_s)
    say(f"starting {node} and {broker}; {len(load.acknowledged)} records acknowledged")
    project.docker("start", project.container(node), project.container(broker))
    took = until(lambda: in_sync(admin, topic, 3), "three in sync")
    say(f"all replicas in sync {took:.1f} s later")
    time.sleep(between_s)
    load.finish()
    say(
        f"sent {load.sent}, acknowledged {len(load.acknowledged)}, read {len(load.read)}, lost {load.lost()},"
        f" twice {load.twice}, errors {len(load.errors)}; longest acknowledgement {load.longest_ack_s:.1f} s"
    )
    for error in sorted(set(load.errors)):
        print(error)
    return 1 if load.errors or load.lost() or load.twice else 0


def main() -> int:
    """Bring up, exercise, take down."""
    parser = argparse.ArgumentParser(prog="python -m compat.docker.run", description=__doc__)
    parser.add_argument(
        "--compose", default=compose_command(), help="compose command (default %(default)s)"
    )
    parser.add_argument("--host", action="store_true", help="use the host's network")
    parser.add_argument("--between", type=float, default=8.0, metavar="SECONDS")
    parser.add_argument("--keep", action="store_true", help="leave the services running")
    options = parser.parse_args()
    project = Project(options.compose.split(), options.host, "kwire-compat")
    try:
        project.compose("up", "-d", "--build")
        return exercise(project, options.between)
    finally:
        if not options.keep:
            project.compose("down", "-v")


if __name__ == "__main__":
    sys.exit(main())
