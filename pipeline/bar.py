"""A bar on a terminal for work whose size is known: records, records per second, time left."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tqdm import tqdm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Seconds between two checks of Spark's tasks.
LOOK_S = 0.5


def is_shown(quiet: bool) -> bool:
    """Whether there is a terminal to draw on. Elsewhere jobs print lines."""
    return not quiet and sys.stderr.isatty()


def _knows_its_size() -> bool:
    """Whether the terminal on standard error does."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns > 0
    except (OSError, ValueError):
        return False


class Bar:
    """Draws how much of the work is done.

    Shape: work is counted in offsets, of which not every one has a record; so the bar and the time left come from offsets, and
    rows are shown beside them.
    """

    def __init__(self, what: str, offsets: int) -> None:
        self._bar = tqdm(
            total=offsets,
            desc=what,
            file=sys.stderr,
            leave=False,
            # Some terminals do not know their size, and tqdm would draw nothing in none of their lines, and cut the text.
            nrows=shutil.get_terminal_size().lines,
            ncols=None if _knows_its_size() else shutil.get_terminal_size().columns - 1,
            mininterval=LOOK_S,
            # tqdm puts a comma before the postfix, the rows.
            bar_format="{desc} {percentage:3.0f} % |{bar}| {elapsed}, {remaining} left{postfix}",
        )
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self.offsets = offsets
        self.done = 0

    def at(self, done: int, rows: int, seconds: float | None = None) -> None:
        """`done` offsets and `rows` records so far, in these seconds of this run."""
        seconds = time.monotonic() - self._began if seconds is None else seconds
        rate = rows / seconds if seconds > 0 else 0.0
        with self._lock:
            self._bar.set_postfix_str(f"{rows:,} rows, {rate:,.0f}/s", refresh=False)
            self._bar.n = self.done = min(done, self.offsets)
            self._bar.refresh()

    def grow(self, offsets: int) -> None:
        """There are that many offsets in all."""
        self.offsets = self._bar.total = offsets

    def above(self, text: str) -> None:
        """Print a line above the bar."""
        with self._lock:
            self._bar.write(text, file=sys.stderr)

    def end(self) -> None:
        """Remove the bar."""
        self._bar.close()


@contextmanager
def watching_tasks(spark: SparkSession, tell: Callable[[int, int, int], object]) -> Iterator[None]:
    """Tell from time to time Spark's current stage, how many of its tasks are done, and of how many, while the block runs."""
    over = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        while not over.wait(LOOK_S):
            try:
                for stage in tracker.getActiveStageIds():
                    info = tracker.getStageInfo(stage)
                    if info is not None and info.numTasks:
                        tell(stage, info.numCompletedTasks, info.numTasks)
            except Exception:  # noqa: BLE001 - Spark has ended, and the job says why
                return

    watcher = threading.Thread(target=watch, name="tasks", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
