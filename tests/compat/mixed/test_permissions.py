"""The permission table in a cluster of Apache Kafka 3.9.2 and kwire: the same ACLs with either kind of controller.

One broker creates the ACLs and the other deletes them, in turn. While an ACL is in force, both brokers get requests,
each for the partitions that it leads and the groups that it coordinates. Apache Kafka's effects under a controller of
one kind are compared with kwire's under a controller of the other kind, so that in both tables the answering broker is
the controller, or is not.

`make permissions` sends every request without each permission. The short form sends the requests for which Apache
Kafka's recorded table has an effect, and each request once without a permission that it does not need.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kwire.api import ApiKey
from server.handlers.authorization import AclOperation, ResourceType

from ...authorization.acls import (
    ALICES_ACLS,
    ALL_OPERATIONS,
    ALLOW,
    ALLOWING,
    DENY,
    RESOURCES,
    acl,
    matching,
)
from ...authorization.asking import (
    Asking,
    BrokerNames,
    Effect,
    Table,
    each_version,
    ranges_of,
    title,
)
from ...authorization.cases import DENIALS, Case, Permission, effect, name_of
from ...authorization.logins import MECHANISM, add_users, log_in
from ...authorization.test_authorization import KAFKA as RECORDED
from ...authorization.test_authorization import ZOOKEEPER, name_of_case
from ...support.broker_process import free_port
from ...support.polling import wait_until
from ...support.wire_client import WireClient
from .cluster import KAFKA, KWIRE, LONG, MixedCluster, Seat

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.zookeeper, pytest.mark.slow]

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "auto.create.topics.enable": "true",
    "delegation.token.secret.key": "secret",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",  # the records have old timestamps
    "sasl.enabled.mechanisms": MECHANISM,
    f"listener.name.sasl_plaintext.{MECHANISM.lower()}.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
}
#: Requests whose effects differ, for the reasons given there.
EXPLAINED = {"Metadata with automatic creation", "DescribeUserScramCredentials"}
#: Permissions that no request of the short form needs.
UNNEEDED: tuple[Permission, ...] = ((ResourceType.TOPIC, AclOperation.ALTER_CONFIGS),)


class Brokers:
    """Both brokers of a cluster, of which the first is Apache Kafka; `logins` are their ports for logins."""

    def __init__(self, cluster: MixedCluster, logins: dict[int, int]) -> None:
        self.cluster = cluster
        self.logins = logins
        self.admins = [WireClient("127.0.0.1", seat.port, 30.0) for seat in cluster.seats]
        self._turn = 0

    def make_controller(self, broker_id: int) -> None:
        """The broker has taken over when it adds the users for logins."""
        self.cluster.make_controller(broker_id)
        users = ("alice", "bob")
        wait_until(lambda: self._added(broker_id, *users), "users are added")
        for user in users:
            for port in self.logins.values():
                wait_until(lambda: self._logs_in(port, user), f"{user} logs in")  # noqa: B023

    def _added(self, controller: int, *users: str) -> bool:
        try:
            add_users(self.admins[controller], *users)
        except AssertionError:
            return False
        return True

    def _logs_in(self, port: int, user: str) -> bool:
        with closing(WireClient("127.0.0.1", port)) as client:
            try:
                log_in(client, user)
            except AssertionError:
                return False
        return True

    def asking(self, broker_id: int, controller: int) -> Asking:
        """alice's requests to a broker."""

        def connect(user: str) -> WireClient:
            # Only the controller issues bob's token.
            client = WireClient(
                "127.0.0.1", self.logins[controller if user == "bob" else broker_id]
            )
            log_in(client, user)
            return client

        @contextmanager
        def as_it_is(case: str, denied: tuple[Permission, ...]) -> Iterator[None]:
            yield

        prefix = f"of-{broker_id}-under-{controller}"
        admin = self.admins[broker_id]
        names = BrokerNames(admin, prefix, broker_id, self.admins[controller])
        return Asking(admin, connect, as_it_is, names=names)

    @contextmanager
    def denied(self, permissions: tuple[Permission, ...]) -> Iterator[None]:
        """Deny them to alice: one broker gets the request, both apply it."""
        rows = [acl(kind, int(operation), DENY) for kind, operation in permissions]
        self._turn += 1
        one, other = self._turn % 2, (self._turn + 1) % 2
        self.tell(one, ApiKey.CREATE_ACLS, {"creations": rows})
        self.until_known(ALLOWING + len(rows))
        yield
        self.tell(other, ApiKey.DELETE_ACLS, {"filters": [matching(row) for row in rows]})
        self.until_known(ALLOWING)

    def tell(self, broker_id: int, api: ApiKey, values: dict[str, Any]) -> None:
        """Change ACLs."""
        answer = self.admins[broker_id].call(api, 3, values)
        assert answer is not None
        rows = answer["results" if api is ApiKey.CREATE_ACLS else "filter_results"]
        assert {row["error_code"] for row in rows} == {0}, answer

    def until_known(self, count: int) -> None:
        """Both brokers know this many ACLs for alice."""
        wait_until(
            lambda: all(self._known(admin) == count for admin in self.admins),
            f"{count} ACLs",
            every_s=0.005,  # it is a matter of milliseconds, 120 times
        )

    def _known(self, admin: WireClient) -> int:
        answer = admin.call(ApiKey.DESCRIBE_ACLS, 3, ALICES_ACLS)
        assert answer is not None
        return sum(len(row["acls"]) for row in answer["resources"])

    def close(self) -> None:
        for admin in self.admins:
            admin.close()


