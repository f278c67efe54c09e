"""A broker in this process, for one test."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from . import folders
from .client import LOOK_AGAIN_S, Helpers
from .clock import Clock
from .faults import DiskFault, Fault, Rule
from .thread import LoopThread

if TYPE_CHECKING:
    from .node import Node


class Broker(Helpers):
    """A whole broker of its own, on a port of its own, with its own data, clock and faults.

        with Broker() as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    Shape: `properties` are Kafka's broker settings. It runs on a thread of this process and keeps its data in a temporary
    directory, which goes when it stops, or in `directory`, which stays. Errors of `start`: ValueError for a setting that a broker
    would not start with, OSError.
    """

    def __init__(
        self, properties: Mapping[str, Any] | None = None, *, directory: Path | str | None = None
    ) -> None:
        super().__init__()
        self._properties = {key: str(value) for key, value in (properties or {}).items()}
        self._directory = None if directory is None else Path(directory)
        self._folder: Path | None = None
        self._thread: LoopThread | None = None
        self._node: Node | None = None
        self._rules: list[Rule] = []
        self._changed = threading.Event()
        self.bootstrap_servers = ""

    def start(self) -> Self:
        """Start; when this returns, clients can connect."""
        if self._thread is not None:
            raise RuntimeError("this broker has been started already")
        from .node import Node, StartError

        self._folder = self._directory or folders.new_directory("broker")
        self._folder.mkdir(parents=True, exist_ok=True)
        thread = self._thread = LoopThread()
        folder, properties = self._folder, self._properties

        async def start() -> Node:
            node = Node(thread.loop, thread.clock, properties, folder)
            await node.start()
            return node

        try:
            node = self._node = thread.call(start)
        except BaseException as error:
            self._end()
            if isinstance(error, StartError):
                raise ValueError(f"the broker does not start: {error}") from None
            raise
        self.clock = Clock(thread, node.keep_members, self._changed.set)
        self.bootstrap_servers = node.address
        return self

    def stop(self) -> None:
        """Stop, and remove the data unless they have a directory of their own; harmless if it does not run."""
        self._close_client()
        node, thread = self._node, self._thread
        if node is not None and thread is not None:
            self._node = None
            for rule in self._rules:
                rule.warn_if_unused()
            self._rules = []
            thread.call(node.stop)
        self._end()

    def _end(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()
        folder, self._folder = self._folder, None
        if folder is not None and self._directory is None:
            folders.remove(folder)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._rules = []  # the test has failed: a warning would only distract
        self.stop()

    # -- faults

    def fault(self, api: str | None = None, **rule: Any) -> Fault:
        """Make the broker fail on purpose from now on: the arguments are those of `Fault`.

        Shape: the rule stays until `remove()`, the end of a `with` block, `times` hits, or the end of the broker. Errors: ValueError for an
        unknown name, with the nearest known one; TypeError for an unknown argument.
        """
        fault = Fault(api=api, **rule)
        node, thread = self._running()

        async def add() -> None:
            fault.image = node.image
            fault.added(thread.clock.monotonic_ms(), self._remove)
            node.handlers.rules = (*node.handlers.rules, fault)

        thread.call(add)
        self._rules.append(fault)
        return fault

    def disk_fault(self, operation: str, **rule: Any) -> DiskFault:
        """Make the disk fail on purpose from now on: the arguments are those of `DiskFault`. Shape and errors: as for `fault`."""
        fault = DiskFault(operation=operation, **rule)
        node, thread = self._running()

        async def add() -> None:
            fault.added(thread.clock.monotonic_ms(), self._remove)
            node.files.rules = (*node.files.rules, fault)

        thread.call(add)
        self._rules.append(fault)
        return fault

    @property
    def faults(self) -> tuple[Rule, ...]:
        """The rules in force."""
        return tuple(self._rules)

    def _remove(self, rule: Rule) -> None:
        if rule in self._rules:
            self._rules.remove(rule)
        node = self._node
        if node is None or self._thread is None:
            return

        async def remove() -> None:
            node.handlers.rules = tuple(each for each in node.handlers.rules if each is not rule)
            node.files.rules = tuple(each for each in node.files.rules if each is not rule)

        self._thread.call(remove)

    # -- what has happened

    @property
    def log(self) -> list[str]:
        """The last lines of the broker's log."""
        return [] if self._thread is None else list(self._thread.log)

    @property
    def last_requests(self) -> list[str]:
        """The last requests of clients, the oldest first, with the fault that acted on each."""
        return [] if self._node is None else list(self._node.handlers.requests)

    def _running(self) -> tuple[Node, LoopThread]:
        if self._node is None or self._thread is None:
            raise RuntimeError("this broker does not run")
        return self._node, self._thread

    def _wait_for_change(self) -> None:
        node, _ = self._running()
        self._changed.clear()
        node.handlers.on_request = self._changed.set
        self._changed.wait(LOOK_AGAIN_S)
        if self._node is not None:
            self._node.handlers.on_request = None
