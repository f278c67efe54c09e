"""Handlers that work in steps, for tests that want their answer at once."""

from __future__ import annotations

from types import GeneratorType
from typing import Any

from server.turns import exhaust


def finished(answer: Any) -> Any:
    """What a handler, or the `finish` of a Later, comes to; a generator is run to its end."""
    return exhaust(answer) if isinstance(answer, GeneratorType) else answer
