"""A cluster of Apache Kafka 3.9.2 and kwire brokers with one ZooKeeper.

Each broker has a seat: an id, a port and a data directory. Either implementation can take it, in turn.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ...support.broker_process import BrokerProcess, KwireBroker, free_port
from ...support.kafka import Kafka39Broker, KafkaProcess
from ...support.polling import wait_until
from ...support.zookeeper import ZooKeeperServer

#: Of kwire's brokers: KWIRE_LOG_LEVEL=DEBUG shows more.
LOG_LEVEL = os.environ.get("KWIRE_LOG_LEVEL", "INFO")

KAFKA = "Apache Kafka"
KWIRE = "kwire"

#: One set of settings for both: three replicas of everything, with two in sync required.
SETTINGS: Mapping[str, str] = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "zookeeper.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "8000",
    "controlled.shutdown.enable": "true",
    "controlled.shutdown.retry.backoff.ms": "500",
    "auto.create.topics.enable": "false",
    # Leaders move only when a test requests it, because each move may write markers again.
    "auto.leader.rebalance.enable": "false",
}

LONG = os.environ.get("KWIRE_LONG", "") not in ("", "0")

#: On a machine that stalls for seconds, Apache Kafka warns about slow operations; make test-long has a machine to
#: itself.
LEVELS = "WARN|ERROR|FATAL" if LONG else "ERROR|FATAL"

#: Apache Kafka's messages at these levels have to be examined, except those that three Apache Kafka brokers also log
#: about each other when one of them stops or starts. A follower learns of a new leader after that leader, and of a new
#: topic after its leader; the new leader's high watermark is behind its followers'; a controller that takes over marks
#: the dead one's partitions as leaderless before it elects.
EXPECTED = re.compile(
    r"Connection to node|could not be established|Broker may not be available"
    r"|Client session timed out|Session 0x\w+ for server|SASL configuration failed"
    r"|No meta.properties file|Error in response for fetch request"
    r"|Connection to \S+ was disconnected before the response was read"
    r"|unable to connect|Unable to reconnect|Partition \S+ marked as failed"
    r"|cannot become follower since the new leader -1 is unavailable"
    r"|Controller \d+'s connection to broker .* was unsuccessful"
    r"|Controller \d+ (epoch \d+ )?fails to send (a )?request"
    r"|Received UNKNOWN_TOPIC_ID from the leader .* may be returned transiently"
    r"|failed to write an epoch fence transition for producer \S+ .* NOT_COORDINATOR"
    r"|Error processing append operation"  # OutOfOrderSequenceException, of batches in flight
    r"|Non-monotonic update of high watermark|AddPartitionsToTxnRequest failed for node \d+ with a network"
)


def state_of(client: KazooClient, topic: str, partition: int) -> dict[str, object]:
    """The state node of a partition, {} without one."""
    try:
        found = client.get(f"/brokers/topics/{topic}/partitions/{partition}/state")[0]
    except NoNodeError:
        return {}
    return json.loads(found)  # type: ignore[no-any-return]


class JoiningKafka(Kafka39Broker):
    """Apache Kafka 3.9.2 with an existing ZooKeeper."""

    def start(self, timeout_s: float = 120.0) -> None:
        """Start the broker alone."""
        KafkaProcess.start(self, timeout_s)

    def stop(self) -> int:
        """Stop the broker alone."""
        return KafkaProcess.stop(self)


class Seat:
    """A broker's place in the cluster, which is kept when one implementation replaces the other."""

    def __init__(self, directory: Path, broker_id: int, zookeeper: str, kind: str) -> None:
        self.directory = directory
        self.id = broker_id
        self.zookeeper = zookeeper
        self.kind = kind
        self.port = free_port()
        self.settings: dict[str, str] = dict(SETTINGS)
        self.broker: BrokerProcess | None = None

    @property
    def bootstrap(self) -> str:
        """Host and port, the same for either implementation."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The running process."""
        assert self.broker is not None
        return self.broker.pid

    @property
    def log_path(self) -> Path:
        """The log output of Apache Kafka and kwire, one after another."""
        return self.directory / "broker.log"

    def start(self) -> None:
        """Start, and return when the broker answers."""
        settings = {**self.settings, "broker.id": str(self.id)}
        broker: BrokerProcess
        if self.kind == KAFKA:
            settings["zookeeper.connect"] = self.zookeeper
            self._wait_until_unregistered()
            broker = JoiningKafka(self.directory, config=settings, port=self.port)
        else:
            broker = KwireBroker(
                self.directory,
                config=settings,
                port=self.port,
                arguments=("--zookeeper", self.zookeeper, "--log-level", LOG_LEVEL),
            )
        self.broker = broker
        broker.start(120.0)

    def _wait_until_unregistered(self) -> None:
        """Wait until ZooKeeper has ended the session of a killed broker, since Apache Kafka does not wait."""
        client = KazooClient(self.zookeeper)
        client.start(30)
        try:
            path = f"/brokers/ids/{self.id}"
            wait_until(lambda: client.exists(path) is None, f"{path} goes")
        finally:
            client.stop()
            client.close()

    def stop(self) -> None:
        """Stop like an operator: leaderships are moved away first."""
        if self.broker is not None:
            status = self.broker.stop()
            assert status in (0, 143), f"broker {self.id} ended with {status}"
            self.broker = None

    def kill(self) -> None:
        """End the process immediately (SIGKILL)."""
        if self.broker is not None:
            self.broker.kill()
            self.broker = None

    def __str__(self) -> str:
        """The implementation in the seat."""
        return f"broker {self.id} ({self.kind})"


