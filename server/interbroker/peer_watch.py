"""Detects that another broker's process is dead: its port refuses new connections.

ZooKeeper reports this only when the session ends, seconds later. A refusal counts as death only for a broker that
accepted connections before, since a starting broker is registered before it listens. A timeout, or an unreachable
network, says nothing about the broker. docs/decisions/0015-a-refused-connection.md describes what follows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..metadata.endpoint import Endpoint
    from ..metadata.image import MetadataImage
    from ..net.network import Network

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
#: The number of consecutive refusals that count as death, and the time between them.
REFUSALS = 2
REFUSED_AGAIN_S = 0.03
#: The time until the next attempt if an attempt was inconclusive, or the conclusion may have changed.
AGAIN_S = 0.25


class PeerWatch:
    """A connection to each other broker on which nothing is sent.

    Shape: `lost(broker_id)` and `found(broker_id)` are called alternately, `lost` first.
    """

    def __init__(
        self,
        broker_id: int,
        network: Network,
        metadata: Callable[[], MetadataImage],
        listener: str,
        lost: Callable[[int], None],
        found: Callable[[int], None],
    ) -> None:
        self._broker_id = broker_id
        self._network = network
        self._listener = listener
        self._lost = lost
        self._found = found
        self._watched: dict[int, tuple[Endpoint, asyncio.Task[None]]] = {}
        self._gone: set[int] = set()
        self._metadata = metadata
        self._watching = False

    def start(self) -> None:
        """Start to watch the current brokers."""
        self._watching = True
        self._follow(self._metadata())

    def on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        """Follow changes of the other brokers or their addresses."""
        if self._watching and after.brokers is not before.brokers:
            self._follow(after)

    def _follow(self, image: MetadataImage) -> None:
        """Watch exactly the current brokers, at their current addresses."""
        places: dict[int, Endpoint] = {}
        for broker_id, broker in image.brokers.items():
            endpoint = broker.endpoint(self._listener)
            if broker_id != self._broker_id and endpoint is not None:
                places[broker_id] = endpoint
        for broker_id, (place, task) in list(self._watched.items()):
            if places.get(broker_id) != place:
                task.cancel()
                del self._watched[broker_id]
                self._answers(broker_id)
        for broker_id in places.keys() - self._watched.keys():
            task = asyncio.get_running_loop().create_task(
                self._watch(broker_id, places[broker_id]), name=f"watch of broker {broker_id}"
            )
            self._watched[broker_id] = places[broker_id], task

    async def _watch(self, broker_id: int, endpoint: Endpoint) -> None:
        loop = asyncio.get_running_loop()
        accepted, refusals = False, 0
        while True:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    transport = await self._network.connect(endpoint)
            except ConnectionRefusedError:
                refusals += 1
                if accepted and refusals == REFUSALS and broker_id not in self._gone:
                    self._gone.add(broker_id)
                    self._lost(broker_id)
                await asyncio.sleep(REFUSED_AGAIN_S if refusals < REFUSALS else AGAIN_S)
                continue
            except OSError:  # includes TimeoutError
                refusals = 0
                await asyncio.sleep(AGAIN_S)
                continue
            accepted, refusals = True, 0
            self._answers(broker_id)
            since = loop.time()
            end = _End()
            transport.start(end)
            try:
                await end.reached
            finally:
                transport.close()
            if loop.time() - since < AGAIN_S:
                # Do not reconnect continuously to a peer that accepts and closes connections.
                await asyncio.sleep(AGAIN_S)

    def _answers(self, broker_id: int) -> None:
        if broker_id in self._gone:
            self._gone.discard(broker_id)
            self._found(broker_id)

    def close(self) -> None:
        """Stop watching."""
        self._watching = False
        for _, task in self._watched.values():
            task.cancel()
        self._watched.clear()


class _End:
    """Receives a connection to notice its end; ignores data on it."""

    def __init__(self) -> None:
        self.reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._buffer = bytearray(64)

    def get_buffer(self) -> memoryview:
        return memoryview(self._buffer)

    def received(self, count: int) -> None:
        return

    def drained(self) -> None:
        return

    def secured(self, principal: str) -> None:
        return

    def lost(self, error: OSError | None) -> None:
        if not self.reached.done():
            self.reached.set_result(None)
