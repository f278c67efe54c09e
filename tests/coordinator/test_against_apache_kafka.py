"""The same requests are sent to kwire and to Apache Kafka 3.9.2, with the same answers from both.

Answers are compared field by field. Generated ids are replaced by names, the broker's address by
a word, and rows are sorted, since Apache Kafka keeps groups and members in hash maps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire.messages.delete_groups import DeleteGroupsRequest
from kwire.messages.describe_groups import DescribeGroupsRequest
from kwire.messages.find_coordinator import FindCoordinatorRequest
from kwire.messages.heartbeat import HeartbeatRequest
from kwire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kwire.messages.list_groups import ListGroupsRequest
from kwire.messages.offset_commit import (
    OffsetCommitRequest,
)
from kwire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kwire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kwire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from server.client.wire import Wire
from tests.coordinator.test_offsets import subscription
from tests.support.broker_process import BrokerProcess, KwireBroker
from tests.support.kafka import KAFKA_3, Kafka39Broker, kafka_broker
from tests.support.requests import commit_request

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LONG_MS = 30_000
# Apache Kafka never answers a JoinGroup whose subscription claims more topics than it has bytes for.
READER = [("range", subscription("topic"))]


class Script:
    """The requests to one broker, and its answers."""

    def __init__(self, broker: BrokerProcess, group: str) -> None:
        self.broker = broker
        self.group = group
        self.clients: list[Wire] = []
        self.names: dict[str, str] = {}
        self.record: list[Any] = []
        self.main = self.client()

    def client(self) -> Wire:
        client = Wire.open((self.broker.host, self.broker.port), client_id="client")
        self.clients.append(client)
        return client

    def note(self, answer: Any) -> Any:
        """Keep an answer for comparison."""
        self.record.append(self.plain(answer))
        return answer

    def ask(self, request: Any, version: int, client: Wire | None = None) -> Any:
        return self.note((client or self.main).ask(request, version))

    def plain(self, value: Any) -> Any:
        """An answer as values that can be compared between brokers."""
        if hasattr(value, "__kwire__"):
            fields = {f.name: self.plain(getattr(value, f.name)) for f in value.__kwire__.fields}
            if fields.get("port") == self.broker.port:
                fields.update(node_id="this broker", port="its port")
            return (type(value).__name__, fields)
        if isinstance(value, list):
            return sorted((self.plain(each) for each in value), key=repr)
        if isinstance(value, str):
            value = self.names.get(value, value)
            return UUID.sub("<uuid>", value)
        return value

    def name(self, member_id: str, name: str) -> str:
        """Replace a member's id by a name from now on."""
        self.names[member_id] = f"<{name}>"
        return member_id

    # Requests

    def joining(
        self, member_id: str = "", *, instance: str | None = None, **changes: Any
    ) -> JoinGroupRequest:
        protocols = changes.pop("protocols", READER)
        return JoinGroupRequest(
            **{
                "group_id": self.group,
                "session_timeout_ms": LONG_MS,
                "rebalance_timeout_ms": LONG_MS,
                "member_id": member_id,
                "group_instance_id": instance,
                "protocol_type": "consumer",
                "protocols": [JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols],
                **changes,
            }
        )

    def join(self, name: str, client: Wire | None = None, **joining: Any) -> str:
        """Join alone, with the required member id, and return it."""
        client = client or self.main
        answer = client.ask(self.joining(**joining), 9)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.name(answer.member_id, name)
            self.note(answer)
            answer = client.ask(self.joining(answer.member_id, **joining), 9)
        member_id = self.name(answer.member_id, name)
        self.note(answer)
        return member_id

    def syncing(
        self,
        member_id: str,
        generation: int = 1,
        assignment: dict[str, bytes] | None = None,
        instance: str | None = None,
        protocol: str | None = "range",
    ) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=m, assignment=a)
                for m, a in (assignment or {}).items()
            ],
        )

    def stable(self, name: str = "a", **joining: Any) -> str:
        """Make a stable group of one member."""
        member_id = self.join(name, **joining)
        instance = joining.get("instance")
        self.ask(self.syncing(member_id, 1, {member_id: b"all"}, instance), 5)
        return member_id

    def beating(self, member_id: str, generation: int = 1, instance: str | None = None) -> Any:
        return HeartbeatRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
        )

    def committing(
        self,
        *rows: tuple[str, int, int],
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str | None = "note",
    ) -> OffsetCommitRequest:
        return commit_request(
            *rows,
            row={"committed_metadata": metadata},
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
        )

    def fetching(self, version: int, *partitions: int, group: str | None = None) -> Any:
        group = self.group if group is None else group
        if version < 8:
            topic = OffsetFetchRequestTopic(name="topic", partition_indexes=list(partitions))
            return OffsetFetchRequest(group_id=group, topics=[topic] if partitions else None)
        topics = OffsetFetchRequestTopics(name="topic", partition_indexes=list(partitions))
        asked = OffsetFetchRequestGroup(group_id=group, topics=[topics] if partitions else None)
        return OffsetFetchRequest(groups=[asked])

    def deleting(self, *rows: tuple[str, int], group: str | None = None) -> OffsetDeleteRequest:
        return OffsetDeleteRequest(
            group_id=self.group if group is None else group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[
                        OffsetDeleteRequestPartition(partition_index=partition)
                        for topic, partition in rows
                        if topic == name
                    ],
                )
                for name in dict.fromkeys(row[0] for row in rows)
            ],
        )

    def leaving(self, *members: tuple[str, str | None]) -> LeaveGroupRequest:
        rows = [MemberIdentity(member_id=m, group_instance_id=i) for m, i in members]
        return LeaveGroupRequest(group_id=self.group, members=rows)

    def describe(self, version: int = 5, *groups: str) -> Any:
        request = DescribeGroupsRequest(groups=list(groups) or [self.group])
        return self.ask(request, version)


