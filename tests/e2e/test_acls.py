"""kafka-acls of 3.9.2 and of 4.3.0, unmodified, against a broker with an authorizer, and the effect of its ACLs.

Without a login every client is User:ANONYMOUS, so these ACLs deny.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from ..support.broker_process import BrokerProcess
from ..support.kafka import KAFKA_3, KAFKA_4
from ..support.kafka_tools import ToolServer, ToolServers

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module", params=[KAFKA_3, KAFKA_4])
def tools(request: pytest.FixtureRequest, tool_servers: ToolServers) -> ToolServer:
    """Give one release's tools."""
    return tool_servers(request.param)


def error_of_producing(broker: BrokerProcess, topic: str) -> str | None:
    """Write one record, and return the name of the error."""
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    producer.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    return None if errors[0] is None else errors[0].name()


def error_of_reading(broker: BrokerProcess, topic: str) -> str | None:
    """Read one record, and return the name of the error."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "readers",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(30)
        assert message is not None
        found = message.error()
        return None if found is None else str(found.name())
    finally:
        consumer.close()


def test_acls_are_added_listed_applied_and_removed(
    tools: ToolServer, new_broker: Callable[..., BrokerProcess]
) -> None:
    """One broker, and every verb of the tool."""
    broker = new_broker(SETTINGS)

    def acls(*arguments: str) -> str:
        result = tools.run("kafka-acls", "--bootstrap-server", broker.bootstrap, *arguments)
        assert result.status == 0, (result.output, result.errors)
        return result.output

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics(
        [NewTopic(name, 1, 1) for name in ("open", "tax-1")]
    ).values():
        future.result(30)
    assert error_of_producing(broker, "tax-1") is None
    everybody = ("--deny-principal", "User:*")

    # A topic with an ACL is closed to all that no ACL allows.
    acls("--add", "--allow-principal", "User:*", "--operation", "All", "--topic", "tax-1")
    said = acls("--add", *everybody, "--operation", "Write", "--topic", "tax-1")
    assert "(principal=User:*, host=*, operation=WRITE, permissionType=DENY)" in said
    assert error_of_producing(broker, "tax-1") == "TOPIC_AUTHORIZATION_FAILED"
    assert error_of_producing(broker, "open") is None

    prefixed = ("--resource-pattern-type", "prefixed", "--topic", "tax-")
    acls("--add", *everybody, "--operation", "Read", *prefixed)
    assert error_of_reading(broker, "tax-1") == "TOPIC_AUTHORIZATION_FAILED"
    assert error_of_reading(broker, "open") is None
    assert set(admin.list_topics(timeout=30).topics) >= {"open", "tax-1"}
    acls("--add", *everybody, "--operation", "Describe", *prefixed)
    assert "tax-1" not in admin.list_topics(timeout=30).topics

    listed = acls("--list", "--resource-pattern-type", "match", "--topic", "tax-1")
    assert "name=tax-1, patternType=LITERAL" in listed
    assert "name=tax-, patternType=PREFIXED" in listed
    assert "tax" not in acls("--list", "--topic", "open")

    acls("--remove", "--force", *prefixed)
    assert error_of_reading(broker, "tax-1") is None
    broker.stop()
    broker.start()
    assert error_of_producing(broker, "tax-1") == "TOPIC_AUTHORIZATION_FAILED"
    acls("--remove", "--force", "--topic", "tax-1")
    assert error_of_producing(broker, "tax-1") is None
    assert acls("--list").strip() == ""


def test_client_without_alter_on_the_cluster_cannot_change_acls(
    tools: ToolServer, new_broker: Callable[..., BrokerProcess]
) -> None:
    """The last one locks the door behind itself."""
    broker = new_broker(SETTINGS)
    deny = ("--add", "--deny-principal", "User:ANONYMOUS", "--operation", "Alter", "--cluster")
    result = tools.run("kafka-acls", "--bootstrap-server", broker.bootstrap, *deny)
    assert result.status == 0
    result = tools.run("kafka-acls", "--bootstrap-server", broker.bootstrap, *deny)
    assert "ClusterAuthorizationException" in result.output + result.errors
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    anything = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        for future in admin.delete_acls([anything]).values():
            future.result(30)
