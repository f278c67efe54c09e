"""Group handlers at every version: the coordinator's answers in wire format."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.messages.delete_groups import DeleteGroupsRequest
from kwire.messages.describe_groups import DescribeGroupsRequest
from kwire.messages.heartbeat import HeartbeatRequest
from kwire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kwire.messages.list_groups import ListGroupsRequest
from kwire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from server.handlers.authorization import ResourceType
from server.handlers.groups import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    sync_group,
)
from server.handlers.offsets import offset_commit
from tests.handlers.group_broker import GroupBroker
from tests.support.requests import commit_request
from tests.support.services import with_rooms
from tests.support.versions import versions


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())


def join_request(version: int, member_id: str = "", instance: str | None = None) -> Any:
    return JoinGroupRequest(
        group_id="group",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000 if version >= 1 else -1,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )


async def join(broker: GroupBroker, version: int, instance: str | None = None) -> Any:
    """Join as a client of that version does, with the second request if there is one."""
    response = await broker.ask(join_group, join_request(version, instance=instance), version)
    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request = join_request(version, response.member_id)
        response = await broker.ask(join_group, request, version)
    return response


async def stable(broker: GroupBroker, instance: str | None = None) -> str:
    joined = await join(broker, 9, instance)
    assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
    request = SyncGroupRequest(
        group_id="group",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[assignment],
    )
    synced = await broker.ask(sync_group, request, 5)
    assert synced.assignment == b"all"
    member_id: str = joined.member_id
    return member_id


@pytest.mark.parametrize("version", versions(join_group))
def test_member_joins_in_every_version(version: int) -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        response = await join(broker, version)
        assert (response.error_code, response.generation_id, response.protocol_name) == (
            0,
            1,
            "range",
        )
        assert response.leader == response.member_id
        assert response.protocol_type == ("consumer" if version >= 7 else None)
        assert [m.metadata for m in response.members] == [b"m"]
        shard = broker.coordinator.find("group")[1]
        assert not isinstance(shard, ErrorCode)
        (member,) = shard.groups["group"].members.values()
        assert member.client_host == "/10.0.0.7"
        assert member.rebalance_timeout_ms == (20_000 if version >= 1 else 10_000)
        assert member.member_id.startswith("client-")

    run(test)


@pytest.mark.parametrize("version", versions(join_group))
def test_refused_join_is_readable_in_every_version(version: int) -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        response = await broker.ask(join_group, join_request(version, "nobody"), version)
        assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (response.generation_id, response.leader, response.member_id) == (-1, "", "nobody")
        assert response.protocol_name == (None if version >= 7 else "")

    run(test)


@pytest.mark.parametrize("version", [3, 4])
def test_member_id_is_required_from_version_4(version: int) -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        response = await broker.ask(join_group, join_request(version), version)
        required = response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert required == (version >= 4)

    run(test)


@pytest.mark.parametrize("version", [8, 9])
def test_static_leader_skips_its_assignment_from_version_9(version: int) -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        old_id = await stable(broker, "instance")
        response = await broker.ask(join_group, join_request(version, instance="instance"), version)
        assert response.skip_assignment == (version >= 9)
        assert response.leader == (response.member_id if version >= 9 else old_id)

    run(test)


@pytest.mark.parametrize("version", versions(sync_group))
def test_member_syncs_and_is_heard_of_in_every_version(version: int) -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        member_id = await stable(broker)
        request = SyncGroupRequest(
            group_id="group",
            generation_id=1,
            member_id=member_id,
            protocol_type="consumer" if version >= 5 else None,
            protocol_name="range" if version >= 5 else None,
        )
        response = await broker.ask(sync_group, request, version)
        assert (response.error_code, response.assignment) == (0, b"all")
        alive = HeartbeatRequest(group_id="group", generation_id=1, member_id=member_id)
        assert broker.call(heartbeat, alive, min(version, 4)).error_code == 0

    run(test)


def test_sync_without_protocol_is_refused_from_version_5() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        member_id = await stable(broker)
        request = SyncGroupRequest(group_id="group", generation_id=1, member_id=member_id)
        assert broker.call(sync_group, request, 4).error_code == 0
        refused = broker.call(sync_group, request, 5).error_code
        assert refused == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    run(test)


@pytest.mark.parametrize("version", versions(leave_group))
def test_member_leaves_in_every_version(version: int) -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        member_id = await stable(broker)

        def leaving(name: str) -> LeaveGroupRequest:
            if version < 3:
                return LeaveGroupRequest(group_id="group", member_id=name)
            return LeaveGroupRequest(group_id="group", members=[MemberIdentity(member_id=name)])

        def errors(response: Any) -> list[int]:
            return [response.error_code, *(row.error_code for row in response.members)]

        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        refused = await broker.ask(leave_group, leaving("nobody"), version)
        assert errors(refused) == ([unknown] if version < 3 else [0, unknown])
        left = await broker.ask(leave_group, leaving(member_id), version)
        assert errors(left) == ([0] if version < 3 else [0, 0])
        invalid = await broker.ask(leave_group, LeaveGroupRequest(), version)
        assert errors(invalid) == [ErrorCode.INVALID_GROUP_ID]

    run(test)


@pytest.mark.parametrize("version", versions(describe_groups))
def test_groups_are_described_in_every_version(version: int) -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        member_id = await stable(broker, "instance")
        request = DescribeGroupsRequest(
            groups=["group", "other"], include_authorized_operations=version >= 3
        )
        known, unknown = broker.call(describe_groups, request, version).groups
        assert (known.group_state, known.protocol_data) == ("Stable", "range")
        (row,) = known.members
        assert (row.member_id, row.client_id, row.client_host) == (
            member_id,
            "client",
            "/10.0.0.7",
        )
        assert row.group_instance_id == ("instance" if version >= 4 else None)
        assert unknown.group_state == "Dead"
        assert unknown.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
        # READ, DELETE and DESCRIBE, as in 3.9.2 without an authorizer.
        assert known.authorized_operations == (328 if version >= 3 else -(1 << 31))

    run(test)


@pytest.mark.parametrize("version", versions(list_groups))
def test_groups_are_listed_in_every_version(version: int) -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        await stable(broker)
        request = ListGroupsRequest(
            states_filter=["stable"] if version >= 4 else [],
            types_filter=["Classic"] if version >= 5 else [],
        )
        (row,) = broker.call(list_groups, request, version).groups
        assert (row.group_id, row.protocol_type) == ("group", "consumer")
        assert row.group_state == ("Stable" if version >= 4 else "")
        assert row.group_type == ("classic" if version >= 5 else "")

    run(test)


@pytest.mark.parametrize("version", versions(delete_groups))
def test_groups_are_deleted_each_with_its_own_error(version: int) -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        await stable(broker)
        broker.call(offset_commit, commit_request(("topic", 0, 0), group_id="simple"), 8)
        broker.log.hold = True
        request = DeleteGroupsRequest(groups_names=["group", "simple", "other", "simple"])
        answer = asyncio.ensure_future(broker.ask(delete_groups, request, version))
        await asyncio.sleep(0)
        assert not answer.done()
        broker.log.settle()
        response = await answer
        assert {row.group_id: row.error_code for row in response.results} == {
            "group": ErrorCode.NON_EMPTY_GROUP,
            "simple": ErrorCode.NONE,
            "other": ErrorCode.GROUP_ID_NOT_FOUND,
        }

    run(test)


def test_groups_that_fail_at_once_are_answered_at_once() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        response = broker.call(delete_groups, DeleteGroupsRequest(groups_names=["other"]), 2)
        assert [row.error_code for row in response.results] == [ErrorCode.GROUP_ID_NOT_FOUND]

    run(test)


class Owner:
    """Allows all operations on one group, and none on the cluster."""

    def allows(self, connection: Any, operation: Any, resource_type: Any, name: str) -> bool:
        return bool(resource_type == ResourceType.GROUP and name == "mine")


def test_groups_of_others_are_refused_or_hidden() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        for name in ("other", "mine"):
            request = join_request(3)
            request.group_id = name
            await broker.ask(join_group, request, 3)
        broker.services = with_rooms(broker.services, authorizer=Owner())
        denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
        described = broker.call(describe_groups, DescribeGroupsRequest(groups=["mine", "other"]), 5)
        assert [(row.group_id, row.error_code) for row in described.groups] == [
            ("other", denied),
            ("mine", 0),
        ]
        listed = broker.call(list_groups, ListGroupsRequest(), 4)
        assert [row.group_id for row in listed.groups] == ["mine"]
        deleted = broker.call(delete_groups, DeleteGroupsRequest(groups_names=["other", "mine"]), 2)
        assert [(row.group_id, row.error_code) for row in deleted.results] == [
            ("mine", ErrorCode.NON_EMPTY_GROUP),
            ("other", denied),
        ]

    run(test)


@pytest.mark.parametrize("version", [0, 3])
def test_new_member_goes_with_the_connection_on_which_it_waits(version: int) -> None:
    async def test() -> None:
        broker = GroupBroker(initial_rebalance_delay_ms=3_000)
        await broker.start()
        ctx = broker.context(join_group, version)
        waiting = join_group(ctx, join_request(version))
        assert waiting.on_disconnect is not None
        shard = broker.coordinator.find("group")[1]
        assert len(shard.groups["group"].members) == 1
        waiting.on_disconnect()
        assert not shard.groups["group"].members

    run(test)
