"""A broker's conclusions when connections to others are accepted, closed or refused."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from server.executor import Executor
from server.interbroker.peer_watch import REFUSALS, PeerWatch
from server.metadata.endpoint import Endpoint
from server.metadata.image import BrokerRegistration
from server.metadata.publisher import MetadataPublisher
from server.net.sockets import SocketNetwork
from server.net.transport import Transport


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals that a test need not wait for."""
    monkeypatch.setattr("server.interbroker.peer_watch.AGAIN_S", 0.02)


class Peer:
    """Broker 2, with a loopback port that can be closed and opened again."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.accepted = 0
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.append(writer)

    def end_connections(self) -> None:
        """Close accepted connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def die(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.end_connections()


class Told:
    """The conclusions, in order."""

    def __init__(self) -> None:
        self.words: list[str] = []

    async def until(self, *words: str) -> None:
        """Wait until these are the conclusions."""
        async with asyncio.timeout(5):
            while self.words != list(words):
                await asyncio.sleep(0.001)


Body = Callable[[Peer, Told, MetadataPublisher], Awaitable[None]]


def run(body: Body, *, listening: bool = True) -> None:
    """Watch broker 2 as broker 1."""

    async def main() -> None:
        peer, told, publisher = Peer(), Told(), MetadataPublisher()
        if listening:
            await peer.open()
        publish(publisher, 1, 2, port=peer.port)
        watch = PeerWatch(
            1,
            SocketNetwork(Executor()),
            publisher.current,
            "BROKERS",
            lambda broker: told.words.append(f"lost {broker}"),
            lambda broker: told.words.append(f"found {broker}"),
        )
        publisher.subscribe(watch.on_image)
        watch.start()
        try:
            await body(peer, told, publisher)
        finally:
            watch.close()
            peer.die()

    asyncio.run(main())


def publish(
    publisher: MetadataPublisher, *brokers: int, port: int, host: str = "127.0.0.1"
) -> None:
    """Publish an image with these brokers."""
    endpoints = (Endpoint("BROKERS", host, port),)
    found = {each: BrokerRegistration(each, endpoints) for each in brokers}
    publisher.publish(publisher.image.edit().put_brokers(found).build())


async def connected(peer: Peer, times: int = 1) -> None:
    async with asyncio.timeout(5):
        while peer.accepted < times:
            await asyncio.sleep(0.001)


def test_ended_process_is_lost_and_found_when_it_listens_again() -> None:
    async def body(peer: Peer, told: Told, _: MetadataPublisher) -> None:
        await connected(peer)
        peer.die()
        await told.until("lost 2")
        assert told.words == ["lost 2"]
        await peer.open()
        await told.until("lost 2", "found 2")
        assert told.words == ["lost 2", "found 2"]

    run(body)


def test_ended_connection_alone_says_nothing() -> None:
    async def body(peer: Peer, told: Told, _: MetadataPublisher) -> None:
        await connected(peer)
        peer.end_connections()
        await connected(peer, 2)
        assert told.words == []

    run(body)


def test_broker_that_has_never_listened_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = 0
    connect = SocketNetwork.connect

    async def counted(network: SocketNetwork, endpoint: Endpoint) -> Transport:
        nonlocal refusals
        try:
            return await connect(network, endpoint)
        except ConnectionRefusedError:
            refusals += 1
            raise

    monkeypatch.setattr(SocketNetwork, "connect", counted)

    async def body(peer: Peer, told: Told, _: MetadataPublisher) -> None:
        async with asyncio.timeout(5):
            while refusals < 2 * REFUSALS:
                await asyncio.sleep(0)
        assert told.words == []
        await peer.open()
        await connected(peer)
        peer.die()
        await told.until("lost 2")

    run(body, listening=False)


def test_broker_that_is_not_registered_any_more_is_found_and_forgotten() -> None:
    async def body(peer: Peer, told: Told, publisher: MetadataPublisher) -> None:
        await connected(peer)
        peer.die()
        await told.until("lost 2")
        publish(publisher, 1, port=peer.port)
        assert told.words == ["lost 2", "found 2"]

    run(body)


@pytest.mark.skipif(sys.platform != "linux", reason="needs several addresses of loopback")
def test_host_of_several_addresses_refuses_when_all_of_them_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def resolve(_: object, host: str, port: int, **options: Any) -> list[Any]:
        addresses = ["127.0.0.2", "127.0.0.1"] if host == "several" else [host]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in addresses]

    monkeypatch.setattr("asyncio.base_events.BaseEventLoop.getaddrinfo", resolve)

    async def body(peer: Peer, told: Told, publisher: MetadataPublisher) -> None:
        await connected(peer)
        publish(publisher, 1, 2, port=peer.port, host="several")
        await connected(peer, 2)
        peer.die()
        await told.until("lost 2")
        assert told.words == ["lost 2"]

    run(body)
