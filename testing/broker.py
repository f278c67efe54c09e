"""A broker in this process, for one test."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from . import folders
from .clock import Clock
from .in_process import InProcess

if TYPE_CHECKING:
    from .node import Node
    from .state import State
    from .thread import LoopThread


class Broker(InProcess):
    """A whole broker of its own, on a port of its own, with its own data, clock and faults.

        with Broker() as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    Shape: `properties` are Kafka's broker settings. It runs on a thread of this process and keeps its data in a temporary
    directory, which goes when it stops, or in `directory`, which stays, and with which another broker can go on. With `api` "3.9" it
    serves the versions of APIs that Apache Kafka 3.9 serves, and acts like a broker of that release with ZooKeeper. Errors of `start`:
    ValueError for a setting or a directory that a broker would not start with, OSError.
    """

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
        #: Whether its data stay when it stops.
        self.keeps_data = directory is not None
        #: A data directory of which it begins with a copy.
        self._source: Path | None = None
        #: Its initial data: a log directory, and the rest of the state.
        self._begins_with: tuple[Path, State] | None = None
        self._tree: Any = None
        self._forks: list[Broker] = []
        #: The listeners that it keeps from one start to the next.
        self._ports: dict[str, str] = {}

    @classmethod
    def from_directory(
        cls, path: Path | str, properties: Mapping[str, Any] | None = None, **options: Any
    ) -> Self:
        """A broker, not yet started, that begins with a copy of a data directory of Apache Kafka 3.9 or kwire.

        Shape: the directory itself is never written, and no broker may be running on it. The broker's id is that of the
        directory. A directory of Apache Kafka lacks the cluster's metadata: its topics get the settings of the broker,
        which keeps all records unless `properties` say otherwise, and a replica on this broker only. Errors of `start`:
        ValueError, which says what is wrong with the directory.
        """
        broker = cls(properties, **options)
        broker._source = Path(path)
        return broker

    def start(self) -> Self:
        """Start; when this returns, clients can connect."""
        self._begin(self._start)
        self._clock = Clock(
            self._running(), lambda: self._nodes[1].keep_members(), self._changed.set
        )
        self.bootstrap_servers = self._nodes[1].address
        return self

    async def _start(self, thread: LoopThread) -> None:
        from .node import new_tree

        file = state = None
        if self._begins_with is not None:
            folder, state = self._begins_with
            if not folder.exists():
                raise RuntimeError("a fork cannot be started again")
            self._folders[1] = folder
            if state.time is not None:
                thread.clock.take_up(state.time)
        elif self._directory is not None:
            folder = self._directory
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / METADATA
        else:
            folder = self._folders[1] = folders.new_directory("broker")
            if self._source is not None:
                state = self._taken(self._source, folder)
        self._tree = await new_tree(thread.clock, file=file, state=state)
        await self._start_node(thread, folder)

    def _taken(self, source: Path, target: Path) -> State:
        """Copy a data directory to an empty one; on the loop, to whose log the warnings go."""
        from .data_directory import take_directory

        taken = take_directory(source, target, self._properties)
        self._properties = {**taken.properties, **self._properties}
        return taken.state

    async def _start_node(self, thread: LoopThread, folder: Path) -> None:
        node = self._new_node(thread, folder)
        try:
            await node.start()
        except BaseException:
            await self._tree.close()
            raise
        self._nodes[1] = node

    def _new_node(self, thread: LoopThread, folder: Path) -> Node:
        from .node import Node

        return Node(
            thread.loop,
            thread.clock,
            self._properties | self._ports,
            folder,
            self._tree,
            as_zookeeper=self._api == "3.9",
        )

    def stop(self) -> None:
        """Stop the broker and its forks, and remove its data unless they have a directory of their own.

        Does nothing if it is not running.
        """
        forks, self._forks = self._forks, []
        for fork in forks:
            fork.stop()
        self._finish(orderly=self.keeps_data)

    async def _stopped(self) -> None:
        await self._tree.close()

    # -- the same state again

    def fork(self) -> Self:
        """Start another broker with a copy of this broker's present state and time.

        Shape: the copy has topics with their records and settings, groups and their offsets, transactions, producers,
        users and ACLs, as after a clean restart. It has neither faults and recordings nor connections: members of
        groups are removed when their session ends. The fork has its own address. It stops with this broker, or earlier.
        Errors: OSError, also if the disk of this broker has failed.
        """
        node, folder = self._node, folders.new_directory("fork")

        async def take() -> State:
            return node.taken_to(folder)

        try:
            state = self._running().call(take)
        except BaseException:
            folders.remove(folder)
            raise
        fork = self._like()
        fork._begins_with = (folder, state)
        fork.start()
        self._forks = [each for each in self._forks if each._thread is not None]
        self._forks.append(fork)
        return fork

    def _like(self) -> Self:
        """Another broker with the same settings but different ports, not yet started."""
        return type(self)(any_ports(self._properties), api=self._api)

    def snapshot(self, name: Path | str) -> Path:
        """Save this broker's present state in a directory for `restore` and `from_directory`; return its path.

        Shape: a plain name is a directory in `.kafka-snapshots` in the working directory; anything else is a path. An
        existing snapshot is replaced. Errors: ValueError if something else is there; OSError.
        """
        from .state import save, snapshot_path

        path = snapshot_path(name)
        node, folder = self._node, folders.new_directory("snapshot")

        async def take() -> State:
            return node.taken_to(folder)

        try:
            save(self._running().call(take), folder, path)
        finally:
            folders.remove(folder)
        return path

    def restore(self, name: Path | str) -> None:
        """Replace the broker's state with that of a snapshot; the address, time, faults and recordings stay.

        Shape: all connections are closed, as by a crash. Errors: ValueError, as for `from_directory`, before anything
        is changed.
        """
        from .node import new_tree
        from .state import snapshot_path

        thread = self._running()
        if self.keeps_data:
            raise ValueError(
                "a broker with a directory of its own cannot be restored; use Broker.from_directory"
            )
        folder = folders.new_directory("restored")

        async def take() -> State:
            return self._taken(snapshot_path(name), folder)

        try:
            state = thread.call(take)
        except BaseException:
            folders.remove(folder)
            raise
        self._close_client()

        async def swap() -> None:
            node = self._nodes.pop(1)
            self._ports = {"listeners": node.listeners}
            await node.crash()
            await self._tree.close()
            self._tree = await new_tree(thread.clock, state=state)
            await self._start_node(thread, folder)
            self._tell_rules()
            self._tell_recorders()

        before, self._folders[1] = self._folders[1], folder
        thread.call(swap)
        folders.remove(before)
        self._changed.set()

    @property
    def _node(self) -> Node:
        self._running()
        return self._nodes[1]


#: The file with the metadata in a directory that stays.
METADATA = "coordination.db"


def any_ports(properties: Mapping[str, str]) -> dict[str, str]:
    """Settings that select free ports."""
    listeners = properties.get("listeners")
    if listeners is None:
        return dict(properties)
    return {**properties, "listeners": re.sub(r":\d+(?=\s*(,|$))", ":0", listeners)}
