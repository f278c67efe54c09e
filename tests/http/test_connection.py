"""One HTTP connection: its answers, and the limits on waiting and size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from server.http.connection import IDLE_MS, MAX_HEAD_BYTES, MAX_UNSENT_BYTES, REQUEST_MS, STALL_MS
from server.http.listener import MAX_CONNECTIONS
from server.http.messages import MAX_FIELDS, HttpRequest, HttpResponse
from tests.http.client import GET, Server, responses, turns


def run(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(body())


def asked(request: bytes) -> tuple[list[tuple[int, bytes]], bool]:
    """The responses to some bytes, and whether the connection was closed."""
    found: list[tuple[int, bytes]] = []
    closed = False

    async def body() -> None:
        nonlocal closed
        server = Server()
        transport = server.connect()
        transport.receive(request)
        await turns()
        found.extend(responses(transport, "HEAD" if request.startswith(b"HEAD") else "GET"))
        closed = transport.closed
        await server.listener.close()

    run(body)
    return found, closed


def test_request_is_answered_and_the_connection_stays_open() -> None:
    assert asked(GET) == ([(200, b"hello nobody\n")], False)


def test_query_reaches_the_route() -> None:
    assert asked(GET.replace(b"/hello", b"/hello?name=kim"))[0] == [(200, b"hello kim\n")]


def test_query_of_too_many_fields_is_refused_and_the_connection_goes_on() -> None:
    query = b"&".join([b"a=1"] * (MAX_FIELDS + 1))
    found, closed = asked(GET.replace(b"/hello", b"/hello?" + query))
    assert [status for status, _ in found] == [400]
    assert b"Max number of fields exceeded" in found[0][1]
    assert not closed


def test_head_is_answered_without_a_body() -> None:
    assert asked(GET.replace(b"GET", b"HEAD"))[0] == [(200, b"")]


def test_requests_sent_together_are_answered_in_order() -> None:
    async def body() -> None:
        server = Server()
        transport = server.connect()
        transport.receive(GET + GET.replace(b"/hello", b"/hello?name=kim"))
        await turns()
        assert responses(transport, "GET", "GET") == [
            (200, b"hello nobody\n"),
            (200, b"hello kim\n"),
        ]
        await server.listener.close()

    run(body)


def test_request_in_small_pieces_is_answered() -> None:
    async def body() -> None:
        server = Server()
        transport = server.connect()
        for at in range(len(GET)):
            transport.receive(GET[at : at + 1])
        await turns()
        assert responses(transport) == [(200, b"hello nobody\n")]
        await server.listener.close()

    run(body)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (GET.replace(b"/hello", b"/other"), 404),
        (GET.replace(b"GET", b"DELETE"), 405),
        (b"GET /hello HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (b"GET /hello HTTP/1.0\r\n\r\n", 421),
    ],
)
def test_request_that_is_not_served_is_refused(request_bytes: bytes, status: int) -> None:
    assert [each[0] for each in asked(request_bytes)[0]] == [status]


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),  # TLS
        (b"GET /hello HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET /hello HTTP/1.1\r\nHost: x\r\nX: " + b"y" * MAX_HEAD_BYTES, 431),
        (
            b"POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n" + b"z" * 80_000,
            413,
        ),
        (
            b"POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
            417,
        ),
    ],
)
def test_damaged_or_too_large_request_is_refused_and_closed(
    request_bytes: bytes, status: int
) -> None:
    found, closed = asked(request_bytes)
    assert [each[0] for each in found] == [status]
    assert closed


def test_route_that_fails_is_answered_500_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: HttpRequest) -> HttpResponse:
        raise RuntimeError("broken on purpose")

    async def body() -> None:
        server = Server(broken=broken)
        transport = server.connect()
        transport.receive(GET.replace(b"hello", b"broken"))
        await turns()
        assert [each[0] for each in responses(transport)] == [500]
        await server.listener.close()

    run(body)
    assert "broken on purpose" in caplog.text


def test_client_that_does_not_read_stops_the_making_of_pieces() -> None:
    made = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal made
        for _ in range(100):
            made += 1
            yield b"x" * 65_536

    async def body() -> None:
        server = Server(long=lambda _: HttpResponse(body=pieces()))
        transport = server.connect(room=0)
        transport.receive(GET.replace(b"hello", b"long"))
        await turns(300)
        assert made <= MAX_UNSENT_BYTES // 65_536 + 1
        transport.take(100 * 70_000)
        await turns(300)
        (response,) = responses(transport)
        assert response == (200, b"x" * 65_536 * 100)
        await server.listener.close()

    run(body)


def test_client_that_reads_nothing_for_long_is_disconnected() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65_536

    async def body() -> None:
        server = Server(long=lambda _: HttpResponse(body=pieces()))
        transport = server.connect(room=0)
        transport.receive(GET.replace(b"hello", b"long"))
        await turns(100)
        server.pass_time(STALL_MS - 1)
        assert not transport.closed
        server.pass_time(1)
        assert transport.closed
        await turns()
        assert not server.listener.connections
        await server.listener.close()

    run(body)


def test_connection_without_a_complete_request_is_closed() -> None:
    async def body() -> None:
        server = Server()
        silent, slow = server.connect(), server.connect()
        slow.receive(GET[:20])
        server.pass_time(REQUEST_MS)
        assert silent.closed and slow.closed
        await server.listener.close()

    run(body)


def test_connection_may_wait_for_its_next_request_for_minutes() -> None:
    async def body() -> None:
        server = Server()
        transport = server.connect()
        transport.receive(GET)
        await turns()
        server.pass_time(IDLE_MS - 1)
        assert not transport.closed
        server.pass_time(1)
        assert transport.closed
        await server.listener.close()

    run(body)


def test_new_connection_takes_the_place_of_the_oldest_that_waits() -> None:
    async def body() -> None:
        server = Server()
        first, *others = [server.connect() for _ in range(MAX_CONNECTIONS)]
        probe = server.connect()
        assert first.closed
        assert not any(each.closed for each in others)
        probe.receive(GET)
        await turns()
        assert responses(probe) == [(200, b"hello nobody\n")]
        assert len(server.listener.connections) == MAX_CONNECTIONS
        await server.listener.close()

    run(body)


def test_address_with_most_connections_makes_room_for_others() -> None:
    async def body() -> None:
        async def never(_: HttpRequest) -> HttpResponse:
            await asyncio.Event().wait()
            raise AssertionError

        server = Server(never=never)
        honest = server.connect()
        busy = [server.connect(host="10.0.0.9") for _ in range(MAX_CONNECTIONS - 1)]
        for each in busy:
            each.receive(GET.replace(b"hello", b"never"))
        honest.receive(GET.replace(b"hello", b"never"))
        await turns()
        assert server.connect(host="10.0.0.9").closed
        probe = server.connect()
        probe.receive(GET)
        await turns()
        assert responses(probe) == [(200, b"hello nobody\n")]
        assert [each.closed for each in busy].count(True) == 1
        assert not honest.closed
        # Connections that wait for a request are closed first, but those of others are not.
        idle = [server.connect(host="10.0.0.9") for _ in range(3)]
        assert not probe.closed
        assert idle[0].closed
        await server.listener.close()

    run(body)


def test_close_ends_connections_that_are_being_answered() -> None:
    async def body() -> None:
        async def never(_: HttpRequest) -> HttpResponse:
            await asyncio.Event().wait()
            raise AssertionError

        server = Server(never=never)
        transport = server.connect()
        transport.receive(GET.replace(b"hello", b"never"))
        await turns()
        await server.listener.close()
        assert transport.closed
        assert len(asyncio.all_tasks()) == 1

    run(body)


@pytest.mark.parametrize(
    ("beginning", "guess"),
    [
        (b"\x00\x00\x00\x14\x00\x12\x00\x00", "Kafka"),
        (b"\x16\x03\x01\x02\x00\x01", "a TLS handshake"),
        (b"SSH-2.0-x\r\n\r\n", "SSH"),
    ],
)
def test_client_of_another_protocol_is_named_to_it_and_in_the_log(
    beginning: bytes, guess: str, caplog: pytest.LogCaptureFixture
) -> None:
    (answer,), closed = asked(beginning)
    assert answer == (400, f"this port serves HTTP, and this looks like {guess}\n".encode())
    assert closed
    (record,) = caplog.records
    assert record.getMessage() == (
        f"refused connection of 127.0.0.1:2: looks like {guess}, not HTTP (first bytes {beginning[:4]!r})"
    )


def test_mistake_in_http_is_not_taken_for_another_protocol(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (answer,), _ = asked(b"GET /hello HTTP/1.1\r\nbad\r\n\r\n")
    assert answer[0] == 400
    assert b"looks like" not in answer[1]
    assert not caplog.records
