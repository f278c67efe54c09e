"""The share partitions that a broker leads, and the fetches that wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.share_fetch import PartitionData

from ..cause import cause
from ..log.time_search import Found, TimeSearch
from ..shares import NOBODY
from .acquisition import AcquireLimits
from .partition import SharePartition
from .sessions import PartitionKey
from .settings import ShareSettings

if TYPE_CHECKING:
    from ..clock import Clock
    from ..coordinator.share_state.persister import SharePersister
    from ..metadata.image import MetadataImage
    from ..replication.partition import Partition
    from ..replication.replica_manager import ReplicaManager
    from ..turns import Turns


class SharePartitionKey(NamedTuple):
    """The identity of a share partition.

    Shape: `topic_id` has 16 bytes.
    """

    group_id: str
    topic_id: bytes
    partition: int


class ShareFetchParams(NamedTuple):
    """The parameters of a ShareFetch, which apply to all its partitions.

    Shape: `account` is the client that memory is counted for. Unit: bytes and milliseconds.
    """

    member_id: str
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    limits: AcquireLimits
    account: Hashable = NOBODY


#: The answer to a fetch: a row for each partition that has records or an error.
Rows = dict[PartitionKey, PartitionData]


class Led:
    """A share partition whose partition this broker leads.

    Shape: `machine` is None until it is loaded; `gone` says that this object is no longer in use.
    """

    __slots__ = (
        "account",
        "gone",
        "held_bytes",
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

    def __init__(
        self, key: SharePartitionKey, partition: Partition, account: Hashable = NOBODY
    ) -> None:
        self.key = key
        #: The client that fetched it first, and the memory that is counted for it.
        self.account = account
        self.held_bytes = 0
        self.partition = partition
        self.leader_epoch = partition.state.leader_epoch
        self.machine: SharePartition | None = None
        self.gone = False
        self.waiting: dict[WaitingShareFetch, None] = {}
        #: Whether waiting fetches are being served, and whether records became available since each of them was
        #: checked.
        self.serving = self.unserved = False
        self.timer: asyncio.TimerHandle | None = None
        self.watch: Watch | None = None

    @property
    def row_key(self) -> PartitionKey:
        return self.key.topic_id, self.key.partition


class Watch:
    """Watches a partition for new records, as a fetch does, on behalf of all fetches of a share partition.

    Shape: like `FetchWaiter`; any record ends the wait.
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
        """More records can be read."""
        self.end()

    def end(self) -> None:
        """End the wait, because something has happened; safe to call twice."""
        woken, self._woken = self._woken, None
        self._partition.waiters.fetches.pop(self, None)
        if woken is not None:
            asyncio.get_running_loop().call_soon(woken)

    def cancel(self) -> None:
        """Stop watching."""
        self._woken = None
        self._partition.waiters.fetches.pop(self, None)


class WaitingShareFetch:
    """A fetch whose `future` completes with its rows.

    Shape: `errors` has the rows of partitions that cannot be fetched; `end` ends the wait if the answer is no longer
    wanted.
    """

    __slots__ = (
        "errors",
        "future",
        "group_id",
        "held",
        "late",
        "left",
        "owner",
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
        #: The client that waits, to which the work of answering belongs.
        self.owner = cause()
        self.held: list[Led] = []
        #: The number of share partitions that the fetch waits for.
        self.left = 0
        self.errors: Rows = {}
        self.future: asyncio.Future[Rows] | None = None
        self.timer: asyncio.TimerHandle | None = None
        #: Whether the wait has timed out, whether an attempt to answer is in progress, and whether another attempt is
        #: needed.
        self.late = self.trying = self.wanted = False

    @property
    def is_done(self) -> bool:
        return self.future is None or self.future.done()

    def answer(self, rows: Rows) -> bool:
        """Answer the fetch and stop waiting; False if the answer is no longer wanted."""
        self.leave()
        assert self.future is not None
        if self.future.done():
            return False
        self.future.set_result({**rows, **self.errors})
        return True

    def end(self) -> None:
        """Stop waiting, because the answer is no longer wanted."""
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
    """The parts of the broker that share partitions need.

    Shape: `settings_of` returns the settings of a group by its id; `search` runs a search by time outside the loop.
    """

    replicas: ReplicaManager
    metadata: Callable[[], MetadataImage]
    persister: SharePersister
    clock: Clock
    turns: Turns
    settings_of: Callable[[str], ShareSettings]
    search: Callable[[TimeSearch], Awaitable[Found | None]]


def empty_row(number: int) -> PartitionData:
    """The row of a partition of which nothing was acquired."""
    return PartitionData(partition_index=number, records=b"", acquired_records=[])


def error_row(number: int, error: ErrorCode) -> PartitionData:
    """The row of a partition that cannot be fetched."""
    return PartitionData(partition_index=number, error_code=error, records=b"", acquired_records=[])
