"""__consumer_offsets and __transaction_state need more replicas than there are brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kwire.api import ApiKey
from kwire.errors import ErrorCode

from ..support.broker_process import BrokerProcess, KwireBroker
from ..support.kafka import Kafka39Broker
from ..support.kwire_cluster import KwireCluster
from ..support.polling import wait_until
from ..support.wire_client import WireClient

pytestmark = pytest.mark.e2e

THREE = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


def test_groups_and_transactions_wait_until_there_are_brokers_for_three_replicas(
    tmp_path: Path,
) -> None:
    cluster = KwireCluster(tmp_path)
    try:
        for broker in cluster.brokers[:2]:
            broker.start()
        wait_until(lambda: len(cluster.metadata(0)["brokers"]) == 2, "two brokers")
        assert cluster.coordinator(0, "g") == -1
        assert cluster.coordinator(0, "t", transaction=True) == -1
        assert "cannot create __consumer_offsets yet" in cluster.brokers[0].log_tail()
        cluster.brokers[2].start()
        wait_until(lambda: cluster.coordinator(0, "g") >= 0, "a group's coordinator")
        wait_until(lambda: cluster.coordinator(1, "t", transaction=True) >= 0, "the other one")
        wait_until(lambda: cluster.in_sync(0, "__consumer_offsets") == [3, 3, 3], "three replicas")
    finally:
        cluster.stop()


@pytest.mark.jvm
def test_lone_broker_answers_as_apache_kafka_where_three_are_wanted(tmp_path: Path) -> None:
    with Kafka39Broker(tmp_path / "kafka", config=THREE) as kafka:
        store = ("--zookeeper", f"{kafka.zookeeper.address}/kwire")
        with KwireBroker(
            tmp_path / "kwire", config={**THREE, "broker.id": "0"}, arguments=store
        ) as kwire:
            assert answers(kafka) == answers(kwire)
            assert answers(kwire)[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE


def answers(broker: BrokerProcess) -> list[Any]:
    """The answers to requests that look for coordinators or create one of their topics."""
    client = WireClient(broker.host, broker.port, 30.0)
    try:
        found: list[Any] = []
        for kind in (0, 1):
            request = {"key": "k", "key_type": kind}
            answer = client.call(ApiKey.FIND_COORDINATOR, 3, request)
            assert answer is not None
            found.append(answer["error_code"])
        name = "__consumer_offsets"
        request = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
        answer = client.call(ApiKey.METADATA, 9, request)
        assert answer is not None
        return [*found, answer["topics"]]
    finally:
        client.close()
