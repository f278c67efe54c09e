"""Answers that are not read: the limit on them, and the choice of the connection that is closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from server.executor import Executor
from server.net.limits import NetLimits
from server.net.output_memory import OutputMemory, SharedBytes
from server.net.session import Session
from server.net.transport import SocketTransport
from tests.net.echo import Echo, request
from tests.support.clock import ManualClock
from tests.support.transport import MemoryTransport, connect

LIMIT = 100_000
ANSWER = 10_000


class Crowd:
    """Connections that share a limit on unread data."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.clock = ManualClock()
        self.output = OutputMemory(limit, self.clock.monotonic_ms)
        self.echo = Echo()
        self.echo.answer = bytes(ANSWER)

    def connect(self, room: int | None = 0) -> tuple[MemoryTransport, Session]:
        """One connection whose peer has room for this many bytes."""
        return connect(
            self.echo,
            NetLimits(),
            transport=MemoryTransport(room),
            clock=self.clock,
            output=self.output,
        )


def test_answers_that_are_not_read_are_bounded_over_all_connections(
    caplog: pytest.LogCaptureFixture,
) -> None:
    crowd = Crowd()
    made = [crowd.connect() for _ in range(50)]
    for number, (transport, _) in enumerate(made):
        transport.receive(request(number))
        crowd.clock.advance(200)
        assert crowd.output.used <= LIMIT + ANSWER
    closed = [session for _, session in made if session.closed]
    assert closed == [session for _, session in made[: len(closed)]]  # the oldest first
    assert len(closed) > 30
    assert crowd.output.peak <= LIMIT + 2 * ANSWER
    assert "kwire.queued.max.response.bytes=100000" in caplog.messages[0]
    assert "has read none of them for" in caplog.messages[0]


def test_reader_that_is_slow_stays_when_those_who_do_not_read_are_closed() -> None:
    crowd = Crowd()
    slow, its_session = crowd.connect()
    slow.receive(request(0) + request(1) + request(2))
    for number in range(50):
        transport, _ = crowd.connect()
        transport.receive(request(number))
        crowd.clock.advance(200)
        slow.take(1)
    assert not its_session.closed
    slow.take(10 * ANSWER)
    assert len(slow.frames()) == 3


def test_answer_larger_than_the_bound_is_sent_to_whoever_reads_it() -> None:
    crowd = Crowd()
    crowd.echo.answer = bytes(LIMIT * 3 // 2)
    reader, its_session = crowd.connect()
    idler, idle_session = crowd.connect()
    reader.receive(request(0))
    for _ in range(50):
        crowd.clock.advance(900)
        reader.take(10)
        crowd.output.tick()
    crowd.echo.answer = bytes(ANSWER)
    idler.receive(request(1))
    for _ in range(20):
        crowd.clock.advance(900)
        reader.take(10)
        crowd.output.tick()
    assert idle_session.closed and not its_session.closed
    crowd.clock.advance(1_001)
    crowd.output.tick()
    assert its_session.closed


def test_burst_of_answers_is_bounded_by_twice_the_bound() -> None:
    crowd = Crowd()
    for number in range(100):
        transport, _ = crowd.connect()
        transport.receive(request(number))
    assert crowd.output.peak <= 2 * LIMIT + 2 * ANSWER


def test_connection_with_unread_answers_takes_up_no_request_from_half_of_the_bound_on() -> None:
    crowd = Crowd()
    hoarder, _ = crowd.connect()
    for number in range(5):
        hoarder.receive(request(number))
    assert crowd.echo.seen == [0, 1, 2, 3, 4]
    assert crowd.output.pressed
    late, _ = crowd.connect()
    late.receive(request(10))
    late.receive(request(11))
    reader, _ = crowd.connect(None)
    for number in range(20, 25):
        reader.receive(request(number))
    assert crowd.echo.seen[5:] == [10, 20, 21, 22, 23, 24]  # not 11
    hoarder.take(10 * ANSWER)
    late.take(10 * ANSWER)
    assert crowd.echo.seen[-1] == 11
    assert crowd.output.used == 0


def test_body_that_many_connections_wait_for_counts_once() -> None:
    crowd = Crowd()
    crowd.echo.answer = SharedBytes(bytes(LIMIT * 3 // 4))
    made = [crowd.connect() for _ in range(50)]
    for number, (transport, _) in enumerate(made):
        transport.receive(request(number))
    assert not any(session.closed for _, session in made)
    assert crowd.output.used < LIMIT
    for transport, _ in made:
        transport.take(LIMIT)
    assert crowd.output.used == 0


def test_shared_body_pays_for_nothing_that_follows_it() -> None:
    crowd = Crowd(1_000_000)
    crowd.echo.answer = SharedBytes(bytes(50_000))
    transport, _ = crowd.connect()
    transport.receive(request(0))
    transport.take(40_000)
    crowd.echo.answer = bytes(20_000)
    transport.receive(request(1))
    assert crowd.output.used >= 50_000 + 20_000


def test_closed_connection_holds_nothing() -> None:
    crowd = Crowd()
    transport, _ = crowd.connect()
    transport.receive(request(0))
    assert crowd.output.used >= ANSWER
    transport.hang_up()
    assert crowd.output.used == 0


def test_replies_held_up_by_an_earlier_one_count() -> None:
    async def run() -> None:
        crowd = Crowd()
        crowd.echo = Echo(overlap=True)
        crowd.echo.answer = bytes(ANSWER)
        crowd.echo.later = lambda number: True
        transport, session = crowd.connect(None)
        transport.receive(b"".join(map(request, range(4))))
        for number in (1, 2, 3):
            crowd.echo.pending[number].set_result(bytes(ANSWER))
        for _ in range(3):
            await asyncio.sleep(0)
        assert crowd.output.used >= 3 * ANSWER
        crowd.echo.pending[0].set_result(b"")
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(transport.frames()) == 4
        assert crowd.output.used == 0 and session.held_up_bytes == 0

    asyncio.run(run())


class Slice:
    """A stored slice that is never sent."""

    position = 0

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def fileno(self) -> int:
        raise AssertionError

    def close(self) -> None:
        """Nothing is open."""


def test_stored_slices_cost_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    async def run() -> None:
        server, peer = socket.socketpair()
        server.setblocking(False)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        transport = SocketTransport(asyncio.get_running_loop(), server, Executor())
        before = transport.unsent_memory
        transport.send([bytes(500_000)])
        waiting = transport.unsent_memory
        assert before == 0 < waiting <= 500_100
        parts: list[Any] = [b"head", Slice(50_000_000)]
        transport.send(parts)
        assert transport.unsent_bytes > 50_000_000
        assert transport.unsent_memory <= waiting + 300
        transport.close()
        assert transport.unsent_memory == 0
        peer.close()

    asyncio.run(run())