class MixedCluster:
    """A real ZooKeeper and a seat for each of the kinds named; `settings` are for all of them.

    `prepare` is called with each seat before its broker starts.
    """

    def __init__(
        self,
        directory: Path,
        kinds: Sequence[str],
        settings: Mapping[str, str] | None = None,
        prepare: Callable[[Seat], None] = lambda _: None,
    ) -> None:
        self._prepare = prepare
        self.zookeeper = ZooKeeperServer()
        self.directory = directory
        self._kinds = kinds
        self._settings = settings or {}
        self.seats: list[Seat] = []
        self.client = KazooClient(self.zookeeper.connect)

    def __enter__(self) -> MixedCluster:
        """Start ZooKeeper, then the brokers: the first one becomes controller."""
        try:
            self.zookeeper.start()
            self.client.start(30)
            connect = self.zookeeper.connect
            for number, kind in enumerate(self._kinds):
                seat = Seat(self.directory / f"broker-{number}", number, connect, kind)
                seat.settings.update(self._settings)
                self.seats.append(seat)
                self._prepare(seat)
                seat.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        """End everything."""
        self.close()

    def close(self) -> None:
        """End every process."""
        for seat in self.seats:
            seat.kill()
        self.client.stop()
        self.client.close()
        self.zookeeper.close()

    @property
    def bootstrap(self) -> str:
        """All brokers."""
        return ",".join(seat.bootstrap for seat in self.seats)

    def seat(self, broker_id: int) -> Seat:
        """The seat of a broker."""
        return next(seat for seat in self.seats if seat.id == broker_id)

    def _json(self, path: str) -> dict[str, object] | None:
        try:
            return json.loads(self.client.get(path)[0])  # type: ignore[no-any-return]
        except (NoNodeError, ValueError):
            return None

    def controller(self) -> int | None:
        """The id of the controller."""
        found = self._json("/controller")
        return None if found is None else int(str(found["brokerid"]))

    def make_controller(self, broker_id: int) -> None:
        """Make a broker the controller: the others are suspended, but not until their sessions end."""
        for _ in range(10):
            if self.controller() == broker_id or self._elect(broker_id):
                return
            time.sleep(1)
        raise AssertionError(f"broker {broker_id} is not elected")

    def _elect(self, broker_id: int) -> bool:
        others = [seat for seat in self.seats if seat.id != broker_id and seat.broker is not None]
        for seat in others:
            os.kill(seat.pid, signal.SIGSTOP)
        try:
            with suppress(NoNodeError):
                self.client.delete("/controller")
            deadline = time.monotonic() + 2
            while self.controller() != broker_id and time.monotonic() < deadline:
                time.sleep(0.02)
        finally:
            for seat in others:
                os.kill(seat.pid, signal.SIGCONT)
        return self.controller() == broker_id

    def partitions(self) -> dict[str, dict[str, object]]:
        """The state of every partition, with its replicas."""
        found: dict[str, dict[str, object]] = {}
        for topic in self.client.get_children("/brokers/topics"):
            assignment = self._json(f"/brokers/topics/{topic}")
            if assignment is None:
                continue
            replicas = assignment["partitions"]
            assert isinstance(replicas, dict)
            for partition, ids in replicas.items():
                state = state_of(self.client, topic, int(partition))
                found[f"{topic}-{partition}"] = {**state, "replicas": ids}
        return found

    def short_of_replicas(self) -> dict[str, dict[str, object]]:
        """The partitions whose in-sync replicas are not all of its replicas."""
        return {
            tp: state
            for tp, state in self.partitions().items()
            if set(state.get("isr", ())) != set(state["replicas"])  # type: ignore[call-overload]
        }

    def wait_until_in_sync(self, timeout_s: float = 120.0) -> None:
        """Until every replica of every partition is in sync."""
        deadline = time.monotonic() + timeout_s
        while short := self.short_of_replicas():
            assert time.monotonic() < deadline, f"out of sync: {short}"
            time.sleep(0.1)

    def complaints(self) -> list[str]:
        """The messages of Apache Kafka's brokers at LEVELS, except for expected ones."""
        found = []
        for seat in self.seats:
            if seat.log_path.exists():
                lines = seat.log_path.read_text(errors="replace").splitlines()
                found += [f"{seat.id}: {line}" for line in lines if _complaint(line)]
        return found


def _complaint(line: str) -> bool:
    """Whether a line is Apache Kafka's, at one of LEVELS, and unexpected."""
    return bool(re.match(rf"\[[^]]+\] ({LEVELS}) ", line)) and not EXPECTED.search(line)
