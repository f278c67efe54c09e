"""Stand-ins for what appends wait for (worker process, transaction verifier), finished by the test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from server.log.validator import AppendError
from server.replication.append import Granted
from server.replication.partition import Partition


class HeldExecutor:
    """An executor whose work is done when the test asks for it."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[None]] = []

    async def in_worker(self, client: Any, function: Any, *args: Any) -> Any:
        future = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        await future
        return function(*args)


class HeldVerifier:
    """A verifier that answers when the test asks for it, `rounds` times for each batch."""

    def __init__(self, rounds: int = 1) -> None:
        self.asked: list[asyncio.Future[AppendError | Granted]] = []
        self._rounds = rounds

    def verify(
        self, partition: Partition, records: Any, granted: Granted | None = None
    ) -> AppendError | Awaitable[AppendError | Granted] | None:
        seen = 0 if granted is None else int(str(granted.guard))
        if seen == self._rounds:
            return None
        future: asyncio.Future[AppendError | Granted] = asyncio.get_running_loop().create_future()
        self.asked.append(future)
        return future

    def grant(self, index: int = -1, seen: int = 1) -> None:
        """Answer a question; `seen` is how often the batch has now been verified."""
        self.asked[index].set_result(Granted(seen))


class InThisProcess:
    """An executor whose worker is this process."""

    def __init__(self) -> None:
        self.calls = 0

    async def in_worker(self, client: Any, function: Any, *args: Any) -> Any:
        self.calls += 1
        return function(*args)