def denials_of(case: Case, version: int) -> set[str]:
    """The permissions that are denied while a request is sent."""
    if LONG:
        return set(map(name_of, DENIALS))
    return {name_of(UNNEEDED), *RECORDED[ZOOKEEPER].get(title(case, version), ())}


def tables(askings: list[Asking], brokers: Brokers) -> list[Table]:
    """Each broker's effects of denials, with those that have none as {}."""
    kafkas, kwires = (list(each_version(ranges_of(asking.admin))) for asking in askings)
    assert {case.name for case, _ in set(kafkas) ^ set(kwires)} == set()
    asked = [row for row in kafkas if row in kwires]
    found: list[Table] = [{title(*row): {} for row in asked} for _ in askings]
    allowed = [{title(*row): asking.ask(*row, ()) for row in asked} for asking in askings]
    for denied in DENIALS:
        rows = [row for row in asked if name_of(denied) in denials_of(*row)]
        if not rows:
            continue
        with brokers.denied(denied):
            for asking, table, before in zip(askings, found, allowed, strict=True):
                for row in rows:
                    answer = asking.ask(*row, denied)
                    table[title(*row)][name_of(denied)] = effect(before[title(*row)], answer)
    return found


def differences(kafkas: Table, kwires: Table) -> dict[str, dict[str, tuple[Effect, Effect]]]:
    """Case -> denial -> its effects in Apache Kafka and in kwire, where they are not the same."""
    return {
        case: {
            name: (row[name], kwires[case][name]) for name in row if row[name] != kwires[case][name]
        }
        for case, row in kafkas.items()
        if row != kwires[case]
    }


@pytest.mark.timeout(3600 if LONG else 600)
def test_denials_have_the_same_effects_whoever_answers_and_whoever_controls(tmp_path: Path) -> None:
    logins: dict[int, int] = {}

    def prepare(seat: Seat) -> None:
        port = logins[seat.id] = free_port()
        seat.settings["listeners"] = (
            f"PLAINTEXT://127.0.0.1:{seat.port},SASL_PLAINTEXT://127.0.0.1:{port}"
        )

    #: Whether the broker that answers controls the cluster -> the tables of both kinds.
    by_role: dict[bool, dict[int, Table]] = {True: {}, False: {}}
    with (
        MixedCluster(tmp_path, (KAFKA, KWIRE), SETTINGS, prepare) as cluster,
        closing(Brokers(cluster, logins)) as brokers,
    ):
        for controller in (0, 1):
            brokers.make_controller(controller)
            if controller == 0:
                everything = [acl(kind, ALL_OPERATIONS, ALLOW) for kind in RESOURCES]
                brokers.tell(0, ApiKey.CREATE_ACLS, {"creations": everything})
                brokers.until_known(ALLOWING)
            askings = [brokers.asking(broker_id, controller) for broker_id in (0, 1)]
            for broker_id, table in enumerate(tables(askings, brokers)):
                by_role[broker_id == controller][broker_id] = table
            assert cluster.controller() == controller
            for asking in askings:
                asking.client.close()
    differ: dict[str, Any] = {}
    for controls, both in by_role.items():
        kafkas, kwires = both[0], both[1]
        rows = sum(map(len, kafkas.values()))
        effects = sum(bool(each) for row in kafkas.values() for each in row.values())
        found = differences(kafkas, kwires)
        who = "by the controller" if controls else "by the other broker"
        count = sum(map(len, found.values()))
        print(
            f"answered {who}: {len(kafkas)} requests, {rows} rows, {effects} effects, {count} differ"
        )
        assert effects > 100
        differ |= {f"{case}, {who}": row for case, row in found.items()}
    for case, row in differ.items():
        print(case, row)
    unexplained = {case: row for case, row in differ.items() if name_of_case(case) not in EXPLAINED}
    assert unexplained == {}
    assert not LONG or set(map(name_of_case, differ)) == EXPLAINED
