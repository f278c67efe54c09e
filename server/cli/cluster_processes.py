"""Brokers as child processes, and their shared store: start, ready line, death, restart, stop."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from subprocess import SubprocessError
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..coordination import paths
from ..run import AGAIN_S, CHILD_OF, has_terminal, notify_manager, say_ready

if TYPE_CHECKING:
    from ..coordination.zookeeper_server.server import ServerSettings, ZooKeeperServer

logger = logging.getLogger(__name__)

READY = b"kwire ready "

#: The wait before the restart of a child: the first one, its maximum, and the lifetime that resets it. Each further
#: death doubles it.
FIRST_WAIT_S, LONGEST_WAIT_S, LIVED_S = 0.1, 30.0, 60.0


class ProcessPlan(Protocol):
    """The processes to run. Shape: `store` is None if `zookeeper` names an ensemble; `noun` is the word for a broker in
    messages.
    """

    @property
    def noun(self) -> str: ...
    @property
    def ids(self) -> range: ...
    @property
    def restarts(self) -> bool: ...
    @property
    def data_dir(self) -> Path: ...
    @property
    def zookeeper(self) -> str | None: ...
    @property
    def store(self) -> ServerSettings | None: ...
    @property
    def prefix_logs(self) -> bool: ...

    def command(self, broker_id: int, zookeeper: str, address: str | None) -> list[str]:
        """The command line of one broker; `address` is its previous address, None at the first start."""
        ...


def restart_wait_s(deaths: int) -> float:
    """The wait before a restart after this many deaths, each soon after the start."""
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(deaths - 1, 16))


class ClusterPlan(NamedTuple):
    """The processes to run.

    Shape: `port` is broker 0's port, 0 for free ports; `store` is None if `zookeeper` names an ensemble; `arguments`
    are for every `kwire serve`.
    """

    brokers: int
    host: str
    port: int
    data_dir: Path
    zookeeper: str | None
    store: ServerSettings | None
    arguments: tuple[str, ...]
    prefix_logs: bool
    noun: str = "broker"
    restarts: bool = False

    @property
    def ids(self) -> range:
        """The ids of the brokers."""
        return range(self.brokers)

    def command(self, broker_id: int, zookeeper: str, address: str | None = None) -> list[str]:
        """The command line of one broker."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = self.port + broker_id if self.port else 0
        return [
            *(sys.executable, "-m", package(), "serve", "--node-id", str(broker_id)),
            *("--listen", address or f"{host}:{port}"),
            *("--data-dir", str(self.data_dir / f"broker-{broker_id}")),
            *("--zookeeper", zookeeper),
            *self.arguments,
        ]


def package() -> str:
    """The package that `-m` runs: `server` in a checkout, `kwire.server` installed."""
    return __name__.rpartition(".cli.")[0]


def preparing(number: signal.Signals) -> Callable[[], None]:
    """A function for a child before it runs its program: the system sends it this signal when this process dies.

    It does so if it can. Ctrl-C at a terminal, and SIGHUP, also reach a child that does not listen yet. It ignores them:
    the first would print a traceback, the second, a request to reload, would end it; this process stops it if it has to.
    """
    set_option = None
    if sys.platform == "linux":
        import ctypes

        set_option = ctypes.CDLL(None).prctl
    on_parent_death = 1  # PR_SET_PDEATHSIG

    def prepare() -> None:
        for ignored in (signal.SIGINT, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)
        if set_option is not None:
            set_option(on_parent_death, number)

    return prepare


