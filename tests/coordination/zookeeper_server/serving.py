"""A server in this process, on its own loop, for tests with blocking clients."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from server.clock import SystemClock
from server.coordination.zookeeper_server.machine import SessionTimeoutLimits
from server.coordination.zookeeper_server.server import ServerSettings, ZooKeeperServer
from server.coordination.zookeeper_server.words import WORDS

LIMITS = SessionTimeoutLimits(400, 60_000)


class ServerThread:
    """Serves a file, or memory; can be stopped and started again on the same port."""

    def __init__(
        self,
        path: Path | None = None,
        limits: SessionTimeoutLimits = LIMITS,
        words: frozenset[str] = frozenset(WORDS),
    ) -> None:
        self.path = path
        self.words = words
        self.limits = limits
        self.port = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.server: ZooKeeperServer | None = None

    @property
    def connect(self) -> str:
        """The connect string."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start to serve, and return when it does."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        settings = ServerSettings("127.0.0.1", self.port, self.limits, self.words)
        self.server = self.run(ZooKeeperServer.open(self.path, SystemClock(), settings))
        self.port = self.server.port

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine on the server's loop."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def stop(self) -> None:
        """Close everything; sessions are kept in the file."""
        if self.server is None or self._loop is None or self._thread is None:
            return
        self.run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        self.server = None

    async def _close(self) -> None:
        assert self.server is not None
        await self.server.close()
        await asyncio.sleep(0)  # for the transports' last calls
        await asyncio.sleep(0)

    def __enter__(self) -> ServerThread:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
