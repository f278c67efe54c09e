"""Handlers of share groups: heartbeats, descriptions, and requests to share coordinators.

They cover the scenarios of GroupCoordinatorServiceTest, GroupCoordinatorShardTest and GroupMetadataManagerTest (Apache
Kafka 4.3) that the comments name, with the handler's part of KafkaApisTest.
Omitted: ...WithNoOpPersister, ...NullResult, ...NullTopicData and ...ThrowsError of the persister and of latest
offsets, since the persister answers with a row for each requested partition and never with an exception;
...WhenNotStarted and ...MetadataImageNull, since requests arrive only when the broker has started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kwire.messages.delete_groups import DeleteGroupsRequest
from kwire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kwire.messages.describe_groups import DescribeGroupsRequest
from kwire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from kwire.messages.list_groups import ListGroupsRequest
from kwire.messages.share_group_describe import ShareGroupDescribeRequest
from kwire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from server.coordinator.common.result import Result
from server.coordinator.group.share.machine import ShareGroups
from server.handlers.authorization import ResourceType
from server.handlers.context import Features
from server.handlers.groups import delete_groups, describe_groups, list_groups
from server.handlers.share_groups import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_group_describe,
    share_group_heartbeat,
)
from server.metadata.topic_partition import TopicPartition
from tests.handlers.group_broker import GroupBroker, topic_image
from tests.support.services import with_rooms

TOPIC = "topic"
TOPIC_ID = TOPIC.encode().ljust(16, b"\0")
HOSTS_NOT = "This server does not host this topic-partition."


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())


async def beat(broker: GroupBroker, member: str = "m", epoch: int = 0, *names: str) -> Any:
    request = ShareGroupHeartbeatRequest(
        group_id="group",
        member_id=member,
        member_epoch=epoch,
        subscribed_topic_names=list(names or (TOPIC,)) if epoch == 0 else None,
    )
    answer = await broker.ask(share_group_heartbeat, request, 1)
    for _ in range(5):
        await asyncio.sleep(0)  # share coordinators get their requests after the answer
    return answer


async def with_states(broker: GroupBroker) -> None:
    """Let a member join and leave."""
    await beat(broker)
    assert (await beat(broker, "m", 2)).member_epoch == 3
    assert (await beat(broker, "m", -1)).error_code == 0


async def alter(broker: GroupBroker, **topics: dict[int, int]) -> Any:
    request = AlterShareGroupOffsetsRequest(
        group_id="group",
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(
                        partition_index=number, start_offset=offset
                    )
                    for number, offset in rows.items()
                ],
            )
            for name, rows in topics.items()
        ],
    )
    answer = await broker.ask(alter_share_group_offsets, request, 0)
    await asyncio.sleep(0)
    return answer


def errors(answer: Any) -> dict[tuple[str, int], tuple[int, str | None]]:
    return {
        (topic.topic_name, row.partition_index): (row.error_code, row.error_message)
        for topic in answer.responses
        for row in topic.partitions
    }


async def describe(broker: GroupBroker, *names: str, version: int = 1) -> Any:
    topics = [
        DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=[0, 1]) for name in names
    ]
    group = DescribeShareGroupOffsetsRequestGroup(group_id="group", topics=topics or None)
    request = DescribeShareGroupOffsetsRequest(groups=[group])
    (row,) = (await broker.ask(describe_share_group_offsets, request, version)).groups
    return row


def offsets(row: Any) -> dict[tuple[str, int], tuple[int, int, int]]:
    return {
        (topic.topic_name, part.partition_index): (part.start_offset, part.lag, part.error_code)
        for topic in row.topics
        for part in topic.partitions
    }


async def delete_offsets(broker: GroupBroker, *names: str) -> Any:
    topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
    request = DeleteShareGroupOffsetsRequest(group_id="group", topics=topics)
    return await broker.ask(delete_share_group_offsets, request, 0)


def deny(broker: GroupBroker, kind: ResourceType, *names: str) -> None:
    class Authorizer:
        def allows(self, ctx: Any, operation: Any, of: Any, name: str, **_: Any) -> bool:
            return of is not kind or name not in names

    broker.services = with_rooms(broker.services, authorizer=Authorizer())


# testShareGroupHeartbeat


def test_heartbeat_initializes_states_and_assigns_their_partitions() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        answer = await beat(broker)
        assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "m", 2)
        assert [name for name, _, _ in broker.persister.calls] == ["initialize_state"]
        assert {key[1:] for key in broker.persister.stored} == {(TOPIC_ID, 0), (TOPIC_ID, 1)}
        (row,) = (await beat(broker, "m", 2)).assignment.topic_partitions
        assert (row.topic_id, row.partitions) == (TOPIC_ID, [0, 1])

    run(test)


def test_refused_states_are_asked_for_again_with_the_next_heartbeat() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        broker.persister.errors["group", TOPIC_ID, 1] = ErrorCode.NOT_COORDINATOR
        await beat(broker)
        assert (await beat(broker, "m", 2)).member_epoch == 2
        broker.persister.errors.clear()
        await beat(broker, "m", 2)
        assert (await beat(broker, "m", 2)).member_epoch == 3
        assert [name for name, _, _ in broker.persister.calls] == ["initialize_state"] * 3

    run(test)


@pytest.mark.parametrize("member", ["", "m" * 37])
def test_heartbeat_with_an_impossible_member_id_is_refused(member: str) -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        assert (await beat(broker, member)).error_code == ErrorCode.INVALID_REQUEST

    run(test)


def test_nothing_is_served_without_the_feature() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        broker.services = with_rooms(broker.services, features=Features())
        unsupported = ErrorCode.UNSUPPORTED_VERSION
        assert (await beat(broker)).error_code == unsupported
        described = await broker.ask(
            share_group_describe, ShareGroupDescribeRequest(group_ids=["group"]), 1
        )
        assert described.groups[0].error_code == unsupported
        assert (await describe(broker)).error_code == unsupported
        assert (await alter(broker, topic={0: 1})).error_code == unsupported
        assert (await delete_offsets(broker, TOPIC)).error_code == unsupported

    run(test)


# testShareGroupDescribe, -InvalidGroupId


def test_groups_are_described_separately() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        await beat(broker)
        request = ShareGroupDescribeRequest(group_ids=["group", "other", ""])
        found, missing, empty = (await broker.ask(share_group_describe, request, 1)).groups
        assert (found.group_state, found.assignor_name) == ("Stable", "simple")
        assert (missing.error_code, missing.error_message) == (69, "Group other not found.")
        assert empty.error_code == ErrorCode.INVALID_GROUP_ID

    run(test)


def test_group_is_listed_as_a_share_group_and_not_described_as_another() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        await beat(broker)
        listed = await broker.ask(list_groups, ListGroupsRequest(types_filter=["Share"]), 5)
        assert [(each.group_id, each.group_type) for each in listed.groups] == [("group", "share")]
        other = await broker.ask(list_groups, ListGroupsRequest(types_filter=["consumer"]), 5)
        assert other.groups == []
        described = await broker.ask(describe_groups, DescribeGroupsRequest(groups=["group"]), 6)
        assert described.groups[0].error_message == "Group group is not a classic group."

    run(test)


# testDescribeShareGroupOffsetsWithDefaultPersister, -NonexistentTopic..., -ReadSummaryPartitionError,
# -LatestOffsetReturnsError, testDescribeShareGroupAllOffsets and its like


def test_offsets_have_a_lag_when_everything_is_known() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        await with_states(broker)
        assert offsets(await describe(broker)) == {(TOPIC, 0): (-1, -1, 0), (TOPIC, 1): (-1, -1, 0)}
        first = broker.persister.stored["group", TOPIC_ID, 0]
        first.start_offset, first.delivery_complete_count = 5, 2
        broker.ends[TopicPartition(TOPIC, 0)] = 10
        for row in (await describe(broker), await describe(broker, TOPIC)):
            assert offsets(row) == {(TOPIC, 0): (5, 3, 0), (TOPIC, 1): (-1, -1, 0)}
        assert offsets(await describe(broker, version=0))[TOPIC, 0] == (5, -1, 0)

    run(test)


def test_offsets_of_which_nothing_is_known_are_no_error() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        assert (await describe(broker)).topics == []
        row = await describe(broker, "unknown", TOPIC)
        assert offsets(row) == {
            (TOPIC, 0): (-1, -1, 0),
            (TOPIC, 1): (-1, -1, 0),
            ("unknown", 0): (-1, -1, 0),
            ("unknown", 1): (-1, -1, 0),
        }
        broker.persister.errors["group", TOPIC_ID, 1] = ErrorCode.NOT_COORDINATOR
        assert offsets(await describe(broker, TOPIC))[TOPIC, 1] == (-1, -1, 0)

    run(test)


def test_end_that_is_not_known_is_an_error() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        await with_states(broker)
        first = broker.persister.stored["group", TOPIC_ID, 0]
        first.start_offset, first.delivery_complete_count = 5, 2
        broker.ends[TopicPartition(TOPIC, 0)] = ErrorCode.LEADER_NOT_AVAILABLE
        found = offsets(await describe(broker))
        assert found[TOPIC, 0] == (0, -1, ErrorCode.LEADER_NOT_AVAILABLE)

    run(test)


def test_offsets_of_topics_that_a_client_may_not_see_are_not_shown() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        await with_states(broker)
        deny(broker, ResourceType.TOPIC, TOPIC)
        assert (await describe(broker)).topics == []
        assert offsets(await describe(broker, TOPIC))[TOPIC, 0] == (-1, -1, 29)
        deny(broker, ResourceType.GROUP, "group")
        assert (await describe(broker)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED

    run(test)


# testPersisterInitializeForAlterShareGroupOffsetsResponseSuccess, testAlterShareGroupOffsetsRequestReturnsGroupNotEmpty,
# -InvalidGroupId, -EmptyRequest


def test_altered_offsets_are_initialized_anew() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        answer = await alter(broker, topic={0: 7, 2: 1}, unknown={0: 1})
        assert errors(answer) == {
            ("unknown", 0): (3, HOSTS_NOT),
            (TOPIC, 0): (0, None),
            (TOPIC, 2): (3, HOSTS_NOT),
        }
        assert broker.persister.stored["group", TOPIC_ID, 0].start_offset == 7
        assert offsets(await describe(broker)) == {(TOPIC, 0): (7, -1, 0)}
        await with_states(broker)
        assert broker.persister.stored["group", TOPIC_ID, 0].start_offset == 7

    run(test)


def test_offsets_of_a_group_with_members_are_not_altered() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        await beat(broker)
        answer = await alter(broker, topic={0: 7})
        assert (answer.error_code, answer.error_message) == (68, "The group is not empty.")
        assert answer.responses == []
        gone = await delete_offsets(broker, TOPIC)
        assert (gone.error_code, gone.error_message) == (68, "The group is not empty.")

    run(test)


def test_alteration_that_share_coordinators_refuse_is_answered_in_the_row() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        broker.persister.errors["group", TOPIC_ID, 1] = ErrorCode.FENCED_STATE_EPOCH
        answer = await alter(broker, topic={0: 1, 1: 1})
        assert {key: error for key, (error, _) in errors(answer).items()} == {
            (TOPIC, 0): 0,
            (TOPIC, 1): ErrorCode.FENCED_STATE_EPOCH,
        }
        assert (await describe(broker)).topics == []

    run(test)


def test_alteration_that_the_group_cannot_store_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the group would have states without these offsets made later, and its members miss records."""

    def not_stored(
        groups: ShareGroups, group_id: str, outcomes: Any, now_ms: int, token: int | None = None
    ) -> Result[ErrorCode]:
        out: Result[ErrorCode] = Result()
        out.reply(token, ErrorCode.NOT_COORDINATOR)
        return out

    monkeypatch.setattr(ShareGroups, "states_made", not_stored)

    async def test() -> None:
        answer = await alter(await GroupBroker().start(), topic={0: 7})
        assert (answer.error_code, answer.responses) == (ErrorCode.NOT_COORDINATOR, [])

    run(test)


