"""The machine's time, in a process whose tests may have replaced it: with freezegun, time-machine and others."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from kwire.server.clock import time

__all__ = ["now", "time", "wall_ns"]


def wall_ns() -> int:
    """Wall-clock time. Unit: nanoseconds since the Unix epoch."""
    machine = sys.modules.get("time_machine")
    if machine is None or not machine.escape_hatch.is_travelling():
        return int(time.time_ns())
    # It replaces the functions behind all copies of the module `time`, but for those of the monotonic clock.
    real: int = machine.escape_hatch.time.time_ns()
    return real


def now() -> datetime:
    """Wall-clock time as a date."""
    return datetime.fromtimestamp(wall_ns() / 1e9, UTC)
