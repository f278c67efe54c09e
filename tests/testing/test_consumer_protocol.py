"""Groups of the consumer protocol (KIP-848): the helpers, the clock, faults and fencing know them as they know others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kwire.testing import Broker, Recorder

from .clients import consumer, polling, read

UNKNOWN_MEMBER_ID = 25
#: Often, as those of tests/testing/clients.py are with the classic protocol, where the client says how often.
HEARTBEATS = {
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 100,
}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(HEARTBEATS) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[Any]:
    """A member of the group g, which has read a record."""
    broker.topic("orders").produce("1")
    with consumer(
        broker.bootstrap_servers, "g", group_protocol="consumer", heartbeat_interval_ms=None
    ) as member:
        member.subscribe(["orders"])
        assert read(member, 1) == [b"1"]
        member.commit(asynchronous=False)
        yield member


def test_group_has_a_state_and_members(broker: Broker, client: Any) -> None:
    assert len(broker.wait_for_group("g", members=1).members) == 1
    client.close()
    assert broker.wait_for_group("g", state="Empty").members == ()


def test_members_are_kept_through_a_day(broker: Broker, client: Any) -> None:
    before = broker.wait_for_group("g", members=1)
    broker.clock.advance("1d", keep_members=True)
    assert broker.group("g") == before
    broker.produce("orders", "2")
    assert read(client, 1) == [b"2"]


def test_session_timeout_removes_a_member(broker: Broker, client: Any) -> None:
    broker.wait_for_group("g", members=1)
    with broker.clock.freeze(), broker.fault("ConsumerGroupHeartbeat", close=True) as fault:
        broker.wait_for(lambda: fault.hits)
        broker.clock.advance("44s")
        assert len(broker.group("g").members) == 1
        broker.clock.advance("2s")
        assert broker.group("g").members == ()
    broker.produce("orders", "2")
    assert read(client, 1) == [b"2"]  # it has joined again


def test_members_that_are_fenced_join_again(broker: Broker, client: Any) -> None:
    broker.wait_for_group("g", members=1)
    with broker.record() as recorder:
        broker.fence(group="g")
        broker.wait_for(polling(client, lambda: UNKNOWN_MEMBER_ID in errors(recorder)))
    broker.produce("orders", "2")
    assert read(client, 1) == [b"2"]


def test_error_of_a_heartbeat_makes_the_member_join_again(broker: Broker, client: Any) -> None:
    broker.wait_for_group("g", members=1)
    with (
        broker.record() as recorder,
        broker.fault(
            "ConsumerGroupHeartbeat", group="g", error="UNKNOWN_MEMBER_ID", times=1
        ) as rule,
    ):
        broker.wait_for(polling(client, lambda: 0 in epochs(recorder)))
    assert rule.hits == 1


def errors(recorder: Recorder) -> list[int]:
    """The error codes of all heartbeats."""
    beats = recorder.requests("ConsumerGroupHeartbeat")
    return [each.response["errorCode"] for each in beats if each.response is not None]


def epochs(recorder: Recorder) -> list[int]:
    """The epochs of all heartbeats; 0 asks to join."""
    return [each.request["memberEpoch"] for each in recorder.requests("ConsumerGroupHeartbeat")]
