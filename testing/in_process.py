"""The common parts of brokers in this process, single or in a cluster: a thread, and faults."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from . import folders
from .client.connections import LOOK_AGAIN_S
from .faults import DiskFault, Fault, Rule
from .helpers import Helpers
from .patched import refuse_sockets, refuse_threads
from .settings import refuse_unknown
from .thread import LoopThread

if TYPE_CHECKING:
    from .client.connections import Client
    from .clock import Clock
    from .node import Node
    from .recorder import Recorder


#: In a process that was forked: the parts of brokers that belong to the other process. They are never collected, because
#: some would then clean up what is still in use.
_LEFT: list[object] = []


class InProcess(Helpers, ABC):
    """Brokers on a thread of this process."""

    #: Whether the brokers' log is kept for the report of a failed test, and goes nowhere else.
    quiet = True

    def __init__(self, properties: Mapping[str, Any] | None) -> None:
        super().__init__()
        self._properties = {key: str(value) for key, value in (properties or {}).items()}
        self._thread: LoopThread | None = None
        #: The running brokers by their ids, and all directories to be removed.
        self._nodes: dict[int, Node] = {}
        self._folders: dict[int, Path] = {}
        self._rules: list[Rule] = []
        self._recorders: tuple[Recorder, ...] = ()
        self._changed = threading.Event()
        self._clock: Clock | None = None
        self.bootstrap_servers = ""

    @abstractmethod
    def start(self) -> Self:
        """Start; when this returns, clients can connect."""

    @abstractmethod
    def stop(self) -> None:
        """Stop, and remove temporary data; does nothing if nothing is running."""

    def _begin(self, start: Callable[[LoopThread], Coroutine[Any, Any, None]]) -> None:
        """Start a thread, and brokers on it."""
        if self._thread is not None:
            raise RuntimeError("this broker has already been started")
        if self.quiet:  # the log of others says it
            refuse_unknown(self._properties)
        refuse_threads()
        refuse_sockets()
        from .node import StartError

        self._is_copy = False
        thread = self._thread = LoopThread(quiet=self.quiet)
        try:
            thread.call(lambda: start(thread))
        except BaseException as error:
            self._end()
            if isinstance(error, StartError):
                raise ValueError(f"the broker cannot start: {error}") from None
            raise

    def _finish(self, *, orderly: bool) -> None:
        """Stop the brokers, or let them crash, which takes less time; warn of rules that were no use."""
        self._close_client()
        thread = self._thread
        if thread is not None:
            for rule in self._rules:
                rule.warn_if_unused()
            self._rules = []
            self._recorders = ()
            nodes, self._nodes = self._nodes, {}
            for node in nodes.values():
                thread.call(node.stop if orderly else node.crash)
            if nodes:
                thread.call(self._stopped)
        self._end()

    async def _stopped(self) -> None:
        """The brokers have stopped, but for their thread."""

    def _end(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()
        removed, self._folders = self._folders, {}
        for folder in removed.values():
            folders.remove(folder)

    def __enter__(self) -> Self:
        return self if self._thread is not None else self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._rules = []  # the test has failed: a warning would only distract
        self.stop()

    @property
    def clock(self) -> Clock:
        """The brokers' time, which a test commands."""
        if self._clock is None:
            raise RuntimeError("this broker is not running")
        return self._clock

    # -- faults

    def fault(self, api: str | None = None, **rule: Any) -> Fault:
        """Make the brokers fail on purpose from now on: the arguments are those of `Fault`.

        Shape: the rule stays until `remove()`, the end of a `with` block, `times` hits, or the end of the brokers. Errors: ValueError
        for an unknown name, TypeError for an unknown argument, both with the nearest known one.
        """
        fault = Fault.made(api=api, **rule)

        async def add() -> None:
            for node in self._nodes.values():
                fault.image = node.image
            self._put_in_force(fault)

        self._running().call(add)
        return fault

    def disk_fault(self, operation: str, **rule: Any) -> DiskFault:
        """Make the disk fail on purpose from now on: the arguments are those of `DiskFault`.

        Shape and errors: as for `fault`.
        """
        fault = DiskFault.made(operation=operation, **rule)

        async def add() -> None:
            self._put_in_force(fault)

        self._running().call(add)
        return fault

    @property
    def faults(self) -> tuple[Rule, ...]:
        """The rules in force."""
        return tuple(self._rules)

    def _put_in_force(self, rule: Rule) -> None:
        rule.added(self._running().clock.monotonic_ms(), self._remove)
        self._rules.append(rule)
        self._tell_rules()

    def _remove(self, rule: Rule) -> None:
        if rule in self._rules:
            self._rules.remove(rule)
        if self._thread is not None:

            async def remove() -> None:
                self._tell_rules()

            self._thread.call(remove)

    def _tell_rules(self) -> None:
        """Give the brokers the rules in force; on their loop."""
        for node in self._nodes.values():
            node.handlers.rules = tuple(each for each in self._rules if isinstance(each, Fault))
            node.files.rules = tuple(each for each in self._rules if isinstance(each, DiskFault))

    # -- recordings

    def record(self) -> Recorder:
        """Record every client request and every reply from now on.

        Shape: until `stop()`, the end of a `with` block, or the end of the brokers. Requests of the helpers, and those
        that brokers send to each other, are left out.
        """
        from .recorder import Recorder

        recorder = Recorder(self._stop_recording)

        async def start() -> None:
            self._recorders += (recorder,)
            self._tell_recorders()

        self._running().call(start)
        return recorder

    def _stop_recording(self, recorder: Recorder) -> None:
        if self._thread is None:
            return

        async def stop() -> None:
            self._recorders = tuple(each for each in self._recorders if each is not recorder)
            self._tell_recorders()

        self._thread.call(stop)

    def _tell_recorders(self) -> None:
        """Give the brokers the recorders; on their loop."""
        for node in self._nodes.values():
            node.record(self._recorders)

    @property
    def log(self) -> list[str]:
        """The last lines of the brokers' log."""
        return [] if self._thread is None else list(self._thread.log)

    @property
    def last_requests(self) -> list[str]:
        """The last requests of clients, the oldest first, with the fault that acted on each."""
        return sorted(line for node in self._nodes.values() for line in node.handlers.requests)

    def _running(self) -> LoopThread:
        if self._thread is None:
            where = (
                "; it runs in the process that this one was forked from" if self._is_copy else ""
            )
            raise RuntimeError(f"this broker is not running{where}")
        return self._thread

    def _connect(self) -> Client:
        if not self._is_copy:
            self._running()
        return super()._connect()

    def become_copy(self) -> None:
        super().become_copy()
        if self._thread is not None:
            _LEFT.append((self._thread, self._nodes))
            self._thread.leave()
            for node in self._nodes.values():
                node.leave()
        self._thread, self._nodes, self._folders, self._clock = None, {}, {}, None
        self._rules, self._recorders = [], ()

    def _wait_for_change(self) -> None:
        if self._is_copy:
            super()._wait_for_change()
            return
        self._running()  # another thread may have stopped it
        self._changed.clear()
        nodes = list(self._nodes.values())
        for node in nodes:
            node.handlers.on_request = self._changed.set
        self._changed.wait(LOOK_AGAIN_S)
        for node in nodes:
            node.handlers.on_request = None
