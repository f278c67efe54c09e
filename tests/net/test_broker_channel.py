"""Requests to another broker."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from kwire import connection
from kwire.codec import encode
from kwire.header import decode_request_header, encode_response_header
from kwire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kwire.messages.metadata import MetadataRequest, MetadataResponse
from server.executor import Executor
from server.metadata.endpoint import Endpoint
from server.metadata.image import BrokerRegistration, MetadataImage
from server.net.broker_channel import BrokerChannel, BrokerChannels, ChannelError
from server.net.sockets import SocketNetwork

NETWORK = SocketNetwork(Executor())

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[BrokerChannel]:
    tasks: list[asyncio.Task[None]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        try:
            await serve(reader, writer)
        except ConnectionError:
            pass  # the channel gave up
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    channel = BrokerChannel(
        NETWORK, Endpoint("INTERNAL", "127.0.0.1", port), client_id="c", request_timeout_ms=2000
    )
    try:
        yield channel
    finally:
        channel.close()
        server.close()
        await asyncio.gather(*tasks)
        await asyncio.sleep(0)


async def read_request(reader: asyncio.StreamReader) -> tuple[int, int, int]:
    size = int.from_bytes(await reader.readexactly(4), "big")
    header, _ = decode_request_header(await reader.readexactly(size))
    return header.api_key, header.api_version, header.correlation_id


def reply(api_key: int, version: int, correlation_id: int, response: object) -> bytes:
    frame = encode_response_header(api_key, version, correlation_id) + encode(response, version)
    return len(frame).to_bytes(4, "big") + frame


def fetched(records: bytes) -> FetchResponse:
    row = PartitionData(partition_index=0, records=records)
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=bytes(16), partitions=[row])])


def test_replies_of_all_sizes_come_in_order() -> None:
    sizes = [0, 10, 65_000, 65_600, 1_000_000, 3]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for size in sizes:
            request = await read_request(reader)
            writer.write(reply(*request, fetched(bytes([size % 251]) * size)))
        await reader.read()

    async def run() -> None:
        async with listening(serve) as channel:
            answers = await asyncio.gather(
                *(channel.send(FetchRequest(topics=[]), 17) for _ in sizes)
            )
            found = [bytes(answer.responses[0].partitions[0].records) for answer in answers]
            assert found == [bytes([size % 251]) * size for size in sizes]

    asyncio.run(run())


def test_lost_connection_fails_what_is_under_way_and_the_next_send_connects_anew() -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        request = await read_request(reader)
        if connections > 1:
            writer.write(reply(*request, MetadataResponse(cluster_id="x")))
        await writer.drain()

    async def run() -> None:
        async with listening(serve) as channel:
            with pytest.raises(ChannelError, match="lost the connection"):
                await channel.send(MetadataRequest(topics=[]), 12)
            answer = await channel.send(MetadataRequest(topics=[]), 12)
            assert answer.cluster_id == "x"

    asyncio.run(run())


def test_broker_that_does_not_answer_is_given_up() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def run() -> None:
        async with listening(serve) as channel:
            channel._timeout_s = 0.05
            with pytest.raises(ChannelError, match=r"did not answer within 0.05 s"):
                await channel.send(MetadataRequest(topics=[]), 12)

    asyncio.run(run())


def test_nonsense_is_an_error_of_the_channel() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"\0\0\0\7" + b"\xff" * 7)
        await reader.read()

    async def run() -> None:
        async with listening(serve) as channel:
            with pytest.raises(ChannelError, match="malformed"):
                await channel.send(MetadataRequest(topics=[]), 12)

    asyncio.run(run())


def test_nobody_listening_is_an_error_that_names_the_address() -> None:
    async def run() -> None:
        nobody = Endpoint("INTERNAL", "127.0.0.1", 1)
        channel = BrokerChannel(NETWORK, nobody, client_id="c", request_timeout_ms=500)
        with pytest.raises(ChannelError, match=r"127\.0\.0\.1:1"):
            await channel.send(MetadataRequest(topics=[]), 12)
        channel.close()
        with pytest.raises(ChannelError, match="closed"):
            await channel.send(MetadataRequest(topics=[]), 12)

    asyncio.run(run())


def test_channel_follows_a_broker_that_moved() -> None:
    def at(port: int) -> MetadataImage:
        endpoint = Endpoint("INTERNAL", "127.0.0.1", port)
        return MetadataImage().with_brokers({1: BrokerRegistration(1, (endpoint,))})

    image = at(1000)
    channels = BrokerChannels(
        NETWORK, lambda: image, "INTERNAL", client_id="c", request_timeout_ms=100
    )
    first = channels.channel(1)
    assert channels.channel(1) is first
    image = at(1001)
    assert channels.channel(1).endpoint.port == 1001
    image = MetadataImage()
    with pytest.raises(ChannelError, match="broker 1 has no listener INTERNAL"):
        channels.channel(1)


def test_sender_that_left_while_connecting_leaves_no_dead_connection_behind() -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections > 1:
            request = await read_request(reader)
            writer.write(reply(*request, MetadataResponse(cluster_id="x")))
            await writer.drain()
        elif connections == 1:
            await read_request(reader)

    async def run() -> None:
        async with listening(serve) as channel:
            first = asyncio.create_task(channel.send(MetadataRequest(topics=[]), 12))
            await asyncio.sleep(0)
            first.cancel()
            assert channel._connecting is not None
            await channel._connecting
            with pytest.raises(ChannelError, match="lost the connection"):
                await channel.send(MetadataRequest(topics=[]), 12)
            answer = await channel.send(MetadataRequest(topics=[]), 12)
            assert answer.cluster_id == "x"

    asyncio.run(run())


def test_reply_that_breaks_the_decoder_fails_its_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(*await read_request(reader), MetadataResponse(cluster_id="x")))
        await reader.read()

    def broken(*_: object) -> object:
        raise RecursionError("too deep")

    async def run() -> None:
        monkeypatch.setattr(connection, "decode", broken)
        async with listening(serve) as channel:
            with pytest.raises(ChannelError, match="malformed"):
                await asyncio.wait_for(channel.send(MetadataRequest(topics=[]), 12), 5)

    asyncio.run(run())


def test_memory_of_an_unfinished_reply_goes_with_its_connection() -> None:
    announced = 20_000_000

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, _, correlation_id = await read_request(reader)
        writer.write(announced.to_bytes(4, "big") + correlation_id.to_bytes(4, "big"))
        await writer.drain()

    async def main() -> None:
        async with listening(serve) as channel:
            before, _ = tracemalloc.get_traced_memory()
            with pytest.raises(ChannelError, match="closed by the other side"):
                await channel.send(MetadataRequest(topics=[]), 12)
            now, highest = tracemalloc.get_traced_memory()
            assert highest - before > announced
            assert now - before < announced // 10

    gc.disable()  # it would run after many such replies
    tracemalloc.start()
    try:
        asyncio.run(main())
    finally:
        tracemalloc.stop()
        gc.enable()
