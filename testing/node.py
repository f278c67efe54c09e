"""One broker of the product, built over the seams that a test commands."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kwire.server.broker import Broker
from kwire.server.config import BrokerConfig, ConfigError
from kwire.server.coordination.embedded import EmbeddedStore, EmbeddedTree
from kwire.server.coordination.paths import MalformedNode
from kwire.server.coordination.store import StoreClosed
from kwire.server.coordinator.group.consumer.deadlines import SESSION_DUE
from kwire.server.coordinator.group.consumer.group import ConsumerGroup
from kwire.server.coordinator.group.share.group import ShareGroup
from kwire.server.executor import Executor
from kwire.server.log.file_layer import FileLayer
from kwire.server.log.log_directory import LogDirectoryError
from kwire.server.log.meta_properties import CorruptMetaProperties

from .faults import DiskFault
from .handlers import WatchedHandlers
from .loop import OWNER, ControlledLoop, LoopClock
from .patched import FILES, are_files_replaced
from .real_time import time
from .settings import IN_CLUSTER, IN_PROCESS, with_defaults

if TYPE_CHECKING:
    from kwire.server.coordinator.group.consumer.machine import ConsumerGroups
    from kwire.server.coordinator.group.state import Group

    from .recorder import Recorder
    from .state import State

#: Errors that prevent a broker from starting: invalid settings and unusable data.
StartError = (
    ConfigError,
    CorruptMetaProperties,
    LogDirectoryError,
    MalformedNode,
    StoreClosed,
    NotADirectoryError,
)


class Node:
    """A broker on a controlled loop; everything is called on that loop.

    Shape: `directory` keeps its data, `tree` the metadata of its cluster; without them, the properties say where both are kept. With
    `as_zookeeper`, the tree stands for ZooKeeper, and several brokers may share it; without, the broker is a cluster of one.
    """

    def __init__(
        self,
        loop: ControlledLoop,
        clock: LoopClock,
        properties: Mapping[str, str],
        directory: Path | None,
        tree: EmbeddedTree | None,
        *,
        as_zookeeper: bool,
    ) -> None:
        self.files = NodeFiles(clock)
        self._loop = loop
        self._clock = clock
        self._tap: Any = None
        self._tree = tree
        given = with_defaults({**IN_PROCESS, **properties})
        if directory is not None:
            given["log.dirs"] = str(directory)
        self._config = BrokerConfig({**IN_CLUSTER, **given} if as_zookeeper else given)
        self.handlers = WatchedHandlers(clock.set_back_or_forward, self._config.node_id)
        self._transports: list[Any] = []
        self._acceptors: list[Any] = []
        self.broker: Broker | None = None

    async def start(self) -> None:
        """Start until clients can be served. Errors: as for the broker's own start."""
        OWNER.set(self)
        broker = self.broker = WatchedBroker(
            self._config,
            clock=self._clock,
            file_layer=self.files,
            store=None if self._tree is None else OwnedStore(self._tree, self),
            executor=InlineExecutor(self.files),
        )
        broker.watched = self.handlers
        self.handlers.session_of = self._session_of
        self._note_transports(broker.seams.network)
        try:
            await broker.start()
        except BaseException:
            await broker.stop()
            raise

    def _note_transports(self, network: Any) -> None:
        """Remember the connections and listeners, for a crash or a fork of this process."""
        accepted, connect, listen = network.accepted, network.connect, network.listen

        def note(transport: Any) -> Any:
            self._transports = [each for each in self._transports if not each.closed]
            self._transports.append(transport)
            return transport

        async def connected(endpoint: Any) -> Any:
            return note(await connect(endpoint))

        network.accepted = lambda sock, endpoint: note(accepted(sock, endpoint))
        network.connect = connected

        def listening(endpoint: Any, limits: Any) -> Any:
            self._acceptors.append(listen(endpoint, limits))
            return self._acceptors[-1]

        network.listen = listening

    def leave(self) -> None:
        """In a process that was forked: close the copies of sockets, so that the broker alone decides when they close."""
        for each in (*self._transports, *self._acceptors):
            if each._sock is not None:
                each._sock.close()

    async def stop(self) -> None:
        """Close all connections, and stop in an orderly way."""
        broker, self.broker = self.broker, None
        if broker is None:
            return
        if broker.serving is not None:
            for listener in broker.serving.listeners:
                for session in list(listener.sessions):
                    session.close("", None)
        await broker.stop()

    async def crash(self) -> None:
        """End the broker abruptly, as by SIGKILL.

        Its data stay; its session in the store ends.
        """
        broker, self.broker = self.broker, None
        if broker is None:
            return
        self.files.stopped = True
        self._loop.abandon(self)
        opened = broker.opened
        assert opened is not None
        for acceptor in opened.acceptors:
            acceptor.close()
        if broker.http is not None:
            await broker.http.close()
        for transport in self._transports:
            transport.close()
        self._transports = []
        broker.seams.executor.close()
        opened.log_manager.unlock()
        await opened.store.close()

    @property
    def address(self) -> str:
        """HOST:PORT of the first listener."""
        assert self.broker is not None
        address: str = self.broker.address
        return address

    def address_of(self, listener: str) -> str:
        """HOST:PORT of a listener."""
        assert self.broker is not None and self.broker.opened is not None
        [endpoint] = [each for each in self.broker.opened.endpoints if each.listener == listener]
        return str(endpoint.address)

    @property
    def image(self) -> Any:
        """The current metadata image."""
        assert self.broker is not None and self.broker.rooms is not None
        return self.broker.rooms.publisher.image

    @property
    def listeners(self) -> str:
        """The listeners with the ports that they have got, as the setting of this name."""
        assert self.broker is not None and self.broker.opened is not None
        return ",".join(
            f"{each.listener}://{each.address}" for each in self.broker.opened.endpoints
        )

    def taken_to(self, target: Path) -> State:
        """Copy its data to an empty directory, and return the rest of its state.

        Errors: OSError.
        """
        from .state import take

        assert self.broker is not None and self.broker.opened is not None
        opened = self.broker.opened
        return take(opened.log_manager, opened.store.tree, self._clock, target)

    def record(self, recorders: tuple[Recorder, ...]) -> None:
        """Pass requests and replies to exactly these recorders."""
        if self._tap is None and recorders:
            from .tap import Tap

            assert self.broker is not None and self.broker.serving is not None
            listeners = self.broker.serving.listeners
            self._tap = Tap(listeners, self.handlers, self._clock, lambda: self.image)
        if self._tap is not None:
            self._tap.record(recorders)

    def keep_members(self) -> None:
        """Let all members of groups have sent a heartbeat just now."""
        assert self.broker is not None and self.broker.rooms is not None
        now_ms = self._clock.now_ms()
        for _, shard in self.broker.rooms.group_coordinator.runtime.active():
            for group in shard.groups.values():
                if isinstance(group, ConsumerGroup):
                    keep_consumers(shard.consumer, group, now_ms)
                elif isinstance(group, ShareGroup):
                    shard.share.keep_members(group, now_ms)
                else:
                    keep_classic(group, now_ms)

    async def expire_session(self) -> None:
        """End its session on the tree of the cluster."""
        assert self.broker is not None and self.broker.opened is not None
        context = contextvars.copy_context()
        context.run(OWNER.set, self)
        task = self._loop.create_task(self.broker.opened.store.expire(), context=context)
        await task

    @property
    def broker_epoch(self) -> int:
        """The epoch of its registration."""
        assert self.broker is not None and self.broker.rooms is not None
        epoch: int = self.broker.rooms.controller.broker_epoch
        return epoch

    def _session_of(self, connection: Any) -> Any:
        if self.broker is not None and self.broker.serving is not None:
            for listener in self.broker.serving.listeners:
                for session in listener.sessions:
                    if session.info is connection:
                        return session
        return None


