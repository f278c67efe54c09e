"""The CPU time that this process and all that it has started have used, to attribute it to tests."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_use_s() -> float:
    """Seconds of this process, of ended processes that were waited for, and of those that are running.

    The last ones are found only where Linux lists the children of a thread; elsewhere they count when they end.
    """
    return sum(os.times()[:4]) + sum(map(_running_s, _children(os.getpid())))


def _running_s(pid: int) -> float:
    """The use of a process and its descendants; nothing of one that has just ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    # user, system, and the same two of the ended children that it has waited for
    ticks = sum(map(int, stat.rpartition(")")[2].split()[11:15]))
    return ticks / _TICKS + sum(map(_running_s, _children(pid)))


def _children(pid: int) -> list[int]:
    """The children of all threads of a process."""
    own = pid == os.getpid()
    tasks: list[str] = []
    with suppress(OSError):
        tasks = (
            [str(each.native_id) for each in threading.enumerate()]
            if own
            else os.listdir(f"/proc/{pid}/task")
        )
    found: list[int] = []
    for task in tasks:
        with suppress(OSError):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found
