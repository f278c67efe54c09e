"""A broker that has done a little of everything, and its metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from kwire.codec import decode, encode
from kwire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.messages.offset_commit import (
    OffsetCommitResponse,
)
from kwire.records.builder import BatchBuilder
from server.broker import Broker
from server.config import BrokerConfig
from tests.http.test_health import get
from tests.support.requests import commit_request, produce_request

RECORDS = 30


class Series(NamedTuple):
    """One series of a scrape."""

    name: str
    labels: dict[str, str]
    value: float


def parse(text: str) -> list[Series]:
    """Read a scrape with prometheus_client's parser, which did not write it."""
    return [
        Series(sample.name, dict(sample.labels), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def value(series: list[Series], name: str, **labels: str) -> float:
    """The value of the series with exactly these labels."""
    (found,) = [each.value for each in series if each.name == name and each.labels == labels]
    return found


async def chunks(port: int, path: str = "/metrics") -> str:
    """The body of a chunked response."""
    status, body = await get(port, path)
    assert status == 200, body
    return "".join(_unchunked(body))


def _unchunked(body: str) -> Iterator[str]:
    data = body.encode()
    while data:
        size, _, rest = data.partition(b"\r\n")
        count = int(size, 16)
        yield rest[:count].decode()
        data = rest[count + 2 :]


class Client:
    """Sends requests to a broker, one at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, broker: Broker) -> Client:
        assert broker.serving is not None
        port = broker.serving.listeners[0].port
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, api_key: int, version: int, message: Any, *, flexible: bool) -> bytes:
        header = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\0\1c"
        body = header + (b"\0" if flexible else b"") + encode(message, version)
        self._writer.write(len(body).to_bytes(4, "big") + body)
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return (await self._reader.readexactly(size))[5 if flexible else 4 :]

    async def produce(self, topic: str, records: int = RECORDS, partition: int = 0) -> None:
        builder = BatchBuilder()
        for number in range(records):
            builder.append(1_700_000_000_000 + number, None, b"v" * 100)
        request = produce_request((topic, partition, builder.build()))
        await self.ask(0, 9, request, flexible=True)

    async def fetch(self, topic: str, partition: int = 0, offset: int = 0) -> None:
        rows = [
            FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        ]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[FetchTopic(topic=topic, partitions=rows)],
        )
        await self.ask(1, 12, request, flexible=True)

    async def commit(self, group: str, topic: str, offset: int) -> None:
        request = commit_request((topic, 0, offset), group_id=group)
        body = await self.ask(8, 7, request, flexible=False)
        answer = decode(OffsetCommitResponse, body, 7)
        assert [row.error_code for row in answer.topics[0].partitions] == [0]

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def broker_in(folder: Path, **config: str) -> Broker:
    settings = {
        "log.dirs": str(folder),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "kwire.http.listener": "127.0.0.1:0",
        "broker.id": "1",
        "num.partitions": "2",
        "offsets.topic.num.partitions": "2",
        "offsets.topic.replication.factor": "1",
        **config,
    }
    return Broker(BrokerConfig(settings))


async def busy(folder: Path) -> str:
    """Start a broker, use it, scrape it, stop it."""
    broker = broker_in(folder)
    await broker.start()
    try:
        assert broker.rooms is not None and broker.http is not None
        topics = broker.rooms.services.topics
        assert await topics.auto_create(["orders", "__consumer_offsets"]) == {}
        client = await Client.connect(broker)
        for _ in range(10):
            await client.produce("orders")
        await client.produce("unknown")
        await client.fetch("orders")
        await client.fetch("orders", offset=999)
        await client.commit("readers", "orders", 100)
        text = await chunks(broker.http.port)
        await client.close()
        return text
    finally:
        await broker.stop()
