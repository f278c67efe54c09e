"""What the dispatcher asks for each request besides the handler: an observer and quotas.

Without them, requests pay nothing for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from kwire.errors import ErrorCode

    from .context import RequestContext


class Durations(NamedTuple):
    """How long a request took in the broker. Unit: microseconds.

    Shape: `local` is from the request's arrival at the dispatcher until the handler returns;
    `remote` from there until what the handler waits for is done, 0 if it does not wait; `encode` is
    the making of the reply. The time before the request's turn, and the time to send the reply, are
    known only to the network.
    """

    local_us: int
    remote_us: int
    encode_us: int


class Observer(Protocol):
    """Called once for each decoded request, right before its reply goes to the network."""

    def observe(
        self, ctx: RequestContext, response: object, error: ErrorCode, durations: Durations
    ) -> None:
        """Note one request.

        Shape: `response` is the message, or what replaces one (`Encoded`, `NoReply`), or None if
        the connection is closed instead. `error` is NONE if the handler answered, whatever errors
        its rows have; otherwise the error with which the gate refused the request, or that answers
        the handler's own failure. A request whose connection ends before its reply is ready is not
        observed.
        """
        ...


class RequestQuotas(Protocol):
    """Says how long clients are throttled; asked only for handlers that are `throttled`."""

    def throttle_time_ms(self, ctx: RequestContext) -> int:
        """The throttle time for the response; 0 if the client is within its quota."""
        ...
