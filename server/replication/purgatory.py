"""Requests that wait for a partition: Fetch for more bytes, Produce for the high watermark,
DeleteRecords for the low watermark.

A waiting request holds a future and is registered with every partition that can end its wait. The
partition calls it when something is appended or committed there; nothing polls. A timer ends the
wait in any case. The loop that makes futures and timers is passed in. Source: DelayedFetch,
DelayedProduce, DelayedDeleteRecords (the lists are their watcher lists, without the locks).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from kwire.errors import ErrorCode

from ..log.validator import AppendError, AppendInfo

if TYPE_CHECKING:
    import asyncio

    from ..log.log import Log
    from .isr import FollowerState


#: In a read, the limit that no segment reaches. Unit: bytes.
ANY_SIZE: Final = 0x7FFFFFFF

#: A fetch that ends leaves this many partitions at once, and more in steps of LEFT_IN_STEP.
LEFT_AT_ONCE: Final = 16
LEFT_IN_STEP: Final = 256

#: Runs steps in turns with other work.
InTurns = Callable[[Generator[None, None, None]], object]


def at_once(steps: Generator[None, None, None]) -> None:
    """Run all steps in this turn."""
    for _ in steps:
        pass


class Watched(Protocol):
    """The part of a partition that waiters use."""

    log: Log
    followers: dict[int, FollowerState]
    waiters: Waiters

    @property
    def low_watermark(self) -> int: ...

    def is_committed(self, required_offset: int) -> bool: ...


class WaitingReader(Protocol):
    """A reader that waits for records.

    Shape: like `FetchWaiter`, which is registered at partitions with the offset from which bytes are new to it.
    """

    alone: bool
    missing_bytes: int
    of_replica: bool
    read_committed: bool

    def on_readable(self, size: int) -> None: ...

    def end(self) -> None: ...


class FetchWaiter:
    """A Fetch that waits until `missing_bytes` more can be read, or until its time is over.

    Shape: each partition comes with the offset from which its bytes are new to the waiter. A waiter
    with `of_replica` is woken by appends, others when records are committed. `future` is done
    when enough bytes came, when time is over or when a partition's role has changed; whoever awaits
    it then reads again. Its result is whether another fetch may have been woken by the same records.
    One record may end many fetches of many partitions each: `in_turns` then runs the steps in which each
    leaves its partitions. Without it, a fetch leaves all of them at once.
    """

    __slots__ = (
        "_in_turns",
        "_partitions",
        "_timer",
        "alone",
        "future",
        "missing_bytes",
        "of_replica",
        "read_committed",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        partitions: Iterable[tuple[Watched, int]],
        *,
        missing_bytes: int,
        max_wait_ms: int,
        read_committed: bool,
        of_replica: bool = False,
        in_turns: InTurns | None = None,
    ) -> None:
        self.future: asyncio.Future[bool] = loop.create_future()
        self._in_turns = in_turns
        #: Whether no other fetch was waiting for the partition that woke it last.
        self.alone = False
        self.missing_bytes = missing_bytes
        self.read_committed = read_committed
        self.of_replica = of_replica
        self._partitions: list[Watched] = []
        for partition, new_offset in partitions:
            self._partitions.append(partition)
            partition.waiters.fetches[self] = new_offset
        self._timer = loop.call_later(max_wait_ms / 1000, self.end)

    def on_readable(self, size: int) -> None:
        """`size` more bytes can be read in one of the partitions."""
        self.missing_bytes -= size
        if self.missing_bytes <= 0:
            self.end()

    def end(self) -> None:
        """Stop waiting; safe to call twice."""
        self._timer.cancel()
        self.missing_bytes = 0  # partitions that it has not left yet need not read for it
        partitions, self._partitions = self._partitions, []
        if not self.future.done():
            self.future.set_result(not self.alone)
        if self._in_turns is not None and len(partitions) > LEFT_AT_ONCE:
            self._in_turns(self._leave_in_steps(partitions))
            return
        for partition in partitions:
            partition.waiters.fetches.pop(self, None)

    def _leave_in_steps(self, partitions: list[Watched]) -> Generator[None, None, None]:
        for first in range(0, len(partitions), LEFT_IN_STEP):
            for partition in partitions[first : first + LEFT_IN_STEP]:
                partition.waiters.fetches.pop(self, None)
            yield


class CommitWaiter:
    """An append that waits until its rows are appended and, as far as acks requires, committed.

    Shape: `results` has one entry per row; rows that fail get their error there: REQUEST_TIMED_OUT
    when the time is over (with None it never is), NOT_LEADER_OR_FOLLOWER when this broker no longer
    leads the partition. `future` returns `results` when no row is left to wait for. `appending`
    rows are appended after the waiter was made; the timeout starts with the last of them. Many may
    time out at one moment: `in_turns` runs the steps in which each does.
    """

    __slots__ = (
        "_acks",
        "_appending",
        "_in_turns",
        "_loop",
        "_missing",
        "_timeout_ms",
        "_timer",
        "future",
        "results",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        results: list[AppendInfo | AppendError],
        acks: int,
        *,
        timeout_ms: int | None,
        appending: int = 0,
        in_turns: InTurns = at_once,
    ) -> None:
        self.future: asyncio.Future[list[AppendInfo | AppendError]] = loop.create_future()
        self.results = results
        self._acks = acks
        self._appending = appending
        self._missing: dict[int, Watched] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timeout_ms = timeout_ms
        self._loop = loop
        self._in_turns = in_turns

    def require(self, row: int, partition: Watched) -> None:
        """Wait until a row's records are committed, if acks requires it."""
        result = self.results[row]
        if not isinstance(result, AppendInfo) or not self._waits_at(partition):
            return
        if not partition.is_committed(result.last_offset + 1):
            self._missing[row] = partition
            partition.waiters.commits[self, row] = result.last_offset + 1

    def _waits_at(self, partition: Watched) -> bool:
        # Even with acks=1, the append waits for flush.messages; with followers, the high watermark covers this.
        acks = self._acks
        return acks == -1 or (
            acks == 1 and partition.log.flush_state.awaited and not partition.followers
        )

    def start(self) -> None:
        """All rows appended at once are known: start the timeout, or end at once."""
        if self._appending:
            return
        if self._missing and self._timeout_ms is not None:
            delay_s = max(self._timeout_ms, 0) / 1000
            self._timer = self._loop.call_later(delay_s, self._time_out)
        self._end_if_done()

    def appended(self, row: int, partition: Watched, result: AppendInfo | AppendError) -> None:
        """Take the result of a row that was appended later."""
        self.results[row] = result
        self._appending -= 1
        if not self.future.done():  # otherwise the broker is stopping
            self.require(row, partition)
            self.start()

    def on_committed(self, row: int) -> None:
        """The high watermark has passed the row's last offset."""
        self._missing.pop(row, None)
        self._end_if_done()

    def on_failed(self, row: int, error: ErrorCode) -> None:
        """The row's wait can no longer succeed; the partition has removed the waiter already."""
        if self._missing.pop(row, None) is not None:
            self.results[row] = AppendError(error)
        self._end_if_done()

    def cancel(self) -> None:
        """Stop waiting; the future is cancelled."""
        at_once(self._let_go(None))
        self.future.cancel()

    def _end_if_done(self) -> None:
        if not self._missing and not self._appending:
            if self._timer is not None:
                self._timer.cancel()
            if not self.future.done():
                self.future.set_result(self.results)

    def _let_go(self, error: AppendError | None) -> Generator[None, None, None]:
        """Wait for no row any longer; rows that have not been committed meanwhile get the error."""
        missing = self._missing
        while missing:
            for _ in range(min(len(missing), LEFT_IN_STEP)):
                row, partition = missing.popitem()
                partition.waiters.commits.pop((self, row), None)
                if error is not None:
                    self.results[row] = error
            yield
        self._end_if_done()

    def _time_out(self) -> None:
        self._in_turns(self._let_go(AppendError(ErrorCode.REQUEST_TIMED_OUT)))


