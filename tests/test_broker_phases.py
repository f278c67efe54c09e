"""A start that fails or is cancelled at any point leaves nothing behind once the broker is stopped."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from server.broker import Broker
from server.clock import SystemClock
from server.config import BrokerConfig
from server.coordination.cluster import ClusterStore
from server.coordination.embedded import EmbeddedTree
from server.handlers.ceilings import SHARE_GROUP_APIS
from server.log.file_layer import FileLayer
from server.log.log_manager import LogManager
from server.net.listener import Listener

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

#: The points at which a start may fail, in the order in which it reaches them.
POINTS = (
    "server.log.log_manager.LogManager.lock",
    "server.coordination.cluster.ClusterStore.ensure_paths",
    "server.coordination.cluster.ClusterStore.cluster_id",
    "server.log.log_manager.LogManager.claim",
    "server.composition.rooms.Controller",
    "server.composition.rooms.RequestDispatcher",
    "server.composition.serving.budget",
    "server.composition.serving.open_logs",
    "server.log.log_manager.LogManager.open_logs",
    "server.controller.controller.Controller.start",
    "server.log.log_manager.LogManager.load",
    "server.net.listener.Listener.start",
    "server.log.upkeep.LogUpkeep.start",
    "server.controller.controller.Controller.known",
)
#: Those of them that wait, so that a start can be cancelled there.
WAITS = (
    "server.coordination.cluster.ClusterStore.ensure_paths",
    "server.composition.serving.open_logs",
    "server.controller.controller.Controller.start",
    "server.interbroker.group_support.GroupSupport.learn",
    "server.controller.controller.Controller.known",
)


class Planned(Exception):
    """The planned failure."""


async def broker_in(folder: Path, *, alone: bool, **config: str) -> Broker:
    settings = {
        "log.dirs": f"{folder}/one,{folder}/two",
        "listeners": "ONE://127.0.0.1:0,TWO://localhost:0",
        "listener.security.protocol.map": "ONE:PLAINTEXT,TWO:PLAINTEXT",
        "inter.broker.listener.name": "ONE",
        **config,
    }
    if alone:
        return Broker(BrokerConfig(settings))
    tree = await EmbeddedTree.open(None, SystemClock())
    settings |= {"broker.id": "1", "zookeeper.connect": "given"}
    return Broker(BrokerConfig(settings), store=tree.session(5000))


class Before:
    """The state before: leftovers of other tests, of the kinds that are checked."""

    def __init__(self) -> None:
        self.descriptors = descriptors()
        self.threads = set(threading.enumerate())


def descriptors() -> dict[str, str]:
    """The open descriptors of the process."""
    gc.collect()
    found = {}
    for each in os.listdir("/proc/self/fd"):
        try:
            found[each] = os.readlink(f"/proc/self/fd/{each}")
        except FileNotFoundError:
            pass  # of the listing itself
    return found


async def check_nothing_is_left(folder: Path, before: Before) -> None:
    for _ in range(3):
        await asyncio.sleep(0)  # cancelled tasks end
    assert asyncio.all_tasks() == {asyncio.current_task()}
    for thread in set(threading.enumerate()) - before.threads:
        if "kwire" in thread.name:
            thread.join(2)  # it was asked to stop, and stops
            assert not thread.is_alive(), thread
    left = {
        each: path for each, path in descriptors().items() if before.descriptors.get(each) != path
    }
    assert left == {}
    manager = LogManager([f"{folder}/one", f"{folder}/two"], FileLayer())
    manager.lock()
    manager.unlock()


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine for at most half a minute, in one task."""

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await main

    asyncio.run(bounded())


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("point", POINTS)
def test_start_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, alone: bool
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise Planned

    async def main() -> None:
        broker = await broker_in(tmp_path, alone=alone)
        before = Before()
        monkeypatch.setattr(point, fail)
        with pytest.raises(Planned):
            await broker.start()
        monkeypatch.undo()
        await broker.stop()
        await check_nothing_is_left(tmp_path, before)

    run(main())


@pytest.mark.parametrize("point", WAITS)
def test_start_that_is_given_up_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    async def main() -> None:
        reached = asyncio.Event()

        async def wait(*_: object, **__: object) -> None:
            reached.set()
            await asyncio.get_running_loop().create_future()

        broker = await broker_in(tmp_path, alone=False)
        before = Before()
        monkeypatch.setattr(point, wait)
        starting = asyncio.create_task(broker.start())
        await reached.wait()
        starting.cancel()
        await asyncio.wait([starting])
        monkeypatch.undo()
        await broker.stop()
        await check_nothing_is_left(tmp_path, before)

    run(main())


def test_first_client_is_told_of_share_groups_in_a_cluster_of_kwire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that is told that an API is missing does not ask again on this connection."""

    async def main() -> None:
        broker = await broker_in(tmp_path, alone=False)
        store = broker.seams.store
        assert store is not None
        # Another broker is the controller, and has not sent any metadata yet.
        cluster = ClusterStore(store, SystemClock())
        await cluster.ensure_paths()
        assert await cluster.elect_controller(2) is not None
        monkeypatch.setattr("server.broker.FIRST_METADATA_S", 0.01)
        told: list[bool] = []
        start = Listener.start

        def started(listener: Listener) -> None:
            assert broker.rooms is not None
            ranges = broker.rooms.services.api_ranges
            told.append(set(SHARE_GROUP_APIS) <= ranges.keys())
            start(listener)

        monkeypatch.setattr(Listener, "start", started)
        await broker.start()
        await broker.stop()
        assert told == [True, True]

    run(main())


def test_address_that_is_taken_frees_the_one_before_it(tmp_path: Path) -> None:
    async def main() -> None:
        first = await broker_in(tmp_path / "first", alone=True)
        await first.start()
        assert first.serving is not None
        taken = first.serving.listeners[1].port
        before = descriptors()
        listeners = f"ONE://127.0.0.1:0,TWO://localhost:{taken}"
        second = await broker_in(tmp_path, alone=True, listeners=listeners)
        with pytest.raises(OSError, match=f"cannot listen on .*:{taken}"):
            await second.start()
        await second.stop()
        left = {each: path for each, path in descriptors().items() if before.get(each) != path}
        assert left == {}
        await first.stop()

    run(main())


def test_whole_life_leaves_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        for alone in (True, False):
            broker = await broker_in(tmp_path / str(alone), alone=alone)
            before = Before()
            await broker.start()
            await broker.stop()
            await broker.stop()  # stopping once more does nothing
            await check_nothing_is_left(tmp_path / str(alone), before)

    run(main())
