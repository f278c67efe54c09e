"""The last lines of the broker's log, kept in memory while the console is enabled."""

from __future__ import annotations

import logging
from collections import deque
from typing import NamedTuple

#: The number of lines that are kept, and their maximum length.
LINES = 2_000
MAX_CHARACTERS = 4_000


class LogLine(NamedTuple):
    """One line. Shape: `number` counts all lines; `logger` is the name without the package."""

    number: int
    at_ms: int
    level: int
    logger: str
    text: str

    @property
    def level_name(self) -> str:
        """INFO, for example."""
        return logging.getLevelName(self.level)


#: Records with this attribute are only for the log itself: `logger.info(..., extra=SECRET)`.
SECRET = {"kwire_secret": True}


class LogLines(logging.Handler):
    """A handler that keeps log records, except those that are SECRET."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[LogLine] = deque(maxlen=LINES)
        self._count = 0
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record; any thread may call this."""
        if getattr(record, "kwire_secret", False):
            return
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self._formatter.formatException(record.exc_info)
        self._count += 1
        logger = record.name.removeprefix("kwire.").removeprefix("server.")
        self.lines.append(
            LogLine(
                self._count,
                int(record.created * 1000),
                record.levelno,
                logger,
                text[:MAX_CHARACTERS],
            )
        )
