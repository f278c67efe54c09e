"""Regular expressions of clients, matched by RE2 as in Apache Kafka (KIP-1152)."""

from __future__ import annotations

from collections.abc import Sequence

from ...expressions import InvalidPattern, compiled

__all__ = ["InvalidPattern", "Pattern", "matching"]


class Pattern:
    """A compiled expression. Errors: InvalidPattern."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str) -> None:
        self._compiled = compiled(text, captures=False)
        self.text = text

    @property
    def size(self) -> int:
        """The maximum number of steps per character of a text."""
        return int(self._compiled.programsize)

    def matches(self, text: str) -> bool:
        """Whether the expression matches the whole text."""
        return self._compiled.fullmatch(text) is not None


def matching(pattern: str, texts: Sequence[str]) -> list[bool]:
    """Whether the expression matches each text; for a worker process."""
    compiled = Pattern(pattern)
    return [compiled.matches(text) for text in texts]
