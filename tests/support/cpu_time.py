"""CPU time that can be compared with a bound, even on a slow or busy machine.

The same work takes different CPU time at different times: another process shares the core's caches and units, or the
machine is a different one. Times are therefore given in seconds of the machine for which bounds are stated: they are
divided by the factor by which a fixed piece of work, just before and just after, takes longer than there. The garbage
collector is off during the measurement, because its work depends on what earlier tests have left.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct

#: The time of `reference_work` on the machine for which bounds are stated, in seconds.
REFERENCE_S = 0.0008

Clock = Callable[[], float]

_ROW = Struct(">qi")


def reference_work() -> int:
    """Do what much of kwire does: calls, small objects, dicts, bytes."""
    rows: dict[bytes, tuple[int, str]] = {}
    for number in range(2_500):
        rows[_ROW.pack(number, number)] = (number, str(number))
    return sum(len(name) for _, name in sorted(rows.values()))


def slowness(clock: Clock = time.process_time) -> float:
    """The factor by which work takes longer now than on the stated machine; at least 1."""
    taken = []
    for _ in range(5):
        began = clock()
        reference_work()
        taken.append(clock() - began)
    return max(1.0, sorted(taken)[2] / REFERENCE_S)


class CpuTime:
    """The CPU time of pieces of work."""

    def __init__(self, clock: Clock = time.process_time) -> None:
        self._clock = clock
        self._taken: list[float] = []
        self._slowness = 1.0

    @property
    def seconds(self) -> float:
        """All of them together, on the stated machine."""
        return sum(self._taken) / self._slowness

    @property
    def longest_s(self) -> float:
        """The longest of them, on the stated machine."""
        return max(self._taken) / self._slowness

    @property
    def median_s(self) -> float:
        """The one in the middle, on the stated machine."""
        return sorted(self._taken)[len(self._taken) // 2] / self._slowness

    @contextmanager
    def piece(self) -> Iterator[None]:
        """Time one piece of work."""
        began = self._clock()
        try:
            yield
        finally:
            self._taken.append(self._clock() - began)

    def add(self, seconds: float) -> None:
        """Add a piece of work that was timed with the same clock."""
        self._taken.append(seconds)

    def slower(self, times: float) -> None:
        """Note that the machine was slower than the stated one by this factor."""
        self._slowness = max(self._slowness, times)


@contextmanager
def cpu_time(clock: Clock = time.process_time) -> Iterator[CpuTime]:
    """Time pieces of work; the result is valid after the end of the block.

    Shape: the whole block is one piece if none is timed in it. `time.thread_time` excludes other threads.
    """
    found = CpuTime(clock)
    found.slower(slowness(clock))
    collects = gc.isenabled()
    gc.disable()
    began = clock()
    try:
        yield found
        if not found._taken:
            found.add(clock() - began)
    finally:
        if collects:
            gc.enable()
    found.slower(slowness(clock))
