"""ACLs and users in a cluster of Apache Kafka and kwire: whoever is told of them, both apply them."""

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

from kwire.api import ApiKey
from kwire.errors import ErrorCode
from server.handlers.authorization import AclOperation as Operation
from server.handlers.authorization import ResourceType as Kind

from ...authorization.acls import ALICES_ACLS, ALL_OPERATIONS, ALLOW, DENY, matching
from ...authorization.acls import acl as acl_row
from ...authorization.cases import CASES, effect, outline
from ...authorization.logins import MECHANISM, add_users, log_in
from ...support.broker_process import free_port
from ...support.wire_client import WireClient
from .cluster import KAFKA, KWIRE, MixedCluster, Seat, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.zookeeper]

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "sasl.enabled.mechanisms": MECHANISM,
    f"listener.name.sasl_plaintext.{MECHANISM.lower()}.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
}
#: Requests of the permission table that every broker answers alike, whatever it leads.
SAMPLE = (
    ("Metadata", 12),
    ("Metadata of all topics", 12),
    ("DescribeConfigs of a topic", 4),
    ("FindCoordinator of a group", 4),
    ("FindCoordinator of a transactional id", 4),
    ("DescribeAcls", 3),
    ("DescribeCluster", 1),
    ("DescribeClientQuotas", 1),
    ("DescribeUserScramCredentials of a user", 0),
    ("InitProducerId", 5),
)
DENIED = (
    ((Kind.TOPIC, Operation.DESCRIBE),),
    ((Kind.TOPIC, Operation.DESCRIBE_CONFIGS),),
    ((Kind.GROUP, Operation.DESCRIBE),),
    ((Kind.TRANSACTIONAL_ID, Operation.DESCRIBE),),
    ((Kind.CLUSTER, Operation.DESCRIBE),),
    ((Kind.CLUSTER, Operation.DESCRIBE_CONFIGS),),
    ((Kind.TOPIC, Operation.WRITE), (Kind.CLUSTER, Operation.IDEMPOTENT_WRITE)),
)
KINDS = (Kind.TOPIC, Kind.GROUP, Kind.CLUSTER, Kind.TRANSACTIONAL_ID)
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
    """Everybody's writing to a topic."""
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


@pytest.mark.timeout(300)
def test_both_apply_what_either_is_told(tmp_path: Path) -> None:
    logins: dict[int, int] = {}

    def prepare(seat: Seat) -> None:
        port = logins[seat.id] = free_port()
        seat.settings["listeners"] = (
            f"PLAINTEXT://127.0.0.1:{seat.port},SASL_PLAINTEXT://127.0.0.1:{port}"
        )

    with MixedCluster(tmp_path, (KAFKA, KWIRE), SETTINGS, prepare) as cluster:
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
        # Apache Kafka logs some denials, of DescribeAcls for one, as unexpected errors.
        both_answer_alike(cluster, logins)


class Names:
    """What the requests are about. Source: tests.authorization.cases.Names."""

    topic = "tax-a"
    group = "group"
    transactional_id = "transaction"


def both_answer_alike(cluster: MixedCluster, logins: dict[int, int]) -> None:
    """alice and bob, added under different controllers, are denied and allowed the same by both brokers."""
    admins = [WireClient("127.0.0.1", seat.port) for seat in cluster.seats]
    controller = cluster.controller()
    assert controller is not None
    for controller_id, user in ((controller, "alice"), (1 - controller, "bob")):
        cluster.make_controller(controller_id)
        wait_until(lambda: added(admins[controller_id], user), f"{user} is added")  # noqa: B023
    alices, bobs = (
        [logged_in(logins[seat.id], user) for seat in cluster.seats] for user in ("alice", "bob")
    )
    everyone = [{**acl_row(kind, ALL_OPERATIONS, ALLOW), "principal": "User:*"} for kind in KINDS]
    told(admins[0], ApiKey.CREATE_ACLS, {"creations": everyone})
    wait_until(lambda: all(known(each, "User:*") == len(everyone) for each in admins), "both allow")
    wait_until(  # a broker's first producer ids come from the controller
        lambda: all(answers(each)["InitProducerId"]["error_code"] == 0 for each in alices),
        "both have producer ids",
    )
    allowed = [answers(client) for client in alices]
    changed = 0
    for number, denied in enumerate(DENIED):
        one, other = admins[number % 2], admins[1 - number % 2]
        rows = [acl_row(kind, operation, DENY) for kind, operation in denied]
        told(one, ApiKey.CREATE_ACLS, {"creations": rows})
        wait_until(lambda: {known(a, "User:alice") for a in admins} == {len(rows)}, "both deny")  # noqa: B023
        kafkas, kwires = (
            {name: effect(before[name], now) for name, now in answers(client).items()}
            for client, before in zip(alices, allowed, strict=True)
        )
        assert kafkas == kwires, denied
        changed += sum(bool(each) for each in kafkas.values())
        assert [answers(client) for client in bobs] == allowed
        told(other, ApiKey.DELETE_ACLS, {"filters": [matching(row) for row in rows]})
        wait_until(lambda: {known(each, "User:alice") for each in admins} == {0}, "both forget")
    assert changed >= len(SAMPLE)
    for client in (*admins, *alices, *bobs):
        client.close()


def added(controller: WireClient, user: str) -> bool:
    """Add a user; False while the broker has not taken over as controller."""
    try:
        add_users(controller, user)
    except AssertionError as error:
        assert f"{ErrorCode.NOT_CONTROLLER:d}" in str(error)
        return False
    return True


def logged_in(port: int, user: str) -> WireClient:
    """A connection of a user, as soon as the broker has heard of her."""
    found: list[WireClient] = []

    def succeeds() -> bool:
        client = WireClient("127.0.0.1", port)
        try:
            log_in(client, user)
        except AssertionError:
            client.close()
            return False
        found.append(client)
        return True

    wait_until(succeeds, f"{user} logs in")
    return found[0]


def told(client: WireClient, api: ApiKey, values: dict[str, object]) -> None:
    answer = client.call(api, 3, values)
    assert answer is not None
    rows = answer["results" if api is ApiKey.CREATE_ACLS else "filter_results"]
    assert {row["error_code"] for row in rows} == {0}


def known(client: WireClient, principal: str) -> int:
    """How many ACLs for a principal a broker knows."""
    answer = client.call(ApiKey.DESCRIBE_ACLS, 3, {**ALICES_ACLS, "principal_filter": principal})
    assert answer is not None
    return sum(len(row["acls"]) for row in answer["resources"])


def answers(client: WireClient) -> dict[str, dict[str, object]]:
    """The outlines of the answers to the sample."""
    found = {}
    for case in CASES:
        for version in case.versions:
            if (case.name, version) in SAMPLE:
                answer = client.call(case.api, version, case.values(Names()))  # type: ignore[arg-type]
                assert answer is not None, case.name
                found[case.name] = outline(answer)
    assert len(found) == len(SAMPLE)
    return found
