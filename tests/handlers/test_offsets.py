"""OffsetCommit, OffsetFetch and OffsetDelete at every version."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from kwire.errors import ErrorCode
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
from server.handlers.offsets import TOPIC_IDS_SINCE, offset_commit, offset_delete, offset_fetch
from tests.handlers.group_broker import GroupBroker
from tests.support.requests import commit_request
from tests.support.versions import versions

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
BY_NAME = TOPIC_IDS_SINCE - 1


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())


def commit_of(*rows: tuple[str, int, int], group: str = "group") -> OffsetCommitRequest:
    more = {"committed_leader_epoch": 4, "committed_metadata": "note"}
    return commit_request(*rows, row=more, group_id=group)


def delete_request(*rows: tuple[str, int], group: str = "group") -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
            )
            for topic, partition in rows
        ],
    )


def fetch_request(version: int, *partitions: int, group: str = "group") -> OffsetFetchRequest:
    if version < 8:
        topic = OffsetFetchRequestTopic(name="topic", partition_indexes=list(partitions))
        return OffsetFetchRequest(group_id=group, topics=[topic] if partitions else None)
    asked = OffsetFetchRequestTopics(name="topic", partition_indexes=list(partitions))
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=[asked] if partitions else None)]
    )


def rows(response: Any) -> list[tuple[str, int, int]]:
    return [
        (topic.name, row.partition_index, row.error_code)
        for topic in response.topics
        for row in topic.partitions
    ]


@pytest.mark.parametrize("version", versions(offset_commit, offset_fetch, last=BY_NAME))
def test_offset_is_committed_and_fetched_in_every_version(version: int) -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        committed = broker.call(offset_commit, commit_of(("topic", 1, 42)), version)
        assert rows(committed) == [("topic", 1, 0)]
        response = broker.call(offset_fetch, fetch_request(version, 1, 0), version)
        if version >= 8:
            (response,) = response.groups
            assert response.group_id == "group"
        assert response.error_code == 0
        found, missing = response.topics[0].partitions
        assert (found.committed_offset, found.metadata, found.error_code) == (42, "note", 0)
        assert found.committed_leader_epoch == (4 if version >= 6 else -1)
        assert (missing.committed_offset, missing.metadata, missing.error_code) == (-1, "", 0)

    run(test)


TOPIC_ID = b"topic".ljust(16, b"\0")
NO_ID = b"\7" * 16


def commit_by_id(*rows: tuple[bytes, int, int], **more: Any) -> OffsetCommitRequest:
    request = commit_of(
        *((topic_id.hex(), partition, offset) for topic_id, partition, offset in rows)
    )
    for topic, (topic_id, _, _) in zip(request.topics, rows, strict=True):
        topic.name, topic.topic_id = "", topic_id
    for name, value in more.items():
        setattr(request, name, value)
    return request


def test_offsets_are_committed_and_fetched_by_topic_id() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        request = commit_by_id(
            (NO_ID, 0, 1), (TOPIC_ID, 1, 42), (bytes(16), 0, 2), (TOPIC_ID, 9, 3)
        )
        committed = await broker.ask(offset_commit, request, 10)
        answers = [
            (topic.topic_id, row.partition_index, row.error_code)
            for topic in committed.topics
            for row in topic.partitions
        ]
        assert answers == [
            (NO_ID, 0, ErrorCode.UNKNOWN_TOPIC_ID),
            (TOPIC_ID, 1, 0),
            (bytes(16), 0, ErrorCode.UNKNOWN_TOPIC_ID),
            (TOPIC_ID, 9, UNKNOWN),
        ]
        asked = [
            OffsetFetchRequestTopics(topic_id=NO_ID, partition_indexes=[0]),
            OffsetFetchRequestTopics(topic_id=TOPIC_ID, partition_indexes=[1, 0]),
        ]
        for topics in (asked, None):
            fetch = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id="group", topics=topics)]
            )
            (found,) = broker.call(offset_fetch, fetch, 10).groups
            answers = [
                (topic.topic_id, row.partition_index, row.committed_offset, row.error_code)
                for topic in found.topics
                for row in topic.partitions
            ]
            expected = [(NO_ID, 0, -1, ErrorCode.UNKNOWN_TOPIC_ID), (TOPIC_ID, 1, 42, 0)]
            assert answers == (
                [(TOPIC_ID, 1, 42, 0)] if topics is None else [*expected, (TOPIC_ID, 0, -1, 0)]
            )

    run(test)


@pytest.mark.parametrize("stores_ids", [True, False])
def test_offset_of_a_topic_that_was_made_again_is_told_only_if_its_id_is_not_known(
    stores_ids: bool,
) -> None:
    async def test() -> None:
        broker = await GroupBroker(stores_topic_ids=stores_ids).start()
        await broker.ask(offset_commit, commit_of(("topic", 1, 42)), 9)
        again = broker.image.topics["topic"]._replace(topic_id=NO_ID)
        broker.image = broker.image.with_topics([again])
        offset = -1 if stores_ids else 42
        for version in (7, 9):
            response = broker.call(offset_fetch, fetch_request(version, 1), version)
            topics = response.groups[0].topics if version >= 8 else response.topics
            assert topics[0].partitions[0].committed_offset == offset

    run(test)


@pytest.mark.parametrize(
    ("version", "ceiling", "error"),
    [
        (8, "4.3", ErrorCode.ILLEGAL_GENERATION),
        (9, "3.9", ErrorCode.ILLEGAL_GENERATION),
        (9, "4.3", ErrorCode.GROUP_ID_NOT_FOUND),
        (10, "4.3", ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_member_of_an_unknown_group_is_told_so_where_clients_know_the_error(
    version: int, ceiling: str, error: ErrorCode
) -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        broker.services = replace(broker.services, ceiling=ceiling)
        request = commit_by_id((TOPIC_ID, 0, 1), member_id="a", generation_id_or_member_epoch=3)
        request.topics[0].name = "topic"
        (topic,) = broker.call(offset_commit, request, version).topics
        assert topic.partitions[0].error_code == error

    run(test)


@pytest.mark.parametrize("version", versions(offset_fetch, first=2, last=BY_NAME))
def test_all_offsets_are_fetched_with_null_topics(version: int) -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        broker.call(offset_commit, commit_of(("topic", 0, 1), ("topic", 1, 2)), 9)
        response = broker.call(offset_fetch, fetch_request(version), version)
        topics = (response.groups[0] if version >= 8 else response).topics
        found = [
            (t.name, r.partition_index, r.committed_offset) for t in topics for r in t.partitions
        ]
        assert found == [("topic", 0, 1), ("topic", 1, 2)]

    run(test)


def test_several_groups_are_fetched_each_with_its_own_error() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        here, there = (
            "group",
            next(
                f"group-{n}"
                for n in range(100)
                if broker.coordinator.partition_for(f"group-{n}")
                != broker.coordinator.partition_for("group")
            ),
        )
        broker.call(offset_commit, commit_of(("topic", 0, 1)), 9)
        broker.coordinator.resign(broker.coordinator.partition_for(there))
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=g, topics=None) for g in (here, there)]
        )
        response = broker.call(offset_fetch, request, 9)
        assert [(g.group_id, g.error_code, len(g.topics)) for g in response.groups] == [
            (here, 0, 1),
            (there, ErrorCode.NOT_COORDINATOR, 0),
        ]

    run(test)


@pytest.mark.parametrize("version", range(8))
def test_group_error_is_in_the_rows_before_version_2(version: int) -> None:
    async def test() -> None:
        broker = GroupBroker()
        response = broker.call(offset_fetch, fetch_request(version, 0), version)
        error = ErrorCode.NOT_COORDINATOR
        if version >= 2:
            assert (response.error_code, response.topics) == (error, [])
        else:
            assert rows(response) == [("topic", 0, error)]

    run(test)


def test_unstable_offset_is_withheld_where_stable_ones_are_required() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        broker.log.hold = True
        committing = asyncio.ensure_future(broker.ask(offset_commit, commit_of(("topic", 0, 1)), 9))
        await asyncio.sleep(0)
        for stable, error in ((False, ErrorCode.NONE), (True, ErrorCode.UNSTABLE_OFFSET_COMMIT)):
            request = fetch_request(9, 0)
            request.require_stable = stable
            (group,) = broker.call(offset_fetch, request, 9).groups
            row = group.topics[0].partitions[0]
            assert (row.committed_offset, row.error_code) == (-1, error)
        broker.log.settle()
        assert rows(await committing) == [("topic", 0, 0)]

    run(test)


@pytest.mark.parametrize("version", versions(offset_commit, last=BY_NAME))
def test_partitions_that_do_not_exist_are_refused_in_the_requests_order(version: int) -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        request = commit_of(("gone", 0, 1), ("topic", 1, 2), ("topic", 9, 3))
        assert rows(broker.call(offset_commit, request, version)) == [
            ("gone", 0, UNKNOWN),
            ("topic", 1, 0),
            ("topic", 9, UNKNOWN),
        ]
        nothing = broker.call(offset_commit, commit_of(("gone", 0, 1)), version)
        assert rows(nothing) == [("gone", 0, UNKNOWN)]

    run(test)


def test_refused_partitions_are_put_back_when_the_commit_is_answered_later() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        broker.log.hold = True
        request = commit_of(("gone", 0, 1), ("topic", 1, 2))
        committing = asyncio.ensure_future(broker.ask(offset_commit, request, 9))
        await asyncio.sleep(0)
        broker.log.settle()
        assert rows(await committing) == [("gone", 0, UNKNOWN), ("topic", 1, 0)]

    run(test)


def test_commit_to_another_broker_is_refused_row_by_row() -> None:
    async def test() -> None:
        broker = GroupBroker()
        response = broker.call(offset_commit, commit_of(("topic", 0, 1)), 9)
        assert rows(response) == [("topic", 0, ErrorCode.NOT_COORDINATOR)]

    run(test)


def test_offsets_are_deleted() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        broker.call(offset_commit, commit_of(("topic", 0, 1)), 9)
        request = delete_request(("gone", 0), ("topic", 0))
        response = await broker.ask(offset_delete, request, 0)
        assert response.error_code == 0
        assert rows(response) == [("gone", 0, UNKNOWN), ("topic", 0, 0)]

    run(test)


def test_deleting_offsets_of_no_group_has_one_error() -> None:
    async def test() -> None:
        broker = await GroupBroker().start()
        response = await broker.ask(offset_delete, delete_request(("gone", 0)), 0)
        assert (response.error_code, response.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])

    run(test)
