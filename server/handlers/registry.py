"""How a handler is declared and found: `@handles`, and a table made from an explicit tuple.

The tuple itself is `HANDLERS` in `table.py`; clients can use only handlers that are in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from kwire.errors import ErrorCode

from .authorization import Check
from .ceilings import ApiRange, Ceiling
from .context import Handler, RequestContext

__all__ = ["ApiRange", "Handler", "HandlerTable", "handles"]

RequestT = TypeVar("RequestT")


def handles(
    request_class: type[RequestT],
    *,
    versions: str,
    authorize: Check | None,
    throttled: bool = True,
    overlap: bool = False,
    refusal: Callable[[RequestContext, RequestT, ErrorCode], Any] | None = None,
) -> Callable[[Callable[[RequestContext, RequestT], Any]], Handler[RequestT]]:
    """Declare a function as the handler of one API at these versions ("0-11" or "3").

    Shape: the function returns the response message, a `Later`, or a `NoReply`. If its work grows with the
    request or with what is stored, it is a generator function that yields between rows; see dispatch.py.
    """

    def declare(function: Callable[[RequestContext, RequestT], Any]) -> Handler[RequestT]:
        return Handler(
            request_class,
            versions,
            function,
            authorize=authorize,
            throttled=throttled,
            overlap=overlap,
            refusal=refusal,
        )

    return declare


class HandlerTable:
    """The handlers of one broker under one ceiling: it serves exactly what it advertises.

    Shape: an API is served if the ceiling has it, from the handler's lowest version, so that old
    clients keep working, up to the highest version that both have. Errors: ValueError when two
    handlers claim one API.
    """

    __slots__ = ("_above", "by_key", "ceiling", "ranges")

    def __init__(self, handlers: Iterable[Handler[Any]], ceiling: Ceiling) -> None:
        self.ceiling = ceiling
        self.by_key: dict[int, Handler[Any]] = {}
        self.ranges: dict[int, ApiRange] = {}
        #: Handlers of APIs that the ceiling does not have.
        self._above: dict[int, Handler[Any]] = {}
        for handler in sorted(handlers, key=lambda each: each.api_key):
            key = handler.api_key
            if key in self.by_key:
                raise ValueError(f"two handlers for {handler.name}")
            limit = ceiling.ranges.get(key)
            if limit is None:
                self._above[key] = handler
                continue
            low, high = handler.min_version, min(handler.max_version, limit[1])
            if low <= high:
                self.by_key[key] = handler
                self.ranges[key] = ApiRange(key, low, high)

    def raise_versions(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Serve and advertise APIs up to versions that are above the ceiling, also those that it does not have."""
        for key, (_, highest) in ranges.items():
            above = self._above.pop(key, None)
            if above is not None:
                self.by_key[key] = above
                self.ranges[key] = ApiRange(key, above.min_version, highest)
            served = self.ranges.get(key)
            if served is not None:
                highest = min(highest, self.by_key[key].max_version)
                self.ranges[key] = served._replace(max_version=highest)

    def find(self, api_key: int, version: int) -> Handler[Any] | None:
        """Return the handler that serves this API at this version, or None."""
        served = self.ranges.get(api_key)
        if served is None or not served.min_version <= version <= served.max_version:
            return None
        return self.by_key[api_key]

    def __iter__(self) -> Iterator[Handler[Any]]:
        return iter(self.by_key.values())

    def __len__(self) -> int:
        return len(self.by_key)
