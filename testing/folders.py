"""Temporary directories for brokers' data, which go even when this process is killed.

A shell waits at the end of a pipe. When the process ends, however it does, the pipe closes, and the shell removes what
is left.
"""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import subprocess
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO
from weakref import WeakSet

from .patched import refuse_files

#: Tried again for half a minute, because a child broker may be writing until it is its turn to end.
REMOVE = (
    'read -r _; left=30; until rm -rf "$1" 2>/dev/null || [ $((left -= 1)) = 0 ]; do sleep 1; done'
)

_lock = threading.Lock()
_numbers = itertools.count(1)
_root: Path | None = None
_owner = 0


def new_directory(name: str) -> Path:
    """Make an empty directory for one broker. Errors: RuntimeError if the process has other files than the machine's."""
    refuse_files()
    with _lock:
        path = _make_root() / f"{name}-{next(_numbers)}"
    path.mkdir()
    return path


def remove(path: Path) -> None:
    """Remove a directory with all that is in it."""
    shutil.rmtree(path, ignore_errors=True)


#: The ends of pipes by whose closing others learn that this process has ended.
_held: WeakSet[IO[bytes]] = WeakSet()


def hold(pipe: IO[bytes] | None) -> None:
    """Let a pipe be closed when this process ends, whether or not processes that it has forked live on."""
    assert pipe is not None
    _held.add(pipe)


def _let_go() -> None:
    """In a process that was forked, as multiprocessing does: it holds copies of the pipes, and perhaps of a locked lock."""
    global _lock
    _lock = threading.Lock()
    for pipe in list(_held):
        pipe.close()


os.register_at_fork(after_in_child=_let_go)


def _make_root() -> Path:
    global _root, _owner
    if _root is None or _owner != os.getpid():  # a forked process needs its own
        root = _root = Path(tempfile.mkdtemp(prefix="kwire-testing-"))
        _owner = os.getpid()
        remover = subprocess.Popen(
            ["sh", "-c", REMOVE, "kwire-testing", str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is not for it
        )
        hold(remover.stdin)
        atexit.register(_end, remover, _owner)
    return _root


def _end(remover: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() == owner:
        assert remover.stdin is not None
        remover.stdin.close()
        with suppress(subprocess.TimeoutExpired):  # it goes on without this process
            remover.wait(10)
