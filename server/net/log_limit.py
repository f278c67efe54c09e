"""Limits the number of log lines that peers can cause."""

from __future__ import annotations

import logging
from collections.abc import Callable

MAX_KEYS = 1000


class LineLimiter:
    """Passes the first lines of each kind in a window of time and counts the rest.

    Shape: when the window is over, the next line of the kind includes the number of suppressed lines.
    """

    def __init__(
        self,
        logger: logging.Logger,
        monotonic_ms: Callable[[], int],
        lines: int = 10,
        window_ms: int = 10_000,
    ) -> None:
        self._logger = logger
        self._monotonic_ms = monotonic_ms
        self._lines = lines
        self._window_ms = window_ms
        self._kinds: dict[object, list[int]] = {}  # kind -> [window start, lines, suppressed]

    def log(self, level: int, kind: object, message: str, *arguments: object) -> bool:
        """Log one line, unless there were too many of its kind recently; return whether it was logged."""
        now_ms = self._monotonic_ms()
        state = self._kinds.get(kind)
        if state is None:
            if len(self._kinds) >= MAX_KEYS:
                self._forget(now_ms)
            state = self._kinds[kind] = [now_ms, 0, 0]
        left_out = 0
        if now_ms - state[0] >= self._window_ms:
            left_out = state[2]
            state[:] = [now_ms, 0, 0]
        if state[1] >= self._lines:
            state[2] += 1
            return False
        state[1] += 1
        if left_out:
            message += " (%d more like this were not logged)"
            arguments = (*arguments, left_out)
        self._logger.log(level, message, *arguments)
        return True

    def _forget(self, now_ms: int) -> None:
        for kind in [k for k, state in self._kinds.items() if now_ms - state[0] >= self._window_ms]:
            del self._kinds[kind]
        if len(self._kinds) >= MAX_KEYS:
            self._kinds.clear()
