"""A broker that is opening its logs can be stopped, and the next start finds everything unchanged."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from server.broker import Broker
from server.config import BrokerConfig
from server.log.file_layer import FileLayer

from .test_broker import connect, create, new_broker, produce


class HeldFiles(FileLayer):
    """A file layer in which listing the log of topic `a` takes long."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.go_on = threading.Event()

    def list_directory(self, path: str) -> dict[str, int]:
        if path.endswith("/a-0"):
            self.asked.set()
            assert self.go_on.wait(20)
        return super().list_directory(path)


async def leave_records(folder: Path, *topics: str) -> None:
    """A broker that was stopped cleanly, with a record in each topic."""
    broker = new_broker(folder)
    await broker.start()
    client = await connect(broker)
    await create(client, *topics)
    for topic in topics:
        await produce(client, topic, b"v")
    await client.close()
    await broker.stop()


def settings(folder: Path, **more: str) -> BrokerConfig:
    return BrokerConfig({"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0", **more})


def test_start_that_is_given_up_while_logs_are_opened_keeps_the_clean_stop(tmp_path: Path) -> None:
    async def main() -> None:
        await leave_records(tmp_path, "a", "b")
        layer = HeldFiles()
        broker = Broker(settings(tmp_path), file_layer=layer)
        starting = asyncio.ensure_future(broker.start())
        await asyncio.to_thread(layer.asked.wait, 20)
        starting.cancel()
        await asyncio.wait([starting])
        stopping = asyncio.ensure_future(broker.stop())
        await asyncio.sleep(0)
        assert not stopping.done()  # a thread still uses the files
        layer.go_on.set()
        await asyncio.wait_for(stopping, 20)
        assert (tmp_path / ".kafka_cleanshutdown").exists()

    asyncio.run(main())


@pytest.mark.parametrize("threads", ["1", "2"])
def test_killed_brokers_logs_are_recovered_however_many_processes_may_help(
    tmp_path: Path, threads: str
) -> None:
    async def main() -> None:
        await leave_records(tmp_path, "a", "b")
        (tmp_path / ".kafka_cleanshutdown").unlink()
        (tmp_path / "recovery-point-offset-checkpoint").unlink()
        broker = Broker(settings(tmp_path, **{"num.recovery.threads.per.data.dir": threads}))
        await broker.start()
        logs = {str(log.tp): log.log_end_offset for log in broker.opened.log_manager.logs()}
        assert (logs["a-0"], logs["b-0"]) == (1, 1)
        await broker.stop()
        assert (tmp_path / ".kafka_cleanshutdown").exists()

    asyncio.run(main())