# testDeleteShareGroupOffsetsWithDefaultPersister, -SuccessWithErrorTopics, -PersisterReturnsNoSuccessfulTopics,
# -RequestReturnsGroupIdNotFound, -EmptyTopicsInRequest, testSharePartitionsEligibleForOffsetDeletionSuccess and its
# like, testCompleteDeleteShareGroupOffsets


def test_deleted_offsets_are_gone() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        unknown = await delete_offsets(broker, TOPIC)
        assert (unknown.error_code, unknown.error_message) == (69, "Group group not found.")
        await with_states(broker)
        answer = await delete_offsets(broker, TOPIC, "unknown")
        rows = {
            row.topic_name: (row.topic_id, row.error_code, row.error_message)
            for row in answer.responses
        }
        assert rows == {TOPIC: (TOPIC_ID, 0, None), "unknown": (bytes(16), 3, HOSTS_NOT)}
        assert broker.persister.stored == {}
        assert (await describe(broker)).topics == []
        (row,) = (await delete_offsets(broker, TOPIC)).responses
        assert (row.error_code, row.error_message) == (
            3,
            "There is no offset information to delete.",
        )
        assert (await delete_offsets(broker)).responses == []

    run(test)


def test_deletion_that_share_coordinators_refuse_is_tried_again_when_it_is_asked_for_again() -> (
    None
):
    async def test() -> None:
        broker = await GroupBroker().start()
        await with_states(broker)
        broker.persister.errors["group", TOPIC_ID, 0] = ErrorCode.NOT_COORDINATOR
        (row,) = (await delete_offsets(broker, TOPIC)).responses
        assert (row.error_code, row.topic_id) == (ErrorCode.NOT_COORDINATOR, TOPIC_ID)
        broker.persister.errors.clear()
        (row,) = (await delete_offsets(broker, TOPIC)).responses
        assert row.error_code == 0
        assert broker.persister.stored == {}

    run(test)


