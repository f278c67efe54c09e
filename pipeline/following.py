"""Runs streaming queries to their end: shows progress, commits offsets to a group, explains errors."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from .bar import Bar
from .cluster import Cluster
from .group_offsets import BatchOffsets
from .interrupts import ENDING
from .log_cluster import LogCluster
from .problems import Problem, explain
from .progress import Progress

#: Starts a query: the `start` of a DataStreamWriter, or a function around it.
Start = Callable[[], StreamingQuery]

#: Seconds between two checks of the queries; also the longest delay before a finished batch's offsets are committed.
TURN_S = 0.5
#: Seconds that Spark gets to deliver the last events of a query that has ended.
LAST_EVENTS_S = 30.0


class _Ended(StreamingQueryListener):
    """Knows which runs' last event Spark has delivered."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._runs: set[str] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Not of interest."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Not of interest."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The last event of a run."""
        with self._changed:
            self._runs.add(str(event.runId))
            self._changed.notify_all()

    def wait(self, runs: set[str], timeout_s: float) -> None:
        """Return when these runs have ended or the time is up."""
        with self._changed:
            self._changed.wait_for(lambda: runs <= self._runs, timeout_s)


def follow(
    spark: SparkSession,
    starts: Start | Sequence[Start],
    cluster: Cluster | LogCluster,
    group: str,
    quiet: bool = False,
    scans: int = 1,
    bar: Bar | None = None,
    rows_of: Callable[[int], int] | None = None,
) -> int:
    """Start queries and return 0 when all have ended by themselves or were stopped by SIGTERM, SIGHUP or Ctrl-C.

    `starts` is one `writer.start` or several, `scans` how often a query reads each row, `bar` what shows the progress instead of
    lines, `rows_of` how many rows a batch had, if Spark does not see them. The end offsets of each finished batch are committed to
    `group`; those of the last batch are committed before this returns. If one query fails, the
    others are stopped and its error is raised: a Problem if users can cause it (`problems.py`), else Spark's own.
    """
    offsets, ended = BatchOffsets(cluster, group), _Ended()
    # In this order, because the last one knows when those before it have seen everything.
    listeners: list[StreamingQueryListener] = [offsets, ended]
    if not quiet:
        listeners.insert(0, Progress(scans, bar, rows_of))
    for listener in listeners:
        spark.streams.addListener(listener)
    queries: list[StreamingQuery] = []
    runs: set[str] = set()
    failure: Exception | None = None
    try:
        with _stopped_by_signals() as stopping:
            try:
                for start in [starts] if callable(starts) else starts:
                    query = start()
                    queries.append(query)
                    runs.add(str(query.runId))
                _wait(queries, offsets, stopping)
            except Exception as error:  # noqa: BLE001 - raised below
                failure = error
                if not isinstance(error, Problem) and (message := explain(error)) is not None:
                    failure = Problem(message)
                    failure.__cause__ = error
            # Not after a second Ctrl-C: the next call to Spark would get the answer that the interrupted call waited for.
            for query in queries:
                _stop(query)
            ended.wait(runs, LAST_EVENTS_S)
            # Spark may be gone, and that must not hide the first error.
            with suppress(Py4JError, OSError):
                for listener in listeners:
                    spark.streams.removeListener(listener)
            if bar is not None:
                bar.end()
            offsets.flush()
    finally:
        if bar is not None:
            bar.end()
    if failure is not None:
        raise failure
    return 0


def _wait(queries: list[StreamingQuery], offsets: BatchOffsets, stopping: threading.Event) -> None:
    """Wait until no query runs any more; raises the error of the first that fails."""
    running = list(queries)
    while running and not stopping.is_set():
        # Raises the query's error; any query may end first, so all are checked in turn.
        if running[0].awaitTermination(TURN_S):  # type: ignore[arg-type]
            running.pop(0)
        else:
            for query in running:
                error = query.exception()
                if error is not None:
                    raise error
            running.append(running.pop(0))
        offsets.flush()


def _stop(query: StreamingQuery) -> None:
    """Stop a query if it still runs; one that failed, or whose Spark is gone, has stopped already."""
    with suppress(StreamingQueryException, Py4JError, OSError):
        query.stop()


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """SIGTERM, SIGHUP and SIGINT set the event instead of ending the process; a second SIGINT is a KeyboardInterrupt.

    Only in the main thread, where signals arrive. Spark's own SIGINT handler would break the connection to the JVM that the
    interrupted call uses.
    """
    stopping = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and stopping.is_set():
            signal.default_int_handler(number, frame)
        stopping.set()

    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # by `nohup`
    before = {
        number: signal.signal(number, stop)
        for number in ENDING
        if number != signal.SIGHUP or not ignored
    }
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
