"""A ZooKeeper that is always correct but not always reachable: sessions expire, answers are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TypeVar

from server.coordination.embedded import EmbeddedStore, EmbeddedTree
from server.coordination.store import (
    ANY_VERSION,
    ConnectionLost,
    EventKind,
    Op,
    OpResult,
    SessionExpired,
    SessionState,
    Stat,
    StoreClosed,
    Watch,
    WatchEvent,
)

from .network import Network
from .tasks import OWNER

T = TypeVar("T")

#: ZooKeeper's name on the network.
ZOOKEEPER = -1
RETRY_S = 0.05


class SimulatedStore:
    """One broker's session, in one life of the broker. Source of the contract: `store.Store`."""

    def __init__(
        self, tree: EmbeddedTree, network: Network, rng: Random, node_id: int, timeout_ms: int
    ) -> None:
        self._tree = tree
        self._inner: EmbeddedStore = tree.session(timeout_ms)
        self._network = network
        self._rng = rng
        self._node_id = node_id
        self._callbacks: list[Callable[[SessionState], None]] = []
        self._is_connected = True
        self._expired = False
        self._unheard_s = 0.0
        self.dead = False
        #: Watches by their callback; an unreachable broker is notified once it can be reached
        #: again.
        self._watches: dict[Watch, Watch] = {}
        self._missed: dict[tuple[Watch, str], None] = {}
        # This task is the server's as well as the broker's, so it continues when the broker is
        # killed.
        outside = OWNER.set(None)
        self._keeper = asyncio.get_running_loop().create_task(self._keep_session())
        OWNER.reset(outside)

    # The session

    async def _keep_session(self) -> None:
        """Heartbeats: on the server's side, which ends sessions, and on the client's, which gets a notification."""
        while True:
            await asyncio.sleep(RETRY_S)
            if not self.dead and self._reached:
                self._unheard_s = 0.0
                if self._expired:
                    self._begin_anew()
                elif not self._is_connected:
                    self._is_connected = True
                    self._tell(SessionState.CONNECTED)
                    self._fire_all()
                continue
            if self._is_connected and not self.dead:
                self._is_connected = False
                self._tell(SessionState.SUSPENDED)
            self._unheard_s += RETRY_S
            if self._unheard_s * 1000 >= self._inner.session_timeout_ms and not self._expired:
                await self.expire()
                if self.dead:
                    return

    @property
    def _reached(self) -> bool:
        return self._network.reaches(self._node_id, ZOOKEEPER)

    async def expire(self) -> None:
        """End the session on the server; the broker is notified when it can be reached."""
        self._expired = True
        await self._inner._delete_owned(self._inner.session_id)

    def _begin_anew(self) -> None:
        self._expired = False
        self._is_connected = True
        inner = self._inner
        inner._session_id = self._tree.next_session_id()
        inner._fenced = True
        self._fire_all()
        self._tell(SessionState.EXPIRED)
        self._tell(SessionState.CONNECTED)

    def _fire_all(self) -> None:
        missed, self._missed = self._missed, {}
        left = [(watch, event.path) for watch, event in self._tree.drop_watches(self._inner)]
        for watch, path in [*missed, *left]:
            watch(WatchEvent(EventKind.SESSION, path))

    def _left(self, watch: Watch | None) -> Watch | None:
        """The watch to leave in the tree, which notifies over the network."""
        if watch is None:
            return None
        known = self._watches.get(watch)
        if known is None:

            def fire(event: WatchEvent) -> None:
                if self.dead:
                    return
                if self._reached:
                    delay_s = self._rng.random() * 0.004
                    asyncio.get_running_loop().call_later(delay_s, self._deliver, watch, event)
                else:
                    self._missed[(fire, event.path)] = None

            known = self._watches[watch] = fire
        return known

    def _deliver(self, watch: Watch, event: WatchEvent) -> None:
        if not self.dead:
            watch(event)

    def _tell(self, state: SessionState) -> None:
        for callback in self._callbacks:
            callback(state)

    # The contract

    @property
    def session_id(self) -> int:
        return self._inner.session_id

    @property
    def session_timeout_ms(self) -> int:
        return self._inner.session_timeout_ms

    refused_logins = 0

    def on_session(self, callback: Callable[[SessionState], None]) -> None:
        self._callbacks.append(callback)

    def on_failure(self, callback: Callable[[StoreClosed], None]) -> None:
        """Ignore the callback: this store never fails permanently."""

    def adopt_session(self) -> None:
        self._inner.adopt_session()

    async def connected(self) -> None:
        while not self._is_connected:
            await asyncio.sleep(RETRY_S)

    async def _travel(self) -> None:
        await asyncio.sleep(self._rng.random() * 0.004)

    async def _read(self, ask: Callable[[], Awaitable[T]]) -> T:
        while True:
            await self._travel()
            if self._reached and not self._expired:
                answer = await ask()
                await self._travel()
                if self._reached:
                    return answer
            await asyncio.sleep(RETRY_S)

    async def _write(self, ask: Callable[[], Awaitable[T]]) -> T:
        await self._travel()
        if self._inner._fenced or self._expired:
            raise SessionExpired(message="the session is over")
        if not self._reached:
            raise ConnectionLost(message="not connected")
        answer = await ask()
        await self._travel()
        if not self._reached:
            raise ConnectionLost(message="the answer was lost")
        return answer

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> str:
        return await self._write(
            lambda: self._inner.create(path, data, ephemeral=ephemeral, sequential=sequential)
        )

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        return await self._read(lambda: self._inner.get(path, self._left(watch)))

    async def get_many(
        self, paths: Sequence[str], watch: Watch | None = None
    ) -> list[tuple[bytes | None, Stat] | None]:
        return await self._read(lambda: self._inner.get_many(paths, self._left(watch)))

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return await self._read(lambda: self._inner.exists(path, self._left(watch)))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return sorted(await self._read(lambda: self._inner.children(path, self._left(watch))))

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        return await self._write(lambda: self._inner.set(path, data, version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._write(lambda: self._inner.delete(path, version))

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        return await self._write(lambda: self._inner.multi(ops))

    async def close(self) -> None:
        self._keeper.cancel()
        self.dead = True
        if not self._expired:
            await self.expire()

    def die(self) -> None:
        """End the process; the server does not know yet."""
        self.dead = True
        self._tree.drop_watches(self._inner)
