"""The requests of a group's member, and its reactions to the answers."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.range import RangePartitionAssignor

from kwire.errors import ErrorCode
from kwire.messages.find_coordinator import FindCoordinatorResponse
from kwire.messages.heartbeat import HeartbeatResponse
from kwire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kwire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kwire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kwire.messages.sync_group import SyncGroupResponse
from server.client.asking import Ask
from server.client.assignors import (
    ASSIGNORS,
    assign_range,
    assign_round_robin,
    assignment,
    partitions_in,
    subscription,
    topics_in,
)
from server.client.errors import ClientError
from server.client.member import MemberRequests, TryAgain

T = TypeVar("T")
TOPICS = ("a", "b", "c")


@given(
    st.fixed_dictionaries({topic: st.integers(0, 7) for topic in TOPICS}),
    st.lists(st.sets(st.sampled_from(TOPICS)), min_size=1, max_size=4),
)
def test_ranges_are_those_of_other_clients(
    count: dict[str, int], subscriptions: list[set[str]]
) -> None:
    wanted = {f"m{number}": sorted(topics) for number, topics in enumerate(subscriptions)}
    cluster = SimpleNamespace(partitions_for_topic=lambda topic: set(range(count[topic])))
    members = [
        SimpleNamespace(
            member_id=name, group_instance_id=None, metadata=SimpleNamespace(topics=topics)
        )
        for name, topics in wanted.items()
    ]
    expected = {
        name: [(row[0], number) for row in share.assigned_partitions for number in row[1]]
        for name, share in RangePartitionAssignor.assign(cluster, members).items()
    }
    assert assign_range(count, wanted) == expected


@pytest.mark.parametrize(
    ("count", "wanted", "shares"),
    [
        (
            {"t0": 3, "t1": 3},
            {"C0": ["t0", "t1"], "C1": ["t0", "t1"]},
            {"C0": ["t0-0", "t0-2", "t1-1"], "C1": ["t0-1", "t1-0", "t1-2"]},
        ),
        (
            {"t0": 1, "t1": 2, "t2": 3, "t3": 4},
            {"C0": ["t0"], "C1": ["t0", "t1"], "C2": ["t0", "t1", "t2"]},
            {"C0": ["t0-0"], "C1": ["t1-0"], "C2": ["t1-1", "t2-0", "t2-1", "t2-2"]},
        ),
    ],
)
def test_turns_are_those_of_apache_kafkas_examples(
    count: dict[str, int], wanted: dict[str, list[str]], shares: dict[str, list[str]]
) -> None:
    """Source: the description of RoundRobinAssignor."""
    found = assign_round_robin(count, wanted)
    assert {
        name: [f"{topic}-{number}" for topic, number in tps] for name, tps in found.items()
    } == shares


def test_opaque_bytes_of_later_versions_are_read() -> None:
    assert topics_in(subscription(["a", "b"])) == ["a", "b"]
    assert partitions_in(assignment([("a", 1), ("a", 2)])) == [("a", 1), ("a", 2)]
    later = b"\0\7" + subscription(["a"])[2:-4] + b"\xff" * 4 + bytes(4) + b"\xff" * 4 + b"\xff\xff"
    assert topics_in(later) == ["a"]
    assert partitions_in(b"") == []


class Asked:
    """Runs a generator of requests against prepared answers, and keeps the requests."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = answers
        self.requests: list[Any] = []

    def run(self, asking: Generator[Ask, Any, T]) -> T:
        answer = None
        while True:
            try:
                ask = asking.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            self.requests.append(ask.request)
            answer = self.answers[type(ask.request).__name__.removesuffix("Request")].pop(0)

    @property
    def names(self) -> list[str]:
        return [type(request).__name__.removesuffix("Request") for request in self.requests]


def coordinator(node: int = 7) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(error_code=0, node_id=node, host="h", port=1, coordinators=[])


def joined(error: int = 0, member: str = "m1", leader: str = "m0", rows: Any = ()) -> Any:
    return JoinGroupResponse(
        error_code=error,
        generation_id=5,
        protocol_type="consumer",
        protocol_name="range",
        leader=leader,
        member_id=member,
        members=[
            JoinGroupResponseMember(
                member_id=name, group_instance_id=instance, metadata=subscription(topics)
            )
            for name, instance, topics in rows
        ],
    )


def synced(*tps: tuple[str, int], error: int = 0) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error, assignment=assignment(tps))


def metadata(counts: Mapping[str, int]) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(
            error_code=0,
            name=name,
            partitions=[
                MetadataResponsePartition(
                    error_code=0,
                    partition_index=number,
                    leader_id=0,
                    replica_nodes=[0],
                    isr_nodes=[0],
                    offline_replicas=[],
                )
                for number in range(count)
            ],
        )
        for name, count in counts.items()
    ]
    return MetadataResponse(brokers=[], topics=topics)


