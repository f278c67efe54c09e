"""Stores for the tests in this folder: the embedded one always, ZooKeeper if there is Java."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from server.coordination.embedded import EmbeddedStore, EmbeddedTree
from server.coordination.store import Store
from server.coordination.zookeeper import ZooKeeperStore
from tests.support.clock import ManualClock
from tests.support.zookeeper import ZooKeeperServer

from .zookeeper_server.serving import ServerThread

Body = Callable[..., Awaitable[None]]


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeperServer]:
    """One server for the whole run; each test has its own chroot."""
    server = ZooKeeperServer()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def served() -> Iterator[ServerThread]:
    """An embedded tree, served in ZooKeeper's protocol; each test has its own chroot."""
    with ServerThread() as server:
        yield server


class StoreMaker:
    """Opens sessions on a new tree, and ends them."""

    def __init__(self, kind: str, place: Any) -> None:
        self.kind = kind
        self.place = place
        self._open: list[Store] = []
        self._tree: EmbeddedTree | None = None

    async def session(self) -> Store:
        """Another session on the tree."""
        if self.kind == "embedded":
            if self._tree is None:
                self._tree = await EmbeddedTree.open(self.place, ManualClock())
            store: Store = self._tree.session()
        else:
            store = await ZooKeeperStore.connect(self.place, session_timeout_ms=30_000)
        self._open.append(store)
        return store

    async def expire(self, store: Store) -> None:
        """End a session on the server, and return when the store knows."""
        expired = asyncio.get_running_loop().create_future()
        store.on_session(
            lambda state: (
                expired.set_result(None)
                if state.value == "expired" and not expired.done()
                else None
            )
        )
        if isinstance(store, EmbeddedStore):
            await store.expire()
        else:
            await asyncio.to_thread(steal_session, store)
        await asyncio.wait_for(expired, 60)
        await asyncio.wait_for(store.connected(), 60)

    async def close(self) -> None:
        """End all sessions and close the tree."""
        for store in self._open:
            await store.close()
        if self._tree is not None:
            await self._tree.close()


def steal_session(store: Any) -> None:
    """End a ZooKeeper session by a second connection that takes it over."""
    from kazoo.client import KazooClient

    client = store._client
    thief = KazooClient(hosts=store_hosts(client), client_id=client.client_id)
    thief.start()
    thief.stop()
    thief.close()


def store_hosts(client: Any) -> str:
    """The connect string of a kazoo client."""
    return ",".join(f"{host}:{port}" for host, port in client.hosts)


CHROOTS = itertools.count()


@pytest.fixture(
    params=["embedded", "served", pytest.param("zookeeper", marks=pytest.mark.zookeeper)]
)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Body], None]:
    """Run an async test body with a `StoreMaker` on a new tree."""
    place: Any = tmp_path / "coordination.db"
    if request.param != "embedded":
        server: ZooKeeperServer | ServerThread = request.getfixturevalue(request.param)
        place = f"{server.connect}/test/{next(CHROOTS)}"

    def runner(body: Body) -> None:
        async def main() -> None:
            async with stores(request.param, place) as maker:
                await body(maker)

        asyncio.run(asyncio.wait_for(main(), 120))

    return runner


@asynccontextmanager
async def stores(kind: str, place: Any) -> AsyncIterator[StoreMaker]:
    """A `StoreMaker`, closed at the end."""
    maker = StoreMaker(kind, place)
    try:
        yield maker
    finally:
        await maker.close()
