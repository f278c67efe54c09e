"""How a handler is declared and found: `@handles`, and a table made from an explicit tuple.

The tuple itself is `SERVED` in `table.py`; clients can use only handlers that are in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from kwire.api import ApiKey

from .authorization import Check
from .ceilings import ApiRange, Ceiling
from .context import Handler, RequestContext

__all__ = ["ApiRange", "Handler", "HandlerTable", "Late", "handles"]

RequestT = TypeVar("RequestT")


def handles(
    request_class: type[RequestT],
    *,
    versions: str,
    authorize: Check | None,
    throttled: bool = True,
    overlap: bool = False,
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
        )

    return declare


class Late(NamedTuple):
    """A handler that is loaded on first use. Shape: versions are inclusive; `module` is one of this folder."""

    api_key: int
    min_version: int
    max_version: int
    module: str
    function: str

    def load(self) -> Handler[Any]:
        """Import the handler."""
        found: Handler[Any] = getattr(import_module(f".{self.module}", __package__), self.function)
        return found


class ByKey(dict[int, Handler[Any]]):
    """Handlers by API key; one that is `late` comes in when it is asked for."""

    def __init__(self) -> None:
        self.late: dict[int, Late] = {}
        #: Makes what is served of a handler that comes in late.
        self._front: Callable[[Handler[Any]], Handler[Any]] | None = None

    def __missing__(self, key: int) -> Handler[Any]:
        loaded = self.late.pop(key).load()
        if self._front is not None:
            loaded = self._front(loaded)
        self[key] = loaded
        return loaded

    def stand_before(self, front: Callable[[Handler[Any]], Handler[Any]]) -> None:
        """Serve what a function makes of each handler; this loads none that is late."""
        for key, handler in self.items():
            self[key] = front(handler)
        self._front = front

    def load_all(self) -> None:
        """Load what was not asked for yet."""
        for key in list(self.late):
            self[key]

    def add(self, handler: Handler[Any] | Late) -> None:
        """Add a handler."""
        if type(handler) is Late:
            self.late[handler.api_key] = handler
        else:
            self[handler.api_key] = handler  # type: ignore[assignment]


class HandlerTable:
    """The handlers of one broker under one ceiling: it serves exactly what it advertises.

    Shape: an API is served if the ceiling has it, from the handler's lowest version, so that old
    clients keep working, up to the highest version that both have. Errors: ValueError when two
    handlers claim one API.
    """

    __slots__ = ("_above", "_highest", "by_key", "ceiling", "ranges")

    def __init__(self, handlers: Iterable[Handler[Any] | Late], ceiling: Ceiling) -> None:
        self.ceiling = ceiling
        self.by_key = ByKey()
        self.ranges: dict[int, ApiRange] = {}
        #: The highest versions of the handlers, whatever the ceiling.
        self._highest: dict[int, int] = {}
        #: Handlers of APIs that the ceiling does not have.
        self._above: dict[int, Handler[Any] | Late] = {}
        for handler in sorted(handlers, key=lambda each: each.api_key):
            key = handler.api_key
            if key in self._highest:
                name = ApiKey(key).name.title().replace("_", "")
                raise ValueError(f"two handlers for {name}")
            self._highest[key] = handler.max_version
            limit = ceiling.ranges.get(key)
            if limit is None:
                self._above[key] = handler
                continue
            low, high = handler.min_version, min(handler.max_version, limit[1])
            if low <= high:
                self.by_key.add(handler)
                self.ranges[key] = ApiRange(key, low, high)

    def raise_versions(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Serve and advertise APIs up to versions that are above the ceiling, also those that it does not have."""
        for key, (_, highest) in ranges.items():
            above = self._above.pop(key, None)
            if above is not None:
                self.by_key.add(above)
                self.ranges[key] = ApiRange(key, above.min_version, highest)
            served = self.ranges.get(key)
            if served is not None:
                highest = min(highest, self._highest[key])
                self.ranges[key] = served._replace(max_version=highest)

    def find(self, api_key: int, version: int) -> Handler[Any] | None:
        """Return the handler that serves this API at this version, or None."""
        served = self.ranges.get(api_key)
        if served is None or not served.min_version <= version <= served.max_version:
            return None
        return self.by_key[api_key]

    def __iter__(self) -> Iterator[Handler[Any]]:
        self.by_key.load_all()
        return iter(self.by_key.values())

    def __len__(self) -> int:
        return len(self.ranges)