def member_of_group(**more: Any) -> MemberRequests:
    """A member that has joined."""
    member = MemberRequests("g", ["t"], **more)
    Asked(FindCoordinator=[coordinator()], JoinGroup=[joined()], SyncGroup=[synced(("t", 1))]).run(
        member.join()
    )
    return member


def test_member_takes_the_id_that_it_is_given_and_joins_with_it() -> None:
    asked = Asked(
        FindCoordinator=[coordinator()],
        JoinGroup=[joined(ErrorCode.MEMBER_ID_REQUIRED, "m9"), joined(member="m9")],
        SyncGroup=[synced(("t", 1))],
    )
    member = MemberRequests("g", ["t"])
    assert asked.run(member.join()) == [("t", 1)]
    assert asked.names == ["FindCoordinator", "JoinGroup", "JoinGroup", "SyncGroup"]
    assert [asked.requests[3].member_id, asked.requests[3].assignments] == ["m9", []]
    assert [row.name for row in asked.requests[2].protocols] == list(ASSIGNORS)
    assert member.generation == 5


def test_leader_assigns_all_partitions_to_all_members_static_ones_first() -> None:
    rows = [("m1", None, ["t"]), ("m2", None, ["u"]), ("m3", "one", ["t", "u"])]
    asked = Asked(
        FindCoordinator=[coordinator()],
        JoinGroup=[joined(leader="m1", rows=rows)],
        Metadata=[metadata({"t": 3, "u": 2})],
        SyncGroup=[synced(("t", 2))],
    )
    member = MemberRequests("g", ["t"])
    asked.run(member.join())
    shares = {
        row.member_id: partitions_in(row.assignment) for row in asked.requests[-1].assignments
    }
    assert shares == {
        "m3": [("t", 0), ("t", 1), ("u", 0)],
        "m1": [("t", 2)],
        "m2": [("u", 1)],
    }
    Asked(Metadata=[metadata({"t": 3, "u": 2})]).run(member.look_for_partitions())
    assert member.generation == 5
    Asked(Metadata=[metadata({"t": 3, "u": 4})]).run(member.look_for_partitions())
    assert member.generation == -1


@pytest.mark.parametrize(
    ("error", "member_id"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, "m1"),
        (ErrorCode.ILLEGAL_GENERATION, "m1"),
        (ErrorCode.UNKNOWN_MEMBER_ID, ""),
    ],
)
def test_member_that_is_no_longer_of_the_generation_joins_again(
    error: ErrorCode, member_id: str
) -> None:
    member = member_of_group()
    Asked(Heartbeat=[HeartbeatResponse(error_code=error)]).run(member.beat())
    assert member.generation == -1
    asked = Asked(JoinGroup=[joined()], SyncGroup=[synced()])
    asked.run(member.join())
    assert asked.requests[0].member_id == member_id

    row = OffsetCommitResponsePartition(partition_index=0, error_code=error)
    answer = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[row])])
    Asked(OffsetCommit=[answer]).run(member.commit({("t", 0): 3}))
    assert member.generation == -1


def test_member_looks_for_a_coordinator_that_has_moved() -> None:
    member = member_of_group()
    with pytest.raises(TryAgain):
        Asked(Heartbeat=[HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)]).run(
            member.beat()
        )
    asked = Asked(FindCoordinator=[coordinator(8)], Heartbeat=[HeartbeatResponse(error_code=0)])
    asked.run(member.beat())
    assert (member.coordinator, member.generation) == (8, 5)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "g: not authorized to access this group"),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "neither the range nor the roundrobin"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "group.max.size"),
    ],
)
def test_group_that_refuses_a_member_is_said_in_words(error: ErrorCode, said: str) -> None:
    with pytest.raises(ClientError, match=said):
        Asked(FindCoordinator=[coordinator()], JoinGroup=[joined(error)]).run(
            MemberRequests("g", ["t"]).join()
        )
    refused = coordinator()
    refused.error_code = error
    with pytest.raises(ClientError, match=said):
        Asked(FindCoordinator=[refused]).run(MemberRequests("g", ["t"]).join())


def test_static_member_keeps_its_partitions_when_it_ends() -> None:
    asked = Asked(LeaveGroup=[None])
    asked.run(member_of_group(instance_id="one").leave())
    asked.run(MemberRequests("g", ["t"]).leave())
    assert asked.requests == []
    asked.run(member_of_group().leave())
    assert [row.member_id for row in asked.requests[0].members] == ["m1"]
