"""Knows whether Ctrl-C was pressed, whoever handles the signal, so that one line is printed for it.

Spark has its own handler while it starts. A Ctrl-C during a call over Python's connection to the JVM breaks that connection,
and the consequences are logged with tracebacks and raised as various errors.
"""

from __future__ import annotations

import logging
import signal
import socket
import threading
from types import TracebackType

#: Loggers that report the broken connection.
LOGGERS = (None, "py4j.clientserver", "py4j.java_gateway")


class Interrupts:
    """A context manager around a job, in the main thread; elsewhere no signal arrives and it does nothing."""

    def __init__(self) -> None:
        self._seen = False
        self._read, self._written = socket.socketpair()
        self._before = -1

    def __enter__(self) -> Interrupts:
        self._read.setblocking(False)
        self._written.setblocking(False)
        if threading.current_thread() is threading.main_thread():
            self._before = signal.set_wakeup_fd(self._written.fileno(), warn_on_full_buffer=False)
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self._is_wanted)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Once interrupted, the process ends: everything logged until then is silenced.
        if not self.seen():
            for name in LOGGERS:
                logging.getLogger(name).removeFilter(self._is_wanted)
        if threading.current_thread() is threading.main_thread():
            signal.set_wakeup_fd(self._before)
        self._read.close()
        self._written.close()

    def seen(self) -> bool:
        """Whether a Ctrl-C came."""
        while not self._seen:
            try:
                # Each signal is a byte with its number.
                numbers = self._read.recv(1024)
            except OSError:
                break
            self._seen = signal.SIGINT in numbers
        return self._seen

    def _is_wanted(self, record: logging.LogRecord) -> bool:
        return record.exc_info is None or not self.seen()