class BrokerChild:
    """One broker's process."""

    def __init__(
        self, noun: str, broker_id: int, process: asyncio.subprocess.Process, prefix: bool
    ) -> None:
        self.broker_id = broker_id
        self.name = f"{noun} {broker_id}"
        self.process = process
        loop = asyncio.get_running_loop()
        self.began = loop.time()
        #: The printed address; cancelled if the process ends without printing one.
        self.ready: asyncio.Future[str] = loop.create_future()
        self._tasks = [loop.create_task(self._read_output())]
        if prefix:
            self._tasks.append(loop.create_task(self._read_log()))
        self.ended = loop.create_task(self._wait())

    async def _read_output(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            if line.startswith(READY) and not self.ready.done():
                self.ready.set_result(line[len(READY) :].decode().strip())
            else:
                self._print(line)

    async def _read_log(self) -> None:
        assert self.process.stderr is not None
        rest = b""
        while data := await self.process.stderr.read(1 << 16):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._print(line + b"\n")
        if rest:
            self._print(rest + b"\n")

    def _print(self, line: bytes) -> None:
        # If nobody reads the log, or its disk is full, the line is lost: a broker whose lines are not read would stop.
        with suppress(OSError):
            sys.stderr.write(f"{self.name}: {line.decode(errors='replace')}")
            sys.stderr.flush()

    async def _wait(self) -> int:
        status = await self.process.wait()
        await asyncio.gather(*self._tasks)
        if not self.ready.done():
            self.ready.cancel()
        return status

    @property
    def is_ready(self) -> bool:
        """Whether the broker has printed its address."""
        return self.ready.done() and not self.ready.cancelled()

    def stop(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.process.returncode is None:
            # Its own method would take the exit status of one that has just ended, and the loop would not find it.
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    def epitaph(self) -> str:
        """The way in which the process ended, in words."""
        status = self.ended.result()
        how = (
            f"was killed by {signal.Signals(-status).name}"
            if status < 0
            else f"ended with status {status}"
        )
        return f"{self.name} (process {self.process.pid}) {how}"


class Processes:
    """The brokers, and the store if it belongs to this command."""

    def __init__(self, plan: ProcessPlan) -> None:
        self.plan = plan
        self.store: ZooKeeperServer | None = None
        self.children: dict[int, BrokerChild] = {}
        self.stopping = asyncio.Event()
        self.failed = False
        #: Whether all were ready once. A death before that stops the others; addresses are kept for restarts.
        self.started = False
        self._addresses: dict[int, str] = {}
        self._zookeeper = ""
        self._told_at = 0.0
        self._starts: set[asyncio.Task[None]] = set()

    def listen_to_signals(self) -> None:
        """Stop on SIGTERM, SIGINT and SIGHUP; kill the brokers on a second signal.

        Workers are a service: SIGHUP is passed on to them, unless it means that the terminal is gone.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._told, number)

    def _told(self, number: signal.Signals) -> None:
        now = asyncio.get_running_loop().time()
        if number == signal.SIGHUP and self.plan.restarts and not has_terminal():
            self._signal(number)
        elif not self.stopping.is_set():
            logger.info("%s: stopping", signal.Signals(number).name)
            notify_manager("STOPPING=1")
            self._told_at = now
            self.stopping.set()
        elif now - self._told_at >= AGAIN_S:
            logger.error("%s again: killing the brokers", signal.Signals(number).name)
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for child in self.children.values():
            child.stop(number)

    async def start_store(self) -> str:
        """Serve the store, if it belongs to this command; returns the connect string. Errors: StoreClosed, OSError."""
        if self.plan.store is None:
            assert self.plan.zookeeper is not None
            return self.plan.zookeeper
        from .zookeeper import NOTICE, address_of, open_server

        self.store = await open_server(self.plan.data_dir, self.plan.store)
        address = address_of(self.store)
        if not self.plan.restarts:  # only the workers may use their store
            logger.warning("%s", NOTICE)
            say_ready(f"kwire zookeeper ready {address}")
        return address

    async def start_brokers(self, zookeeper: str) -> None:
        """Start all brokers at once."""
        self._zookeeper = zookeeper
        for broker_id in self.plan.ids:
            await self._start(broker_id)

    async def _start(self, broker_id: int) -> None:
        if self.store is not None:
            # From a process that was killed; registering its broker would otherwise wait for a timeout.
            self.store.end_owner(paths.broker_path(broker_id))
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self.plan.command(broker_id, self._zookeeper, self._addresses.get(broker_id)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe if self.plan.prefix_logs else None,
            # Only this process reports to the service manager.
            env={name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
            | {CHILD_OF: self.plan.noun},
            # Without the store, which would also die, no broker stops cleanly: it would only wait for the store.
            preexec_fn=preparing(signal.SIGKILL if self.store else signal.SIGTERM),
        )
        self.children[broker_id] = BrokerChild(
            self.plan.noun, broker_id, process, self.plan.prefix_logs
        )

    async def run(self) -> None:
        """Report when all are ready and which ones die, until stopped; restart dead ones if the plan says so."""
        tasks = [asyncio.create_task(self._watch(broker_id)) for broker_id in self.children]
        tasks.append(asyncio.create_task(self._say_when_ready()))
        if self.store is not None:
            tasks.append(asyncio.create_task(self._watch_store(self.store)))
        await self.stopping.wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def _say_when_ready(self) -> None:
        await asyncio.wait([child.ready for child in self.children.values()])
        if not all(child.is_ready for child in self.children.values()):
            return
        self.started = True
        self._addresses = {number: child.ready.result() for number, child in self.children.items()}
        addresses = ",".join(self._addresses.values())
        say_ready(f"kwire ready {addresses}")
        notify_manager(f"READY=1\nSTATUS=serving {addresses}")

    async def _watch_store(self, store: ZooKeeperServer) -> None:
        await asyncio.wait([store.failed])
        logger.error("cannot continue: %s", store.failed.result())
        self._give_up()

    async def _watch(self, broker_id: int) -> None:
        """Wait for the child's death, and follow the plan, until the command is stopped."""
        deaths = 0
        while True:
            child = self.children[broker_id]
            await asyncio.wait([child.ended])
            if self.stopping.is_set():
                return  # it also received the signal
            if not self.started or not self.plan.restarts:
                self._mourn(child)
                return
            lived_s = asyncio.get_running_loop().time() - child.began
            deaths = 1 if lived_s >= LIVED_S else deaths + 1
            wait_s = restart_wait_s(deaths)
            logger.error("%s; it is restarted in %.1f s", child.epitaph(), wait_s)
            await asyncio.sleep(wait_s)
            while (error := await self._restart(broker_id)) is not None:
                deaths += 1
                wait_s = restart_wait_s(deaths)
                logger.error(
                    "%s cannot be started: %s; the next attempt is in %.1f s",
                    child.name,
                    error,
                    wait_s,
                )
                await asyncio.sleep(wait_s)

    async def _restart(self, broker_id: int) -> Exception | None:
        """Start a child again; returns why the system cannot start a process now."""
        start = asyncio.create_task(self._start(broker_id))
        self._starts.add(start)  # from now on, stopping the command also stops this child
        try:
            await asyncio.shield(start)
        except (OSError, SubprocessError) as error:
            return error
        finally:
            if start.done():
                self._starts.discard(start)
        return None

    def _mourn(self, child: BrokerChild) -> None:
        self.failed = True
        left = [other for other in self.children.values() if not other.ended.done()]
        if not self.started:
            logger.error("%s before the cluster was ready; stopping the others", child.epitaph())
            self._give_up()
        elif left:
            logger.error("%s; it is not restarted, %d still running", child.epitaph(), len(left))
            command = self.plan.command(child.broker_id, self._zookeeper, child.ready.result())
            logger.info("to restart it: kwire %s", shlex.join(command[command.index("serve") :]))
        else:
            logger.error("%s; no broker is left", child.epitaph())
            self._give_up()

    def _give_up(self) -> None:
        self.failed = True
        self.stopping.set()

    async def stop(self) -> None:
        """Stop the brokers, then the store."""
        if self._starts:
            await asyncio.wait(self._starts)
        alive = [child for child in self.children.values() if not child.ended.done()]
        for child in alive:
            child.stop(signal.SIGTERM)
        if alive:
            await asyncio.wait([child.ended for child in alive])
        for child in alive:
            # A process that is just starting cannot stop cleanly yet.
            if child.ended.result() not in (0, -signal.SIGTERM):
                self.failed = True
                logger.error("%s", child.epitaph())
        if self.store is not None:
            await self.store.close()


async def run_processes(plan: ProcessPlan) -> int:
    """Run brokers until stopped: 0, or 1 if any part failed permanently.

    Errors: StoreClosed, OSError if the store cannot be opened or served.
    """
    processes = Processes(plan)
    processes.listen_to_signals()
    zookeeper = await processes.start_store()
    try:
        await processes.start_brokers(zookeeper)
        await processes.run()
    finally:
        await processes.stop()
    logger.info("stopped")
    return int(processes.failed)
