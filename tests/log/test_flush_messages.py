"""flush.messages: a record is invisible until it is on the device; the loop is not blocked."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kwire.errors import ErrorCode
from server.broker import Broker
from server.config import BrokerConfig
from server.log.file_layer import FileLayer

from ..support.replicas import batch, values
from ..support.requests import produce_request
from ..support.socket_client import SocketClient
from ..test_broker import connect, create, fetch, metadata

Scenario = Callable[[Broker, SocketClient, "HeldDisk"], Awaitable[None]]


class HeldDisk(FileLayer):
    """A disk on which flushes of topic `a` wait, or fail, at the test's request."""

    def __init__(self) -> None:
        super().__init__()
        self.may = threading.Event()
        self.asked = threading.Event()
        self.failing = False

    def fsync(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if "/a-0/" in path and path.endswith(".log"):
            self.asked.set()
            assert self.may.wait(20)
            if self.failing:
                raise OSError(errno.EIO, "Input/output error", path)


def run(folder: Path, scenario: Scenario, **config: str) -> None:
    async def main() -> None:
        disk = HeldDisk()
        settings = {
            "log.dirs": str(folder),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "broker.id": "1",
            **config,
        }
        broker = Broker(BrokerConfig(settings), file_layer=disk)
        client = None
        try:
            await broker.start()
            client = await connect(broker)
            await asyncio.wait_for(scenario(broker, client, disk), 30)
        finally:
            disk.may.set()
            if client is not None:
                await client.close()
            await broker.stop()

    asyncio.run(main())


async def asked(disk: HeldDisk) -> None:
    """Wait until a flush has reached the disk."""
    await asyncio.to_thread(disk.asked.wait, 20)


@pytest.mark.parametrize("acks", [1, -1])
def test_producer_is_answered_and_consumers_read_after_the_flush(tmp_path: Path, acks: int) -> None:
    async def scenario(broker: Broker, client: SocketClient, disk: HeldDisk) -> None:
        other = await connect(broker)
        await create(client, "a", flush_messages="1")
        await client.send(produce_request(("a", 0, batch(b"v")), acks=acks), 9)
        await asked(disk)
        assert (await fetch(other, "a")).high_watermark == 0  # and the loop is not blocked
        disk.may.set()
        answer = await client.receive()
        assert answer.responses[0].partition_responses[0].error_code == 0
        log = broker.rooms.replica_manager.partitions["a", 0].log  # type: ignore[index]
        assert log.recovery_point == 1
        row = await fetch(other, "a")
        assert (row.high_watermark, values(row.records)) == (1, [b"v"])
        await other.close()

    run(tmp_path, scenario)


def test_waiting_fetch_is_woken_by_the_flush(tmp_path: Path) -> None:
    from ..handlers.fetches import fetch_request, rows

    async def scenario(broker: Broker, client: SocketClient, disk: HeldDisk) -> None:
        other = await connect(broker)
        await create(client, "a", flush_messages="1")
        await other.send(fetch_request(("a", 0, 0), max_wait_ms=20_000), 12)
        await client.send(produce_request(("a", 0, batch(b"v"))), 9)
        await asked(disk)
        disk.may.set()
        (row,) = rows(await other.receive()).values()
        assert values(row.records) == [b"v"]
        await other.close()

    run(tmp_path, scenario)


def test_only_every_so_many_records_wait(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: SocketClient, disk: HeldDisk) -> None:
        await create(client, "a", flush_messages="3")
        for _ in range(2):
            answer = await client.ask(produce_request(("a", 0, batch(b"v"))), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
        assert not disk.asked.is_set()
        await client.send(produce_request(("a", 0, batch(b"v"))), 9)
        await asked(disk)
        other = await connect(broker)
        assert (await fetch(other, "a")).high_watermark == 2
        await other.close()

    run(tmp_path, scenario, **{"log.flush.scheduler.interval.ms": "3600000"})


def test_failed_flush_is_answered_with_a_storage_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    second = tmp_path / "second"

    async def scenario(broker: Broker, client: SocketClient, disk: HeldDisk) -> None:
        await create(client, "filler")  # in the first directory, so that `a` is in the second
        await create(client, "a", flush_messages="1")
        assert (second / "a-0").exists()
        disk.failing = True
        disk.may.set()
        answer = await client.ask(produce_request(("a", 0, batch(b"v"))), 9)
        error = answer.responses[0].partition_responses[0].error_code
        assert error == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await metadata(client, "filler")).topics[0].error_code == 0
        assert caplog.text.count("is offline") == 1

    run(tmp_path, scenario, **{"log.dirs": f"{tmp_path / 'first'},{second}"})
