"""How a handler is declared and found: `@handles`, and a table made from an explicit tuple.

The tuple itself is `HANDLERS` in `table.py`; a handler exists for clients only when it is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from kwire.api import ApiKey
from kwire.schema import MAX_VERSION, schema_of

from .ceilings import Ceiling

if TYPE_CHECKING:
    from kwire.errors import ErrorCode

    from .context import RequestContext

RequestT = TypeVar("RequestT")


class ApiRange(NamedTuple):
    """One row of an ApiVersions answer; both ends inclusive."""

    api_key: int
    min_version: int
    max_version: int


class Handler(Generic[RequestT]):
    """One API as this broker serves it: the function, the versions, and how it shares a connection.

    Shape: calling it calls the function. `min_version` and `max_version` are inclusive.
    `flexible_from` is the first version whose response has the flexible header.
    `overlap`: the next request of the same connection may start before this one's reply is ready.
    `refusal(ctx, request, error)`: the response that carries one error for all of the request, for
    APIs whose response has no top-level error code.
    """

    __slots__ = (
        "api_key",
        "flexible_from",
        "function",
        "max_version",
        "min_version",
        "name",
        "overlap",
        "refusal",
        "request_class",
    )

    def __init__(
        self,
        request_class: type[RequestT],
        versions: str,
        function: Callable[[RequestContext, RequestT], Any],
        overlap: bool,
        refusal: Callable[[RequestContext, RequestT, ErrorCode], Any] | None,
    ) -> None:
        self.request_class = request_class
        schema = schema_of(request_class)
        if schema.api_key is None:
            raise TypeError(f"{request_class.__name__} is not a request")
        self.api_key = int(schema.api_key)
        self.name = request_class.__name__.removesuffix("Request")
        self.min_version, self.max_version = parse_versions(versions)
        flexible = schema.flexible
        # ApiVersions responses always have the old header, so that any client can read them.
        never = not flexible or self.api_key == ApiKey.API_VERSIONS
        self.flexible_from = MAX_VERSION + 1 if never else flexible.lowest
        self.function = function
        self.overlap = overlap
        self.refusal = refusal

    def __call__(self, ctx: RequestContext, request: RequestT) -> Any:
        return self.function(ctx, request)

    def __repr__(self) -> str:
        return f"<handler {self.name} {self.min_version}-{self.max_version}>"


def handles(
    request_class: type[RequestT],
    *,
    versions: str,
    overlap: bool = False,
    refusal: Callable[[RequestContext, RequestT, ErrorCode], Any] | None = None,
) -> Callable[[Callable[[RequestContext, RequestT], Any]], Handler[RequestT]]:
    """Declare a plain function the handler of one API at these versions ("0-11", or "3" for one).

    Shape: the function returns the response message, a `Later`, or a `NoReply`.
    """

    def declare(function: Callable[[RequestContext, RequestT], Any]) -> Handler[RequestT]:
        return Handler(request_class, versions, function, overlap, refusal)

    return declare


def parse_versions(versions: str) -> tuple[int, int]:
    """Read "a-b" or "a" as an inclusive pair."""
    first, _, last = versions.partition("-")
    pair = int(first), int(last or first)
    if pair[0] > pair[1] or pair[0] < 0:
        raise ValueError(f"not a version range: {versions!r}")
    return pair


class HandlerTable:
    """The handlers of one broker under one ceiling: what is looked up is what is advertised.

    Shape: an API is served if the ceiling has it, from the handler's lowest version, so that old
    clients go on working, up to the highest that both have.
    Errors: ValueError when two handlers claim one API.
    """

    __slots__ = ("by_key", "ceiling", "ranges")

    def __init__(self, handlers: Iterable[Handler[Any]], ceiling: Ceiling) -> None:
        self.ceiling = ceiling
        self.by_key: dict[int, Handler[Any]] = {}
        self.ranges: dict[int, ApiRange] = {}
        for handler in sorted(handlers, key=lambda each: each.api_key):
            key = handler.api_key
            if key in self.by_key:
                raise ValueError(f"two handlers for {handler.name}")
            limit = ceiling.ranges.get(key)
            if limit is None:
                continue
            low, high = handler.min_version, min(handler.max_version, limit[1])
            if low <= high:
                self.by_key[key] = handler
                self.ranges[key] = ApiRange(key, low, high)

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
