"""Disks that fail under a running broker."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from server.broker import Broker
from server.config import BrokerConfig
from server.coordination.node_file import NodeFile
from server.coordination.store import StoreClosed
from server.log.file_layer import FileLayer, LogFile


def test_broker_stops_when_its_store_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "log.dirs": str(tmp_path),
        "broker.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
    }

    async def run() -> None:
        broker = Broker(BrokerConfig(settings))
        await broker.start()

        def full(*_: Any) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(NodeFile, "commit", full)
        for _ in range(2):
            # The first error comes from the commit, the second from the closed store.
            with pytest.raises(StoreClosed, match="disk is full"):
                await broker.opened.cluster.allocate_producer_ids(1)
        assert broker.failed is not None
        assert "disk is full" in str(await asyncio.wait_for(broker.failed, 1))
        await broker.stop()

    asyncio.run(run())


def test_a_failing_write_names_the_file(tmp_path: Path) -> None:
    class Full(FileLayer):
        def pwrite(self, *_: Any) -> int:  # type: ignore[override]
            raise OSError(28, "No space left on device")

    file = LogFile(Full(), str(tmp_path / "x.log"))
    with pytest.raises(OSError, match=r"No space left on device.*x\.log"):
        file.write_at(b"data", 0)
    file.close()
