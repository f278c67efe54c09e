"""Records the names that appear and disappear in a directory, in order (Linux's inotify)."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
import time
from pathlib import Path
from typing import NamedTuple

_MOVED_TO = 0x80
_DELETED = 0x200
_EVENT = struct.Struct("iIII")
_NONBLOCK = os.O_NONBLOCK | os.O_CLOEXEC


class Change(NamedTuple):
    """A name that appeared by a rename (`moved`) or was removed (`deleted`), with the time in s."""

    kind: str
    name: str
    at_s: float


class DirectoryWatch:
    """Reads the events of one directory in a thread, as long as it is open."""

    def __init__(self, folder: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(_NONBLOCK)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        watched = self._libc.inotify_add_watch(self._fd, os.fsencode(folder), _MOVED_TO | _DELETED)
        if watched < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch", str(folder))
        self.changes: list[Change] = []
        """The events so far, oldest first."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            if select.select([self._fd], [], [], 0.1)[0]:
                self._read()

    def _read(self) -> None:
        data = os.read(self._fd, 65_536)
        position = 0
        while position < len(data):
            _, mask, _, size = _EVENT.unpack_from(data, position)
            position += _EVENT.size
            name = data[position : position + size].rstrip(b"\0").decode()
            position += size
            if mask & (_MOVED_TO | _DELETED):
                kind = "moved" if mask & _MOVED_TO else "deleted"
                self.changes.append(Change(kind, name, time.monotonic()))

    def close(self) -> None:
        """Stop watching."""
        self._ending.set()
        self._thread.join()
        os.close(self._fd)
