"""The share partitions that a broker leads, and the fetches that wait with them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.share_fetch import PartitionData

from ..log.time_search import Found, TimeSearch
from .partition import AcquireLimits, SharePartition
from .sessions import PartitionKey
from .settings import ShareSettings

if TYPE_CHECKING:
    from ..clock import Clock
    from ..coordinator.share_persister import SharePersister
    from ..metadata.image import MetadataImage
    from ..replication.partition import Partition
    from ..replication.replica_manager import ReplicaManager
    from ..turns import Turns


class SharePartitionKey(NamedTuple):
    """Which share partition. Shape: `topic_id` has 16 bytes."""

    group_id: str
    topic_id: bytes
    partition: int


class ShareFetchParams(NamedTuple):
    """What a ShareFetch asks of all its partitions. Unit: bytes and milliseconds."""

    member_id: str
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    limits: AcquireLimits


#: The answer to a fetch: a row for each partition of which there is anything to say.
Rows = dict[PartitionKey, PartitionData]


class Led:
    """A share partition of a partition that this broker leads.

    Shape: `machine` is None until it is loaded; `gone` says that it is no longer used.
    """

    __slots__ = (
        "gone",
        "key",
        "leader_epoch",
        "machine",
        "partition",
        "serving",
        "timer",
        "unserved",
        "waiting",
        "watch",
    )

    def __init__(self, key: SharePartitionKey, partition: Partition) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.state.leader_epoch
        self.machine: SharePartition | None = None
        self.gone = False
        self.waiting: dict[WaitingShareFetch, None] = {}
        #: Whether those that wait are being served, and whether something has come since each of them was looked at.
        self.serving = self.unserved = False
        self.timer: asyncio.TimerHandle | None = None
        self.watch: Watch | None = None

    @property
    def row_key(self) -> PartitionKey:
        return self.key.topic_id, self.key.partition


class Watch:
    """Waits with a partition for records, as a fetch does, for all fetches of a share partition.

    Shape: as `FetchWaiter`; any record ends the wait.
    """

    __slots__ = ("_partition", "_woken", "alone", "missing_bytes", "of_replica", "read_committed")

    def __init__(
        self, partition: Partition, offset: int, woken: Callable[[], None], *, read_committed: bool
    ) -> None:
        self.alone = False
        self.missing_bytes = 1
        self.of_replica = False
        self.read_committed = read_committed
        self._woken: Callable[[], None] | None = woken
        self._partition = partition
        partition.waiters.fetches[self] = offset

    def on_readable(self, size: int) -> None:
        """More can be read."""
        self.end()

    def end(self) -> None:
        """Something has happened; safe to call twice."""
        woken, self._woken = self._woken, None
        self._partition.waiters.fetches.pop(self, None)
        if woken is not None:
            asyncio.get_running_loop().call_soon(woken)

    def cancel(self) -> None:
        """Watch no more."""
        self._woken = None
        self._partition.waiters.fetches.pop(self, None)


class WaitingShareFetch:
    """A fetch that is answered when `future` is done, with its rows.

    Shape: `errors` has the rows of partitions that cannot be fetched; `end` ends the wait if nobody wants the answer.
    """

    __slots__ = (
        "errors",
        "future",
        "group_id",
        "held",
        "late",
        "left",
        "params",
        "settings",
        "timer",
        "trying",
        "wanted",
    )

    def __init__(self, group_id: str, params: ShareFetchParams, settings: ShareSettings) -> None:
        self.group_id = group_id
        self.params = params
        self.settings = settings
        self.held: list[Led] = []
        #: With how many share partitions it waits.
        self.left = 0
        self.errors: Rows = {}
        self.future: asyncio.Future[Rows] | None = None
        self.timer: asyncio.TimerHandle | None = None
        #: Whether its time is over, whether an attempt to answer it is under way, and whether another is wanted.
        self.late = self.trying = self.wanted = False

    @property
    def is_done(self) -> bool:
        return self.future is None or self.future.done()

    def answer(self, rows: Rows) -> bool:
        """Answer, and wait no more; False if nobody wants the answer."""
        self.leave()
        assert self.future is not None
        if self.future.done():
            return False
        self.future.set_result({**rows, **self.errors})
        return True

    def end(self) -> None:
        """Nobody wants the answer."""
        self.leave()
        if self.future is not None and not self.future.done():
            self.future.cancel()

    def leave(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        for led in self.held:
            led.waiting.pop(self, None)


@dataclass(frozen=True, slots=True)
class ShareRooms:
    """What share partitions need of the broker.

    Shape: `settings_of` has the settings of a group by its id; `search` carries out a search by time elsewhere.
    """

    replicas: ReplicaManager
    metadata: Callable[[], MetadataImage]
    persister: SharePersister
    clock: Clock
    turns: Turns
    settings_of: Callable[[str], ShareSettings]
    search: Callable[[TimeSearch], Awaitable[Found | None]]


def empty_row(number: int) -> PartitionData:
    """A partition of which nothing was acquired."""
    return PartitionData(partition_index=number, records=b"", acquired_records=[])


def error_row(number: int, error: ErrorCode) -> PartitionData:
    """A partition that cannot be fetched."""
    return PartitionData(partition_index=number, error_code=error, records=b"", acquired_records=[])
