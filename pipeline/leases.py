"""A lock in a storage without locks: files that one writer renews, and that another takes over once they are not renewed.

| file | what |
| --- | --- |
| `<name>.<number>` | the holder: a random token, the machine and process, and a count that rises with each renewal; or `{}` |

The highest number holds. Whoever wants the lock creates the next number, which only one can, once the highest one says that it was
given back, or has not changed for a whole lease. No clocks are compared: each side measures time itself. A holder that has not
renewed for a lease, or finds a higher number, has lost the lock and must stop.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Protocol

from .problems import Problem

#: Seconds without renewal after which a lock may be taken over, and between two renewals.
LEASE_S = 30.0
RENEWAL_S = 5.0
#: The content after the holder gives the lock back. The file stays, so that numbers only rise.
_FREE = b"{}"


class LeaseFiles(Protocol):
    """What a lease needs of a storage (`storage.Storage`)."""

    def list(self, folder: str) -> list: ...  # type: ignore[type-arg]
    def read(self, name: str, last: int | None = None) -> bytes | None: ...
    def create(self, name: str, data: bytes) -> bool: ...
    def replace(self, name: str, data: bytes) -> None: ...
    def delete(self, name: str) -> None: ...


class Lease:
    """One attempt to hold a name, and what was gained by it."""

    def __init__(
        self,
        files: LeaseFiles,
        name: str,
        *,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._files = files
        self._folder, _, self._name = name.rpartition("/")
        self._now = now
        self._pause = pause
        self._token = uuid.uuid4().hex
        self._number = 0
        self._count = 0
        self._renewed = now()

    def take(self, waiting: Callable[[str], object] = lambda holder: None) -> bool:
        """Hold the name; False if somebody else does. If the holder may be dead, this waits for a lease to find out.

        `waiting` is told who the holder is.
        """
        number, content = self._highest()
        if content not in (None, _FREE):
            waiting(_of_holder(content, "holder") or "somebody")
            until = self._now() + LEASE_S
            while self._now() < until:
                self._pause(RENEWAL_S)
                there = self._highest()
                if there == (number, _FREE):
                    break
                if there != (number, content):
                    return False
        self._number = number + 1
        self._renewed = self._now()
        if not self._files.create(self._path(self._number), self._content()):
            return False
        # Somebody was faster if there is a higher number, or, where creating is not atomic, if the file is another one's.
        if not self._is_ours():
            return False
        if number:
            self._files.delete(self._path(number))
        return True

    def renew(self) -> None:
        """Say that the holder is alive. Raises Problem if the name was lost."""
        self.check()
        if not self._is_ours():
            self._renewed = float("-inf")
            self.check()
        self._count += 1
        began = self._now()
        self._files.replace(self._path(self._number), self._content())
        self._renewed = began

    def check(self) -> None:
        """Raises Problem if another process may hold the name by now."""
        if self._now() - self._renewed >= LEASE_S:
            raise Problem(
                f"the lock {self._folder}/{self._name} was not renewed for {LEASE_S:.0f} s, so another job may hold it;"
                " nothing is lost: run the same command again"
            )

    def give_back(self) -> None:
        """Let others hold the name at once."""
        if self._is_ours():
            self._files.replace(self._path(self._number), _FREE)

    def _path(self, number: int) -> str:
        return f"{self._folder}/{self._name}.{number:020d}"

    def _content(self) -> bytes:
        holder = f"{socket.gethostname()} process {os.getpid()}"
        return json.dumps({"holder": holder, "token": self._token, "count": self._count}).encode()

    def _is_ours(self) -> bool:
        """Whether the highest number is this holder's.

        Its count does not matter: a write that failed may have changed the file or not.
        """
        number, content = self._highest()
        return number == self._number and _of_holder(content, "token") == self._token

    def _highest(self) -> tuple[int, bytes | None]:
        """The highest number that a file has, and its content; None if there is none."""
        prefix = f"{self._name}."
        numbers = [
            int(item.name.removeprefix(prefix))
            for item in self._files.list(self._folder)
            if item.name.startswith(prefix) and item.name.removeprefix(prefix).isdigit()
        ]
        if not numbers:
            return 0, None
        return max(numbers), self._files.read(self._path(max(numbers)))


def _of_holder(content: bytes | None, name: str) -> str | None:
    """What a file says about the holder; None if it says nothing."""
    try:
        return str(json.loads(content or b"")[name])
    except (ValueError, KeyError, TypeError):
        return None


class Renewal:
    """Renews a lease in its own thread, until the block ends."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def __enter__(self) -> Lease:
        self._thread.start()
        return self._lease

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(RENEWAL_S):
            try:
                self._lease.renew()
            except Problem:
                return  # the job finds out by `check`
            except Exception:  # noqa: BLE001 - whatever the storage says, it may answer next time
                continue