# testDeleteWithShareGroups, testDeleteShareGroupPersisterError, testDeleteShareGroupNotEmptyError,
# testShareGroupDeleteRequest..., testSharePartitionDeleteRequests


def test_group_is_deleted_after_its_states() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        request = DeleteGroupsRequest(groups_names=["group", "other"])

        async def delete() -> list[int]:
            rows = (await broker.ask(delete_groups, request, 2)).results
            return [row.error_code for row in rows]

        await beat(broker)
        assert await delete() == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
        await beat(broker, "m", -1)
        broker.persister.errors["group", TOPIC_ID, 0] = ErrorCode.NOT_COORDINATOR
        assert (await delete())[0] == ErrorCode.NOT_COORDINATOR
        broker.persister.errors.clear()
        assert (await delete())[0] == ErrorCode.NONE
        assert broker.persister.stored == {}
        assert (await delete())[0] == ErrorCode.GROUP_ID_NOT_FOUND

    run(test)


# testMaybeCleanupShareGroupStateEmptyTopicIds, -InitDeletedTopicsPresent


def test_topic_that_is_deleted_is_forgotten() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        broker.image = broker.image.with_topics([topic_image("second", 1)])
        await beat(broker, "m", 0, TOPIC, "second")
        await beat(broker, "m", 2)
        await beat(broker, "m", -1)
        broker.coordinator.share.topics_deleted({TOPIC_ID})
        await asyncio.sleep(0)
        assert offsets(await describe(broker)) == {("second", 0): (-1, -1, 0)}

    run(test)
