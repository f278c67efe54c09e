"""An audit's progress: one line on standard error, overwritten on a terminal, repeated from time to time elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Seconds between two updates: on a terminal, and in a log.
_TERMINAL_S, _LOG_S = 0.5, 10.0


class Progress:
    """Shows the latest text, not too often."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()
        self._last = time.monotonic()
        self._width = 0

    def show(self, text: str) -> None:
        """Show the text if the last one is old enough."""
        now = time.monotonic()
        if self._quiet or now - self._last < (_TERMINAL_S if self._terminal else _LOG_S):
            return
        self._last = now
        line = f"audit: {text}"
        if self._terminal:
            print("\r" + line.ljust(self._width), end="", file=sys.stderr, flush=True)
            self._width = len(line)
        else:
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Clear the terminal's line."""
        if self._width:
            print("\r" + " " * self._width + "\r", end="", file=sys.stderr, flush=True)
            self._width = 0


@contextmanager
def watched(spark: SparkSession, quiet: bool) -> Iterator[None]:
    """Show how many of Spark's tasks are done, while the block runs."""
    if quiet:
        yield
        return
    progress = Progress(quiet)
    over = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        while not over.wait(_TERMINAL_S):
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None and info.numTasks:
                    done = f"{info.numCompletedTasks:,} of {info.numTasks:,} tasks"
                    progress.show(f"stage {stage}: {done}")

    watcher = threading.Thread(target=watch, name="audit-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        progress.end()
