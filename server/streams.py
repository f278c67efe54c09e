"""The standard streams of a command, which may be closed, full, or without a reader.

Commands read and write them in many places, most of which handle the OSError of a socket or of a file. A failure of a
standard stream is therefore not an OSError: it passes all of them, and the entry point reports it.
"""

from __future__ import annotations

import errno
import os
import sys
from io import BufferedReader, BufferedWriter, FileIO, TextIOWrapper
from typing import Any

#: The number of a closed stream is opened in the wrong direction, so that using it fails, as it should, and so that no
#: other file or socket gets the number.
WRONG_WAYS = ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY))


class StreamFailed(Exception):
    """Standard input cannot be read, or standard output cannot be written."""

    def __init__(self, stream: str, error: OSError) -> None:
        super().__init__(f"{stream}: {error.strerror or error}")
        self.errno = error.errno
        self.strerror = error.strerror

    @property
    def is_broken_pipe(self) -> bool:
        """Whether the reader of the output (head, less) has ended, and so has read all that it needs."""
        return self.errno == errno.EPIPE


class _Input(FileIO):
    def readinto(self, buffer: Any) -> int:
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise StreamFailed("standard input", error) from None

    def readall(self) -> bytes:
        try:
            return super().readall()
        except OSError as error:
            raise StreamFailed("standard input", error) from None


class _Output(FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data) if data else 0
        except OSError as error:
            raise StreamFailed("standard output", error) from None


class _Error(FileIO):
    """Drops what cannot be written: there is nowhere to report it, and the command can do its work."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def install() -> None:
    """Replace the process's standard streams by those of this module."""
    for number, flags in WRONG_WAYS:
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, flags), True)  # takes the lowest free number
    old = sys.stdin
    sys.stdin = TextIOWrapper(
        BufferedReader(_Input(0, "r", closefd=False)),
        encoding=getattr(old, "encoding", "utf-8"),
        errors=getattr(old, "errors", "strict"),
    )
    sys.stdout = _writer(_Output(1, "w", closefd=False), sys.stdout)
    sys.stderr = _writer(_Error(2, "w", closefd=False), sys.stderr)


def _writer(raw: FileIO, old: Any) -> TextIOWrapper:
    """A text stream with the properties of Python's own; a name that is not UTF-8 is written with escapes."""
    unbuffered = getattr(old, "write_through", False)
    errors = getattr(old, "errors", "strict")
    return TextIOWrapper(
        raw if unbuffered else BufferedWriter(raw),
        encoding=getattr(old, "encoding", "utf-8"),
        errors="backslashreplace" if errors == "strict" else errors,
        line_buffering=getattr(old, "line_buffering", raw.fileno() == 2),
        write_through=unbuffered,
    )


def give_up_output() -> None:
    """Drop what waits to be written to standard output: Python would try again at its end, and print a traceback."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
