"""The versions of an API that are tested: all that its handler has, so that a new one is tested, too."""

from __future__ import annotations

from typing import Any

from kwire.schema import MAX_VERSION
from server.handlers.registry import Handler


def versions(*handlers: Handler[Any], first: int = 0, last: int = MAX_VERSION) -> range:
    """The versions that all of these handlers have, from the first to the last."""
    return range(
        max(first, *(each.min_version for each in handlers)),
        min(last, *(each.max_version for each in handlers)) + 1,
    )
