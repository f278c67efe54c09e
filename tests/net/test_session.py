"""Sessions over a transport in memory."""

from __future__ import annotations

import asyncio
import logging
import random
import struct
from collections.abc import Awaitable, Callable, Sequence

import pytest

from kwire.connection import Part, response_frame
from server.net.connection_info import ConnectionInfo
from server.net.dispatcher import Close
from server.net.frame_memory import FrameMemory
from server.net.limits import NetLimits
from tests.net.echo import Echo, request
from tests.support.clock import ManualClock
from tests.support.transport import MemoryTransport, connect


def on_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())  # type: ignore[arg-type]

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def numbers(transport: MemoryTransport) -> list[int]:
    return [struct.unpack(">i", frame[:4])[0] for frame in transport.frames()]


def test_pipelined_requests_are_answered_in_order() -> None:
    transport, _ = connect(Echo())
    transport.receive(b"".join(request(n, b"body %d" % n) for n in range(10)))
    assert transport.frames() == [struct.pack(">i", n) + b"body %d" % n for n in range(10)]


class AtOnce(Echo):
    """Answers requests whose bodies begin with a lower-case letter from their frames."""

    def __init__(self) -> None:
        super().__init__()
        self.from_frames: list[int] = []

    def at_once(
        self, frame: memoryview, connection: ConnectionInfo
    ) -> Sequence[Part] | Close | None:
        number, body = int.from_bytes(frame[4:8], "big"), bytes(frame[14:])
        if body == b"close":
            return Close("asked to")
        if not body.islower():
            return None
        self.from_frames.append(number)
        return [] if body == b"silent" else response_frame(number, False, [body])


@on_loop
async def test_requests_are_answered_alike_from_their_frames_however_they_arrive() -> None:
    draw = random.Random(4)
    for _ in range(200):
        bodies = [
            draw.choice((b"a", b"bcd" * 50, b"silent", b"A", b"", b"e" * 70_000))
            for _ in range(draw.randint(1, 25))
        ]
        data = b"".join(request(n, body) for n, body in enumerate(bodies))
        dispatcher = AtOnce()
        memory = FrameMemory(64 * 1024 * 1024)
        transport, session = connect(dispatcher, NetLimits(max_batch=4), memory=memory)
        while data:
            size = draw.choice((len(data), len(data), 1, 40, 300, 100_000))
            transport.receive(data[:size])
            data = data[size:]
        for _ in range(5):  # a few requests a turn
            await settle()
            transport.pump()
        told = [struct.pack(">i", n) + body for n, body in enumerate(bodies) if body != b"silent"]
        assert transport.frames() == told
        assert session.requests == len(bodies)
        assert set(dispatcher.from_frames).isdisjoint(dispatcher.seen)
        assert sorted(dispatcher.from_frames + dispatcher.seen) == list(range(len(bodies)))
        assert memory.used == 0
        session.close("", None)
        warm = sum(block.warm for blocks in memory._pool.values() for block in blocks)
        assert memory.pooled == warm


def test_request_that_is_answered_from_its_frame_may_close_the_connection() -> None:
    transport, session = connect(AtOnce())
    transport.receive(request(0, b"a"))
    transport.receive(request(1, b"b") + request(2, b"close") + request(3, b"c"))
    assert numbers(transport) == [0, 1]
    assert session.closed


def test_length_that_is_too_long_is_refused_behind_requests_that_were_answered_from_their_frames() -> (
    None
):
    for length in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\1\0"):
        transport, session = connect(AtOnce(), NetLimits(request_max_bytes=100))
        transport.receive(request(0, b"a"))
        transport.receive(request(1, b"b") + length + bytes(300))
        assert numbers(transport) == [0, 1]
        assert session.closed


@on_loop
async def test_peer_that_does_not_read_has_no_more_requests_answered_from_their_frames() -> None:
    dispatcher = AtOnce()
    transport, _ = connect(
        dispatcher, NetLimits(max_unsent_bytes=100), transport=MemoryTransport(room=60)
    )
    for number in range(10):
        transport.receive(request(number, b"a" * 50))
    assert len(dispatcher.from_frames) < 5
    transport.take(10_000)
    await settle()
    assert numbers(transport) == list(range(10))


def test_request_cut_anywhere_is_answered() -> None:
    data = request(7, b"some body")
    for cut in range(1, len(data)):
        transport, _ = connect(Echo())
        transport.receive(data[:cut])
        assert not transport.sent
        transport.receive(data[cut:])
        assert numbers(transport) == [7]


def test_request_without_reply_sends_nothing_and_the_next_goes_on() -> None:
    transport, _ = connect(Echo())
    transport.receive(request(1, key=98) + request(2))
    assert numbers(transport) == [2]


