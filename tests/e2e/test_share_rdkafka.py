"""Share groups (KIP-932) with librdkafka's share consumer, a preview in 2.16."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer

from kwire.api import ApiKey
from kwire.testing import Broker
from tests.support.wire_client import WireClient

confluent_kafka = pytest.importorskip("confluent_kafka")
ShareConsumer = getattr(confluent_kafka, "ShareConsumer", None)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.skipif(ShareConsumer is None, reason="confluent-kafka has no share consumer"),
]

compat = pytest.mark.compat

COUNT = 600
#: Of the group whose member is killed: it keeps records until their locks end, and its partitions until its session does.
BRIEF = {"share.record.lock.duration.ms": "4000", "share.session.timeout.ms": "4000"}
GROUP_TYPE = 32
#: Acquires records without acknowledging them, reports it, and waits to be killed.
TAKES_AND_HOLDS = """
import sys, time
from confluent_kafka import ShareConsumer
consumer = ShareConsumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2],
                          "share.acknowledgement.mode": "explicit", "log_level": 0})
consumer.subscribe([sys.argv[2]])
while not (taken := [each for each in consumer.poll(1.0) if each.error() is None]):
    pass
print(len(taken), flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.min.session.timeout.ms": "2000",
        "group.share.min.heartbeat.interval.ms": "500",
        "group.share.heartbeat.interval.ms": "500",
    }
    with Broker(settings) as broker:
        yield broker


def filled(
    broker: Broker, name: str, partitions: int = 3, configs: Mapping[str, str] | None = None
) -> None:
    """Make a topic with records, and a share group that reads it from its beginning."""
    broker.topic(name, partitions=partitions)
    host, port = broker.bootstrap_servers.split(":")
    rows = [
        {"name": key, "config_operation": 0, "value": value}
        for key, value in {"share.auto.offset.reset": "earliest", **(configs or {})}.items()
    ]
    resource = {"resource_type": GROUP_TYPE, "resource_name": name, "configs": rows}
    with closing(WireClient(host, int(port))) as client:
        values = {"resources": [resource], "validate_only": False}
        answer = client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, values)
    assert answer is not None
    assert not answer["responses"][0]["error_code"], answer
    # Whole batches are acquired, so they have to be small for several members to get some.
    small = {"batch.num.messages": 20}
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **small})
    for number in range(COUNT):
        producer.produce(name, b"%d" % number, partition=number % partitions)
    assert producer.flush(30) == 0


def consumer_of(broker: Broker, name: str, **settings: Any) -> Any:
    assert ShareConsumer is not None
    consumer = ShareConsumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": name, "log_level": 0}
        | {key.replace("_", "."): value for key, value in settings.items()}
    )
    consumer.subscribe([name])
    return consumer


def polled(consumer: Any) -> list[Any]:
    """The records of one poll; an error of the client fails the test."""
    messages = list(consumer.poll(0.2))
    assert [each.error() for each in messages if each.error() is not None] == []
    return messages


@compat("confluent-kafka", "share groups: deliveries")
def test_two_members_share_the_records_of_a_partition(broker: Broker) -> None:
    filled(broker, "shared", partitions=1)
    settings = {"share_acknowledgement_mode": "explicit", "max_poll_records": 50}
    members = [consumer_of(broker, "shared", **settings) for _ in range(2)]
    got: list[Counter[bytes]] = [Counter(), Counter()]
    until = time.monotonic() + 60
    while sum(map(len, got)) < COUNT and time.monotonic() < until:
        for member, seen in zip(members, got, strict=True):
            for message in polled(member):
                seen[message.value()] += 1
                member.acknowledge(message)
            assert set(member.commit_sync().values()) <= {None}
    for member in members:
        member.close()
    assert got[0] + got[1] == Counter({b"%d" % number: 1 for number in range(COUNT)})
    assert all(got)


@compat("confluent-kafka", "share groups: deliveries again, limits")
def test_released_records_come_again_until_the_limit_and_rejected_ones_do_not(
    broker: Broker,
) -> None:
    filled(broker, "judged")
    consumer = consumer_of(broker, "judged", share_acknowledgement_mode="explicit")
    accept, release, reject = (
        confluent_kafka.AcknowledgeType.ACCEPT,
        confluent_kafka.AcknowledgeType.RELEASE,
        confluent_kafka.AcknowledgeType.REJECT,
    )
    seen: Counter[int] = Counter()
    expected = Counter({number: 5 if number % 10 == 0 else 1 for number in range(COUNT)})
    until = time.monotonic() + 60
    while seen != expected and time.monotonic() < until:
        for message in polled(consumer):
            number = int(message.value())
            seen[number] += 1
            kind = release if number % 10 == 0 else reject if number % 10 == 1 else accept
            consumer.acknowledge(message, kind)
        consumer.commit_sync()
    assert polled(consumer) == []
    consumer.close()
    assert seen == expected


@compat("confluent-kafka", "share groups: members killed")
def test_records_of_a_killed_member_come_to_another_when_their_lock_ends(broker: Broker) -> None:
    filled(broker, "killed", configs=BRIEF)
    script = [sys.executable, "-c", TAKES_AND_HOLDS, broker.bootstrap_servers, "killed"]
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True) as member:
        assert member.stdout is not None
        taken = int(member.stdout.readline())
        member.kill()
    assert taken > 0
    consumer = consumer_of(broker, "killed")  # which acknowledges by its next poll
    seen: Counter[bytes] = Counter()
    until = time.monotonic() + 60
    while len(seen) < COUNT and time.monotonic() < until:
        seen.update(message.value() for message in polled(consumer))
    consumer.close()
    assert seen == Counter({b"%d" % number: 1 for number in range(COUNT)})
