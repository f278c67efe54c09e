"""Waiting for other processes."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(
    true: Callable[[], object],
    what: str | Callable[[], object] = "the condition",
    timeout_s: float = 180.0,
    every_s: float = 0.05,
) -> None:
    """Ask repeatedly, since nothing notifies us; the time is only for what never happens, on the busiest machine.

    Errors: AssertionError with `what`, which may tell how things are when it is too late.
    """
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, (
            f"not in time: {what if isinstance(what, str) else what()}"
        )
        time.sleep(every_s)
