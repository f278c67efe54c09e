"""A disk with little space, for one log directory: a tmpfs, or a `kwire` whose writes are refused.

As a program (`python -m tests.support.small_disk ...`) it is a `kwire` whose writes below the
folder KWIRE_SMALL_DISK fail with ENOSPC once KWIRE_SMALL_DISK_BYTES have been written there.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .broker_process import KwireBroker

FOLDER = "KWIRE_SMALL_DISK"
BYTES = "KWIRE_SMALL_DISK_BYTES"


class SmallDisk:
    """A folder that accepts a number of bytes, which can be raised."""

    def __init__(self, folder: Path, megabytes: int, *, mounted: bool) -> None:
        self.folder = folder
        self.megabytes = megabytes
        self.mounted = mounted

    def resize(self, megabytes: int) -> None:
        """Set the number of bytes that it accepts from the broker's next start on."""
        self.megabytes = megabytes
        if self.mounted:
            options = f"remount,size={megabytes}m"
            subprocess.run(["mount", "-o", options, str(self.folder)], check=True)

    def limit(self, broker: KwireBroker) -> list[str]:
        """The broker's command line on this disk; sets the environment variables that it reads."""
        command = KwireBroker.command(broker)
        if self.mounted:
            return command
        os.environ[FOLDER] = str(self.folder)
        os.environ[BYTES] = str(self.megabytes << 20)
        command[command.index("server")] = "tests.support.small_disk"
        return command


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[SmallDisk]:
    """A folder on a disk of that size: a tmpfs if it can be mounted, otherwise refused writes."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "kwire-test", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    try:
        yield SmallDisk(folder, megabytes, mounted=mounted)
    finally:
        os.environ.pop(FOLDER, None)
        os.environ.pop(BYTES, None)
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def refuse_writes() -> None:
    """Make the file layer's writes fail as the environment says."""
    from server.log.file_layer import FileLayer

    folder, left = os.environ[FOLDER], int(os.environ[BYTES])
    left -= sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())

    def pwrite(fd: int, data: bytes, position: int) -> int:
        nonlocal left
        path = f"/proc/self/fd/{fd}"
        if os.readlink(path).startswith(folder):
            if left < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            left -= len(data)
        return os.pwrite(fd, data, position)

    FileLayer.pwrite = staticmethod(pwrite)  # type: ignore[assignment]


if __name__ == "__main__":
    refuse_writes()
    from server.__main__ import main

    sys.exit(main())
