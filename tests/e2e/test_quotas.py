"""Stock clients that exceed a quota, next to others. The long form is `python -m bench.quotas`."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Producer

from kwire.api import ApiKey

from ..support.broker_process import BrokerProcess
from ..support.wire_client import WireClient

pytestmark = pytest.mark.e2e

LIMIT = 100_000
#: Three seconds more than the ten seconds of the quota that are allowed at once, so that a busy machine is not too slow
#: to exceed it.
VALUES, VALUE = 130, b"v" * 10_000


def limit(broker: BrokerProcess, client_id: str, rate: float | None) -> None:
    client = WireClient(broker.host, broker.port)
    entity = [{"entity_type": "client-id", "entity_name": client_id}]
    op: dict[str, Any] = {"key": "producer_byte_rate", "value": rate or 0.0, "remove": rate is None}
    entries = [{"entity": entity, "ops": [op]}]
    answer = client.call(
        ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": entries, "validate_only": False}
    )
    assert answer is not None and answer["entries"][0]["error_code"] == 0
    client.close()
    time.sleep(0.5)  # Apache Kafka applies it after ZooKeeper's notification


def produce(broker: BrokerProcess, topic: str, client_id: str) -> tuple[float, float]:
    """Produce; return the seconds that it took, and the longest throttle time in a response."""
    failed = []
    throttled = [0.0]
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client_id,
            "batch.num.messages": 2,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    began = time.monotonic()
    for _ in range(VALUES):
        producer.produce(topic, VALUE, on_delivery=lambda error, _: error and failed.append(error))
    # One record more, since only the next request is held back by the last one's throttle time.
    assert producer.flush(60) == 0
    producer.produce(topic, b"end")
    assert producer.flush(60) == 0
    assert not failed
    return time.monotonic() - began, max(throttled)


def test_producer_over_its_quota_is_slowed_down_and_others_are_not(
    broker: BrokerProcess, name: str
) -> None:
    topic = name
    limit(broker, "limited", LIMIT)
    try:
        # How long an unlimited client takes depends on the machine, so that the times are not compared.
        assert produce(broker, topic, "free")[1] == 0
        seconds, throttled = produce(broker, topic, "limited")
        assert seconds > 2 and throttled > 0, (seconds, throttled)
    finally:
        limit(broker, "limited", None)
