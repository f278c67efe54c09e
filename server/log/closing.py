"""Closes the logs of a broker at a clean stop, with several fsyncs at a time.

File systems combine simultaneous fsyncs into one commit, so several threads bring thousands of new
partitions to the device sooner than one. Source: LogManager.shutdown, which uses
num.recovery.threads.per.data.dir threads for each directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING

from .flush_state import FlushTask
from .log import Log
from .log_directory import LogDirectory

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

MIN_THREADS = 8
#: Logs in one group: each may hold a descriptor until it is on the device.
LOGS_AT_ONCE = 128


def close_logs(
    logs: Iterable[tuple[Log, LogDirectory]],
    threads: int,
    fail: Callable[[LogDirectory, OSError], None],
) -> set[LogDirectory]:
    """Write the in-memory data of the logs and flush everything to the device, in groups.

    Shape: returns the directories with a log that could not be closed; `fail` was called for each such log. Logs that
    are offline are skipped.
    """
    failed: set[LogDirectory] = set()
    left = iter(logs)
    with ExitStack() as stack:
        pool: ThreadPoolExecutor | None = None
        while group := list(islice(left, LOGS_AT_ONCE)):
            closing: list[tuple[Log, LogDirectory, FlushTask]] = []
            for log, directory in group:
                if log.offline or directory.offline:
                    continue
                try:
                    closing.append((log, directory, log.prepare_close()))
                except OSError as e:
                    failed.add(directory)
                    fail(directory, e)
            tasks = [task for *_, task in closing]
            if pool is None and sum(task.has_work for task in tasks) > 1:
                from concurrent.futures import ThreadPoolExecutor

                pool = stack.enter_context(
                    ThreadPoolExecutor(max(threads, MIN_THREADS), "kwire-close")
                )
            errors = map(_run, tasks) if pool is None else pool.map(_run, tasks)
            for (log, directory, _), error in zip(closing, errors, strict=True):
                if error is None:
                    log.complete_close()
                else:
                    failed.add(directory)
                    fail(directory, error)
    return failed


def _run(task: FlushTask) -> OSError | None:
    try:
        task.run()
    except OSError as e:
        return e
    return None
