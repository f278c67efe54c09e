"""The division of the process's descriptors: one budget for connections and for the files of logs.

A part is reserved for everything else: the store, pipes, connections to other brokers, and files that are open only
briefly (checkpoints, snapshots, directories).
"""

from __future__ import annotations

from typing import NamedTuple

#: An eighth is reserved for everything else, within these limits.
MIN_KEPT, MAX_KEPT = 32, 256
#: The maximum number of log files that are kept open.
MAX_FILES = 16_384


class Budget(NamedTuple):
    """The number of descriptors for each use; `connections` is None if the process has no limit."""

    connections: int | None
    files: int


def budget() -> Budget:
    """Divide the process's soft limit: half of the part that is not reserved is for files, the rest for connections."""
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except (ImportError, ValueError, OSError):  # no such limit on this platform
        return Budget(None, 512)
    if soft == resource.RLIM_INFINITY:
        return Budget(None, MAX_FILES)
    free = max(2, soft - min(max(soft // 8, MIN_KEPT), MAX_KEPT))
    files = min(MAX_FILES, free // 2)
    return Budget(free - files, files)
