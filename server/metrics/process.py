"""Facts from the operating system about the process, besides those that prometheus_client reads."""

from __future__ import annotations

from pathlib import Path

IO = Path("/proc/self/io")


def disk_bytes(which: str) -> int | None:
    """Bytes read from, or written to, disks: `read_bytes` or `write_bytes`; None if Linux does not report them."""
    try:
        text = IO.read_text(encoding="ascii")
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(": ")
        if name == which:
            return int(value)
    return None
