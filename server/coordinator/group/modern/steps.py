"""Work that is done in steps, as in server/turns.py, which is not for pure rooms."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that yields between its steps and returns a T."""


def exhaust(steps: Steps[T]) -> T:
    """Run all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
