"""How soon a broker answers after its start, and how much memory it uses when idle."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from ..support.broker_process import (
    BrokerProcess,
    KwireBroker,
    cpu_seconds,
    end_process,
    has_controller,
    metadata_answer,
    resident_bytes,
)
from ..support.kafka import KAFKA_3, Kafka39Broker, kafka_broker

pytestmark = pytest.mark.e2e

FIRST_ANSWER_GOAL_S = 0.4
REST_GOAL_BYTES = 45_000_000


def first_answer(broker: BrokerProcess, busy: bool = False) -> tuple[float, int]:
    """Return seconds from process start to the first metadata answer, and bytes resident 1 s later."""
    command = broker.command()
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                if has_controller(metadata_answer(broker.host, broker.port)):
                    break
            except OSError:
                assert process.poll() is None and time.monotonic() - begin < 30
                time.sleep(0.002)
        seconds = cpu_seconds(process.pid) if busy else time.monotonic() - begin
        time.sleep(1.0)
        return seconds, resident_bytes(process.pid)
    finally:
        end_process(process)


def test_first_metadata_answer_comes_quickly_from_a_small_process(
    tmp_path: Path, long_form: bool
) -> None:
    """The best of up to ten starts counts, to exclude the effect of other work on the machine.

    In `make test` all processors are in use, so the broker's CPU time counts, which is longer on a shared core; the
    long form runs alone and uses the clock's time.
    """
    busy = not long_form
    goal_s = FIRST_ANSWER_GOAL_S * (2 if busy else 1)
    runs: list[tuple[float, int]] = []
    while len(runs) < 3 or (len(runs) < 10 and min(runs)[0] > goal_s):
        runs.append(first_answer(KwireBroker(tmp_path / f"run{len(runs)}"), busy))
    seconds, resident = min(run[0] for run in runs), max(run[1] for run in runs)
    what = "s of CPU time" if busy else "s"
    print(f"\nkwire: first metadata answer {seconds:.2f} {what}, {resident / 1e6:.0f} MB at rest")
    if long_form:
        show_kafka(tmp_path)
    assert seconds <= goal_s
    assert resident <= REST_GOAL_BYTES


def show_kafka(tmp_path: Path) -> None:
    """Print the same figures of Apache Kafka, with the flags of its own script."""
    kafka = kafka_broker(KAFKA_3, tmp_path / "kafka", jvm=("-Xmx1G", "-Xms1G", "-XX:+UseG1GC"))
    assert isinstance(kafka, Kafka39Broker)
    kafka.zookeeper.start()
    try:
        seconds, resident = first_answer(kafka)
    finally:
        kafka.zookeeper.stop()
    print(f"Apache Kafka 3.9.2: {seconds:.2f} s, {resident / 1e6:.0f} MB at rest")
