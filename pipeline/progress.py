"""One line on standard error for each batch: rows, rows per second, and the lag of each topic."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from .bar import Bar
from .offsets import Offsets, kafka_offsets

#: A topic with more partitions than this is shown as a sum and the partition with the most lag.
PARTITIONS_SHOWN = 8


class Progress(StreamingQueryListener):
    """Prints a line after each batch that read something, or moves a bar.

    `scans` is how often a query reads each row. `rows_of` says how many rows a batch had; without it, Spark does.
    """

    def __init__(
        self,
        scans: int = 1,
        bar: Bar | None = None,
        rows_of: Callable[[int], int] | None = None,
    ) -> None:
        self.scans = scans
        self.bar = bar
        self._rows_of = rows_of
        self._rows = self._offsets = 0

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to show yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """One line, or a step of the bar."""
        progress = event.progress
        rows = progress.numInputRows // self.scans
        if self._rows_of is not None:
            rows = self._rows_of(progress.batchId)
        if self.bar is not None:
            self._rows += rows
            done, left = offsets_of(progress)
            self._offsets += done
            self.bar.grow(max(self.bar.offsets, self._offsets + left))
            self.bar.at(self._offsets, self._rows)
        elif rows:
            print(line(progress, rows), file=sys.stderr, flush=True)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Print nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Print nothing: the job says how it ended."""


def line(progress: StreamingQueryProgress, rows: int) -> str:
    """`[name] batch 3: 1,200 rows, 600 rows/s, lag orders 0:12 1:0`."""
    name = f"{progress.name} " if progress.name else ""
    rate = rows / max(progress.batchDuration / 1000, 0.001)
    text = f"{name}batch {progress.batchId}: {rows:,} rows, {rate:,.0f} rows/s"
    behind: Offsets = {}
    for source in progress.sources:
        done = kafka_offsets(source.endOffset)
        for place, latest in kafka_offsets(source.latestOffset).items():
            behind[place] = max(0, latest - done.get(place, 0))
    return f"{text}, lag {lag_words(behind)}" if behind else text


def offsets_of(progress: StreamingQueryProgress) -> tuple[int, int]:
    """How many offsets of topics a batch has done, and how many were left after it."""
    done = left = 0
    for source in progress.sources:
        starts, ends = kafka_offsets(source.startOffset), kafka_offsets(source.endOffset)
        done += sum(end - starts.get(place, end) for place, end in ends.items())
        latest = kafka_offsets(source.latestOffset)
        left += sum(max(0, last - ends.get(place, last)) for place, last in latest.items())
    return done, left


def lag_words(behind: Mapping[tuple[str, int], int]) -> str:
    """`orders 0:12 1:0; payments 90 in 64 partitions, most 40 in 7`."""
    topics: dict[str, dict[int, int]] = {}
    for (topic, number), lag in sorted(behind.items()):
        topics.setdefault(topic, {})[number] = lag
    words = []
    for topic, partitions in topics.items():
        if not any(partitions.values()):
            words.append(f"{topic} 0")
        elif len(partitions) <= PARTITIONS_SHOWN:
            words.append(" ".join([topic, *(f"{n}:{lag}" for n, lag in partitions.items())]))
        else:
            last = max(partitions, key=lambda number: partitions[number])
            words.append(
                f"{topic} {sum(partitions.values())} in {len(partitions)} partitions,"
                f" most {partitions[last]} in {last}"
            )
    return "; ".join(words)
