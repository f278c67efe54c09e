"""Why a request about topics is refused."""

from __future__ import annotations

from typing import NamedTuple

from kwire.errors import ErrorCode


class Refusal(NamedTuple):
    """An error code for the reply's row, and the message that goes with it."""

    error: ErrorCode
    message: str | None
