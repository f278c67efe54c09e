"""Recovers several logs at a time, each in a worker process (num.recovery.threads.per.data.dir).

Recovery runs Python code for every batch, and threads do not run Python code in parallel.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...workers import begin_worker
from ..file_layer import FileLayer
from .opening import Recovered, RecoveryTask, recover_log

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

logger = logging.getLogger(__name__)


class RecoveryProcesses:
    """The worker processes of one start, a number for each directory; created on first use."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._pools: list[ProcessPoolExecutor] = []
        self._closed = False

    def recover(self, tasks: Sequence[RecoveryTask]) -> Iterator[Recovered]:
        """Recover logs in the given order; stop early if a process dies. Errors: OSError."""
        from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
        from multiprocessing import get_context

        if self._closed:
            return
        pool = ProcessPoolExecutor(
            min(self._processes, len(tasks)), get_context("spawn"), initializer=begin_worker
        )
        self._pools.append(pool)
        try:
            for future in as_completed([pool.submit(recover, task) for task in tasks]):
                yield future.result()
        except BrokenExecutor as error:
            if not self._closed:
                logger.error("a process that recovered logs died: %s", error)
        finally:
            _end(pool)

    def close(self) -> None:
        """Kill the processes, even while they are working; the next start recovers again."""
        self._closed = True
        for pool in self._pools:
            _end(pool)


def _end(pool: ProcessPoolExecutor) -> None:
    # Without this the interpreter would wait for running work when it exits.
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown(wait=False, cancel_futures=True)


class Messages(logging.Handler):
    """Collects log messages, so that the broker's process can log them."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.kept: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append((record.levelno, record.getMessage()))


def recover(task: RecoveryTask) -> Recovered:
    """Recover one log; called in a worker process. Errors: OSError."""
    messages = Messages()
    root = logging.getLogger()
    root.addHandler(messages)
    try:
        cut, read = recover_log(task, FileLayer())
    finally:
        root.removeHandler(messages)
    return Recovered(task.tp, cut, read, messages.kept)
