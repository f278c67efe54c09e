"""One broker: the three phases of its start (`composition/`), and its stop from any of them."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from .clock import Clock, SystemClock
from .composition.opened import Opened, Seams, open_world
from .composition.rooms import Rooms, build_rooms
from .composition.serving import Serving, serve
from .config import BrokerConfig
from .executor import Executor
from .log.file_layer import FileLayer
from .metadata.endpoint import WILDCARDS
from .net.session import Session
from .net.sockets import SocketNetwork
from .workers import WorkerLimits

if TYPE_CHECKING:
    from .composition.console import BrokerConsole
    from .composition.metrics import BrokerMetrics
    from .coordination.store import Store
    from .http.listener import HttpListener
    from .net.network import Network
    from .net.tls import Tls
    from .watchdog import Watchdog

logger = logging.getLogger(__name__)

#: How long the start waits for the controller to send this broker the cluster's metadata.
FIRST_METADATA_S = 10.0


class Broker:
    """One broker, on the running event loop.

    Shape: each phase is None before it has begun. The seams are chosen only here.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        file_layer: FileLayer | None = None,
        store: Store | None = None,
        executor: Executor | None = None,
        network: Network | None = None,
    ) -> None:
        self.config = config
        executor = executor or Executor(
            limits=WorkerLimits(
                config.get_int("kwire.worker.max.ms") / 1000,
                config.get_int("kwire.worker.max.bytes"),
            )
        )
        clock = clock or SystemClock()
        #: The certificates of listeners with TLS; None without such listeners.
        self.tls = tls_of(config, executor, clock)
        self.seams = Seams(
            clock,
            file_layer or FileLayer(),
            executor,
            network or SocketNetwork(executor, self.tls),
            store,
        )
        self.opened: Opened | None = None
        self.rooms: Rooms | None = None
        self.serving: Serving | None = None
        #: Set to the reason when the broker cannot continue and must be stopped.
        self.failed: asyncio.Future[Exception] | None = None
        #: Measures the turns of the loop, if the process runs only this broker.
        self.watchdog: Watchdog | None = None
        #: Serves health and metrics, if an address is configured.
        self.http: HttpListener | None = None
        #: Pages about this broker, if they are enabled.
        self.console: BrokerConsole | None = None
        self._stopping = False
        self._cleanup = AsyncExitStack()

    async def start(self) -> None:
        """Start until clients can be served.

        Errors: as for `open_world`, and BrokerIdInUse.
        """
        config, cleanup = self.config, self._cleanup
        self.failed = asyncio.get_running_loop().create_future()
        metrics: BrokerMetrics | None = None
        if (endpoint := config.http_listener) is not None:
            from .composition.http import open_http

            self.http = http = open_http(
                config, endpoint, self.seams, cleanup, not_ready=lambda: self.not_ready
            )
            from .composition.metrics import BrokerMetrics

            metrics = BrokerMetrics(config, self.seams, self.watchdog)
            http.routes["/metrics"] = metrics.route
            if config.get_bool("kwire.console.enable"):
                from .composition.console import BrokerConsole

                self.console = BrokerConsole(config, self.seams)
                self.console.open(endpoint._replace(port=http.port), http.routes, cleanup)
        opened = self.opened = await open_world(
            config, self.seams, cleanup, fail=self._fail, directory_failed=self._directory_failed
        )
        rooms = self.rooms = build_rooms(
            config,
            opened,
            cleanup,
            fail=self._fail,
            observer=None if metrics is None else metrics.requests,
            telemetry=None if metrics is None else metrics.telemetry,
            console_address="" if self.console is None else self.console.address,
        )
        self.built(rooms)
        self.serving = await serve(
            config,
            opened,
            rooms,
            cleanup,
            make_session=Session if metrics is None else metrics.session_class,
        )
        if self.tls is not None:
            cleanup.push_async_callback(self.tls.close)
            self.tls.start()
        if metrics is not None:
            sources = metrics.begin(opened, rooms, self.serving, lambda: self._stopping)
            if self.console is not None:
                self.console.begin(opened, rooms, sources, self.address, lambda: self.not_ready)
        if not await rooms.controller.known(FIRST_METADATA_S):
            logger.warning(
                "this broker has not received the cluster's metadata from a controller yet"
            )

    def built(self, rooms: Rooms) -> None:
        """Called when the components are built and nothing is served yet; subclasses may change components."""

    @property
    def address(self) -> str:
        """HOST:PORT of the first listener, for a client on this machine."""
        assert self.opened is not None
        endpoint = self.opened.endpoints[0]
        if endpoint.host in WILDCARDS:
            endpoint = endpoint._replace(host="localhost")
        return endpoint.address

    async def stop(self) -> None:
        """Hand leaderships to other brokers, stop serving, flush everything, and mark the directories as clean.

        Shape: may be called at any point of the start, and after a failed start; it closes everything that was opened.
        """
        self._stopping = True
        try:
            if self._serves and self.rooms is not None and self.rooms.clients is not None:
                await self.rooms.clients.hand_over()
        finally:
            await self._cleanup.aclose()

    @property
    def not_ready(self) -> str | None:
        """The reason that clients cannot be served, in words; None if they can."""
        if self._stopping:
            return "the broker is stopping"
        if self.failed is not None and self.failed.done():
            return f"the broker cannot continue: {self.failed.result()}"
        if self.opened is None:
            return "the store and the log directories are being opened"
        if not self.opened.log_manager.is_open:
            return "the logs are being read, or recovered after an unclean stop"
        if self.rooms is None or not self.rooms.controller.knows_cluster:
            return "this broker has not received the cluster's metadata from a controller yet"
        if self.serving is None:
            return "the listeners are not open yet"
        return None

    @property
    def _serves(self) -> bool:
        return self.serving is not None and self.failed is not None and not self.failed.done()

    def _fail(self, reason: Exception) -> None:
        if self.failed is not None and not self.failed.done():
            self.failed.set_result(reason)

    def _directory_failed(self) -> None:
        # During the start, no report is needed, since the controller asks for all replicas anyway.
        if self._serves and self.rooms is not None:
            # Not within this call, because the code that met the error is still running.
            loop = asyncio.get_running_loop()
            loop.call_soon(self.rooms.replica_manager.directory_failed)
            self.rooms.controller.log_directory_failed()


def tls_of(config: BrokerConfig, executor: Executor, clock: Clock) -> Tls | None:
    """The state of listeners with TLS; its modules are not imported without such listeners."""
    if not any(endpoint.is_encrypted for endpoint in config.listeners):
        return None
    from .net.tls import Tls

    return Tls(config, executor, clock)
