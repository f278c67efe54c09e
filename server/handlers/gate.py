"""What the dispatcher asks besides handlers, for each request: who observes it, who throttles it.

A broker that is not told of either has neither, and its requests pay nothing for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from kwire.errors import ErrorCode

    from .context import RequestContext


class Durations(NamedTuple):
    """How long a request took in the broker. Unit: microseconds.

    Shape: `local` from its arrival at the dispatcher until the handler has returned; `remote` from
    there until what the handler waits for is done, 0 if that was nothing; `encode` the making of the
    reply. What it waited before its turn and what sending it took are the network's to tell.
    """

    local_us: int
    remote_us: int
    encode_us: int


class Observer(Protocol):
    """Is told once of each request that was decoded, right before its reply goes to the network."""

    def observe(
        self, ctx: RequestContext, response: object, error: ErrorCode, durations: Durations
    ) -> None:
        """Note one request.

        Shape: `response` is the message, or what stands for one (`Encoded`, `NoReply`), or None where
        the connection is closed instead. `error` is NONE where the handler has answered, with whatever errors its rows have; what the gate
        refused the request with, or what the handler's own failure was answered with. A request
        whose connection ends before its reply is ready is not observed.
        """
        ...


class RequestQuotas(Protocol):
    """Says how long clients are to be throttled; asked only for handlers that are `throttled`."""

    def throttle_time_ms(self, ctx: RequestContext) -> int:
        """What the response tells its client, 0 if it is within its quota."""
        ...
