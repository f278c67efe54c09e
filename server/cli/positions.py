"""The start and end of `kwire consume`: an offset, a number of records from the end, or a time."""

from __future__ import annotations

import re
import time
from argparse import ArgumentTypeError

from ..arguments import shown
from ..client.positions import StartPosition
from .client import whole_number

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
WORDS = {
    "beginning": "beginning",
    "earliest": "beginning",
    "start": "beginning",
    "end": "end",
    "latest": "end",
}


def position(text: str) -> StartPosition:
    """Parse beginning, end, N, -N, @MILLISECONDS, @2025-01-31T12:00:00 or @-15m. Errors: ArgumentTypeError."""
    if text in WORDS:
        return StartPosition(word=WORDS[text])
    if re.fullmatch("[0-9]+", text):
        return StartPosition(offset=whole_number(text))
    if re.fullmatch("-[0-9]+", text):
        return StartPosition(before_end=whole_number(text[1:]))
    if text.startswith("@"):
        return StartPosition(time_ms=moment(text[1:]))
    raise ArgumentTypeError(
        f"{shown(text)} is neither beginning, end, an offset, -N (the last N) nor @TIME"
    )


def moment(text: str) -> int:
    """Parse milliseconds since 1970, an ISO time or -15m. Errors: ArgumentTypeError."""
    ago = re.fullmatch("-([0-9]+)([smhd])", text)
    if ago:
        ago_ms = whole_number(ago[1]) * SECONDS[ago[2]] * 1000
        return max(int(time.time() * 1000) - ago_ms, 0)
    try:
        return time_of(text)
    except ArgumentTypeError:
        raise ArgumentTypeError(
            f"{shown(text)} is neither a time such as 2025-01-31T12:00:00, milliseconds since 1970, nor -15m"
        ) from None


def time_of(text: str) -> int:
    """Parse milliseconds since 1970, or an ISO time, in UTC unless it has a zone. Errors: ArgumentTypeError.

    Shape: the protocol gives a meaning to times before 1970, so that they are taken as 0.
    """
    if re.fullmatch("[0-9]+", text):
        return whole_number(text)
    from ..times import unix_ms

    try:
        return max(unix_ms(text), 0)
    except ValueError:
        raise ArgumentTypeError(
            f"{shown(text)} is not a time such as 2025-01-31T12:00:00"
        ) from None
