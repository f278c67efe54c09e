"""A broker with a console, and an HTTP client for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from kwire.records.builder import BatchBuilder
from server.broker import Broker
from server.config import BrokerConfig
from server.handlers.local_client import LocalClient
from server.net.connection_info import ConnectionInfo
from tests.support.requests import produce_request


class Page(NamedTuple):
    """A response. Shape: header names are in lower case."""

    status: int
    headers: dict[str, str]
    text: str


class Browser:
    """Asks one console."""

    def __init__(self, broker: Broker) -> None:
        assert broker.http is not None
        self.broker = broker
        self.port = broker.http.port
        self.host = f"localhost:{self.port}"

    async def get(self, path: str, **headers: str) -> Page:
        return await self.request("GET", path, b"", headers)

    async def post(self, path: str, fields: Mapping[str, str], **headers: str) -> Page:
        sent = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Origin": f"http://{self.host}",
        }
        return await self.request("POST", path, urlencode(fields).encode(), sent | headers)

    async def request(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> Page:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        sent = {"Host": self.host, "Connection": "close"} | dict(headers)
        if body:
            sent["Content-Length"] = str(len(body))
        head = "".join(f"{name}: {value}\r\n" for name, value in sent.items() if value)
        writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        answer = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        top, _, text = answer.partition("\r\n\r\n")
        lines = top.split("\r\n")
        found = dict(line.split(": ", 1) for line in lines[1:])
        return Page(int(lines[0].split()[1]), {k.lower(): v for k, v in found.items()}, text)


@asynccontextmanager
async def console(folder: Path, **settings: str) -> AsyncIterator[Browser]:
    """A broker on free ports; the names of settings have `__` for dots."""
    config = {
        "log.dirs": str(folder),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "kwire.http.listener": "127.0.0.1:0",
        "kwire.console.enable": "true",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        **{name.replace("__", "."): value for name, value in settings.items()},
    }
    broker = Broker(BrokerConfig(config))
    await broker.start()
    try:
        yield Browser(broker)
    finally:
        await broker.stop()


async def create_topic(browser: Browser, name: str, partitions: int = 1, **configs: str) -> None:
    """Create a topic as a client would; the names of configs have `__` for dots."""
    from kwire.messages.create_topics import (
        CreatableTopic,
        CreatableTopicConfig,
        CreateTopicsRequest,
    )

    response = await local(browser).ask(
        CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    assignments=[],
                    configs=[
                        CreatableTopicConfig(name=key.replace("__", "."), value=value)
                        for key, value in configs.items()
                    ],
                )
            ],
            timeout_ms=30_000,
            validate_only=False,
        )
    )
    assert [topic.error_code for topic in response.topics] == [0]


async def produce(
    browser: Browser,
    topic: str,
    partition: int,
    records: Sequence[tuple[bytes | None, bytes | None]],
) -> int:
    """Append a batch of keys and values; return its base offset."""
    builder = BatchBuilder()
    for key, value in records:
        builder.append(1_700_000_000_000, key, value)
    batch = builder.build()

    response = await local(browser).ask(
        produce_request((topic, partition, batch), timeout_ms=30_000), 9
    )
    (row,) = response.responses[0].partition_responses
    assert row.error_code == 0
    return int(row.base_offset)


def local(browser: Browser) -> LocalClient:
    """Asks the broker as a super user does."""
    rooms, opened = browser.broker.rooms, browser.broker.opened
    assert rooms is not None and opened is not None
    info = ConnectionInfo("test", principal="User:test")
    return LocalClient(rooms.dispatcher, info, "test", opened.seams.clock)
