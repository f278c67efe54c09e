"""Whether all brokers of a cluster with ZooKeeper have consumer groups."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import pytest

from kwire.errors import ErrorCode
from server.coordination.store import ConnectionLost
from server.interbroker import group_support
from server.interbroker.group_support import GroupSupport
from server.metadata.endpoint import Endpoint
from server.metadata.image import BrokerRegistration, MetadataImage


class Registrations:
    """The store's content; the first `fails` reads are lost."""

    def __init__(self, *kwires: int) -> None:
        self.kwires = set(kwires)
        self.fails = 0
        self.asked: list[list[int]] = []

    async def __call__(self, broker_ids: Iterable[int]) -> dict[int, BrokerRegistration]:
        ids = list(broker_ids)
        self.asked.append(ids)
        if self.fails:
            self.fails -= 1
            raise ConnectionLost("lost")
        return {each: broker(each, kwire=each in self.kwires) for each in ids}


def broker(broker_id: int, *, kwire: bool = False, port: int = 9092) -> BrokerRegistration:
    features = {"group.version": (1, 1)} if kwire else {}
    return BrokerRegistration(broker_id, (Endpoint("PLAINTEXT", "h", port),), None, -1, features)


def image(*brokers: BrokerRegistration) -> MetadataImage:
    """An image as an UpdateMetadata makes it, without features."""
    plain = (each._replace(features={}) for each in brokers)
    return MetadataImage().with_brokers({each.id: each for each in plain})


def error_of(support: GroupSupport) -> ErrorCode | None:
    refusal = support.refusal
    return None if refusal is None else refusal.error


async def follow(support: GroupSupport, *brokers: BrokerRegistration) -> None:
    support.on_image(MetadataImage(), image(*brokers))
    for _ in range(5):
        await asyncio.sleep(0)


def test_groups_are_served_while_all_brokers_are_kwire(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def test() -> None:
        registrations = Registrations(1, 2)
        told: list[str] = []
        support = GroupSupport(registrations, lambda: told.append("supported"))
        assert error_of(support) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        support.on_image(MetadataImage(), image(broker(1), broker(2)))
        assert error_of(support) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await follow(support, broker(1), broker(2))
        assert support.refusal is None and told == ["supported"]
        await follow(support, broker(1), broker(2), broker(3))
        assert told == ["supported"]
        assert error_of(support) is ErrorCode.UNSUPPORTED_VERSION
        assert support.refusal is not None and "broker 3:" in (support.refusal.message or "")
        assert registrations.asked[-1] == [3]
        assert caplog.messages == [support.refusal.message]
        await follow(support, broker(1), broker(2))
        assert support.refusal is None
        assert "are served again" in caplog.messages[1]
        support.close()

    asyncio.run(test())


def test_a_broker_that_comes_back_at_another_address_is_looked_at_again() -> None:
    async def test() -> None:
        registrations = Registrations(1, 2)
        support = GroupSupport(registrations)
        await follow(support, broker(1), broker(2))
        registrations.kwires.remove(2)
        await follow(support, broker(1), broker(2, port=9093))
        assert support.without == {2}
        support.close()

    asyncio.run(test())


def test_reading_goes_on_when_the_connection_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_support, "AGAIN_S", 0.0)

    async def test() -> None:
        registrations = Registrations(1)
        registrations.fails = 1
        support = GroupSupport(registrations)
        await follow(support, broker(1))
        assert support.refusal is None
        support.close()

    asyncio.run(test())
