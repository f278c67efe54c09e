"""Shared by tests with kills: a producer that survives them, and a Spark driver that is killed with its JVM."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from kwire.pipeline.cluster import silent

from ..support.broker_process import REPOSITORY
from .archive_model import Record
from .conftest import SMALL

LONG = os.environ.get("KWIRE_LONG", "") not in ("", "0")
#: Of the driver and of the broker.
KILLS = int(os.environ.get("KWIRE_KILLS", "40" if LONG else "1"))
SEED = int(os.environ.get("KWIRE_SEED", "0")) or random.randrange(1, 1 << 30)
#: After this time no driver is started: a machine may be too busy for all of KILLS.
KILL_S = float(os.environ.get("KWIRE_KILL_S", "inf"))
#: The maximum seconds for a batch on a slow and busy machine. Spark gives up a stream whose Python process needs more
#: than ten seconds to start, so on a very busy machine many attempts may be needed.
PATIENCE_S = 240.0 if KILLS == 1 else 900.0


def kills() -> Iterator[int]:
    """Number the kills; ends after KILLS, or early after KILL_S, but not before the first."""
    began = time.monotonic()
    for number in range(1, KILLS + 1):
        yield number
        print(f", {time.monotonic() - began:.0f} s", flush=True)
        if time.monotonic() - began > KILL_S:
            break


class Load:
    """Produces until it is stopped, also while the broker is down; remembers acknowledged records."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.topic, self.partitions = topic, partitions
        self.acknowledged: list[Record] = []
        self.failed: list[KafkaError] = []
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                # Records that wait while the broker is down must fit into a segment of any size.
                "batch.size": 10_000,
                "message.timeout.ms": 600_000,
                "reconnect.backoff.max.ms": 500,
            },
            logger=silent(),
        )
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(120) == 0

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for _ in range(20):
                self._produce(number)
                number += 1
            self._producer.poll(0.05)
            time.sleep(0.1)

    def _produce(self, number: int) -> None:
        key, value = f"k{number % 97}".encode(), f"value {number}".encode()
        stamp = 1_767_398_280_000 + number * 100

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failed.append(error)
                return
            at = (message.partition() or 0, message.offset() or 0)
            self.acknowledged.append(Record(self.topic, *at, key, value, (), stamp))

        self._producer.produce(
            self.topic,
            key=key,
            value=value,
            partition=number % self.partitions,
            timestamp=stamp,
            on_delivery=delivered,
        )


class Driver:
    """A program that runs Spark, in its own process group, including its JVM."""

    def __init__(self, command: list[str], connector: Path, log: Path) -> None:
        confs = [f"--conf={key}={value}" for key, value in SMALL.items()]
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*command, *confs],
                cwd=REPOSITORY,
                env={
                    **os.environ,
                    "KWIRE_SPARK_JARS": str(connector),
                    "KWIRE_SPARK_MASTER": "local[2]",
                },
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self) -> None:
        """End the driver and its JVM immediately."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait_for(self, done: Callable[[], int], more: int) -> None:
        """Wait until `done` has grown by that much."""
        wanted, deadline = done() + more, time.monotonic() + PATIENCE_S
        while done() < wanted:
            assert self.process.poll() is None, self.log.read_text()[-5000:]
            assert time.monotonic() < deadline, self.log.read_text()[-5000:]
            time.sleep(0.1)
