"""CPU time of a process's children; for a session of Spark these are its JVM and the Python workers."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path


def _below(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            children = (task / "children").read_text().split()
        except OSError:  # the process has ended
            continue
        for child in children:
            yield int(child)
            yield from _below(int(child))


def cpu_below() -> Counter[str]:
    """CPU seconds of this process's descendants, by name (`java`, `python`).

    Shape: ended descendants of Java were Python, such as a daemon without workers that Spark has stopped.
    """
    total: Counter[str] = Counter()
    ticks = os.sysconf("SC_CLK_TCK")
    for pid in _below(os.getpid()):
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        name = "java" if "(java" in text else "python"
        user, system, ended_user, ended_system = map(int, text.rsplit(")", 1)[1].split()[11:15])
        total[name] += (user + system) / ticks  # type: ignore[assignment]
        total["python"] += (ended_user + ended_system) / ticks  # type: ignore[assignment]
    return total
