"""The queue of a partition's appends that cannot be made at once, in order of arrival."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol


class Queued(Protocol):
    """A partition; `append_queue` is None while nothing waits."""

    append_queue: deque[Turn] | None


class Turn:
    """A place in the queue of a partition; `come` is done when all before it have left.

    Every turn must be left, even if nothing was appended.
    """

    __slots__ = ("_partition", "come")

    def __init__(self, partition: Queued) -> None:
        self.come: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._partition = partition
        queue = partition.append_queue
        if queue is None:
            queue = partition.append_queue = deque()
            self.come.set_result(None)
        queue.append(self)

    def leave(self) -> None:
        """Leave the queue; if this turn was at the front, the next one comes."""
        queue = self._partition.append_queue
        assert queue is not None
        queue.remove(self)
        if not queue:
            self._partition.append_queue = None
        elif not queue[0].come.done():
            queue[0].come.set_result(None)
