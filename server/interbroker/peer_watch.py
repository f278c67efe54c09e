"""Notices that another broker's process is gone: its connection ended, and its port refuses new ones.

ZooKeeper says so only when the session ends, seconds later. A refusal is taken for a death only of a broker that took
connections before, since one that starts is registered before it listens. A timeout, or a network that cannot be
reached, says nothing about the broker. docs/decisions/0015-a-refused-connection.md has what is done with it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..metadata.image import MetadataImage
    from ..metadata.publisher import MetadataPublisher

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
#: Refusals in a row that are believed, and the time between them.
REFUSALS = 2
REFUSED_AGAIN_S = 0.03
#: Until the next try where nothing can be concluded, or what was concluded may have changed.
AGAIN_S = 0.25


class PeerWatch:
    """A connection to each other broker on which nothing is sent.

    Shape: `lost(broker_id)` and `found(broker_id)` are called in turn, the first one first.
    """

    def __init__(
        self,
        broker_id: int,
        publisher: MetadataPublisher,
        listener: str,
        lost: Callable[[int], None],
        found: Callable[[int], None],
    ) -> None:
        self._broker_id = broker_id
        self._listener = listener
        self._lost = lost
        self._found = found
        self._watched: dict[int, tuple[tuple[str, int], asyncio.Task[None]]] = {}
        self._gone: set[int] = set()
        self._closed = False
        publisher.subscribe(self._on_image)
        self._follow(publisher.image)

    def _on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        if after.brokers is not before.brokers:
            self._follow(after)

    def _follow(self, image: MetadataImage) -> None:
        """Watch exactly the brokers there are, where they are."""
        if self._closed:
            return
        places: dict[int, tuple[str, int]] = {}
        for broker_id, broker in image.brokers.items():
            endpoint = broker.endpoint(self._listener)
            if broker_id != self._broker_id and endpoint is not None:
                places[broker_id] = (endpoint.host, endpoint.port)
        for broker_id, (place, task) in list(self._watched.items()):
            if places.get(broker_id) != place:
                task.cancel()
                del self._watched[broker_id]
                self._answers(broker_id)
        for broker_id in places.keys() - self._watched.keys():
            task = asyncio.get_running_loop().create_task(
                self._watch(broker_id, *places[broker_id]), name=f"watch of broker {broker_id}"
            )
            self._watched[broker_id] = places[broker_id], task

    async def _watch(self, broker_id: int, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        accepted, refusals = False, 0
        while True:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    reader, writer = await connect(host, port)
            except ConnectionRefusedError:
                refusals += 1
                if accepted and refusals == REFUSALS and broker_id not in self._gone:
                    self._gone.add(broker_id)
                    self._lost(broker_id)
                await asyncio.sleep(REFUSED_AGAIN_S if refusals < REFUSALS else AGAIN_S)
                continue
            except OSError:  # TimeoutError is one
                refusals = 0
                await asyncio.sleep(AGAIN_S)
                continue
            accepted, refusals = True, 0
            self._answers(broker_id)
            since = loop.time()
            try:
                while await reader.read(1):
                    pass
            except OSError:
                pass
            finally:
                writer.transport.abort()
            if loop.time() - since < AGAIN_S:
                # Whoever accepts and closes is not asked all the time.
                await asyncio.sleep(AGAIN_S)

    def _answers(self, broker_id: int) -> None:
        if broker_id in self._gone:
            self._gone.discard(broker_id)
            self._found(broker_id)

    def close(self) -> None:
        """Watch nobody any more."""
        self._closed = True
        for _, task in self._watched.values():
            task.cancel()
        self._watched.clear()


async def connect(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to one of a host's addresses.

    Errors: ConnectionRefusedError if every address refuses, another OSError if not; asyncio's own way to
    try several does not tell the two apart.
    """
    failed: OSError | None = None
    loop = asyncio.get_running_loop()
    for family, _, _, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            return await asyncio.open_connection(str(address[0]), port, family=family)
        except OSError as error:
            if failed is None or not isinstance(error, ConnectionRefusedError):
                failed = error
    raise failed or OSError(f"{host} has no address")
