"""The record exchange, recorded on kwire and replayed on Apache Kafka 3.9.2: the differences are known and explained."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kwire.testing import Broker
from kwire.testing.compare import compare, recorded
from kwire.testing.recording import load
from kwire.testing.replay import play

from ..support.broker_process import REPOSITORY
from ..support.kafka import kafka_broker

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

COUNT = 500
#: With ZooKeeper, Apache Kafka 3.9.2 also lists Envelope, which no one sends there; kwire does not. kwire serves the
#: groups of the consumer protocol in the versions of 4.3, ConsumerGroupHeartbeat and ConsumerGroupDescribe, and the
#: APIs of share groups.
OF_SHARE_GROUPS = (*range(76, 80), *range(83, 88), *range(90, 93))
LISTED = (
    "apiKeys[58]",
    "apiKeys[68].maxVersion",
    "apiKeys[69].maxVersion",
    *(f"apiKeys[{key}]" for key in OF_SHARE_GROUPS),
)


def exchange(broker: Broker, client: str, *arguments: str) -> None:
    """Run one side of the exchange."""
    subprocess.run(
        [sys.executable, str(REPOSITORY / "compat" / client / "client.py"), *arguments],
        check=True,
        timeout=120,
        capture_output=True,
    )


def test_exchange_recorded_on_kwire_and_replayed_on_apache_kafka(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Broker(api="3.9") as broker, broker.record() as recorder:
        clients = ("confluent-kafka", "aiokafka", "kafka-python")
        for client in clients:
            broker.topic(f"exchange-{client}", partitions=5, configs={"retention.ms": -1})
        for client in clients:
            exchange(
                broker,
                client,
                "produce",
                broker.bootstrap_servers,
                f"exchange-{client}",
                str(COUNT),
            )
        for client in clients:
            exchange(
                broker,
                client,
                "consume",
                broker.bootstrap_servers,
                f"exchange-{client}",
                str(COUNT),
                client,
            )
        recorder.save(path, frames=True)
    recording = load(path)
    kafka = kafka_broker("3.9.2", tmp_path / "kafka")
    kafka.start()
    try:
        played = play(recording, kafka.bootstrap)
    finally:
        kafka.stop()
    differences = compare(recorded(recording.exchanges), played)
    assert len(recording.exchanges) > 100
    found = {(each.exchange.api, each.path) for each in differences}
    assert found == {("ApiVersions", path) for path in LISTED}