Scenario = Callable[[Script], None]


# Finding the coordinator


def find_in_every_version(script: Script) -> None:
    for version in range(4):
        script.ask(FindCoordinatorRequest(key="group"), version)
    for version in range(4, 7):
        script.ask(FindCoordinatorRequest(coordinator_keys=["group", "other", ""]), version)


def find_of_types_that_are_not_there(script: Script) -> None:
    script.ask(FindCoordinatorRequest(coordinator_keys=["key"], key_type=2), 5)
    answer = script.main.ask(FindCoordinatorRequest(coordinator_keys=["key"], key_type=9), 6)
    script.note((answer.coordinators[0].error_code, answer.coordinators[0].node_id))


# Members


def join_in_every_version(script: Script) -> None:
    group = script.group
    for version in range(10):
        script.group = f"{group}-{version}"
        if version >= 4:
            answer = script.main.ask(script.joining(), version)
            member_id = script.name(answer.member_id, "a")
            script.note(answer)
        else:
            member_id = ""
        request = script.joining(member_id)
        if version == 0:
            request.rebalance_timeout_ms = -1
        answer = script.main.ask(request, version)
        member_id = script.name(answer.member_id, "a")
        script.note(answer)
        sync = script.syncing(member_id, 1, {member_id: b"all"})
        script.ask(sync, min(version, 5))
        script.ask(script.beating(member_id), min(version, 4))
        script.describe(min(version, 5))
        if version < 3:
            script.ask(LeaveGroupRequest(group_id=script.group, member_id=member_id), version)
        else:
            script.ask(script.leaving((member_id, None)), min(version, 5))


def join_refusals(script: Script) -> None:
    for version in (0, 6, 7, 9):
        script.ask(script.joining("nobody"), version)
        script.ask(script.joining(session_timeout_ms=1), version)
        script.ask(script.joining(group_id=""), version)
        script.ask(script.joining(protocols=[]), version)
        script.ask(script.joining(protocol_type=""), version)
    script.stable()
    for version in (3, 9):
        script.ask(script.joining("nobody"), version)
        script.ask(script.joining(protocols=[("other", b"")]), version)
        script.ask(script.joining(protocol_type="connect"), version)
        script.ask(script.joining("nobody", instance="nobody"), max(version, 5))


def two_members(script: Script) -> None:
    other = script.client()
    first = script.stable("a")
    answer = other.ask(script.joining(), 9)
    second = script.name(answer.member_id, "b")
    script.note(answer)
    other.send(script.joining(second), 9)
    wait_for_rebalance(script, first)
    script.describe()
    script.ask(script.joining(first), 9)
    script.note(other.receive())
    other.send(script.syncing(second, 2), 5)
    script.describe()
    script.ask(script.syncing(first, 2, {first: b"1", second: b"2"}), 5)
    script.note(other.receive())
    script.describe()
    script.ask(script.joining(second), 9)
    script.ask(script.beating(second, 2), 4)
    script.ask(script.leaving((second, None), ("nobody", None)), 5)
    script.ask(script.beating(first, 2), 4)
    script.ask(script.joining(first), 9)
    script.ask(script.leaving((first, None)), 5)
    script.describe()


def wait_for_rebalance(script: Script, member_id: str) -> None:
    """Send heartbeats until the group has noticed a joining member; their number is not compared."""
    for _ in range(200):
        answer = script.main.ask(script.beating(member_id), 4)
        if answer.error_code:
            script.note(answer)
            return
    raise AssertionError("no rebalance")


