"""Numbers in texts that others have written: settings, requests, files."""

from __future__ import annotations

import re

_INTEGER = re.compile(r"([+-]?)([0-9]+)", re.ASCII)
_DOUBLE = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?|[+-]?(?:NaN|Infinity)"
)
#: No integer of Apache Kafka has more digits. Python's `int` refuses texts of more than 4,300.
_MAX_DIGITS = 19


def parse_integer(text: str, bits: int = 64) -> int | None:
    """A decimal integer with this number of bits, as in Java's parseInt and parseLong; None if the text is none."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    digits = match[2].lstrip("0") or "0"
    if len(digits) > _MAX_DIGITS:
        return None
    value = int(match[1] + digits)
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


def parse_double(text: str) -> float | None:
    """A number in the decimal forms of Java's Double.parseDouble, such as 0.5, 5e-1 and 0.5d; None if the text is none."""
    match = _DOUBLE.fullmatch(text)
    return None if match is None else float(match[1] or match[0])
