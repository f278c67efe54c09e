"""Apache Kafka and kwire replicate to each other over SASL_SSL with SCRAM, and only who logs in may take part."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kwire.testing.certificates import Authority

from ...support.broker_process import free_port
from ...support.kafka_tools import ToolServers
from .cluster import KAFKA, KWIRE, MixedCluster, Seat

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.zookeeper]

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SETTINGS = {
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INTERNAL:SASL_SSL",
    "inter.broker.listener.name": "INTERNAL",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "listener.name.internal.scram-sha-512.sasl.jaas.config": (
        f'{SCRAM} required username="broker" password="secret";'
    ),
    # Sessions end during the test, so that each broker has to log in again on its connections.
    "listener.name.internal.connections.max.reauth.ms": "3000",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    # Clients, who do not log in here, may do everything; of those that log in, only the brokers may.
    "super.users": "User:broker;User:ANONYMOUS",
}


@pytest.mark.timeout(300)
def test_brokers_of_both_kinds_log_in_at_each_other(
    tmp_path: Path, authority: Authority, tool_servers: ToolServers
) -> None:
    trusted = authority.write(tmp_path / "trusted.pem")
    tools = tool_servers("3.9.2")

    def prepare(seat: Seat) -> None:
        if seat.id == 0:
            added = tools.run(
                "kafka-configs",
                *("--zookeeper", seat.zookeeper, "--alter", "--entity-type", "users"),
                *("--entity-name", "broker", "--add-config", "SCRAM-SHA-512=[password=secret]"),
            )
            assert added.status == 0, added.errors
        seat.directory.mkdir(parents=True, exist_ok=True)
        own = seat.directory / "own.pem"
        authority.issue(f"CN=broker-{seat.id}").write(own)
        seat.settings |= {
            "listeners": f"CLIENTS://127.0.0.1:{seat.port},INTERNAL://127.0.0.1:{free_port()}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(own),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(trusted),
        }

    with MixedCluster(tmp_path, (KAFKA, KWIRE, KWIRE), SETTINGS, prepare) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        topic = NewTopic("t", 3, replica_assignment=[[0, 1, 2], [1, 2, 0], [2, 0, 1]])
        admin.create_topics([topic])["t"].result(60)
        cluster.wait_until_in_sync()
        written = 0
        for controller in (1, 0):
            cluster.make_controller(controller)
            cluster.wait_until_in_sync()
            written += write(cluster)
        assert read(cluster, written) == written
        cluster.wait_until_in_sync()
        assert cluster.complaints() == []
        for seat in cluster.seats:
            log = seat.log_path.read_text(errors="replace")
            assert "Cannot log in" not in log
            assert "secret" not in log


def write(cluster: MixedCluster) -> int:
    """Write records to every partition with acks=all; returns how many were acknowledged."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for number in range(300):
        producer.produce(
            "t",
            b"%d" % number,
            partition=number % 3,
            on_delivery=lambda e, _: e and failed.append(e),
        )
    assert producer.flush(60) == 0
    assert failed == []
    return 300


def read(cluster: MixedCluster, count: int) -> int:
    """Read all records; returns how many there are."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe(["t"])
    found = 0
    while found < count:
        messages = consumer.consume(count, timeout=30)
        assert messages
        assert all(message.error() is None for message in messages)
        found += len(messages)
    consumer.close()
    return found
