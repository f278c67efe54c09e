"""FindCoordinator at every version."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.messages.find_coordinator import FindCoordinatorRequest
from server.handlers.context import Features
from server.handlers.find_coordinator import find_coordinator
from tests.handlers.group_broker import GroupBroker, topic_image
from tests.support.services import with_rooms
from tests.support.versions import versions

CONSUMER_OFFSETS = "__consumer_offsets"
HERE = (1, "10.0.0.1", 9092)
NOWHERE = (-1, "", -1)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())


def with_topic(leader: int = 1) -> GroupBroker:
    broker = GroupBroker()
    broker.image = broker.image.with_topics([topic_image(CONSUMER_OFFSETS, 5, leader)])
    return broker


def request_for(version: int, *keys: str, key_type: int = 0) -> FindCoordinatorRequest:
    if version >= 4:
        return FindCoordinatorRequest(coordinator_keys=list(keys), key_type=key_type)
    return FindCoordinatorRequest(key=keys[0], key_type=key_type)


def rows(response: Any, version: int) -> list[tuple[int, tuple[int, str, int]]]:
    """(error, (node, host, port)) of each key."""
    found = response.coordinators if version >= 4 else [response]
    return [(row.error_code, (row.node_id, row.host, row.port)) for row in found]


@pytest.mark.parametrize("version", versions(find_coordinator))
def test_coordinator_is_the_leader_of_the_groups_partition(version: int) -> None:
    broker = with_topic()
    response = broker.call(find_coordinator, request_for(version, "group"), version)
    assert rows(response, version) == [(0, HERE)]
    if 1 <= version < 4:
        assert response.error_message == "NONE"


def test_each_key_has_its_own_row() -> None:
    broker = with_topic()
    names = ["group", "other", "group-3", ""]
    response = broker.call(find_coordinator, request_for(4, *names), 4)
    assert [row.key for row in response.coordinators] == names
    assert {row.error_message for row in response.coordinators} == {""}


def test_other_broker_is_named_by_its_listener() -> None:
    broker = with_topic(leader=2)
    broker.connection.listener = "TLS"
    response = broker.call(find_coordinator, request_for(6, "group"), 6)
    assert rows(response, 6) == [(0, (2, "other", 9093))]


def test_this_broker_is_named_by_its_advertised_listener_if_it_has_one() -> None:
    broker = with_topic()
    broker.services = with_rooms(broker.services, advertises=True)
    response = broker.call(find_coordinator, request_for(6, "group"), 6)
    assert rows(response, 6) == [(0, (1, "advertised", 1234))]


@pytest.mark.parametrize("leader", [-1, 7])
@pytest.mark.parametrize("version", versions(find_coordinator))
def test_partition_without_a_live_leader_has_no_coordinator(version: int, leader: int) -> None:
    broker = with_topic(leader)
    response = broker.call(find_coordinator, request_for(version, "group"), version)
    assert rows(response, version) == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, NOWHERE)]


@pytest.mark.parametrize("version", versions(find_coordinator))
def test_missing_topic_is_made_before_the_answer(version: int) -> None:
    async def test() -> None:
        broker = GroupBroker()
        response = await broker.ask(find_coordinator, request_for(version, "group"), version)
        assert rows(response, version) == [(0, HERE)]
        assert broker.topics.asked == [CONSUMER_OFFSETS]

    run(test)


@pytest.mark.parametrize(
    ("version", "key_type", "error"),
    [
        (3, 2, ErrorCode.INVALID_REQUEST),
        (5, 2, ErrorCode.INVALID_REQUEST),
        (6, 2, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (6, 9, ErrorCode.INVALID_REQUEST),
    ],
)
def test_types_without_a_coordinator_are_refused_by_key(
    version: int, key_type: int, error: ErrorCode
) -> None:
    broker = with_topic()
    broker.services = with_rooms(broker.services, features=Features())
    request = request_for(version, "key", key_type=key_type)
    response = broker.call(find_coordinator, request, version)
    assert rows(response, version) == [(error, NOWHERE)]


def test_coordinator_of_a_share_partition_is_the_leader_of_its_partition() -> None:
    broker = with_topic()
    asked: list[str] = []
    coordinator = SimpleNamespace(partition_for=lambda key: asked.append(key) or 3)
    broker.services = with_rooms(broker.services, share_coordinator=coordinator)
    broker.image = broker.image.with_topics([topic_image("__share_group_state", 5, leader=2)])
    keys = ["a:b:AAAAAAAAAAAAAAAAAAAAAQ:0", "no key"]
    response = broker.call(find_coordinator, request_for(6, *keys, key_type=2), 6)
    assert rows(response, 6) == [
        (0, (2, "advertised", 1234)),
        (ErrorCode.INVALID_REQUEST, NOWHERE),
    ]
    assert asked == keys[:1]


@pytest.mark.parametrize("version", versions(find_coordinator, first=1))
def test_coordinator_of_a_transactional_id_is_the_leader_of_its_partition(version: int) -> None:
    broker = with_topic()
    broker.services = with_rooms(broker.services, transaction_coordinator=broker.coordinator)
    broker.image = broker.image.with_topics([topic_image("__transaction_state", 5, leader=2)])
    response = broker.call(find_coordinator, request_for(version, "key", key_type=1), version)
    assert rows(response, version) == [(0, (2, "advertised", 1234))]


def test_request_without_keys_has_no_rows() -> None:
    assert GroupBroker().call(find_coordinator, request_for(4), 4).coordinators == []
