"""Runs the fetchers of a broker: one task for each leader that it follows. The I/O of following."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kwire.messages.fetch import FetchResponse
from kwire.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsResponse

from .fetcher import EARLIEST, LATEST, Fetcher, FetchLimits, Followed
from .replication_quota import ReplicationQuota

if TYPE_CHECKING:
    from ..clock import Clock
    from ..metadata.topic_partition import TopicPartition
    from .partition import Partition

logger = logging.getLogger(__name__)

#: The versions that a broker of Apache Kafka 3.9 uses with inter.broker.protocol.version 3.9.
FETCH_VERSION = 17
LIST_OFFSETS_VERSION = 9


class Peers(Protocol):
    """How other brokers are reached."""

    async def send(self, broker_id: int, request: object, version: int) -> object:
        """Return the response. Errors: OSError."""
        ...


class LeaderTask:
    """Fetches from one leader for as long as something is followed there."""

    def __init__(
        self,
        fetcher: Fetcher,
        peers: Peers,
        clock: Clock,
        broker_epoch: Callable[[], int],
    ) -> None:
        self.fetcher = fetcher
        self._peers = peers
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._wake = asyncio.Event()
        self._failing = False
        self.task = asyncio.get_running_loop().create_task(
            self._run(), name=f"fetcher of broker {fetcher.leader_id}"
        )

    def wake(self) -> None:
        """Tell the task that there is something new to ask for."""
        self._wake.set()

    async def _run(self) -> None:
        while True:
            try:
                await self._turn()
            except asyncio.CancelledError:
                raise
            except Exception:
                logger.exception("fetching from broker %d failed", self.fetcher.leader_id)
                self.fetcher.on_failure(self._clock.monotonic_ms())

    async def _turn(self) -> None:
        fetcher = self.fetcher
        request = fetcher.next_request(self._clock.monotonic_ms(), self._broker_epoch())
        if request is None:
            await self._idle()
            return
        try:
            response = await self._peers.send(fetcher.leader_id, request, FETCH_VERSION)
        except OSError as error:
            if not self._failing:
                self._failing = True
                logger.warning("cannot fetch from broker %d: %s", fetcher.leader_id, error)
            fetcher.on_failure(self._clock.monotonic_ms())
            return
        if self._failing:
            self._failing = False
            logger.info("fetching from broker %d again", fetcher.leader_id)
        assert isinstance(response, FetchResponse)
        for followed in fetcher.on_response(response, self._clock.monotonic_ms()):
            await self._find_offset(followed)

    async def _idle(self) -> None:
        self._wake.clear()
        due_ms = self.fetcher.next_due_ms()
        timeout = None
        if due_ms is not None:
            timeout = max(due_ms - self._clock.monotonic_ms(), 1) / 1000
        try:
            async with asyncio.timeout(timeout):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _find_offset(self, followed: Followed) -> None:
        """The leader does not have the offset: find out where the leader's log begins and ends."""
        try:
            latest = await self._offset(followed, LATEST)
            if latest is None:
                return
            earliest = None
            if latest >= followed.partition.log.log_end_offset:
                earliest = await self._offset(followed, EARLIEST)
                if earliest is None:
                    return
        except OSError:
            return  # the partition is delayed and will be tried again
        self.fetcher.on_offsets(followed, latest, earliest, self._clock.monotonic_ms())

    async def _offset(self, followed: Followed, timestamp: int) -> int | None:
        request = self.fetcher.offsets_request(followed, timestamp)
        response = await self._peers.send(self.fetcher.leader_id, request, LIST_OFFSETS_VERSION)
        assert isinstance(response, ListOffsetsResponse)
        row: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
        return None if row.error_code else row.offset


class FetcherTasks:
    """The `Fetchers` of a broker's replica manager.

    Shape: `limits()` gives the current settings, `broker_epoch()` the epoch of this broker's
    registration; `quota` is shared by all leaders.
    """

    def __init__(
        self,
        broker_id: int,
        peers: Peers,
        clock: Clock,
        limits: Callable[[], FetchLimits],
        broker_epoch: Callable[[], int],
        quota: ReplicationQuota | None = None,
    ) -> None:
        self._broker_id = broker_id
        self._quota = quota or ReplicationQuota()
        self._peers = peers
        self._clock = clock
        self._limits = limits
        self._broker_epoch = broker_epoch
        self._tasks: dict[int, LeaderTask] = {}

    def follow(self, partition: Partition) -> None:
        """Copy from the partition's leader, if it has one, and from no other broker."""
        leader_id = partition.state.leader
        for other_id in list(self._tasks):
            if other_id != leader_id:
                self._stop_at(other_id, partition.tp)
        if leader_id < 0 or partition.log.topic_id is None:
            return
        task = self._tasks.get(leader_id)
        if task is None:
            fetcher = Fetcher(self._broker_id, leader_id, self._limits(), self._quota)
            task = self._tasks[leader_id] = LeaderTask(
                fetcher, self._peers, self._clock, self._broker_epoch
            )
        task.fetcher.follow(partition, self._clock.monotonic_ms())
        task.wake()

    def stop(self, tp: TopicPartition) -> None:
        """Stop copying this partition."""
        for leader_id in list(self._tasks):
            self._stop_at(leader_id, tp)

    def _stop_at(self, leader_id: int, tp: TopicPartition) -> None:
        task = self._tasks[leader_id]
        if tp in task.fetcher:
            task.fetcher.stop(tp)
            if not len(task.fetcher):
                del self._tasks[leader_id]
                task.task.cancel()

    async def close(self) -> None:
        """Stop following all leaders."""
        tasks = [each.task for each in self._tasks.values()]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
