"""The controller's queue to each broker: in order, until it is answered or the broker is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kwire.messages.leader_and_isr import LeaderAndIsrRequest
from kwire.messages.stop_replica import StopReplicaRequest
from kwire.messages.update_metadata import UpdateMetadataRequest
from server.controller import channels
from server.controller.channels import ControllerChannels
from server.controller.messages import ControlRequest
from server.metadata.image import BrokerRegistration

from .images import broker


class Broker:
    """Another broker: its received requests, and whether it is reachable."""

    def __init__(self) -> None:
        self.got: list[tuple[str, int]] = []
        self.opened = self.closed = 0
        self.reachable = True
        self.held: asyncio.Event | None = None
        self.tries = 0

    async def send(self, request: Any, api_version: int) -> Any:
        """Take a request."""
        self.tries += 1
        if self.held is not None:
            await self.held.wait()
        if not self.reachable:
            raise ConnectionRefusedError("nobody listens")
        self.got.append((type(request).__name__.removesuffix("Request"), api_version))
        return len(self.got)

    def close(self) -> None:
        """Count the call."""
        self.closed += 1


class Room:
    """A controller with channels to brokers that a test can inspect."""

    def __init__(self) -> None:
        self.brokers: dict[int, Broker] = {}
        self.answers: list[tuple[int, int]] = []
        self.channels = ControllerChannels(self.open, self.answered)

    def open(self, registration: BrokerRegistration) -> Broker:
        """Connect."""
        target = self.brokers.setdefault(registration.id, Broker())
        target.opened += 1
        return target

    def answered(
        self, registration: BrokerRegistration, request: ControlRequest, response: int
    ) -> None:
        """Note the answer."""
        self.answers.append((registration.id, response))


def run(body: Callable[[Room], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "RETRY_S", 0)

    async def main() -> None:
        room = Room()
        await body(room)
        room.channels.close()

    asyncio.run(asyncio.wait_for(main(), 10))


ALL = [UpdateMetadataRequest(), LeaderAndIsrRequest(), StopReplicaRequest()]


def test_messages_go_in_order_at_their_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(room: Room) -> None:
        room.channels.send(broker(2), ALL[:2])
        room.channels.send(broker(2), ALL[2:])
        room.channels.send(broker(3), ALL[:1])
        await room.channels.drain(5)
        assert room.brokers[2].got == [
            ("UpdateMetadata", 8),
            ("LeaderAndIsr", 7),
            ("StopReplica", 4),
        ]
        assert room.brokers[3].got == [("UpdateMetadata", 8)]
        assert sorted(room.answers) == [(2, 1), (2, 2), (2, 3), (3, 1)]
        assert room.brokers[2].opened == 1
        # Later requests are sent in the same way.
        room.channels.send(broker(2), ALL[:1])
        await room.channels.drain(5)
        assert len(room.brokers[2].got) == 4
        assert room.brokers[2].opened == 1

    run(body, monkeypatch)


def test_broker_that_cannot_be_reached_gets_everything_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(room: Room) -> None:
        room.brokers[2] = target = Broker()
        target.reachable = False
        room.channels.send(broker(2), ALL)
        while target.tries < 30:
            await asyncio.sleep(0)
        assert target.got == []
        target.reachable = True
        await room.channels.drain(5)
        assert [kind for kind, _ in target.got] == ["UpdateMetadata", "LeaderAndIsr", "StopReplica"]

    with caplog.at_level("INFO"):
        run(body, monkeypatch)
    said = [record.message for record in caplog.records if "roker 2" in record.message]
    assert said == [
        "Cannot reach broker 2, retrying until it is gone: nobody listens",
        "Broker 2 can be reached again",
    ]


def test_broker_that_is_gone_gets_nothing_and_one_that_came_back_a_new_channel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(room: Room) -> None:
        room.brokers[2] = target = Broker()
        target.reachable = False
        room.channels.send(broker(2), ALL)
        await asyncio.sleep(0)
        room.channels.keep({2: broker(2), 3: broker(3)})
        assert target.closed == 0
        room.channels.keep({2: broker(2, 999)})
        assert target.closed == 1
        target.reachable = True
        room.channels.send(broker(2, 999), ALL[1:2])
        await room.channels.drain(5)
        assert target.got == [("LeaderAndIsr", 7)]
        assert target.opened == 2
        room.channels.keep({})
        assert target.closed == 2

    run(body, monkeypatch)


def test_draining_gives_up_on_a_broker_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(room: Room) -> None:
        room.brokers[2] = target = Broker()
        target.held = asyncio.Event()
        room.channels.send(broker(2), ALL)
        await room.channels.drain(0.01)
        assert room.answers == []
        target.held.set()
        await room.channels.drain(5)
        assert len(room.answers) == 3

    run(body, monkeypatch)


def test_answer_that_makes_no_sense_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(room: Room) -> None:
        def odd(registration: BrokerRegistration, request: ControlRequest, response: Any) -> None:
            room.answered(registration, request, response)
            raise ValueError("9999 is not a valid ErrorCode")

        lines = ControllerChannels(room.open, odd)
        lines.send(broker(1), [LeaderAndIsrRequest(), UpdateMetadataRequest()])
        await lines.drain(5)
        lines.send(broker(1), [StopReplicaRequest()])
        await lines.drain(5)
        assert [name for name, _ in room.brokers[1].got] == [
            "LeaderAndIsr",
            "UpdateMetadata",
            "StopReplica",
        ]

    run(body, monkeypatch)
