"""Descriptors of deleted files, which would keep their disk space in use, thousands on a busy broker."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kwire.messages.delete_topics import DeleteTopicsRequest
from kwire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from server.broker import Broker
from server.config import BrokerConfig
from server.executor import Executor
from server.log.cleaner.task import CleanerTask
from server.metadata.topic_partition import TopicPartition

from .support.clock import ManualClock
from .support.replicas import UnsyncedFiles
from .support.socket_client import SocketClient
from .test_broker import connect, create, fetch, produce

MINUTE_MS = 60_000


class InThisProcess(Executor):
    """An executor whose worker process is this one, so that its descriptors are visible."""

    def separate(self, *, niceness: int) -> Executor:
        return self

    async def in_process(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)


def of_deleted_files(folder: Path) -> list[str]:
    """The targets of open descriptors in a folder whose files are deleted or about to be."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue
        if path.startswith(str(folder)) and (
            "(deleted)" in path or "delete" in path[len(str(folder)) :]
        ):
            found.append(path)
    return found


async def nothing_deleted_is_open(folder: Path) -> None:
    """Fail if a descriptor of a deleted file stays open.

    A thread reports a flush before it releases the segments' files; on a busy machine it may not run again in between
    for a while.
    """
    for _ in range(500):
        if not of_deleted_files(folder):
            return
        await asyncio.sleep(0.01)
    assert of_deleted_files(folder) == []


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="/proc says what a descriptor is of"
)
def test_hour_of_retention_compaction_and_topic_churn_leaves_no_descriptor_of_a_deleted_file(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    settings = {
        "log.dirs": str(tmp_path),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.index.interval.bytes": "1",
        "log.cleaner.enable": "false",  # the test runs one; the broker's own would interfere
        "log.cleaner.min.cleanable.ratio": "0.01",
        "log.retention.ms": str(10 * MINUTE_MS),
        "log.segment.delete.delay.ms": str(MINUTE_MS),
    }

    async def main() -> None:
        broker = Broker(BrokerConfig(settings), file_layer=UnsyncedFiles(), clock=clock)
        await broker.start()
        client = await connect(broker)
        cleaner = CleanerTask(broker.config, broker.opened.log_manager, InThisProcess(), clock)
        compactions = 0
        try:
            await create(client, "events", "cut", segment_bytes="600")
            await create(client, "table", segment_bytes="600", cleanup_policy="compact")
            for minute in range(60):
                name = f"churn-{minute}"
                await create(client, name, segment_bytes="600")
                for topic in ("events", "cut", "table", name):
                    await use(client, topic, minute)
                await client.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5)
                if minute % 10 == 9:
                    cut = broker.opened.log_manager.get(TopicPartition("cut", 0))
                    assert cut is not None
                    cut.truncate_to(cut.log_end_offset - 20, clock.now_ms())
                    cut.high_watermark = cut.log_end_offset
                clock.advance(MINUTE_MS)
                await broker.rooms.upkeep.flush_due()
                await broker.rooms.upkeep.retain()
                compactions += await cleaner.run_due()
                await broker.rooms.upkeep.run_deletes()
                await nothing_deleted_is_open(tmp_path)
            assert not cleaner.uncleanable
            assert compactions >= 50  # in most minutes
        finally:
            cleaner.close()
            await client.close()
            await broker.stop()

    asyncio.run(main())


async def use(client: SocketClient, topic: str, minute: int) -> None:
    """Write some segments, and look up offsets and times in the sealed ones."""
    for number in range(12):
        end = await produce(client, topic, b"v" * 100, key=b"%d" % (number % 5))
    for offset in range(max(end - 12, 0), end, 3):
        await fetch(client, topic, offset)
    partition = ListOffsetsPartition(partition_index=0, timestamp=0)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    await client.ask(request, 7)
