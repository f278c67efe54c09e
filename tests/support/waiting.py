"""What appends wait for, done when the test says so: the worker process, and the verifier of a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from server.log.validator import AppendError
from server.replication.append import Granted
from server.replication.partition import Partition


class HeldExecutor:
    """An executor whose work is done when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[None]] = []

    async def in_process(self, function: Any, *args: Any) -> Any:
        future = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        await future
        return function(*args)


class HeldVerifier:
    """A verifier whose coordinator answers when the test says so, `rounds` times for each batch."""

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
        """Answer a question: the batch has been verified so many times by now."""
        self.asked[index].set_result(Granted(seen))
