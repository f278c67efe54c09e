"""An audit's progress: one line on standard error, overwritten on a terminal, repeated from time to time elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..bar import Bar, is_shown, watching_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Seconds between two updates: on a terminal, and in a log.
_TERMINAL_S, _LOG_S = 0.5, 10.0


class LatestText:
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
def watched(spark: SparkSession, quiet: bool, offsets: int) -> Iterator[None]:
    """Show how far Spark has got in reading that many offsets, by its tasks, while the block runs."""
    if quiet:
        yield
        return
    if not is_shown(quiet):
        progress = LatestText(quiet)

        def write(stage: int, done: int, all_: int) -> None:
            progress.show(f"stage {stage}: {done:,} of {all_:,} tasks")

        with watching_tasks(spark, write):
            yield
        return
    bars: dict[int, Bar] = {}

    def draw(stage: int, done: int, all_: int) -> None:
        if stage not in bars:
            for bar in bars.values():
                bar.end()
            bars[stage] = Bar(f"audit, stage {stage}", offsets)
        bars[stage].at(offsets * done // all_, offsets * done // all_)

    try:
        with watching_tasks(spark, draw):
            yield
    finally:
        for bar in bars.values():
            bar.end()
