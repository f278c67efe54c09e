"""Errors of connecting over sockets: no listener, or an unreachable host."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from server.executor import Executor
from server.metadata.endpoint import Endpoint
from server.net import platform
from server.net.limits import NetLimits
from server.net.sockets import SocketNetwork, bind, name_of
from server.net.transport import SocketTransport


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def connect(endpoint: Endpoint) -> None:
    asyncio.run(SocketNetwork(Executor()).connect(endpoint))


def test_port_that_nobody_listens_on_refuses() -> None:
    with pytest.raises(ConnectionRefusedError):
        connect(Endpoint("PLAINTEXT", "127.0.0.1", unused_port()))


def test_host_with_one_address_that_is_not_reached_does_not_refuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def resolve(_: object, host: str, port: int, **options: Any) -> list[Any]:
        addresses = ("127.0.0.1", "unreachable", "127.0.0.1")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in addresses]

    sock_connect = asyncio.SelectorEventLoop.sock_connect

    async def connecting(loop: Any, sock: socket.socket, address: Any) -> None:
        if address[0] == "unreachable":
            raise OSError(errno.EHOSTUNREACH, "No route to host")
        await sock_connect(loop, sock, address)

    monkeypatch.setattr("asyncio.base_events.BaseEventLoop.getaddrinfo", resolve)
    monkeypatch.setattr("asyncio.SelectorEventLoop.sock_connect", connecting)
    with pytest.raises(OSError, match="No route") as raised:
        connect(Endpoint("PLAINTEXT", "several", unused_port()))
    assert not isinstance(raised.value, ConnectionRefusedError)


@contextmanager
def inherited(fd: int) -> Iterator[None]:
    """Another copy of a descriptor, as a process has it that was forked."""
    copy = os.dup(fd)
    yield
    os.close(copy)


@pytest.mark.parametrize("resets", [False, True])
def test_connection_that_is_closed_ends_though_another_process_has_its_descriptor(
    resets: bool,
) -> None:
    async def closed() -> bytes:
        with socket.create_server(("127.0.0.1", 0)) as server:
            peer = socket.create_connection(server.getsockname(), 10)
            sock, _ = server.accept()
        transport = SocketTransport(asyncio.get_running_loop(), sock, Executor())
        with peer, contextlib.ExitStack() as other:
            if resets:  # its end can only be seen when all copies are closed
                platform.reset_when_closed(sock)
            else:
                other.enter_context(inherited(sock.fileno()))
            transport.close()
            return peer.recv(1)

    if resets:
        with pytest.raises(ConnectionResetError):
            asyncio.run(closed())
    else:
        assert asyncio.run(closed()) == b""


def test_listener_that_is_closed_refuses_though_another_process_has_its_descriptor() -> None:
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", unused_port())
    network = SocketNetwork(Executor())
    acceptor = network.listen(endpoint, NetLimits())
    assert acceptor._sock is not None
    with inherited(acceptor._sock.fileno()):
        acceptor.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((endpoint.host, endpoint.port), 10)
        network.listen(endpoint, NetLimits()).close()  # the port is free


def test_endpoint_with_tls_is_refused_by_a_broker_without() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(OSError, match=rf"INTERNAL://127\.0\.0\.1:{port} needs TLS"):
            connect(Endpoint("INTERNAL", "127.0.0.1", port, "SSL"))


@pytest.mark.parametrize("host", ["a" * 64, "x..y", "\ud800"])
def test_name_that_no_host_can_have_is_an_error_of_the_connection(host: str) -> None:
    with pytest.raises(OSError, match="is not a host name"):
        connect(Endpoint("PLAINTEXT", host, 9092))
    with pytest.raises(OSError, match="cannot listen on"):
        bind(host, 9092)


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "::1", "fe80::1%lo", "a" * 63 + ".example"]
)
def test_plain_names_are_resolved_as_they_are(host: str) -> None:
    assert name_of(host) == host.encode("idna")


@pytest.mark.parametrize("host", ["bücher.example", "a..b", "a" * 64, ""])
def test_other_names_are_left_to_idna(host: str) -> None:
    assert name_of(host) == host
