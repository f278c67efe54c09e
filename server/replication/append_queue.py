"""The queues of a partition's delayed appends: one per client, in order of arrival.

The order of different clients' batches is not guaranteed, so an expensive batch of one client does not delay the
others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Protocol

AppendQueues = dict[Hashable, deque["Turn"]]


class QueuedPartition(Protocol):
    """A partition; `append_queues` is None while nothing waits, and has no empty queue."""

    append_queues: AppendQueues | None


class Turn:
    """A place in the queue of a client's appends to a partition; `come` is done when all earlier turns have left.

    Every turn must be left, even if nothing was appended.
    """

    __slots__ = ("_client", "_partition", "come")

    def __init__(self, partition: QueuedPartition, client: Hashable) -> None:
        self.come: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._partition = partition
        self._client = client
        queues = partition.append_queues
        if queues is None:
            queues = partition.append_queues = {}
        queue = queues.get(client)
        if queue is None:
            queue = queues[client] = deque()
            self.come.set_result(None)
        queue.append(self)

    def leave(self) -> None:
        """Leave the queue; if this turn was at the front, the next one comes."""
        queues = self._partition.append_queues
        assert queues is not None
        queue = queues[self._client]
        queue.remove(self)
        if not queue:
            del queues[self._client]
            if not queues:
                self._partition.append_queues = None
        elif not queue[0].come.done():
            queue[0].come.set_result(None)
