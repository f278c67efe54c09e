"""Knows whether a signal asked the job to end, whoever handles it, so that one line is printed for it.

Spark has its own handler of Ctrl-C while it starts. A signal during a call over Python's connection to the JVM breaks that
connection, and the consequences are logged with tracebacks and raised as various errors.
"""

from __future__ import annotations

import logging
import signal
import socket
import threading
from types import FrameType
from typing import NoReturn

#: Signals that end a job: Ctrl-C, `kill` or a service manager, and a terminal that was closed.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Loggers that report the broken connection.
LOGGERS = (None, "py4j.clientserver", "py4j.java_gateway")


class Interrupts:
    """A context manager around a job, in the main thread; elsewhere no signal arrives and it does nothing.

    SIGTERM and SIGHUP raise KeyboardInterrupt, as SIGINT does, unless the process ignores them (`nohup`) or has a handler.
    """

    def __init__(self) -> None:
        self._seen: signal.Signals | None = None
        self._ours: list[signal.Signals] = []
        self._read, self._written = socket.socketpair()
        self._before = -1

    def __enter__(self) -> Interrupts:
        self._read.setblocking(False)
        self._written.setblocking(False)
        if threading.current_thread() is threading.main_thread():
            self._before = signal.set_wakeup_fd(self._written.fileno(), warn_on_full_buffer=False)
            self._ours = [one for one in ENDING if signal.getsignal(one) is signal.SIG_DFL]
            for one in self._ours:
                signal.signal(one, _interrupt)
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self._is_wanted)
        return self

    def __exit__(self, *_: object) -> None:
        # Once interrupted, the process ends: everything logged until then is silenced.
        if self.seen() is None:
            for name in LOGGERS:
                logging.getLogger(name).removeFilter(self._is_wanted)
        if threading.current_thread() is threading.main_thread():
            for one in self._ours:
                signal.signal(one, signal.SIG_DFL)
            signal.set_wakeup_fd(self._before)
        self._read.close()
        self._written.close()

    def seen(self) -> signal.Signals | None:
        """The first signal that asked the job to end; None if there was none."""
        while self._seen is None:
            try:
                # Each signal is a byte with its number.
                numbers = self._read.recv(1024)
            except OSError:
                break
            self._seen = next((one for number in numbers for one in ENDING if one == number), None)
        return self._seen

    def _is_wanted(self, record: logging.LogRecord) -> bool:
        return record.exc_info is None or self.seen() is None


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
