"""Connections of throttled clients, and connections that arrive too fast, on simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from kwire.connection import Part, RequestReceived
from server.metadata.endpoint import Endpoint
from server.net.connection_info import ConnectionInfo
from server.net.dispatcher import Close, Later
from server.net.frame_memory import FrameMemory
from server.net.limits import ConnectionQuotas, NetLimits
from server.net.listener import MAX_REFUSED_KEPT, Listener
from server.quotas.arithmetic import Window
from server.quotas.connections import UNLIMITED, ConnectionRates
from server.quotas.entities import DEFAULT
from tests.net.echo import Echo, request
from tests.net.test_session import numbers
from tests.sim.loop import SimulatedLoop
from tests.support.clock import ManualClock
from tests.support.transport import MemoryTransport, connect


def on_simulated_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    def run() -> None:
        loop = SimulatedLoop()
        try:
            loop.run_until_complete(test())
        finally:
            loop.close()

    run.__name__ = test.__name__
    return run


class Throttling(Echo):
    """Throttles the connection with each request by its number in ms."""

    def dispatch(
        self, request: RequestReceived, connection: ConnectionInfo
    ) -> Sequence[Part] | Later[Any] | Close:
        answer = super().dispatch(request, connection)
        assert connection.on_throttle is not None
        if request.correlation_id:
            connection.on_throttle(request.correlation_id)
        return answer


@on_simulated_loop
async def test_throttled_client_is_answered_at_once_and_read_no_further_until_its_time_is_over() -> (
    None
):
    transport, session = connect(Throttling())
    transport.receive(request(0) + request(100) + request(1))
    assert numbers(transport) == [0, 100]
    assert session.get_buffer() is None
    await asyncio.sleep(0.099)
    assert numbers(transport) == [0, 100]
    await asyncio.sleep(0.001)
    assert numbers(transport) == [0, 100, 1]
    await asyncio.sleep(0.002)
    assert session.get_buffer() is not None


@on_simulated_loop
async def test_longest_throttle_time_counts() -> None:
    transport, session = connect(Throttling())
    transport.receive(request(50))
    for more_ms in (100, 20):
        session.throttle(more_ms)
    await asyncio.sleep(0.099)
    assert session.get_buffer() is None
    await asyncio.sleep(0.001)
    assert session.get_buffer() is not None


@on_simulated_loop
async def test_throttled_connection_is_not_idle_and_ends_with_its_client() -> None:
    transport, session = connect(Throttling(), NetLimits(idle_ms=10))
    transport.receive(request(100))
    session.check_idle(2**40)
    assert not session.closed
    transport.hang_up()
    assert session.closed
    assert session.info.on_throttle is None
    await asyncio.sleep(0.2)


@on_simulated_loop
async def test_throttled_client_does_not_keep_the_memory_of_a_request_that_it_has_begun() -> None:
    """It may be throttled for hours, and others may need the memory."""
    clock, memory = ManualClock(), FrameMemory(1 << 20)
    transport, session = connect(Throttling(), clock=clock, memory=memory)
    transport.receive(request(0, b"x" * 300_000)[:200_000])
    session.throttle(3_600_000)
    assert not session.blocked and memory.used > 0
    for _ in range(200):
        memory.tick(clock.advance(1000))
    assert session.closed and memory.used == 0


class Holding(Echo):
    """Accepts no further requests after one with a number other than 0."""

    def dispatch(
        self, request: RequestReceived, connection: ConnectionInfo
    ) -> Sequence[Part] | Later[Any] | Close:
        answer = super().dispatch(request, connection)
        if request.correlation_id:
            connection.hold_requests(True)
        return answer


@on_simulated_loop
async def test_held_connection_is_read_no_further_until_it_is_let_go() -> None:
    transport, session = connect(Holding())
    transport.receive(request(0) + request(7) + request(0))
    assert numbers(transport) == [0, 7]
    assert session.get_buffer() is None
    assert session.blocked  # others may not have its memory: it is not the client's fault
    session.info.hold_requests(False)
    assert numbers(transport) == [0, 7, 0]
    assert session.get_buffer() is not None
    transport.hang_up()
    assert session.closed
    session.info.hold_requests(True)  # its last batches are appended after its end


# Connections that arrive too fast


class Acceptor:
    """Passes a connection to a listener at the test's request, if the listener accepts any."""

    port = 9092

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.made: list[MemoryTransport] = []
        self.owner: Any = None

    def start(self, owner: Any) -> None:
        self.owner = owner

    def resume(self) -> None:
        while self.waiting and self.owner.may_accept():
            transport = MemoryTransport()
            self.made.append(transport)
            self.owner.accepted(transport, ("127.0.0.1", 9092), (self.waiting.pop(0), 50_000))

    def close(self) -> None: ...

    def come(self, *hosts: str) -> None:
        self.waiting += hosts
        self.resume()


