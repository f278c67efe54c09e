"""Brokers as child processes, and the store they share: start, ready line, death, stop."""

from __future__ import annotations

import asyncio
import logging
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..coordination import paths
from ..run import AGAIN_S, say_ready

if TYPE_CHECKING:
    from ..coordination.zookeeper_server.server import Settings, ZooKeeperServer

logger = logging.getLogger(__name__)

READY = b"kwire ready "


class ClusterPlan(NamedTuple):
    """What to run.

    Shape: `port` is broker 0's, 0 for free ones; `store` is None if `zookeeper` names an ensemble;
    `arguments` are for every `kwire serve`.
    """

    brokers: int
    host: str
    port: int
    data_dir: Path
    zookeeper: str | None
    store: Settings | None
    arguments: tuple[str, ...]
    prefix_logs: bool

    def command(self, broker_id: int, zookeeper: str) -> list[str]:
        """The command line of one broker."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = self.port + broker_id if self.port else 0
        python = (sys.executable, "-m", package())
        return [*python, *self.serve(broker_id, zookeeper, f"{host}:{port}")]

    def serve(self, broker_id: int, zookeeper: str, listen: str) -> list[str]:
        """The arguments with which `kwire` runs one broker."""
        return [
            *("serve", "--node-id", str(broker_id), "--listen", listen),
            *("--data-dir", str(self.data_dir / f"broker-{broker_id}")),
            *("--zookeeper", zookeeper),
            *self.arguments,
        ]


def package() -> str:
    """The package that `-m` runs: `server` in a checkout, `kwire.server` installed."""
    return __name__.rpartition(".cli.")[0]


def dying_with_parent() -> Callable[[], None] | None:
    """What makes a child stop when this process dies, if the system supports it."""
    if sys.platform != "linux":
        return None
    import ctypes

    set_option = ctypes.CDLL(None).prctl
    on_parent_death = 1  # PR_SET_PDEATHSIG

    def ask() -> None:
        set_option(on_parent_death, signal.SIGTERM)

    return ask


class BrokerChild:
    """One broker's process."""

    def __init__(self, broker_id: int, process: asyncio.subprocess.Process, prefix: bool) -> None:
        self.broker_id = broker_id
        self.process = process
        loop = asyncio.get_running_loop()
        #: The address it printed; cancelled if it ends without printing one.
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
        sys.stderr.write(f"broker {self.broker_id}: {line.decode(errors='replace')}")
        sys.stderr.flush()

    async def _wait(self) -> int:
        status = await self.process.wait()
        await asyncio.gather(*self._tasks)
        if not self.ready.done():
            self.ready.cancel()
        return status

    @property
    def is_ready(self) -> bool:
        """Whether it has printed its address."""
        return self.ready.done() and not self.ready.cancelled()

    def stop(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.process.returncode is None:
            self.process.send_signal(number)

    def epitaph(self) -> str:
        """How it ended."""
        status = self.ended.result()
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended: {status}"
        return f"broker {self.broker_id} (process {self.process.pid}) {how}"


class ClusterProcesses:
    """The brokers, and the store if it is ours."""

    def __init__(self, plan: ClusterPlan) -> None:
        self.plan = plan
        self.store: ZooKeeperServer | None = None
        self.children: list[BrokerChild] = []
        self.stopping = asyncio.Event()
        self._zookeeper = ""
        self._told_at = 0.0
        self.failed = False

    def listen_to_signals(self) -> None:
        """Stop on SIGTERM, SIGINT and SIGHUP; kill the brokers on a second one."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._told, number)

    def _told(self, number: signal.Signals) -> None:
        now = asyncio.get_running_loop().time()
        if not self.stopping.is_set():
            logger.info("%s: stopping", signal.Signals(number).name)
            self._told_at = now
            self.stopping.set()
        elif now - self._told_at >= AGAIN_S:
            logger.error("%s again: killing the brokers", signal.Signals(number).name)
            for child in self.children:
                child.stop(signal.SIGKILL)

    async def start_store(self) -> str:
        """Serve the store, if it is ours; returns the connect string. Errors: StoreClosed, OSError."""
        if self.plan.store is None:
            assert self.plan.zookeeper is not None
            return self.plan.zookeeper
        from .zookeeper import address_of, open_server

        self.store = await open_server(self.plan.data_dir, self.plan.store)
        for broker_id in range(self.plan.brokers):
            # From an earlier run that was killed: registering its broker would wait for a timeout.
            self.store.end_owner(paths.broker_path(broker_id))
        address = address_of(self.store)
        say_ready(f"kwire zookeeper ready {address}")
        return address

    async def start_brokers(self, zookeeper: str) -> None:
        """Start all brokers at once."""
        self._zookeeper = zookeeper
        dying = dying_with_parent()
        pipe = asyncio.subprocess.PIPE
        for broker_id in range(self.plan.brokers):
            process = await asyncio.create_subprocess_exec(
                *self.plan.command(broker_id, zookeeper),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe if self.plan.prefix_logs else None,
                preexec_fn=dying,
            )
            self.children.append(BrokerChild(broker_id, process, self.plan.prefix_logs))

    async def run(self) -> None:
        """Report when all are registered, and which ones die, until stopped."""
        told = asyncio.create_task(self.stopping.wait())
        waiting: set[asyncio.Future[Any]] = {told}
        waiting |= {child.ended for child in self.children}
        waiting |= {child.ready for child in self.children}
        if self.store is not None:
            waiting.add(self.store.failed)
        started = False
        while not self.stopping.is_set():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not started and all(child.is_ready for child in self.children):
                started = True
                addresses = ",".join(child.ready.result() for child in self.children)
                say_ready(f"kwire ready {addresses}")
            if self.store is not None and self.store.failed in done:
                logger.error("cannot continue: %s", self.store.failed.result())
                self._give_up()
            for child in self.children:
                if child.ended in done:
                    self._mourn(child, started)
        told.cancel()

    def _mourn(self, child: BrokerChild, started: bool) -> None:
        if self.stopping.is_set():
            return  # it received the signal, too
        self.failed = True
        left = [other for other in self.children if not other.ended.done()]
        if not started:
            logger.error("%s before the cluster was ready; stopping the others", child.epitaph())
            self._give_up()
        elif left:
            logger.error("%s; it is not restarted, %d still running", child.epitaph(), len(left))
            serve = self.plan.serve(child.broker_id, self._zookeeper, child.ready.result())
            logger.info("to restart it: kwire %s", shlex.join(serve))
        else:
            logger.error("%s; no broker is left", child.epitaph())
            self._give_up()

    def _give_up(self) -> None:
        self.failed = True
        self.stopping.set()

    async def stop(self) -> None:
        """Stop the brokers, and then the store."""
        alive = [child for child in self.children if not child.ended.done()]
        for child in alive:
            child.stop(signal.SIGTERM)
        if alive:
            await asyncio.wait([child.ended for child in alive])
        for child in alive:
            if child.ended.result() != 0:
                self.failed = True
                logger.error("%s", child.epitaph())
        if self.store is not None:
            await self.store.close()


async def run_cluster(plan: ClusterPlan) -> int:
    """Run a cluster until stopped: 0, or 1 if any part of it failed.

    Errors: StoreClosed, OSError if the store cannot be opened or served.
    """
    cluster = ClusterProcesses(plan)
    cluster.listen_to_signals()
    zookeeper = await cluster.start_store()
    try:
        await cluster.start_brokers(zookeeper)
        await cluster.run()
    finally:
        await cluster.stop()
    logger.info("stopped")
    return int(cluster.failed)