@on_loop
async def test_next_request_waits_for_the_reply_of_the_one_before() -> None:
    echo = Echo()
    echo.later = lambda number: number == 1
    transport, session = connect(echo)
    transport.receive(request(0) + request(1) + request(2) + request(3)[:5])
    transport.receive(request(3)[5:])
    assert echo.seen == [0, 1]
    assert numbers(transport) == [0]
    echo.pending[1].set_result(b"")
    await settle()
    transport.pump()
    assert echo.seen == [0, 1, 2, 3]
    assert numbers(transport) == [0, 1, 2, 3]
    assert session.pending == 0


@on_loop
async def test_overlapping_requests_start_at_once_and_reply_in_order() -> None:
    echo = Echo(overlap=True)
    echo.later = lambda number: number in (1, 3)
    transport, _ = connect(echo)
    transport.receive(b"".join(map(request, range(5))))
    assert echo.seen == [0, 1, 2, 3, 4]
    assert numbers(transport) == [0]
    echo.pending[3].set_result(b"")
    await settle()
    assert numbers(transport) == [0]
    echo.pending[1].set_result(b"")
    await settle()
    assert numbers(transport) == [0, 1, 2, 3, 4]


@on_loop
async def test_overlapping_requests_are_bounded() -> None:
    echo = Echo(overlap=True)
    echo.later = lambda number: True
    transport, _ = connect(echo, NetLimits(max_overlapping=3))
    transport.receive(b"".join(map(request, range(6))))
    assert echo.seen == [0, 1, 2]
    echo.pending[0].set_result(b"")
    await settle()
    assert echo.seen == [0, 1, 2, 3]
    for number in range(1, 4):
        echo.pending[number].set_result(b"")
    await settle()
    assert echo.seen == [0, 1, 2, 3, 4, 5]


@on_loop
async def test_replies_that_an_earlier_one_holds_up_are_bounded() -> None:
    echo = Echo(overlap=True)
    echo.later = lambda number: number in (0, 2)
    transport, _ = connect(echo, NetLimits(max_overlapping=3))
    transport.receive(b"".join(map(request, range(9))))
    assert echo.seen == [0, 1, 2]
    echo.pending[2].set_result(b"")
    await settle()
    assert echo.seen == [0, 1, 2]
    echo.pending[0].set_result(b"")
    await settle()
    assert numbers(transport) == list(range(9))


@on_loop
async def test_waiting_request_holds_no_view_of_shared_memory() -> None:
    memory = FrameMemory(64 * 1024 * 1024)
    echo = Echo()
    echo.later = lambda number: number == 1
    waiting, _ = connect(echo, memory=memory)
    waiting.receive(request(1, b"x" * 1000) + request(2, b"two"))
    other, _ = connect(Echo(), memory=memory)
    other.receive(request(9, b"y" * 2000))
    assert memory.leaked == 0
    echo.pending[1].set_result(b"one")
    await settle()
    assert [frame[4:] for frame in waiting.frames()] == [b"one", b"two"]
    assert memory.used == 0


@on_loop
async def test_many_small_requests_do_not_keep_the_loop() -> None:
    echo = Echo()
    transport, _ = connect(echo, NetLimits(max_batch=10))
    transport.receive(b"".join(map(request, range(35))))
    assert len(echo.seen) == 10
    await settle()
    assert numbers(transport) == list(range(35))


def test_requests_wait_while_the_peer_does_not_read() -> None:
    echo = Echo()
    transport, _ = connect(echo, NetLimits(max_unsent_bytes=1000), transport=MemoryTransport(500))
    big = b"b" * 100_000
    transport.receive(request(1, big) + request(2) + request(3))
    transport.receive(request(4))
    assert echo.seen == [1]
    transport.take(1_000_000)
    assert echo.seen == [1, 2, 3, 4]
    assert numbers(transport) == [1, 2, 3, 4]


@on_loop
async def test_peer_that_leaves_is_told_to_those_who_wait_for_it() -> None:
    echo = Echo()
    echo.later = lambda number: True
    transport, session = connect(echo)
    transport.receive(request(1))
    transport.hang_up()
    assert echo.gone == [1]
    assert session.closed
    echo.pending[1].set_result(b"too late")
    await settle()
    assert not transport.sent


@on_loop
async def test_requests_that_wait_for_their_turn_when_the_peer_leaves_are_taken_up() -> None:
    echo = Echo()
    transport, session = connect(echo, NetLimits(max_batch=10))
    transport.receive(b"".join(map(request, range(35))) + request(35)[:-1])
    transport.hang_up()
    assert echo.seen == list(range(10))
    await settle()
    assert echo.seen == list(range(35))
    assert session.closed


@on_loop
async def test_requests_behind_one_without_reply_are_taken_up_when_the_peer_leaves() -> None:
    echo = Echo()
    echo.later = lambda number: number in (1, 3)
    transport, session = connect(echo)
    transport.receive(b"".join(map(request, range(1, 5))))
    assert echo.seen == [1]
    transport.hang_up()
    assert echo.gone == [1, 3]
    assert echo.seen == [1, 2, 3, 4]
    assert session.closed
    echo.pending[3].set_result(b"too late")
    await settle()