class OwnedStore(EmbeddedStore):
    """A broker's session on the tree of its cluster.

    Shape: work started by a watch belongs to the broker that set the watch, not to the one whose write fired it.
    """

    def __init__(self, tree: EmbeddedTree, owner: Node) -> None:
        super().__init__(tree)
        self._owner = owner
        self._own: dict[Any, Any] = {}

    def _owned(self, watch: Any) -> Any:
        if watch is None:
            return None
        if watch not in self._own:  # leaving the same watch twice is the same as once

            def fired(event: Any) -> None:
                if self._owner.broker is not None:
                    context = contextvars.copy_context()
                    context.run(OWNER.set, self._owner)
                    context.run(watch, event)

            self._own[watch] = fired
        return self._own[watch]

    async def get(self, path: str, watch: Any = None) -> Any:
        return await super().get(path, self._owned(watch))

    async def get_many(self, paths: Any, watch: Any = None) -> Any:
        return await super().get_many(paths, self._owned(watch))

    async def exists(self, path: str, watch: Any = None) -> Any:
        return await super().exists(path, self._owned(watch))

    async def children(self, path: str, watch: Any = None) -> Any:
        return await super().children(path, self._owned(watch))


async def new_tree(
    clock: LoopClock, *, file: Path | None = None, state: State | None = None
) -> EmbeddedTree:
    """The metadata of a cluster: those of a state, those in a file, which keeps them, or none yet. Errors: StoreClosed."""
    if state is not None:
        return EmbeddedTree(state.tree(), clock, None)
    return await EmbeddedTree.open(file, clock)


