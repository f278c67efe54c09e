"""/metrics of a broker: a scrape is made in turns of the loop and sent as it is read, so its size does not matter."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from typing import TYPE_CHECKING

from ..cause import Own
from ..config import BrokerConfig
from ..http.messages import HttpRequest, HttpResponse, text
from ..metadata.image import MetadataImage
from ..metrics.exposition import CONTENT_TYPE, text_of, text_of_clients
from ..metrics.rates import Rates
from ..metrics.requests import FETCH, PRODUCE, RequestMetrics
from ..metrics.sessions import StoreSessions
from ..metrics.table import ROWS
from ..metrics.timed_session import TimedSession
from ..metrics.view import CounterSources, View, look
from .opened import Opened, Seams
from .rooms import Rooms
from .serving import Serving

if TYPE_CHECKING:
    from ..telemetry.receiver import Telemetry
    from ..watchdog import Watchdog

#: BrokerState of Apache Kafka.
RUNNING, SHUTTING_DOWN = 3, 7
#: The minimum number of characters in a piece of the response.
PIECE = 16 * 1024


class BrokerMetrics:
    """The metrics of one broker. Shape: there are no metrics before `begin`."""

    #: The sessions of a broker whose requests are observed.
    session_class = TimedSession

    def __init__(self, config: BrokerConfig, seams: Seams, watchdog: Watchdog | None) -> None:
        self._config = config
        self._seams = seams
        self._watchdog = watchdog
        self._sources: CounterSources | None = None
        self._image: Callable[[], MetadataImage] = MetadataImage
        self._stopping: Callable[[], bool] = bool
        #: Accepts the metrics that clients push.
        self.telemetry = telemetry_of(config)
        self.requests = RequestMetrics(
            seams.clock.monotonic_us, None if watchdog is None else watchdog.turn_began_us
        )

    def begin(
        self, opened: Opened, rooms: Rooms, serving: Serving, stopping: Callable[[], bool]
    ) -> CounterSources:
        """Start the metrics, since the broker now serves clients; returns their sources."""
        sessions = StoreSessions(opened.store)
        self._image, self._stopping = rooms.publisher.current, stopping
        services = rooms.services
        began_s = time.thread_time()
        self._sources = CounterSources(
            node_id=opened.node_id,
            cluster_id=opened.cluster_id,
            version=own_version(),
            config=self._config,
            requests=self.requests,
            replicas=rooms.replica_manager,
            logs=opened.log_manager,
            upkeep=rooms.upkeep,
            groups=rooms.group_coordinator,
            transactions=rooms.transaction_coordinator,
            fetch_sessions=services.fetch_sessions,
            controller=rooms.controller,
            listeners=serving.listeners,
            logins=serving.logins,
            quotas=services.quotas,
            turns=services.turns,
            watchdog=self._watchdog,
            sessions=sessions,
            rates=Rates(self._seams.clock.monotonic_ms()),
            telemetry=self.telemetry,
            busy_s=lambda: time.thread_time() - began_s,
        )
        return self._sources

    def route(self, request: HttpRequest) -> HttpResponse:
        """Answer a scrape. Concurrent ones, as many as there are connections, take turns, first by address."""
        if self._sources is None:
            return text(503, "the broker is starting; /readyz shows what it is waiting for")
        owner = Own("metrics", request.client_host)
        return HttpResponse(200, self._scrape(self._sources, owner), CONTENT_TYPE)

    async def _scrape(self, sources: CounterSources, owner: Own) -> AsyncIterator[bytes]:
        view = View(
            sources,
            SHUTTING_DOWN if self._stopping() else RUNNING,
            self._image(),
            self._seams.clock.now_ms(),
            self._seams.clock.monotonic_ms(),
            self._config.get_int("kwire.metrics.partition.limit"),
        )
        for api_key in (PRODUCE, FETCH):
            count = self.requests.apis[api_key].requests
            rate = sources.rates.per_second(api_key, view.steady_ms, count)
            self.requests.adapt(api_key, rate)
        for _ in look(view):
            await sources.turns.pause(owner)
        pieces: list[str] = []
        size = 0
        texts = text_of(ROWS, view)
        if sources.telemetry is not None:
            for _ in sources.telemetry.expire(view.steady_ms):
                await sources.turns.pause(owner)
            texts = chain(texts, text_of_clients(sources.telemetry.series))
        for piece in texts:
            pieces.append(piece)
            size += len(piece)
            if size >= PIECE:
                yield "".join(pieces).encode()
                pieces.clear()
                size = 0
            await sources.turns.pause(owner)
        yield "".join(pieces).encode()
        yield await self._process()

    async def _process(self) -> bytes:
        """The metrics of prometheus_client about the process and Python; importing it takes some 50 ms, in a thread."""
        return await self._seams.executor.in_thread(process_metrics)


def telemetry_of(config: BrokerConfig) -> Telemetry | None:
    """The receiver of metrics that clients push; None with ZooKeeper, as in 3.9, and without opentelemetry-proto."""
    from ..telemetry.otlp import can_decode

    if config.zookeeper_connect is not None or not can_decode():
        return None
    from ..telemetry.receiver import Telemetry

    return Telemetry(
        config.get_int("telemetry.max.bytes"), config.get_int("kwire.client.metrics.limit")
    )


def process_metrics() -> bytes:
    """Memory, CPU time, descriptors, and the garbage collector, without any state of the broker."""
    import prometheus_client

    return prometheus_client.generate_latest()


def own_version() -> str:
    """The version of the installed kwire."""
    try:
        return version("kwire")
    except PackageNotFoundError:  # a checkout that is not installed
        return "unknown"
