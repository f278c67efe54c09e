"""Where everything goes that Spark, Java and Python's libraries say by themselves while a job runs: a file.

A job tells its user what matters in its own words. The rest (banners, warnings, stack traces) is written to a file, which is
kept only if the job fails.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .problems import WrongCall

#: The value of `--spark-log` that leaves everything on standard error.
STANDARD_ERROR = "-"


class _File(logging.FileHandler):
    """Drops lines that a full disk cannot take; `logging` would print a traceback for each."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Print nothing."""

    def close(self) -> None:
        """Close the file, with what could be written."""
        with suppress(OSError):
            super().close()


def _check(path: Path) -> None:
    """Raises WrongCall for a file that cannot be written."""
    if path.is_dir():
        raise WrongCall(f"--spark-log {path}: it is a folder")
    if not path.parent.is_dir():
        raise WrongCall(f"--spark-log {path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise WrongCall(f"--spark-log {path} cannot be written")


class SparkLog:
    """A context manager around a job; the file appears with the first thing that is written to it.

    `asked` is the value of `--spark-log`: a file, which is kept, `-` for standard error, None for a file of our own. Raises
    WrongCall for a file that cannot be written.
    """

    def __init__(self, job: str, asked: str | None) -> None:
        self._is_own = asked is None
        if asked is not None and asked != STANDARD_ERROR:
            _check(Path(asked).absolute())
        if asked is None:
            # With the time, because another process may have had this number, and its log may have been kept.
            now = time.strftime("%Y%m%dT%H%M%S")
            asked = str(Path(tempfile.gettempdir()) / f"kwire-{job}-{now}-{os.getpid()}.log")
        self.path = None if asked == STANDARD_ERROR else Path(asked).absolute()
        self._handler: logging.Handler | None = None

    def __enter__(self) -> SparkLog:
        if self.path is not None:
            self._handler = _File(self.path, delay=True)
            logging.getLogger().addHandler(self._handler)
            logging.captureWarnings(True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._handler is not None:
            logging.captureWarnings(False)
            logging.getLogger().removeHandler(self._handler)
            self._handler.close()

    def add(self, error: BaseException) -> None:
        """Write an error with its traceback, if there is room for it."""
        text = "".join(traceback.format_exception(error))
        if self.path is None:
            sys.stderr.write(text)
        else:
            with suppress(OSError), self.path.open("a") as file:
                file.write(text)

    def kept(self) -> Path | None:
        """The file, if something is in it; for the end of a job that failed."""
        if self.path is not None and self.path.exists() and self.path.stat().st_size:
            return self.path
        return None

    def discard(self) -> None:
        """Remove the file, unless it was asked for; for the end of a job that did not fail."""
        if self._is_own and self.path is not None:
            self.path.unlink(missing_ok=True)


@contextmanager
def output_in(path: str | Path | None) -> Iterator[None]:
    """Processes that are started in the block write standard output and error to the end of a file; None changes nothing.

    Java says on standard output why it does not start with a certain amount of memory.
    """
    if path is None:
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    ours = [(number, os.dup(number)) for number in (1, 2)]
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, _ in ours:
        os.dup2(file, number)
    os.close(file)
    try:
        yield
    finally:
        for number, copy in ours:
            os.dup2(copy, number)
            os.close(copy)