@on_loop
async def test_requests_behind_one_that_cannot_be_given_up_are_taken_up_after_it() -> None:
    echo = Echo()
    echo.later = lambda number: number == 1
    echo.tells_who_leaves = False
    transport, session = connect(echo)
    transport.receive(request(1) + request(2))
    transport.hang_up()
    assert echo.seen == [1]
    assert not session.closed
    echo.pending[1].set_result(b"nobody reads this")
    await settle()
    assert echo.seen == [1, 2]
    assert session.closed


@on_loop
async def test_broker_that_stops_does_not_wait_for_the_rest_of_a_peer_that_left() -> None:
    echo = Echo()
    transport, session = connect(echo, NetLimits(max_batch=10))
    transport.receive(b"".join(map(request, range(35))))
    transport.hang_up()
    session.finish()
    assert session.closed
    await settle()
    assert echo.seen == list(range(10))


def closing(caplog: pytest.LogCaptureFixture, data: bytes) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.INFO):
        transport, session = connect(Echo())
        transport.receive(data)
    assert session.closed and transport.closed
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "looks like HTTP"),
        (b"POST /topics HTTP/1.1\r\n", "looks like HTTP"),
        (bytes.fromhex("16030100f8010000f40303") + bytes(100), "looks like a TLS handshake"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "looks like SSH"),
        (b"\xff\xff\xff\xff\x00\x00", "frame size: -1 is not between 0 and 104857600"),
        (b"\x7f\xff\xff\xff\x00\x00", "frame size: 2147483647"),
        (b"\x00\x00\x00\x02\x00\x12", "not a Kafka request"),
        (b"\x00\x00\x00\x00", "not a Kafka request"),
    ],
)
def test_what_is_not_kafka_costs_one_line_and_the_connection(
    caplog: pytest.LogCaptureFixture, data: bytes, words: str
) -> None:
    (line,) = closing(caplog, data)
    assert line.startswith("closed connection of 127.0.0.1:50000: ")
    assert words in line


@pytest.mark.parametrize("data", [b"AUTH secret\r\n", b"\x7f\xff\xff\xff\0alice\0secret"])
def test_no_password_is_logged_of_what_is_not_kafka(
    caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    (line,) = closing(caplog, data)
    assert line.endswith(f"(first bytes {data[:4]!r})")
    assert "secret" not in line


def test_refused_request_costs_one_line_after_replies_that_were_ready(
    caplog: pytest.LogCaptureFixture,
) -> None:
    transport, session = connect(Echo())
    with caplog.at_level(logging.INFO):
        transport.receive(request(1) + request(2, key=99) + request(3))
    assert numbers(transport) == [1]
    assert session.closed
    assert [record.getMessage() for record in caplog.records] == [
        "closed connection of 127.0.0.1:50000: key 99"
    ]


@pytest.mark.parametrize(
    "broken", [b"\xff\xff\xff\xff\x00\x00", b"\x00\x00\x00\x02\x00\x12"], ids=["size", "header"]
)
def test_requests_before_a_broken_one_have_their_replies(broken: bytes) -> None:
    transport, session = connect(Echo())
    transport.receive(request(1) + request(2) + broken)
    assert numbers(transport) == [1, 2]
    assert session.closed and transport.closed


def test_mistake_of_ours_costs_this_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    memory = FrameMemory(64 * 1024 * 1024)
    transport, session = connect(Echo(), memory=memory)
    transport.receive(request(1, key=97))
    assert session.closed
    assert "RuntimeError: a mistake" in caplog.text
    caplog.clear()
    other, _ = connect(Echo(), memory=memory)
    other.receive(request(2))
    assert numbers(other) == [2]


def test_idle_connection_is_closed_with_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    cases = {
        b"": "sent no request",
        request(1)[:7]: "part of a request",
    }
    for data, words in cases.items():
        caplog.clear()
        transport, session = connect(Echo(), NetLimits(idle_ms=5000), clock=clock)
        if data:
            transport.receive(data)
        clock.advance(4999)
        session.check_idle(clock.monotonic_ms())
        assert not session.closed
        clock.advance(1)
        session.check_idle(clock.monotonic_ms())
        assert session.closed
        assert words in caplog.text


def test_idle_connection_that_was_of_use_goes_without_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    transport, session = connect(Echo(), NetLimits(idle_ms=5000), clock=clock)
    transport.receive(request(1))
    session.check_idle(clock.advance(5000))
    assert session.closed
    assert not caplog.records


def test_flood_of_the_same_mistake_is_not_logged_line_by_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from server.net.log_limit import LineLimiter

    clock = ManualClock()
    limiter = LineLimiter(logging.getLogger("flood"), clock.monotonic_ms, lines=3)
    for number in range(100):
        limiter.log(logging.WARNING, "kind", "line %d", number)
    limiter.log(logging.WARNING, "other kind", "other")
    clock.advance(10_000)
    limiter.log(logging.WARNING, "kind", "line %d", 100)
    assert [record.getMessage() for record in caplog.records] == [
        "line 0",
        "line 1",
        "line 2",
        "other",
        "line 100 (97 more like this were not logged)",
    ]
