"""Reads the states of share partitions from their coordinators.

Source: SharePartition.maybeInitialize.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from kwire.errors import ErrorCode

from ..coordinator.share_state.operations import READ_STATE
from ..coordinator.share_state.rows import UNINITIALIZED_START_OFFSET, ReadState
from ..log.time_search import Effort, TimeSearch
from ..net.log_limit import LineLimiter
from ..replication.offsets import CONSUMER, EARLIEST, LATEST, OffsetQuery, TimeSearchResult
from ..replication.offsets import fetch_offset as find_offset
from .led import Led, ShareRooms
from .partition import SharePartition
from .state_errors import told

logger = logging.getLogger(__name__)

#: The number of states that are read at once.
MAX_LOADING = 100
#: How much of a log a search by time may read in the loop before it is moved out of the loop, and how often it is
#: retried if the log changes.
EFFORT = {"headers": 500, "records": 1000, "bytes": 64 * 1024}
ATTEMPTS = 3

Loaded = SharePartition | ErrorCode


class Loading:
    """Reads states, a few at a time.

    Shape: `loaded` is called with each state, or with the reason why it is not available, unless the share partition is
    gone.
    """

    def __init__(self, rooms: ShareRooms, loaded: Callable[[Led, Loaded], None]) -> None:
        self._rooms = rooms
        self._lines = LineLimiter(logger, rooms.clock.monotonic_ms)
        self._loaded = loaded
        self._tasks: set[asyncio.Task[None]] = set()
        self._next: deque[Led] = deque()

    def add(self, led: Led) -> None:
        """Queue the state of a share partition for reading."""
        self._next.append(led)
        self._begin()

    def close(self) -> None:
        """Stop reading."""
        self._next.clear()
        for task in self._tasks:
            task.cancel()

    def _begin(self) -> None:
        while self._next and len(self._tasks) < MAX_LOADING:
            led = self._next.popleft()
            if not led.gone:
                task = asyncio.get_running_loop().create_task(self._load(led))
                self._tasks.add(task)
                task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            self._begin()

    async def _load(self, led: Led) -> None:
        loaded: Loaded
        try:
            loaded = await self._read(led)
        except Exception:
            logger.exception(
                "share partition %s of group %s cannot be loaded",
                led.partition.tp,
                led.key.group_id,
            )
            loaded = ErrorCode.UNKNOWN_SERVER_ERROR
        if not led.gone:
            self._loaded(led, loaded)

    async def _read(self, led: Led) -> Loaded:
        group_id, topic_id, number = led.key
        asked = ReadState(topic_id, number, led.leader_epoch)
        (row,) = await self._rooms.persister.ask(READ_STATE, group_id, [asked])
        if row.error_code:
            return told(self._lines, led, "read", row.error_code, row.error_message)
        start = row.start_offset
        if start == UNINITIALIZED_START_OFFSET:
            found = await self._first_offset(led)
            if isinstance(found, ErrorCode):
                return found
            start = found
        try:
            return SharePartition(row.state_epoch, start, row.state_batches)
        except ValueError as error:
            self._lines.log(
                logging.ERROR,
                "unusable",
                "the stored state of share group %.200s for %s cannot be used: %s",
                group_id,
                led.partition.tp,
                error,
            )
            return ErrorCode.UNKNOWN_SERVER_ERROR

    async def _first_offset(self, led: Led) -> int | ErrorCode:
        """The offset at which a group without a start offset begins.

        Source: startOffsetDuringInitialization.
        """
        reset = self._rooms.settings_of(led.key.group_id).offset_reset
        if isinstance(reset, int):
            timestamp = max(self._rooms.clock.now_ms() - reset, 0)
        else:
            timestamp = EARLIEST if reset == "earliest" else LATEST
        asked = OffsetQuery(timestamp, led.leader_epoch, CONSUMER, False)
        searched: TimeSearchResult | None = None
        for _ in range(ATTEMPTS):
            found = find_offset(led.partition, asked, Effort(**EFFORT), searched)
            if isinstance(found, ErrorCode):
                return found
            if not isinstance(found, TimeSearch):
                return found.offset if found.offset >= 0 else ErrorCode.OFFSET_NOT_AVAILABLE
            searched = None
            try:
                searched = TimeSearchResult(await self._rooms.search(found))
            except FileNotFoundError:
                pass  # the log has changed
        return ErrorCode.OFFSET_NOT_AVAILABLE