class LoopClock(ManualClock):
    """The time of the loop."""

    def monotonic_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)


def listening(rates: ConnectionRates) -> tuple[Listener, Acceptor]:
    acceptor = Acceptor()
    listener = Listener(
        acceptor,
        Endpoint("EXTERNAL", "", 9092),
        Echo(),
        NetLimits(),
        LoopClock(),
        quotas=ConnectionQuotas(NetLimits(), rates=rates),
    )
    acceptor.start(listener)
    return listener, acceptor


@pytest.mark.parametrize("of", ["broker", "listener"])
def test_connections_above_the_rate_wait_in_the_order_in_which_they_came(of: str) -> None:
    @on_simulated_loop
    async def run() -> None:
        rates = ConnectionRates(Window(2, 1000))
        if of == "broker":
            rates.limit_broker(2, 0)
        else:
            rates.limit_listener("EXTERNAL", 2, 0)
        listener, acceptor = listening(rates)
        acceptor.come("a", "b", "c", "d")
        assert [session.info.client_host for session in listener.sessions] == ["a", "b"]
        assert len(acceptor.made) == 3  # one is accepted and held back
        await asyncio.sleep(0.4)
        assert len(listener.sessions) == 2
        await asyncio.sleep(2)
        assert [each.info.client_host for each in listener.sessions] == ["a", "b", "c", "d"]
        await listener.close(0)

    run()


@on_simulated_loop
async def test_listener_of_other_brokers_does_not_count_for_the_broker() -> None:
    rates = ConnectionRates(Window(2, 1000), protected="EXTERNAL")
    rates.limit_broker(1, 0)
    listener, acceptor = listening(rates)
    acceptor.come("a", "b", "c")
    assert len(listener.sessions) == 3
    await listener.close(0)


@on_simulated_loop
async def test_address_that_connects_too_fast_is_refused_after_a_while_and_others_are_served() -> (
    None
):
    rates = ConnectionRates(Window(2, 1000))
    rates.limit_address("bad", 1)
    listener, acceptor = listening(rates)
    acceptor.come("bad", "bad", "good", "good")
    assert [each.info.client_host for each in listener.sessions] == ["bad", "good", "good"]
    refused = acceptor.made[1]
    assert not refused.closed
    await asyncio.sleep(1)
    assert refused.closed
    await asyncio.sleep(2)
    acceptor.come("bad")
    assert len(listener.sessions) == 4
    await listener.close(0)


@on_simulated_loop
async def test_flood_from_an_address_keeps_few_connections_and_does_not_use_up_the_rate() -> None:
    rates = ConnectionRates(Window(2, 1000))
    rates.limit_broker(3, 0)
    rates.limit_address(DEFAULT, 1)
    rates.limit_address("127.0.0.1", UNLIMITED)
    listener, acceptor = listening(rates)
    acceptor.come(*["bad"] * 1000, "127.0.0.1", "127.0.0.1")
    assert [each.info.client_host for each in listener.sessions] == ["bad", *["127.0.0.1"] * 2]
    assert sum(not each.closed for each in acceptor.made) == 3 + MAX_REFUSED_KEPT
    await listener.close(0)
    assert all(each.closed for each in acceptor.made)
