"""The broker of `kwire serve --control`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kwire.server.metadata.endpoint import WILDCARDS

from .broker import Broker, any_ports
from .client.connections import Client
from .words import ActionRefused

if TYPE_CHECKING:
    from .node import Node
    from .thread import LoopThread


logger = logging.getLogger("kwire.server.control")


class LocalClient(Client):
    """The helpers' connection to the one broker of this process, whatever address it tells others."""

    def ask(self, request: object, version: int, address: tuple[str, int] | None = None) -> Any:
        """Ask the broker."""
        return super().ask(request, version)


class ServedBroker(Broker):
    """A broker with all settings of `kwire serve`, whose log goes where that of a server goes.

    Shape: with `log.dirs` among the properties, data and metadata are kept there; else they are in a temporary directory. `failure` says why a
    server would have ended; this one goes on as far as it can, because most failures here are meant.
    """

    quiet = False

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(properties)
        self.keeps_data = bool({"log.dirs", "log.dir"} & set(properties))
        self.failure: str | None = None

    def start(self) -> Self:
        """Start; when this returns, clients can connect."""
        self.failure = None
        super().start()

        async def bound() -> None:
            broker = self._nodes[1].broker
            assert broker is not None and broker.opened is not None and broker.failed is not None
            broker.failed.add_done_callback(self._told)
            self._endpoints = broker.opened.endpoints

        self._running().call(bound)
        return self

    def _new_node(self, thread: LoopThread, folder: Path) -> Node:
        if not self.keeps_data:
            return super()._new_node(thread, folder)
        from .node import Node

        return Node(thread.loop, thread.clock, self._properties, None, None, as_zookeeper=False)

    def _like(self) -> Self:
        properties = any_ports(self._properties)
        # It has temporary data and ports of its own, not those that this broker advertises.
        for setting in ("log.dirs", "log.dir", "advertised.listeners"):
            properties.pop(setting, None)
        return type(self)(properties)

    def _told(self, failed: asyncio.Future[Exception]) -> None:
        if not failed.cancelled():
            self.failure = str(failed.result())
            logger.error("a server would end here: %s", self.failure)

    def empty(self) -> None:
        """Begin anew on the same ports, with nothing of what there was."""
        self._properties["listeners"] = ",".join(map(str, self._endpoints))
        self._rules = []  # those that have matched nothing are no use any more, and nobody would see a warning
        self.stop()
        self.start()

    def _connect(self) -> Client:
        for endpoint in self._endpoints:
            if not endpoint.is_encrypted and not endpoint.has_logins:
                host = "127.0.0.1" if endpoint.host in WILDCARDS else endpoint.host
                return LocalClient(endpoint._replace(host=host).address)
        raise ActionRefused("this needs a PLAINTEXT listener, and the broker has none")
