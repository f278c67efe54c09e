"""A broker in this process, for one test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from . import folders
from .clock import Clock
from .in_process import InProcess

if TYPE_CHECKING:
    from .node import Node
    from .thread import LoopThread


class Broker(InProcess):
    """A whole broker of its own, on a port of its own, with its own data, clock and faults.

        with Broker() as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    Shape: `properties` are Kafka's broker settings. It runs on a thread of this process and keeps its data in a temporary
    directory, which goes when it stops, or in `directory`, which stays. With `api` "3.9" it serves the versions of APIs that Apache Kafka
    3.9 serves, and acts like a broker of that release with ZooKeeper. Errors of `start`: ValueError for a setting that a broker
    would not start with, OSError.
    """

    clock: Clock

    def __init__(
        self,
        properties: Mapping[str, Any] | None = None,
        *,
        directory: Path | str | None = None,
        api: str = "4.3",
    ) -> None:
        super().__init__(properties)
        if api not in ("3.9", "4.3"):
            raise ValueError(f"api is '3.9' or '4.3', not {api!r}")
        self._api = api
        self._directory = None if directory is None else Path(directory)

    def start(self) -> Self:
        """Start; when this returns, clients can connect."""
        folder = self._directory or folders.new_directory("broker")
        folder.mkdir(parents=True, exist_ok=True)
        if self._directory is None:
            self._folders[1] = folder

        async def start(thread: LoopThread) -> None:
            node = await self._new_node(thread, folder)
            await node.start()
            self._nodes[1] = node

        self._begin(start)
        self.clock = Clock(self._running(), self._nodes[1].keep_members, self._changed.set)
        self.bootstrap_servers = self._nodes[1].address
        return self

    async def _new_node(self, thread: LoopThread, folder: Path) -> Node:
        from .node import Node, new_tree

        tree = None if self._api == "4.3" else await new_tree(thread.clock)
        return Node(thread.loop, thread.clock, self._properties, folder, tree)

    def stop(self) -> None:
        """Stop, and remove the data unless they have a directory of their own; harmless if it does not run."""
        self._finish(orderly=True)
