"""ACLs in a cluster of Apache Kafka and kwire: both apply them, whichever broker gets the request."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from ...support.polling import wait_until
from .cluster import KAFKA, KWIRE, MixedCluster, Seat

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.zookeeper]

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
}
ANYTHING = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


def acl(name: str, kind: ResourcePatternType, permission: AclPermissionType) -> AclBinding:
    """Write access of all users to a topic."""
    return AclBinding(ResourceType.TOPIC, name, kind, "User:*", "*", AclOperation.WRITE, permission)


def admin(seat: Seat) -> AdminClient:
    """A client that asks one broker."""
    return AdminClient({"bootstrap.servers": seat.bootstrap, "log_level": 0})


def errors_of_writing(cluster: MixedCluster, topic: str) -> set[str | None]:
    """Write a record to each partition, which have different leaders; the names of the errors."""
    found: set[str | None] = set()

    def told(error: KafkaError | None, _: object) -> None:
        found.add(None if error is None else error.name())

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(len(cluster.seats)):
        producer.produce(topic, b"v", partition=number, on_delivery=told)
    assert producer.flush(60) == 0
    return found


@pytest.mark.timeout(600)
def test_both_apply_what_either_is_told(tmp_path: Path) -> None:
    with MixedCluster(tmp_path, (KAFKA, KWIRE), SETTINGS) as cluster:
        kafka, kwire = map(admin, cluster.seats)
        topics = [NewTopic(name, 2, replica_assignment=[[0], [1]]) for name in ("tax-a", "tax-b")]
        for future in kafka.create_topics(topics).values():
            future.result(60)
        wait_until(lambda: errors_of_writing(cluster, "tax-a") == {None}, "everybody may write")

        denied = {"TOPIC_AUTHORIZATION_FAILED"}
        deny_one = acl("tax-a", ResourcePatternType.LITERAL, AclPermissionType.DENY)
        deny_all = acl("tax-", ResourcePatternType.PREFIXED, AclPermissionType.DENY)
        for told, binding, topic in ((kwire, deny_one, "tax-a"), (kafka, deny_all, "tax-b")):
            for future in told.create_acls([binding]).values():
                future.result(30)
            # The other broker takes it up from its notification.
            wait_until(
                lambda topic=topic: errors_of_writing(cluster, topic) == denied,  # type: ignore[misc]
                f"both refuse to write to {topic}",
            )
        for asked in (kafka, kwire):
            assert set(asked.describe_acls(ANYTHING).result(30)) == {deny_one, deny_all}

        deleted = kafka.delete_acls([ANYTHING])[ANYTHING].result(30)
        assert set(deleted) == {deny_one, deny_all}
        wait_until(lambda: kwire.describe_acls(ANYTHING).result(30) == [], "kwire has none")
        wait_until(lambda: errors_of_writing(cluster, "tax-a") == {None}, "both allow again")
        assert not cluster.complaints(), "\n".join(cluster.complaints())
