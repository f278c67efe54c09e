"""Ends Spark's Java process if Ctrl-C, SIGTERM or SIGHUP interrupts its start.

Java's standard input is a pipe from Python, and Java ends when that pipe is closed. It reads the pipe only after it has started,
though. If a signal interrupts the start, PySpark removes the folder in which Java then wants to write its port. Java's main thread
fails, and the thread that waits for connections keeps the process alive for ever.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyspark import java_gateway

from .interrupts import ENDING

#: Seconds that Java gets to end by itself.
PATIENCE_S = 5.0

#: The module of PySpark that starts Java.
_launcher: Any = java_gateway


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """A Java process that PySpark starts in the block ends if a signal ends the block."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: Any, **settings: Any) -> subprocess.Popen[bytes]:
        # If the constructor were interrupted, there could be a process that nobody knows.
        with _interrupted_later():
            started.append(subprocess.Popen(*words, **settings))
        return started[-1]

    before = _launcher.Popen
    _launcher.Popen = start
    try:
        yield
    except KeyboardInterrupt:
        # After any other error Java is still needed: it has the error's text.
        for process in started:
            _end(process)
        raise
    finally:
        _launcher.Popen = before


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end; kill it after PATIENCE_S, or if another signal arrives."""
    process.terminate()
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)
    finally:
        process.kill()  # does nothing if the process has ended
        process.wait()


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """Signals in the block that end the job have their effect only when the block has ended."""
    before = {number: signal.getsignal(number) for number in ENDING}
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []
    for number, handler in before.items():
        if callable(handler):
            signal.signal(number, lambda number, _: seen.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            if callable(handler):
                signal.signal(number, handler)
    if seen:
        raise KeyboardInterrupt
