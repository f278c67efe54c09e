"""How the requests of many connections share the turns of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from server.net.limits import NetLimits
from server.net.rotation import TURN_ANSWERS, TURN_REQUESTS, Answers, Rotation
from server.net.session import Session
from tests.net.echo import Echo, request
from tests.support.transport import MemoryTransport, connect

CONNECTIONS = 100
EACH = 100


async def flood(echo: Echo, rotation: Rotation) -> list[MemoryTransport]:
    """Connections that have each sent many requests, the first of which have been started."""
    made = []
    for number in range(CONNECTIONS):
        transport, _ = connect(echo, NetLimits(), rotation=rotation)
        made.append(transport)
        transport.receive(b"".join(request(number * EACH + n) for n in range(EACH)))
    return made


def on_loop(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(work())  # type: ignore[arg-type]


def test_turn_takes_up_few_requests_however_many_have_arrived() -> None:
    async def run() -> None:
        echo, rotation = Echo(), Rotation()
        await flood(echo, rotation)
        assert len(echo.seen) <= TURN_REQUESTS + 16 + CONNECTIONS
        turns = []
        while len(echo.seen) < CONNECTIONS * EACH:
            before = len(echo.seen)
            await asyncio.sleep(0)
            turns.append(len(echo.seen) - before)
        assert max(turns) < TURN_REQUESTS + 16
        assert sum(turns) / len(turns) > TURN_REQUESTS / 2  # and no turn is wasted

    on_loop(run)


def test_request_that_arrives_beside_a_flood_is_answered_in_its_turn() -> None:
    async def run() -> None:
        echo, rotation = Echo(), Rotation()
        await flood(echo, rotation)
        quiet, _ = connect(echo, NetLimits(), rotation=rotation)
        for number in range(20):
            quiet.receive(request(1_000_000 + number))
            assert echo.seen[-1] == 1_000_000 + number
            await asyncio.sleep(0)
        assert len(echo.seen) < CONNECTIONS * EACH

    on_loop(run)


def test_connections_of_a_flood_have_equal_shares() -> None:
    async def run() -> None:
        echo, rotation = Echo(), Rotation()
        await flood(echo, rotation)
        while len(echo.seen) < CONNECTIONS * EACH // 2:
            await asyncio.sleep(0)
        shares = [sum(n // EACH == each for n in echo.seen) for each in range(CONNECTIONS)]
        assert max(shares) - min(shares) <= 2 * 16

    on_loop(run)


def test_connection_that_was_closed_while_it_waited_is_passed_over() -> None:
    async def run() -> None:
        echo, rotation = Echo(), Rotation()
        made = await flood(echo, rotation)
        for transport in made[:-1]:
            session = transport._receiver
            assert isinstance(session, Session)
            session.close("", None)
        while len(echo.seen) < EACH and len(made[-1].frames()) < EACH:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(made[-1].frames()) == EACH

    on_loop(run)


def test_turn_gives_few_of_the_answers_that_are_ready_together_and_clients_take_turns() -> None:
    async def run() -> None:
        answers, given = Answers(), list[int]()
        for number in range(1_000):
            answers.give("10.0.0.1", partial(given.append, number))
        answers.give("10.0.0.2", partial(given.append, -1))
        assert given == list(range(TURN_ANSWERS))
        turns = []
        while len(given) < 1_001:
            before = len(given)
            await asyncio.sleep(0)
            turns.append(len(given) - before)
        assert max(turns) == TURN_ANSWERS
        assert given.index(-1) <= TURN_ANSWERS + 1
        assert [number for number in given if number >= 0] == list(range(1_000))
        answers.give("10.0.0.1", partial(given.append, 1_000))  # alone: at once
        assert given[-1] == 1_000

    on_loop(run)


def test_connections_whose_answers_become_ready_together_are_answered_in_several_turns() -> None:
    async def run() -> None:
        echo, rotation = Echo(), Rotation()
        echo.later = lambda number: True
        made = [connect(echo, NetLimits(), rotation=rotation)[0] for _ in range(300)]
        for number, transport in enumerate(made):
            transport.receive(request(number))
        for pending in echo.pending.values():
            pending.set_result(b"ready")
        answered, turns = 0, []
        while answered < len(made):
            await asyncio.sleep(0)
            now = sum(bool(transport.sent) for transport in made)
            turns.append(now - answered)
            answered = now
        assert max(turns) == TURN_ANSWERS

    on_loop(run)
