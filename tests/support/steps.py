"""Handlers that work in steps, for tests that want their answer immediately."""

from __future__ import annotations

from types import GeneratorType
from typing import Any

from server.turns import exhaust


def finished(answer: Any) -> Any:
    """The result of a handler, or of the `finish` of a Later; a generator is run to its end."""
    return exhaust(answer) if isinstance(answer, GeneratorType) else answer