def sync_refusals(script: Script) -> None:
    script.ask(script.syncing("nobody"), 5)
    member = script.join("a")
    script.ask(script.syncing("nobody"), 5)
    script.ask(script.syncing(member, 2), 5)
    script.ask(script.syncing(member, protocol="other"), 5)
    script.ask(script.syncing(member, protocol=None), 5)
    script.ask(script.syncing(member, instance="nobody"), 5)
    script.ask(SyncGroupRequest(group_id="", member_id="x"), 4)


def heartbeat_and_leave_refusals(script: Script) -> None:
    script.ask(script.beating("nobody"), 4)
    script.ask(script.leaving(("nobody", None), ("", "nobody"), ("", None)), 5)
    script.ask(LeaveGroupRequest(group_id=script.group, member_id="nobody"), 2)
    member = script.stable()
    script.ask(script.beating("nobody"), 4)
    script.ask(script.beating(member, 9), 4)
    script.ask(script.beating(member, instance="nobody"), 4)
    script.ask(script.leaving(("nobody", None), (member, "nobody"), ("", "nobody")), 5)
    for version in (0, 1, 2, 3, 5):
        script.ask(LeaveGroupRequest(), version)
    script.ask(HeartbeatRequest(), 4)


def static_member_returns(script: Script) -> None:
    first = script.stable("a", instance="one")
    for version in (8, 9):
        answer = script.main.ask(script.joining(instance="one"), version)
        second = script.name(answer.member_id, f"a{version}")
        script.note(answer)
        script.ask(script.beating(first, instance="one"), 4)
        script.ask(script.joining(first, instance="one"), 9)
        script.ask(script.syncing(first, instance="one"), 5)
        script.ask(script.leaving((first, "one")), 5)
        commit = script.committing(("topic", 0, 1), member_id=first, generation=1, instance="one")
        script.ask(commit, 9)
        script.ask(script.syncing(second, instance="one"), 5)
        script.describe()
        first = second
    script.ask(script.leaving(("", "one"), ("", "other")), 5)
    script.describe()


def static_member_changes_protocol(script: Script) -> None:
    both = [("range", subscription("topic")), ("sticky", subscription("left"))]
    script.stable("a", instance="one", protocols=both)
    answer = script.main.ask(script.joining(instance="one", protocols=both[::-1]), 9)
    script.name(answer.member_id, "b")
    script.note(answer)
    script.describe()


def pending_member_leaves(script: Script) -> None:
    answer = script.main.ask(script.joining(), 9)
    member = script.name(answer.member_id, "a")
    script.note(answer)
    script.describe()
    script.ask(script.leaving((member, None)), 5)
    script.ask(script.joining(member), 9)


# Offsets


def commit_and_fetch_in_every_version(script: Script) -> None:
    # Apache Kafka keeps offsets of version 0 in ZooKeeper; 4.x no longer has version 1, and a broker with the embedded
    # store advertises the versions of 4.x.
    for version in range(2, 10):
        script.ask(script.committing(("topic", 1, version)), version)
        script.ask(script.fetching(version, 0, 1), version)
    for version in range(2, 10):
        script.ask(script.fetching(version), version)
        script.ask(script.fetching(version, group="unknown"), version)
        script.ask(script.fetching(version, 0, group="unknown"), version)
    script.describe()
    script.ask(script.committing(("topic", 0, 1), metadata=None), 9)
    script.ask(script.committing(("topic", 1, 1), metadata="x" * 5_000), 9)
    script.ask(script.fetching(9), 9)


def commit_refusals(script: Script) -> None:
    rows = ("topic", 0, 1)
    script.ask(script.committing(("gone", 0, 1), ("topic", 99, 2), rows), 9)
    script.ask(script.committing(rows, generation=3, member_id="nobody"), 9)
    script.ask(script.committing(rows, instance="nobody"), 9)
    member = script.join("a")
    script.ask(script.committing(rows, member_id=member, generation=1), 9)
    script.ask(script.syncing(member, 1, {member: b"all"}), 5)
    script.ask(script.committing(rows, member_id=member, generation=1), 9)
    script.ask(script.committing(rows, member_id=member, generation=2), 9)
    script.ask(script.committing(rows, member_id="nobody", generation=1), 9)
    script.ask(script.committing(rows), 9)
    script.ask(script.committing(rows, member_id=member, generation=1, instance="nobody"), 9)
    script.ask(script.committing(("gone", 0, 1)), 9)
    script.ask(script.committing(), 9)


