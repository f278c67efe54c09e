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
        self.gone: set[int] = set()
        self.fails = 0
        self.asked: list[list[int]] = []

    async def __call__(self, broker_ids: Iterable[int]) -> dict[int, BrokerRegistration]:
        ids = list(broker_ids)
        self.asked.append(ids)
        if self.fails:
            self.fails -= 1
            raise ConnectionLost("lost")
        return {
            each: broker(each, kwire=each in self.kwires) for each in ids if each not in self.gone
        }

    async def live(self) -> list[int]:
        return [1, 2]


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


def test_a_broker_that_restarts_is_taken_to_be_kwire_until_it_is_read_again() -> None:
    async def test() -> None:
        registrations = Registrations(1, 2)
        support = GroupSupport(registrations)
        await follow(support, broker(1), broker(2))
        await follow(support, broker(1))
        asked = len(registrations.asked)
        support.on_image(MetadataImage(), image(broker(1), broker(2)))
        assert support.refusal is None
        await follow(support, broker(1), broker(2))
        assert registrations.asked[asked:] == [[2]]
        assert support.refusal is None
        await follow(support, broker(1))
        registrations.kwires.remove(2)
        await follow(support, broker(1), broker(2))
        assert error_of(support) is ErrorCode.UNSUPPORTED_VERSION
        support.close()

    asyncio.run(test())


def test_a_killed_broker_that_is_still_in_the_metadata_changes_nothing() -> None:
    async def test() -> None:
        registrations = Registrations(1, 2)
        told: list[str] = []
        support = GroupSupport(registrations, lambda: told.append("supported"))
        await follow(support, broker(1), broker(2))
        registrations.gone.add(2)
        await follow(support, broker(1), broker(2, port=9093))
        assert support.refusal is None
        await follow(support, broker(1))
        assert support.refusal is None
        support.close()

    asyncio.run(test())


def test_clients_retry_while_a_killed_broker_was_never_read() -> None:
    async def test() -> None:
        registrations = Registrations(1)
        registrations.gone.add(2)
        told: list[str] = []
        support = GroupSupport(registrations, lambda: told.append("supported"))
        await follow(support, broker(1), broker(2))
        assert error_of(support) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and told == []
        await follow(support, broker(1))
        assert support.refusal is None and told
        support.close()

    asyncio.run(test())


def test_versions_are_raised_once_the_last_other_broker_has_left() -> None:
    async def test() -> None:
        told: list[str] = []
        support = GroupSupport(Registrations(1), lambda: told.append("supported"))
        await follow(support, broker(1), broker(2))
        assert error_of(support) is ErrorCode.UNSUPPORTED_VERSION and told == []
        await follow(support, broker(1))
        assert support.refusal is None and told == ["supported"]
        support.close()

    asyncio.run(test())


@pytest.mark.parametrize("kwire", [True, False])
def test_a_broker_that_starts_knows_all_before_its_first_client(
    kwire: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_support, "AGAIN_S", 0.0)

    async def test() -> None:
        registrations = Registrations(1, 2) if kwire else Registrations(1)
        registrations.fails = 1
        told: list[str] = []
        support = GroupSupport(registrations, lambda: told.append("supported"))
        await support.learn(registrations.live)
        assert told == (["supported"] if kwire else [])
        support.on_image(MetadataImage(), image(broker(1), broker(2)))
        expected = None if kwire else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert error_of(support) is expected
        await follow(support, broker(1), broker(2))
        assert bool(told) is kwire
        support.close()

    asyncio.run(test())


def test_other_brokers_are_looked_at_again_without_a_change(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker replaced at its address while its session ends: the metadata names the same brokers."""
    monkeypatch.setattr(group_support, "LOOK_AGAIN_S", 0.0)
    caplog.set_level(logging.INFO)

    async def test() -> None:
        registrations = Registrations(1)
        told: list[str] = []
        support = GroupSupport(registrations, lambda: told.append("supported"))
        await follow(support, broker(1), broker(2))
        assert error_of(support) is ErrorCode.UNSUPPORTED_VERSION
        assert len(caplog.messages) == 1
        registrations.kwires.add(2)
        await follow(support, broker(1), broker(2))
        assert support.refusal is None and told
        support.close()

    asyncio.run(test())
