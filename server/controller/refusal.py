"""The refusal of a request about topics."""

from __future__ import annotations

from typing import NamedTuple

from kwire.errors import ErrorCode


class ControllerRefusal(NamedTuple):
    """An error code for the reply's row, and its message."""

    error: ErrorCode
    message: str | None
