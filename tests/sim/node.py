"""A machine of the simulated cluster: the broker on it is real, and its seams are simulated."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random

from server.broker import Broker
from server.config import BrokerConfig
from tests.log.faults.disk import Disk, DiskFiles

from .loop import SimulatedClock, SimulatedExecutor
from .network import Network
from .tasks import OWNER, tasks_of
from .zookeeper import SimulatedStore

FOLDER = "/data"

logger = logging.getLogger(__name__)


class SimulatedNode:
    """A machine, whose disk and clock outlive the broker on it."""

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
        self.broker: Broker | None = None
        self.store: SimulatedStore | None = None
        self.life = 0
        self.files: DiskFiles | None = None
        self._open_store = open_store
        self._settings = settings
        self._task: asyncio.Task[None] | None = None

    @property
    def is_up(self) -> bool:
        """Whether a broker is running or starting."""
        return self.broker is not None

    def start(self) -> asyncio.Task[None]:
        """Start the broker."""
        assert self.broker is None
        self.life += 1
        self.network.off.discard(self.id)
        config = BrokerConfig(
            {
                "broker.id": str(self.id),
                "zookeeper.connect": "simulated",
                "log.dirs": FOLDER,
                "listeners": f"PLAINTEXT://broker{self.id}:9092",
                **self._settings,
            }
        )
        files = self.files = DiskFiles(self.disk, self.rng)
        files.now_ms = self.clock.now_ms()
        owner = OWNER.set((self.id, self.life))
        try:
            self.store = self._open_store(self.id)
            self.broker = Broker(
                config,
                clock=self.clock,
                file_layer=files,
                store=self.store,
                executor=SimulatedExecutor(),
                network=self.network.host(self.id),
            )
            self._task = asyncio.get_running_loop().create_task(self._run(self.broker))
        finally:
            OWNER.reset(owner)
        return self._task

    async def _run(self, broker: Broker) -> None:
        try:
            await broker.start()
        except Exception as error:  # noqa: BLE001 - whatever it is, the process would end
            logger.info("broker %d does not start: %r", self.id, error)
            asyncio.get_running_loop().call_soon(self._end, broker)

    def _end(self, broker: Broker) -> None:
        if self.broker is broker:
            self.kill()

    def kill(self, *, power: bool = False) -> None:
        """Kill the broker while it is working; with `power`, unsynced data is lost."""
        broker, self.broker = self.broker, None
        assert broker is not None and self.files is not None and self.store is not None
        self.files.stopped = True
        self.files.close()
        self.network.kill((self.id, self.life), power=power)
        if power:
            self.network.off.add(self.id)
        self.store.die()
        broker.seams.executor.close()
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
        self.broker = None
