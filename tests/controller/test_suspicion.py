"""Brokers whose ports refuse connections while they are still registered in ZooKeeper."""

from __future__ import annotations

import asyncio

from kwire.errors import ErrorCode

from .members import Member, create
from .test_cluster import T0, T1, alter, leads, run, state


def test_refusing_broker_loses_leaderships_and_is_not_waited_for() -> None:
    async def body(members: list[Member]) -> None:
        one, two, _ = members
        await create(one, "t", (3, 1, 2), (1, 3))
        one.controller.peer_lost(3)
        await two.until(leads(T0, 1))
        assert state(one, T0) == (1, 1, (1, 2))
        assert state(one, T1) == (1, 1, (1,))
        assert 3 in one.image.brokers

    run(3, body)


def test_refusing_broker_keeps_what_nobody_else_has_until_its_session_ends() -> None:
    async def body(members: list[Member]) -> None:
        one, _, three = members
        await create(one, "t", (3,), (3, 1))
        one.controller.peer_lost(3)
        await one.turn()
        assert state(one, T0) == (3, 0, (3,))
        await three.stop()
        await one.until(lambda image: 3 not in image.brokers)
        assert state(one, T0) == (-1, 1, (3,))

    run(3, body)


def test_broker_that_was_suspected_wrongly_follows_and_is_in_sync_again_only_when_trusted() -> None:
    async def body(members: list[Member]) -> None:
        one, _, three = members
        await create(one, "t", (3, 1))
        one.controller.peer_lost(3)
        await three.eventually(lambda: three.replicas.roles == {T0: (1, 1)})
        assert not three.replicas.stopped
        refused = await alter(one, one, (1, 3))
        assert refused.error_code == ErrorCode.INELIGIBLE_REPLICA
        one.controller.peer_found(3)
        await one.turn()
        assert not (await alter(one, one, (1, 3))).error_code
        assert state(one, T0) == (1, 1, (1, 3))

    run(3, body)


def test_new_topic_is_not_led_by_a_refusing_broker() -> None:
    async def body(members: list[Member]) -> None:
        one = members[0]
        one.controller.peer_lost(3)
        await create(one, "t", (3, 2, 1))
        assert state(one, T0) == (2, 0, (2, 1))

    run(3, body)


def test_refusing_controller_is_followed_by_another_that_leaves_it_out() -> None:
    async def body(members: list[Member]) -> None:
        one, two, three = members
        await create(one, "t", (1, 2, 3))
        await three.until(leads(T0, 1))
        one.network.cut_off.add(1)
        # As if it had been killed: its session has not ended, but it does nothing.
        await one.controller.shutdown()
        for each in (two, three):
            each.controller.peer_lost(1)
        await two.until(lambda image: image.controller_id in (2, 3))
        await three.until(lambda image: image.controller_id in (2, 3))
        await three.until(leads(T0, 2))
        assert sum(each.controller.is_active for each in (two, three)) == 1
        assert 1 in three.image.brokers

    run(3, body)


def test_controller_that_lives_steps_down_when_it_is_taken_for_dead() -> None:
    async def body(members: list[Member]) -> None:
        one, two, three = members
        await create(one, "t", (1, 2, 3))
        two.controller.peer_lost(1)
        await two.until(lambda image: image.controller_id >= 0 and two.controller.epoch != 1)
        await one.eventually(lambda: one.controller.epoch != 1)
        async with asyncio.timeout(5):
            while sum(each.controller.is_active for each in members) != 1:
                await asyncio.sleep(0.001)
        acting = next(each for each in members if each.controller.is_active)
        await create(acting, "u", (2, 3))
        await three.until(lambda image: "u" in image.topics)
        assert acting.controller.epoch == 2

    run(3, body)


def test_only_the_controller_in_office_can_be_deposed() -> None:
    async def body(members: list[Member]) -> None:
        one, two = members
        assert not await two.cluster.depose_controller(2)
        assert await two.cluster.depose_controller(1)
        await one.until(lambda image: image.controller_id >= 0)

    run(2, body)
