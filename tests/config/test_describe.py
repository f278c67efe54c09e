"""The content of DescribeConfigs, compared with an Apache Kafka 3.9.2 broker's (kafka_3_9_2.json.gz)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from server.config import BrokerConfig
from server.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_broker_default,
    describe_topic,
)

from .test_tables import is_ours

#: The settings in the recorded broker's server.properties.
STATIC = {
    "broker.id": "0",
    "listeners": "PLAINTEXT://127.0.0.1:23092",
    "log.dirs": "/tmp/kprobe/logs",
    "zookeeper.connect": "127.0.0.1:23181",
    "log.retention.hours": "100",
    "log.roll.hours": "50",
    "num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "some.unknown.key": "hello",
    "ssl.key.password": "secret",
    "group.initial.rebalance.delay.ms": "0",
}
DEFAULT = {
    "log.retention.ms": "66666666",
    "message.max.bytes": "7777777",
    "log.roll.ms": "8888888",
}
BROKER = {
    "nonsense": "10",
    "log.retention.ms": "55555555",
    "leader.replication.throttled.rate": "1000",
    "log.cleanup.policy": "delete,compact",
    "nonsense.key": "v",
}


def recorded() -> dict[str, Any]:
    path = Path(__file__).parent / "kafka_3_9_2.json.gz"
    return json.loads(gzip.decompress(path.read_bytes()))["describe"]  # type: ignore[no-any-return]


def rows(entries: Any) -> list[dict[str, Any]]:
    return [row(entry) for entry in sorted(entries) if not is_ours(entry.name)]


def row(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "readOnly": entry.read_only,
        "source": int(entry.source),
        "sensitive": entry.sensitive,
        "type": int(entry.type),
        "synonyms": [[s.name, s.value, int(s.source)] for s in entry.synonyms],
    }


@pytest.fixture
def config() -> BrokerConfig:
    return BrokerConfig(STATIC)


@pytest.fixture
def changed(config: BrokerConfig) -> BrokerConfig:
    config.set_dynamic(broker=BROKER, default=DEFAULT)
    return config


def test_broker_without_dynamic_configs_is_described_as_kafka_does(config: BrokerConfig) -> None:
    assert rows(describe_broker(config)) == recorded()["broker0"]["configs"]


def test_broker_with_dynamic_configs_is_described_as_kafka_does(changed: BrokerConfig) -> None:
    assert rows(describe_broker(changed)) == recorded()["broker0-dynamic"]["configs"]


def test_default_broker_is_described_as_kafka_does(changed: BrokerConfig) -> None:
    assert rows(describe_broker_default(changed)) == recorded()["broker-default-dynamic"]["configs"]


def test_plain_topic_is_described_as_kafka_does(config: BrokerConfig) -> None:
    assert rows(describe_topic(config, {})) == recorded()["topic-plain"]["configs"]


def test_topic_with_overrides_is_described_as_kafka_does(config: BrokerConfig) -> None:
    overrides = {
        "retention.ms": "1000",
        "cleanup.policy": "compact,delete",
        "max.message.bytes": "2000",
    }
    assert rows(describe_topic(config, overrides)) == recorded()["topic-custom"]["configs"]


def test_topic_below_dynamic_broker_configs_is_described_as_kafka_does(
    changed: BrokerConfig,
) -> None:
    assert rows(describe_topic(changed, {})) == recorded()["topic-plain-dynamic"]["configs"]


def test_only_wanted_names_are_described(config: BrokerConfig) -> None:
    names = [entry.name for entry in describe_topic(config, {}, {"retention.ms", "nonsense"})]
    assert names == ["retention.ms"]