class LowWatermarkWaiter:
    """A DeleteRecords that waits until the logs of all live replicas begin at the requested offset.

    Shape: `required` are (row, partition, offset). `future` returns for each row an error and the
    low watermark: REQUEST_TIMED_OUT when the time is over, NOT_LEADER_OR_FOLLOWER with -1 when this
    broker no longer leads the partition. `in_turns` is as for a CommitWaiter.
    """

    __slots__ = ("_found", "_in_turns", "_missing", "_timer", "future")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        required: Iterable[tuple[int, Watched, int]],
        *,
        timeout_ms: int,
        in_turns: InTurns = at_once,
    ) -> None:
        self._in_turns = in_turns
        self.future: asyncio.Future[dict[int, tuple[ErrorCode, int]]] = loop.create_future()
        self._missing: dict[int, Watched] = {}
        self._found: dict[int, tuple[ErrorCode, int]] = {}
        for row, partition, offset in required:
            self._missing[row] = partition
            partition.waiters.starts[self, row] = offset
        self._timer = loop.call_later(max(timeout_ms, 0) / 1000, self._time_out)

    def end(self, row: int, error: ErrorCode, low_watermark: int) -> None:
        """A row is done or has failed; the partition has removed the waiter already."""
        del self._missing[row]
        self._found[row] = (error, low_watermark)
        if not self._missing:
            self._timer.cancel()
            self.future.set_result(self._found)

    def _time_out(self) -> None:
        self._in_turns(self._give_up())

    def _give_up(self) -> Generator[None, None, None]:
        missing = self._missing
        while missing:
            for row in list(islice(missing, LEFT_IN_STEP)):
                partition = missing[row]
                partition.waiters.starts.pop((self, row), None)
                self.end(row, ErrorCode.REQUEST_TIMED_OUT, partition.low_watermark)
            yield


