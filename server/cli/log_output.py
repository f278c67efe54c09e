"""The broker's log, on standard error or in a file: text lines, or JSON objects on request."""

from __future__ import annotations

import json
import logging
import re
import sys
import textwrap
import time
from pathlib import Path
from typing import TextIO

from ..loggers import name_of

logger = logging.getLogger(__name__)

#: Libraries whose messages below this level are not useful.
QUIET = {"kazoo": logging.WARNING, "asyncio": logging.WARNING}
#: The number of seconds for which kazoo's repeated messages are hidden: it reports each connection attempt.
REPEATED_AFTER = 30.0
#: Characters that could begin a new line, control a terminal, or change the reading order of a line. Messages contain
#: names that clients choose, and data that they send.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
#: The same without tabs and line breaks, which tracebacks contain.
CONTROL_IN_TRACEBACK = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class ReopenedFile(logging.StreamHandler[TextIO]):
    """Appends to a file, which can be reopened after it was renamed. Errors: OSError if it cannot be opened."""

    def __init__(self, path: str) -> None:
        self._path = path
        super().__init__(self._opened())

    def _opened(self) -> TextIO:
        return Path(self._path).open("a", encoding="utf-8", errors="backslashreplace")

    def reopen(self) -> None:
        """Continue in a new file with the same name; if it cannot be opened, in the old one."""
        try:
            stream = self._opened()
        except OSError as error:
            logger.error("%s: %s; logging continues in the old file", self._path, error.strerror)
            return
        old = self.setStream(stream)
        if old is not None:
            old.close()


def configure_logging(
    form: str = "text",
    level: str = "INFO",
    stream: TextIO | None = None,
    file: str | None = None,
) -> None:
    """Send all log records to `stream` (standard error) or a file, as `text` or `json`. Errors: OSError for the file."""
    handler: logging.Handler
    if file:
        handler = ReopenedFile(file)
    else:
        handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    handler.addFilter(Repetitions())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for name, least in QUIET.items():
        logging.getLogger(name).setLevel(max(least, root.level))
    logging.captureWarnings(True)


class Repetitions(logging.Filter):
    """Hides messages that kazoo repeats, for some time."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is shown."""
        if not record.name.startswith("kazoo") or record.levelno >= logging.ERROR:
            return True
        message = record.getMessage()
        if record.created - self._shown.get(message, 0.0) < REPEATED_AFTER:
            return False
        if len(self._shown) >= 100:
            self._shown.clear()
        self._shown[message] = record.created
        return True


def escaped(text: str, control: re.Pattern[str] = CONTROL) -> str:
    """A text with its control characters as `\\n`, `\\x1b` or `\\u2028`."""
    return control.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return SHORT_ESCAPES.get(found[0]) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


class TextFormatter(logging.Formatter):
    """`2025-01-31 12:00:00.123 INFO log.log_manager: opened 3 partitions`, local time.

    Shape: a message is always one line; the lines of a traceback begin with two blanks.
    """

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        head = f"{moment}.{int(record.msecs):03} {record.levelname} {name_of(record.name)}: "
        return head + escaped(record.getMessage()) + self._traceback(record)

    def _traceback(self, record: logging.LogRecord) -> str:
        if not record.exc_info:
            return ""
        text = escaped(self.formatException(record.exc_info), CONTROL_IN_TRACEBACK)
        return "\n" + textwrap.indent(text, "  ")


class JsonFormatter(logging.Formatter):
    """One object per line: time (UTC, RFC 3339), level, logger, message, and any traceback."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry = {
            "time": f"{moment}.{int(record.msecs):03}Z",
            "level": record.levelname,
            "logger": name_of(record.name),
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        # json.dumps has escaped the characters below the blank.
        return CONTROL.sub(
            lambda each: f"\\u{ord(each[0]):04x}", json.dumps(entry, ensure_ascii=False)
        )
