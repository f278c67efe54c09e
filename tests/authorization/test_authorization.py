"""kwire's answers to a client that lacks a permission, compared with those of Apache Kafka 3.9.2 and 4.3.0.

One broker, with ACLs that allow everything and one that denies the permission in question. A request is sent without
each permission that the broker checks, and each that affects Apache Kafka's answers: by alice, who logs in with SCRAM,
and some of them by a client without a login.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kwire.api import ApiKey
from server.broker import Broker
from server.config import BrokerConfig
from server.handlers.authorization import CLUSTER_NAME, AclOperation, ResourceType
from server.handlers.table import HANDLERS
from server.net.connection_info import ConnectionInfo
from server.security.acl import AclEntry, ResourcePattern
from server.security.acl import Permission as Allowed
from server.security.acl_authorizer import AclAuthorizer
from tests.support.replicas import UnsyncedFiles
from tests.support.wire_client import WireClient

from .asking import Asking, Table, each_version, follows, ranges_of, title
from .cases import CASES, DENIALS, SINGLE, Case, Permission, effect, name_of
from .logins import MECHANISM, add_users, log_in

pytestmark = pytest.mark.e2e

ZOOKEEPER, KRAFT = "3.9.2", "4.3.0"
KAFKA: dict[str, Table] = {
    version: json.loads((Path(__file__).parent / f"kafka-{version}.json").read_text())
    for version in (ZOOKEEPER, KRAFT)
}

LATE_LEADER = (
    "kwire answers when the topic can be used; Apache Kafka first says that it has no leader (3.9) or is not there"
    " (4.3), and so a denial takes no partitions away there"
)
CLUSTER_DELETE = (
    "KRaft's controller deletes any topic for a client that may DELETE the cluster, which an ACL for All allows;"
    " kwire asks for the topic, as 3.9 does, on either store"
)
NO_SUCH_GROUPS = (
    "with ZooKeeper, 3.9 has no groups of the consumer protocol, and answers UNSUPPORTED_VERSION"
)
NO_GROUP_CONFIGS = "3.9 with ZooKeeper has no configs of groups, and refuses the type before it looks at permissions"
OF_4 = "as in 4.3: this broker's ceiling is 4.3, and it has the embedded store"
#: Release -> cases with other effects than there, in at least one version, and why.
DIFFERENT: dict[str, dict[str, str]] = {
    ZOOKEEPER: {
        "Metadata with automatic creation": LATE_LEADER,
        "CreateTopics": f"the id of the new topic is shown, {OF_4}",
        "DescribeGroups": f"groups have configs, and so two more bits of operations, {OF_4}",
        "ConsumerGroupHeartbeat": NO_SUCH_GROUPS,
        "ConsumerGroupDescribe": NO_SUCH_GROUPS,
        "DescribeConfigs of a group": NO_GROUP_CONFIGS,
        "IncrementalAlterConfigs of a group": NO_GROUP_CONFIGS,
        "AlterConfigs of a group": NO_GROUP_CONFIGS,
        "UpdateFeatures": f"a refusal has no rows, {OF_4}",
        "DescribeUserScramCredentials": "3.9 fails to make the answer, and closes the connection",
    },
    KRAFT: {
        "Fetch of a follower": (
            "no matter of permissions: 4.3 answers NOT_LEADER_OR_FOLLOWER to a stranger without the leader's address,"
            " 3.9 and kwire with it"
        ),
        "Metadata with automatic creation": LATE_LEADER,
        "DescribeUserScramCredentials": "4.3 fails to make the answer, as 3.9",
        "DeleteTopics": CLUSTER_DELETE,
        "DeleteTopics by id": CLUSTER_DELETE,
        "DeleteTopics of one that is not there": CLUSTER_DELETE,
    },
}
#: Every client may send these.
WITHOUT_PERMISSIONS = {
    ApiKey.SASL_HANDSHAKE,
    ApiKey.API_VERSIONS,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
}
#: These need a login.
NEEDS_LOGIN = "DelegationToken"

ALICE, ANONYMOUS = "alice", "ANONYMOUS"


class Denier(AclAuthorizer):
    """Allows everything but `denied` to one user, and records the checked permissions."""

    def __init__(self, user: str) -> None:
        super().__init__({"User:admin"})
        self._user = user
        self.asked: set[Permission] = set()
        self.deny(())

    def deny(self, denied: Collection[Permission]) -> None:
        """Replace the ACLs by those that deny these."""
        acls = {
            self._pattern(kind): {AclEntry("User:*", "*", AclOperation.ALL, Allowed.ALLOW)}
            for kind in ResourceType
        }
        for kind, operation in denied:
            entry = AclEntry(f"User:{self._user}", "*", operation, Allowed.DENY)
            acls[self._pattern(kind)].add(entry)
        self.replace_all(acls)
        self.asked = set()

    @staticmethod
    def _pattern(kind: ResourceType) -> ResourcePattern:
        return ResourcePattern(kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else "*")

    def allows_any(
        self, client: ConnectionInfo, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        self.asked.add((resource_type, operation))
        return super().allows_any(client, operation, resource_type)

    def allows(
        self,
        client: ConnectionInfo,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        self.asked.add((resource_type, operation))
        return super().allows(client, operation, resource_type, name)


class Found(NamedTuple):
    """kwire's tables.

    Shape: `others` has the changes for bob and the super user admin while everything was denied to alice.
    """

    table: Table
    anonymous: Table
    others: dict[str, Any]


def ask_kwire(broker: Broker) -> Found:
    """The effects of denials in kwire, for the versions that it serves."""
    rooms = broker.rooms
    assert rooms is not None
    ports = [listener.port for listener in broker.serving.listeners]

    def connect(user: str) -> WireClient:
        client = WireClient("127.0.0.1", ports[0 if user == ANONYMOUS else 1])
        if user != ANONYMOUS:
            log_in(client, user)
        return client

    def asking(denier: Denier, user: str) -> Asking:
        @contextmanager
        def deny(case: str, denied: tuple[Permission, ...]) -> Iterator[None]:
            denier.deny(denied)
            yield

        object.__setattr__(rooms.services, "authorizer", denier)
        return Asking(connect("admin"), connect, deny, user)

    alices, everybodys = Denier(ALICE), Denier(ANONYMOUS)
    object.__setattr__(rooms.services, "authorizer", alices)
    with closing(connect(ANONYMOUS)) as client:
        add_users(client, ALICE, "bob", "admin")
        cases = list(each_version(ranges_of(client)))
    with closing(asking(alices, ALICE)) as by_alice:
        table = effects(by_alice, alices, cases)
        others = effects_on_others(by_alice, cases)
    some = [row for row in cases if NEEDS_LOGIN not in row[0].name][::4]
    with closing(asking(everybodys, ANONYMOUS)) as by_everybody:
        return Found(table, effects(by_everybody, everybodys, some), others)


def effects(asking: Asking, denier: Denier, cases: Sequence[tuple[Case, int]]) -> Table:
    table: Table = {}
    for case, version in cases:
        key = title(case, version)
        row: dict[str, dict[str, Any]] = {}
        allowed = asking.ask(case, version, ())
        asked = denier.asked
        known = {name for kafka in KAFKA.values() for name in kafka.get(key, ())}
        for denied in DENIALS:
            # A permission that the broker does not check cannot change its answer.
            if set(denied) & asked or name_of(denied) in known:
                found = effect(allowed, asking.ask(case, version, denied))
                asked |= denier.asked
                if found and not follows(row, denied, found):
                    row[name_of(denied)] = found
        table[key] = row
    return table


def effects_on_others(asking: Asking, cases: Sequence[tuple[Case, int]]) -> dict[str, Any]:
    """The changes for bob and admin while everything is denied to alice: case and user -> effect."""
    changed = {}
    for user in ("bob", "admin"):
        with closing(asking.connect(user)) as client:
            for case, version in cases:
                if case.api == ApiKey.EXPIRE_DELEGATION_TOKEN:
                    continue  # it is bob's own token, which would be gone
                outlines = [asking.ask_as(client, case, version, denied) for denied in ((), SINGLE)]
                if found := effect(*outlines):
                    changed[f"{title(case, version)}, {user}"] = found
    return changed


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    async def run() -> Found:
        settings = {
            "broker.id": "0",
            "log.dirs": str(tmp_path_factory.mktemp("broker")),
            "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": MECHANISM,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin",
            "delegation.token.secret.key": "secret",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "group.share.max.session.timeout.ms": "3600000",
            "group.share.session.timeout.ms": "3600000",
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.ms": "-1",
        }
        broker = Broker(BrokerConfig(settings), file_layer=UnsyncedFiles())
        try:
            await broker.start()
            return await asyncio.to_thread(ask_kwire, broker)
        finally:
            await broker.stop()

    return asyncio.run(run())


def disagreements(table: Table, kafka: Table) -> dict[str, dict[str, Any]]:
    """Case -> denial -> its effect in kwire and in Apache Kafka, where they are not the same."""
    return {
        case: {
            name: (row.get(name), kafka[case].get(name))
            for name in sorted(row.keys() | kafka[case].keys())
            if row.get(name) != kafka[case].get(name)
        }
        for case, row in table.items()
        if case in kafka and row != kafka[case]
    }


def name_of_case(key: str) -> str:
    return key.rpartition(", version ")[0]


@pytest.mark.parametrize("release", KAFKA)
def test_effects_of_denials_are_those_of_apache_kafka(found: Found, release: str) -> None:
    differ = disagreements(found.table, KAFKA[release])
    explained = DIFFERENT[release]
    assert {key: differ[key] for key in differ if name_of_case(key) not in explained} == {}


@pytest.mark.parametrize("release", KAFKA)
def test_list_of_what_differs_is_no_longer_than_it_has_to_be(found: Found, release: str) -> None:
    differ = disagreements(found.table, KAFKA[release])
    assert DIFFERENT[release].keys() - {name_of_case(key) for key in differ} == set()


def test_client_without_a_login_is_told_the_same_as_one_that_has_logged_in(found: Found) -> None:
    assert found.anonymous == {key: found.table[key] for key in found.anonymous}
    assert len(found.anonymous) > 20


def test_denials_to_one_user_change_nothing_for_others_and_super_users(found: Found) -> None:
    assert found.others == {}


def test_each_api_with_permissions_has_a_case() -> None:
    served = {handler.api_key for handler in HANDLERS}
    assert served - {case.api for case in CASES} == WITHOUT_PERMISSIONS


def test_most_of_the_requests_are_served(found: Found) -> None:
    assert len(found.table) > 90
    for release, kafka in KAFKA.items():
        assert len(found.table.keys() & kafka.keys()) > 85, release
