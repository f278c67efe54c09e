"""A broker of the simulated cluster: the real one, without sockets, files, threads or real time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import Any

from kwire.connection import RequestReceived
from server.broker import Broker
from server.config import BrokerConfig
from server.handlers.dispatch import RequestDispatcher
from server.metadata.image import BrokerRegistration
from server.net.connection_info import ConnectionInfo
from server.net.dispatcher import Close, Later
from server.net.limits import ConnectionQuotas
from tests.log.faults.disk import Disk, DiskFiles

from .loop import SimulatedClock, SimulatedExecutor
from .network import Network
from .tasks import OWNER, tasks_of
from .zookeeper import SimulatedStore

FOLDER = "/data"

logger = logging.getLogger(__name__)


class Ear:
    """In place of a listener: requests come from the network at once."""

    def __init__(self, node_id: int) -> None:
        self.host = f"broker{node_id}"
        self.port = 9092

    async def start(self) -> None: ...

    def stop_accepting(self) -> None: ...

    async def close(self, grace_s: float) -> None: ...


class Way:
    """To other brokers, or to one, for one purpose."""

    def __init__(self, broker: SimulatedBroker, stream: str, target: int | None = None) -> None:
        self._broker = broker
        self._stream = stream
        self._target = target

    async def send(self, *args: Any) -> Any:
        target, request, version = (self._target, *args) if self._target is not None else args
        broker = self._broker
        return await broker.network.send(
            broker.node_id,
            target,
            request,
            version,
            stream=self._stream,
            alive=lambda: not broker.dead,
        )

    def close(self) -> None: ...


class SimulatedBroker(Broker):
    """One life of a broker."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: SimulatedClock,
        files: DiskFiles,
        store: SimulatedStore,
        network: Network,
        life: int,
    ) -> None:
        super().__init__(
            config,
            clock=clock,
            file_layer=files,
            store=store,
            executor=SimulatedExecutor(),  # type: ignore[arg-type]
        )
        self.network = network
        self.life = life
        self.dead = False
        self._answered = 0

    def channels(self, purpose: str) -> Any:
        return Way(self, f"{self.node_id} {purpose}")

    def _build_rooms(self, cluster_id: str) -> None:
        super()._build_rooms(cluster_id)
        assert self.links is not None

        def controller_channel(broker: BrokerRegistration) -> Any:
            return Way(self, f"{self.node_id} controller", broker.id)

        self.links.controller_channel = controller_channel  # type: ignore[method-assign]

    def _bind(self) -> None:
        self.quotas = ConnectionQuotas(self._limits())
        self.dispatcher = RequestDispatcher(self.handlers, self.services, self.clock)
        self.listeners = [Ear(self.node_id)]  # type: ignore[list-item]
        self.network.places[self.node_id] = self

    def _mine(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function as this broker, whoever asks: the tasks it begins end with the broker."""
        owner = OWNER.set((self.node_id, self.life))
        try:
            return function(*args)
        finally:
            OWNER.reset(owner)

    async def answer(self, request: RequestReceived, sender: str) -> bytes | None:
        """Answer a request from the network."""
        self._answered += 1
        connection = ConnectionInfo(f"{self.node_id}-{self.life}-{sender}-{self._answered}")
        reply = self._mine(self.dispatcher.dispatch, request, connection)
        if isinstance(reply, Later):
            future = self._mine(asyncio.ensure_future, reply.awaitable)
            await asyncio.wait([future])
            reply = self._mine(self.dispatcher.complete, reply, future)
        if isinstance(reply, Close):
            return None
        frame = b"".join(
            bytes(part) if isinstance(part, bytes | bytearray | memoryview) else part.read()
            for part in reply
        )
        return frame[4:] or None


class SimulatedNode:
    """A machine: its disk and clock outlive the broker on it."""

    def __init__(
        self,
        node_id: int,
        rng: Random,
        network: Network,
        open_store: Callable[[int], SimulatedStore],
        settings: dict[str, str],
    ) -> None:
        self.id = node_id
        self.rng = rng
        self.network = network
        self.disk = Disk((FOLDER,))
        self.clock = SimulatedClock(asyncio.get_running_loop())
        self.broker: SimulatedBroker | None = None
        self.life = 0
        self.files: DiskFiles | None = None
        self._open_store = open_store
        self._settings = settings
        self._task: asyncio.Task[None] | None = None

    @property
    def is_up(self) -> bool:
        """Whether a broker runs, be it still starting."""
        return self.broker is not None

    def start(self) -> asyncio.Task[None]:
        """Begin another life."""
        assert self.broker is None
        self.life += 1
        config = BrokerConfig(
            {
                "broker.id": str(self.id),
                "zookeeper.connect": "simulated",
                "log.dirs": FOLDER,
                "log.cleaner.enable": "false",
                **self._settings,
            }
        )
        files = self.files = DiskFiles(self.disk, self.rng)
        files.now_ms = self.clock.now_ms()
        owner = OWNER.set((self.id, self.life))
        try:
            store = self._open_store(self.id)
            self.broker = SimulatedBroker(config, self.clock, files, store, self.network, self.life)
            self.broker.store = store  # type: ignore[attr-defined]
            self._task = asyncio.get_running_loop().create_task(self._run(self.broker))
        finally:
            OWNER.reset(owner)
        return self._task

    async def _run(self, broker: SimulatedBroker) -> None:
        try:
            await broker.start()
        except Exception as error:  # noqa: BLE001 - whatever it is, the process would end
            logger.info("broker %d does not start: %r", self.id, error)
            asyncio.get_running_loop().call_soon(self._end, broker)

    def _end(self, broker: SimulatedBroker) -> None:
        if self.broker is broker:
            self.kill()

    def kill(self, *, power: bool = False) -> None:
        """End the broker in the middle of whatever it does; with `power` what was not synced goes."""
        broker, self.broker = self.broker, None
        assert broker is not None and self.files is not None
        broker.dead = True
        self.files.stopped = True
        self.network.places.pop(self.id, None)
        broker.store.die()  # type: ignore[attr-defined]
        broker.executor.close()
        for task in tasks_of((self.id, self.life)):
            task.cancel()
        if power:
            self.disk.lose_power(self.rng)
        else:
            self.disk.drop_pages()

    async def stop(self) -> None:
        """Stop the broker as an operator does."""
        broker = self.broker
        assert broker is not None
        owner = OWNER.set((self.id, self.life))
        try:
            await asyncio.get_running_loop().create_task(broker.stop())
        finally:
            OWNER.reset(owner)
        broker.dead = True
        self.network.places.pop(self.id, None)
        self.broker = None