class WatchedBroker(Broker):
    """A broker whose handlers have others in front of them."""

    watched: WatchedHandlers

    def built(self, rooms: Any) -> None:
        """Take the handlers' places, before anything is served."""
        self.watched.stand_before(rooms.dispatcher.handlers.by_key)


class NodeFiles(FileLayer):
    """The files of the operating system, without waiting for the disk, and with faults.

    Shape: `rules` is replaced, never changed.
    """

    def __init__(self, clock: LoopClock) -> None:
        super().__init__()
        self._clock = clock
        self._paths: dict[int, str] = {}
        self._rules: tuple[DiskFault, ...] = ()
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether the broker has crashed. Its remaining tasks must not write to its files then."""
        return self._stopped

    @stopped.setter
    def stopped(self, stopped: bool) -> None:
        self._stopped = stopped
        self.pwrite, self.pread = self._pwrite, self._pread

    @property
    def rules(self) -> tuple[DiskFault, ...]:
        """The rules in force."""
        return self._rules

    @rules.setter
    def rules(self, rules: tuple[DiskFault, ...]) -> None:
        self._rules = rules
        if rules:
            self.pwrite, self.pread = self._pwrite, self._pread
        else:  # back to the plain system calls of the class
            self.__dict__.pop("pwrite", None)
            self.__dict__.pop("pread", None)

    def open_fd(self, path: str, flags: int) -> int:
        self._refuse(path)
        fd: int = super().open_fd(path, flags)
        self._paths[fd] = path
        return fd

    def fsync(self, fd: int) -> None:
        self._fail("fsync", fd)

    def _pwrite(self, fd: int, data: Any, position: int) -> int:
        self._fail("write", fd)
        return os.pwrite(fd, data, position)

    def _pread(self, fd: int, size: int, position: int) -> bytes:
        self._fail("read", fd)
        return os.pread(fd, size, position)

    def rename(self, source: str, target: str) -> None:
        self._refuse(source)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._refuse(path)
        super().unlink(path)

    def _refuse(self, path: str) -> None:
        if self._stopped:
            raise OSError(errno.EIO, "the broker has crashed", path)
        if are_files_replaced():
            raise OSError(errno.EIO, FILES, path)

    def _fail(self, operation: str, fd: int) -> None:
        path = self._paths.get(fd, "")
        self._refuse(path)
        for rule in self._rules:
            if rule.matches(operation, path) and rule.acts(self._clock.monotonic_ms()):
                if rule.delay_s:
                    time.sleep(rule.delay_s)
                if (failure := rule.failure(path)) is not None:
                    raise failure
                return


_CLEANING = threading.Lock()


class InlineExecutor(Executor):
    """Does the work of threads and processes immediately: tests write little, and starting threads would take longer.

    Shape: while rules make the disk slow, its work is done in threads, so that nothing else waits for it.
    """

    def __init__(self, files: NodeFiles, **options: Any) -> None:
        super().__init__(**options)
        self._files = files
        #: The state of log compaction between calls; in the product, it is in a separate process.
        self._cleaning: dict[int, Any] = {}

    def separate(self, *, niceness: int) -> InlineExecutor:
        return InlineExecutor(self._files)

    def bound_process(self, memory_bytes: int) -> None:
        """There is no process."""

    def in_thread(
        self, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> asyncio.Future[Any]:
        if any(rule.delay_s for rule in self._files.rules):
            threaded: asyncio.Future[Any] = super().in_thread(function, *args, **kwargs)
            return threaded
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            done.set_result(function(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it belongs to who waits
            done.set_exception(error)
        return done

    async def in_process(self, function: Callable[..., Any], *args: Any) -> Any:
        from kwire.server.log.cleaner import process as cleaner_process

        with _CLEANING:
            before, cleaner_process._sessions = cleaner_process._sessions, self._cleaning
            try:
                return function(*args)
            finally:
                cleaner_process._sessions = before

    async def in_worker(self, client: Any, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)


def keep_classic(group: Group, now_ms: int) -> None:
    """Restart the sessions of all members of a classic group."""
    for member in group.members.values():
        member.deadline_ms = max(member.deadline_ms, now_ms + member.session_timeout_ms)


def keep_consumers(machine: ConsumerGroups, group: ConsumerGroup, now_ms: int) -> None:
    """Restart the sessions of all members of a group of the consumer protocol (KIP-848)."""
    session_ms = machine.metadata.settings(group.group_id, machine.kind).session_timeout_ms
    for member in group.members.values():
        own_ms = session_ms if member.classic is None else member.classic.session_timeout_ms
        machine.deadlines.postpone(SESSION_DUE, group.group_id, member.member_id, now_ms + own_ms)
