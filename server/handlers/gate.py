"""The observer and the quotas that the dispatcher consults for each request.

Without them, requests pay nothing for them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar, cast

from kwire.api import ApiKey

from .charge import Charge

if TYPE_CHECKING:
    from kwire.errors import ErrorCode

    from ..clock import Clock
    from ..quotas.clients import ClientQuotas
    from .context import RequestContext

T = TypeVar("T")

PRODUCE = int(ApiKey.PRODUCE)


class Durations(NamedTuple):
    """How long a request took in the broker. Unit: microseconds.

    Shape: `local` is the time from the request's arrival at the dispatcher until the handler returns; `remote` is the
    time until the handler's wait ends, 0 if it does not wait; `encode` is the time to make the reply. Only the network
    knows the time before the request's turn, and the time to send the reply.
    """

    local_us: int
    remote_us: int
    encode_us: int


class Counter(Protocol):
    """The requests of one API.

    Shape: `versions` counts them by version; one in `mask` + 1 of a version is timed. `errors` counts the error codes of
    responses.
    """

    versions: list[int]
    mask: int
    errors: dict[int, int]


class Observer(Protocol):
    """Counts each request that is served, and is called right before its reply goes to the network."""

    #: Whether of a plain response that is not timed nothing has to be known but the number of its rows, which may be added
    #: to `errors[0]` without a call of `observe`.
    counts_rows: bool

    @property
    def apis(self) -> Mapping[int, Counter]:
        """A counter for each API, created on first use."""
        ...

    def observe(
        self,
        ctx: RequestContext,
        response: object,
        error: ErrorCode,
        durations: Durations | None,
    ) -> None:
        """Note one request that was decoded.

        Shape: `response` is the message, or what replaces one (`Encoded`, `NoReply`), or None if
        the connection is closed instead. `error` is NONE if the handler answered, whatever errors
        its rows have; otherwise the error with which the gate refused the request, or that answers
        the handler's own failure. `durations` is None if the request is not timed. A request whose
        connection ends before its reply is ready is not observed.
        """
        ...


def timed(
    charge: Charge, steps: Generator[None, None, T], now_us: Callable[[], int]
) -> Generator[None, None, T]:
    """Step a generator, and count the time of its steps alone."""
    charge.stop(now_us())
    try:
        while True:
            charge.go_on(now_us())
            try:
                next(steps)
            except StopIteration as end:
                charge.stop(now_us())
                return cast(T, end.value)
            charge.stop(now_us())
            yield
    finally:
        steps.close()


def throttle_time_ms(
    ctx: RequestContext, charge: Charge, quotas: ClientQuotas, clock: Clock, *, answered: bool
) -> int:
    """Count a request and return for how long its client is throttled: the longest of all its quotas.

    Shape: a request that gets no answer (acks=0) is exempt from the request quota, as are handlers that are not
    `throttled` from every quota. Source: KafkaApis, RequestHandlerHelper.sendMaybeThrottle.
    """
    if charge.throttle_ms is not None:
        return charge.throttle_ms
    handler = ctx.handler
    if not handler.throttled:
        return 0
    now_ms = clock.monotonic_ms()
    user, client_id = quota_user(ctx), ctx.client_id or ""
    throttle_ms = max(0, charge.throttled_until_ms - now_ms)
    if quotas.request.limits and answered:
        charge.go_on(clock.monotonic_us())
        throttle_ms = max(
            throttle_ms, quotas.request.record(user, client_id, charge.used_us, now_ms)
        )
    if handler.api_key == PRODUCE and quotas.produce.limits:
        throttle_ms = max(throttle_ms, quotas.produce.record(user, client_id, charge.size, now_ms))
    return throttle_ms


def fetch_throttle_time_ms(
    ctx: RequestContext, charge: Charge, quotas: ClientQuotas, clock: Clock, size: int
) -> int:
    """Do the same for a consumer's Fetch, whose answer would have this size in bytes.

    Shape: a throttled Fetch is answered without records, so that the bytes do not count.
    """
    now_ms = clock.monotonic_ms()
    user, client_id = quota_user(ctx), ctx.client_id or ""
    throttle_ms = 0
    if quotas.request.limits:
        charge.go_on(clock.monotonic_us())
        throttle_ms = quotas.request.record(user, client_id, charge.used_us, now_ms)
    if quotas.fetch.limits:
        throttle_ms = max(throttle_ms, quotas.fetch.record(user, client_id, size, now_ms))
        if throttle_ms:
            quotas.fetch.take_back(user, client_id, size, now_ms)
    charge.throttle_ms = throttle_ms
    return throttle_ms


def quota_user(ctx: RequestContext) -> str:
    """The name of the principal, without its type, as in the names of quotas."""
    return ctx.connection.principal.partition(":")[2]


def may_mutate(ctx: RequestContext, partitions: int, *, strict_since: int) -> bool:
    """Count partitions that are to be created or deleted; False if the client's quota is exhausted.

    Shape: applies since version `strict_since`; clients of older versions are only throttled.
    Errors, for the caller to answer: THROTTLING_QUOTA_EXCEEDED. Source: ControllerMutationQuotaManager; KIP-599.
    """
    charge, quota = ctx.charge, ctx.services.quotas.mutation
    if charge is None or not quota.limits:
        return True
    now_ms = ctx.services.clock.monotonic_ms()
    strict = ctx.version >= strict_since
    allowed, throttle_ms = quota.record(
        quota_user(ctx), ctx.client_id or "", partitions, now_ms, strict=strict
    )
    if throttle_ms:
        charge.throttled_until_ms = now_ms + throttle_ms
    return allowed
