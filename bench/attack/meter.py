"""Runs `kwire serve` of any checkout and records its longest turn of the event loop. Standard library only.

    PYTHON meter.py ROOT FILE serve ...

FILE is one native double that the caller may clear: the CPU seconds of the longest turn so far. A turn is
one round of the loop; waiting for events costs no CPU. The loop is asyncio's: uvloop does not report the ends of turns.
"""

from __future__ import annotations

import mmap
import os
import runpy
import struct
import sys
import time
from asyncio import base_events

TURN = struct.Struct("d")


def measure(path: str) -> None:
    """Measure every turn of every loop of this process."""
    with open(path, "r+b") as file:
        shared = mmap.mmap(file.fileno(), TURN.size)
    loop = base_events.BaseEventLoop
    run_once = loop._run_once  # type: ignore[attr-defined]
    thread_time = time.thread_time

    def measured(self: base_events.BaseEventLoop) -> None:
        cpu = thread_time()
        run_once(self)
        used = thread_time() - cpu
        if used > TURN.unpack_from(shared)[0]:
            TURN.pack_into(shared, 0, used)

    loop._run_once = measured  # type: ignore[attr-defined]


def main() -> None:
    root, path, *arguments = sys.argv[1:]
    os.environ["KWIRE_LOOP"] = "asyncio"
    os.chdir(root)
    sys.path[0] = root
    measure(path)
    sys.argv = ["kwire", *arguments]
    runpy.run_module("server", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
