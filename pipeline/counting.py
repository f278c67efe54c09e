"""Numbers in sentences."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """A number and its noun, in the plural if needed."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
