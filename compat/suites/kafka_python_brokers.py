"""A pytest plugin that gives the integration tests of kafka-python a broker: kwire.testing's, or Apache Kafka.

Apache Kafka runs as a process. Their fixture starts a ZooKeeper and a broker of a downloaded release, with scripts that
are not part of the package. This plugin replaces only the start, so that the rest of the fixture stays: a broker for
each file of tests, another for each SASL mechanism, the settings. KWIRE_SUITE_BROKER is `kwire` or `kafka-3.9.2`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import py

HOST = "127.0.0.1"

#: The settings in the tests' kafka.properties, except those that depend on the broker.
SETTINGS = {
    "default.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
STORE_PASSWORD = "foobar"


def pytest_configure() -> None:
    """Replace the functions that start processes."""
    from test.integration import fixtures  # kafka-python's own

    fixtures.ZookeeperFixture.instance = classmethod(lambda cls, **_: None)
    broker = fixtures.KafkaFixture
    broker.open = broker.start = start
    broker.stop = stop
    broker.dump_logs = lambda self: None
    broker.get_topic_names = topic_names


class Child:
    """A replacement for the process; the tests use only its log."""

    def dump_logs(self) -> None:
        """Nothing: pytest shows the log of a broker that fails."""


def start(fixture: Any) -> None:
    """Start a broker with the settings of the fixture."""
    if fixture.running:
        return
    from test.integration.fixtures import get_open_port

    if fixture.tmp_dir is None:
        fixture.tmp_dir = py.path.local.mkdtemp()
    fixture.host = HOST
    settings = {
        **SETTINGS,
        "broker.id": str(fixture.broker_id),
        "num.partitions": str(fixture.partitions),
        "auto.create.topics.enable": str(fixture.auto_create_topic).lower(),
    }
    plain_port = fixture.port
    if fixture.transport != "PLAINTEXT":
        # Besides the listener under test, one for the broker itself and for the operator's requests.
        plain_port = get_open_port()
        settings |= {
            "listeners": f"PLAINTEXT://{HOST}:{plain_port},{fixture.transport}://{HOST}:{fixture.port}",
            **(security(fixture)),
        }
    fixture.plain_address = f"{HOST}:{plain_port}"
    fixture.served = served(settings, plain_port, Path(str(fixture.tmp_dir)))
    if fixture.sasl_enabled and fixture.sasl_mechanism.startswith("SCRAM"):
        add_user(fixture)
    fixture.child = Child()
    fixture.running = True


def stop(fixture: Any) -> None:
    """Stop the broker."""
    if fixture.running and not fixture.external:
        fixture.served.stop()
        fixture.running = False


def served(settings: dict[str, str], port: int, directory: Path) -> Any:
    """A broker that runs. Shape: it has `stop()`."""
    if os.environ["KWIRE_SUITE_BROKER"] == "kwire":
        from kwire.testing import Broker

        listeners = {"listeners": f"PLAINTEXT://{HOST}:{port}"}
        return Broker({**listeners, **settings}, api="3.9").start()
    from tests.support.kafka import Kafka39Broker

    broker = Kafka39Broker(directory / "kafka", config=settings, port=port)
    broker.start()
    return broker


def security(fixture: Any) -> dict[str, str]:
    """The settings of its listener."""
    found = {}
    if fixture.ssl_enabled:
        fixture._ssl_config()  # makes the files
        folder = fixture.ssl_dir
        for store in ("keystore", "truststore"):
            found[f"ssl.{store}.location"] = f"{folder}/kafka.server.{store}.jks"
            found[f"ssl.{store}.password"] = STORE_PASSWORD
        found["ssl.key.password"] = STORE_PASSWORD
    if fixture.sasl_enabled:
        mechanism = fixture.sasl_mechanism
        prefix = f"listener.name.{fixture.transport.lower()}"
        found[f"{prefix}.sasl.enabled.mechanisms"] = mechanism
        found[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = fixture._jaas_config().strip()
    return found


def add_user(fixture: Any) -> None:
    """Add the user of the tests, as their fixture does by kafka-configs.sh."""
    from kafka.admin import KafkaAdminClient, UserScramCredentialUpsertion

    with KafkaAdminClient(bootstrap_servers=fixture.plain_address) as admin:
        admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion(
                    fixture.broker_user, fixture.sasl_mechanism, password=fixture.broker_password
                )
            ]
        )


def topic_names(fixture: Any) -> list[str]:
    """The topics, which their fixture asks kafka-topics.sh for."""
    from kafka.admin import KafkaAdminClient

    with KafkaAdminClient(bootstrap_servers=fixture.plain_address) as admin:
        return list(admin.list_topics())
