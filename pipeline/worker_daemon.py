"""Forks Spark's Python workers in place of `pyspark.daemon`, so that a task starts faster.

Before each task a worker discards what it has cached about the entries of its path. For a zip archive it then reads the whole
table of contents again (in Python code since 3.10), for `pyspark.zip` once for each package imported from there: 100 ms and
more. So PySpark is imported from its folder instead, and the jar that Spark puts on the path, which has no Python in it, is
left out (`unpacked.py`). After each task a worker collects garbage, but not what was imported before it was forked; so what
most workers import is imported here. Memory that a worker frees is kept for its next batch.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
from contextlib import suppress

from .unpacked import leave_archives

#: The largest block that is kept, and how much free memory is.
KEPT_BLOCK_BYTES, KEPT_BYTES = 32 << 20, 64 << 20
#: Numbers of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def keep_memory() -> None:
    """Let this process, and those forked from it, keep the memory that they free, instead of asking the system for it again.

    By default glibc gives back what is freed at the end of its heap. A task that decompresses batch after batch then gets fresh
    pages for each of them, each with a page fault: a third of its CPU time. Other C libraries have no such call.
    """
    with suppress(AttributeError, OSError):
        adjust = ctypes.CDLL(None).mallopt
        adjust(_MMAP_THRESHOLD, KEPT_BLOCK_BYTES)
        adjust(_TRIM_THRESHOLD, KEPT_BYTES)


def main() -> None:
    """Be `pyspark.daemon`."""
    leave_archives()
    keep_memory()
    for name in ("numpy", "pyarrow", "kwire.pipeline.segments.source"):
        importlib.import_module(name)
    from pyspark.daemon import manager

    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