class Waiters:
    """Everything that waits for one partition.

    Shape: `fetches` maps each waiter to the offset from which bytes are new to it; `commits` maps
    each waiter and its row to the offset that the high watermark must reach, in the order of these
    offsets, since they are those of appends; `starts` maps each waiter and its row to the offset at
    which all live replicas must begin.
    """

    __slots__ = ("commits", "fetches", "starts")

    def __init__(self) -> None:
        self.fetches: dict[WaitingReader, int] = {}
        self.commits: dict[tuple[CommitWaiter, int], int] = {}
        self.starts: dict[tuple[LowWatermarkWaiter, int], int] = {}

    def wake_followers(self, appended_bytes: int) -> None:
        """Count bytes that were appended, committed or not."""
        for waiter in list(self.fetches):
            if waiter.of_replica:
                waiter.on_readable(appended_bytes)

    def end_replica_fetches(self) -> None:
        """Let followers learn immediately of changes other than new records."""
        for waiter in list(self.fetches):
            if waiter.of_replica:
                waiter.end()

    def wake_consumers(self, log: Log, readable_bytes: int) -> None:
        """Consumers can read more: by `readable_bytes` if that is known, else 0."""
        stable = log.last_stable_offset
        waiting = list(self.fetches.items())
        alone = len(waiting) == 1
        for waiter, new_offset in waiting:
            if waiter.of_replica:
                continue
            waiter.alone = alone
            if readable_bytes and not waiter.read_committed:
                waiter.on_readable(readable_bytes)
                continue
            until = stable if waiter.read_committed else log.high_watermark
            if until > new_offset:
                self._wake_reader(waiter, log, new_offset, until)

    def _wake_reader(self, waiter: WaitingReader, log: Log, new_offset: int, until: int) -> None:
        # A marker, or a follower that caught up, makes records readable that were appended long
        # before, so the number of appended bytes says little.
        if waiter.missing_bytes > 1:
            found = log.read(new_offset, ANY_SIZE, until)
            if not isinstance(found, ErrorCode) and found.next_offset >= until:
                if not isinstance(found.data, bytes):
                    found.data.close()
                self.fetches[waiter] = until
                waiter.on_readable(found.size)
                return
        waiter.end()  # one byte suffices, or a whole segment is available, or the read failed

    def release_committed(self, high_watermark: int, error: Callable[[], ErrorCode]) -> None:
        """End the waits that the high watermark has passed, with the result of `error()`."""
        reached = []
        for waiting, offset in self.commits.items():
            if offset > high_watermark:
                break
            reached.append(waiting)
        if reached:
            for waiting in reached:
                del self.commits[waiting]
            failed = error()
            for waiter, row in reached:
                if failed:
                    waiter.on_failed(row, failed)
                else:
                    waiter.on_committed(row)

    def release_started(self, low_watermark: int) -> None:
        """End the waits for logs that begin no earlier than this."""
        reached = [each for each, offset in self.starts.items() if offset <= low_watermark]
        for waiter, row in reached:
            del self.starts[waiter, row]
            waiter.end(row, ErrorCode.NONE, low_watermark)

    def fail_commits(self, error: ErrorCode) -> None:
        """End all waits for the high watermark with an error."""
        waiting, self.commits = self.commits, {}
        for waiter, row in waiting:
            waiter.on_failed(row, error)

    def release(self, error: ErrorCode) -> None:
        """End all waits: the role has changed or the replica is gone.

        A fetch reads again; produced records may be lost if this broker did not commit them.
        """
        for waiter in list(self.fetches):
            waiter.end()
        self.fail_commits(error)
        waiting, self.starts = self.starts, {}
        for deleter, row in waiting:
            deleter.end(row, error, -1)