def offsets_deleted(script: Script) -> None:
    script.ask(script.deleting(("topic", 0), ("gone", 1)), 0)
    script.ask(script.deleting(group=""), 0)
    member = script.stable()
    commit = script.committing(
        ("topic", 0, 1), ("left", 0, 2), ("left", 1, 3), member_id=member, generation=1
    )
    script.ask(commit, 9)
    script.ask(script.deleting(("topic", 0), ("left", 0), ("left", 9), ("gone", 0)), 0)
    script.ask(script.fetching(9), 9)
    script.ask(script.leaving((member, None)), 5)
    script.ask(script.deleting(("topic", 0), ("left", 1)), 0)
    script.ask(script.fetching(9), 9)


def offsets_of_others_kept(script: Script) -> None:
    script.stable(protocol_type="connect")
    script.ask(script.deleting(("topic", 0)), 0)


# Groups


def described_in_every_version(script: Script) -> None:
    """Without the operations: with its own store kwire has those of 4.3."""
    script.stable(instance="one")
    for version in range(6):
        script.ask(DescribeGroupsRequest(groups=[script.group, "unknown", ""]), version)


def listed_in_every_version(script: Script) -> None:
    script.stable()
    script.ask(script.leaving(("", "nobody")), 5)

    def listed(request: ListGroupsRequest, version: int) -> None:
        answer = script.main.ask(request, version)
        answer.groups = [row for row in answer.groups if row.group_id == script.group]
        script.note(answer)

    for version in range(6):
        listed(ListGroupsRequest(), version)
    for states in (["Stable"], ["sTable"], ["Empty"], ["Nonsense", "Stable"]):
        listed(ListGroupsRequest(states_filter=states), 5)
    for types in (["classic"], ["CLASSIC"], ["consumer"], ["nonsense"]):
        listed(ListGroupsRequest(types_filter=types), 5)


def groups_deleted(script: Script) -> None:
    member = script.stable()
    group = script.group
    script.ask(DeleteGroupsRequest(groups_names=[group, "unknown", group]), 2)
    script.ask(script.leaving((member, None)), 5)
    script.ask(script.committing(("topic", 0, 1)), 9)
    script.ask(DeleteGroupsRequest(groups_names=[group]), 1)
    script.describe()
    script.ask(script.fetching(9), 9)
    script.ask(DeleteGroupsRequest(groups_names=[group]), 0)
    script.stable("again")


SCENARIOS: tuple[Scenario, ...] = (
    find_in_every_version,
    find_of_types_that_are_not_there,
    join_in_every_version,
    join_refusals,
    two_members,
    sync_refusals,
    heartbeat_and_leave_refusals,
    static_member_returns,
    static_member_changes_protocol,
    pending_member_leaves,
    commit_and_fetch_in_every_version,
    commit_refusals,
    offsets_deleted,
    offsets_of_others_kept,
    described_in_every_version,
    listed_in_every_version,
    groups_deleted,
)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    """Apache Kafka 3.9.2 and kwire, both with ZooKeeper, each with the topics and a coordinator that is ready."""
    kafka = kafka_broker(KAFKA_3, tmp_path_factory.mktemp("kafka"))
    assert isinstance(kafka, Kafka39Broker)
    started: list[BrokerProcess] = []
    try:
        kafka.start()
        started.append(kafka)
        arguments = ("--zookeeper", f"{kafka.zookeeper.address}/kwire")
        kwire = KwireBroker(tmp_path_factory.mktemp("kwire"), arguments=arguments)
        kwire.start()
        started.append(kwire)
        for broker in started:
            prepare(broker)
        yield started
    finally:
        for broker in reversed(started):
            broker.stop()


def prepare(broker: BrokerProcess) -> None:
    """Create the topics, and wait until every group has a coordinator that is ready."""
    client = Wire.open((broker.host, broker.port), client_id="client")
    topics = [
        CreatableTopic(name=name, num_partitions=2, replication_factor=1)
        for name in ("topic", "left")
    ]
    client.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
    names = [f"group-{n}" for n in range(100)]
    for _ in range(2_000):
        found = client.ask(FindCoordinatorRequest(coordinator_keys=names), 4).coordinators
        if not any(row.error_code for row in found):
            asked = [OffsetFetchRequestGroup(group_id=n, topics=None) for n in names]
            fetched = client.ask(OffsetFetchRequest(groups=asked), 8).groups
            if not any(row.error_code for row in fetched):
                client.close()
                return
    raise AssertionError(f"{broker.kind} has no group coordinator")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_answers_are_those_of_apache_kafka(
    brokers: list[BrokerProcess], scenario: Scenario
) -> None:
    records = []
    for broker in brokers:
        script = Script(broker, f"group-{scenario.__name__}")
        try:
            scenario(script)
        finally:
            for client in script.clients:
                client.close()
        records.append(script.record)
    expected, actual = records
    for step, (theirs, ours) in enumerate(zip(expected, actual, strict=True)):
        assert ours == theirs, f"answer {step}"
