"""A log line for each request, at the level DEBUG: its API, client and duration, but none of its content.

The logger has Apache Kafka's name.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode

from ..loggers import REQUESTS

if TYPE_CHECKING:
    from .context import RequestContext
    from .gate import Counter, Durations, Observer

logger = logging.getLogger(REQUESTS)


#: More than any API has.
MAX_VERSION = 63


class EachTimed:
    """A counter of requests that are all timed."""

    def __init__(self) -> None:
        self.versions = [0] * (MAX_VERSION + 1)
        self.mask = 0
        self.errors = {0: 0}


class RequestLog:
    """An observer that logs requests, before another one if there is one.

    Shape: where the other one does not time a request, the line has no time.
    """

    counts_rows = False

    def __init__(self, then: Observer | None) -> None:
        self._then = then
        self.apis: Mapping[int, Counter] = defaultdict(EachTimed) if then is None else then.apis

    def observe(
        self,
        ctx: RequestContext,
        response: object,
        error: ErrorCode,
        durations: Durations | None,
    ) -> None:
        """Log a request, and pass it on."""
        took = f"{sum(durations) / 1000:.1f} ms" if durations is not None else "not timed"
        if durations is not None and durations.remote_us:
            took += f", {durations.remote_us / 1000:.1f} ms of them waiting"
        failed = "" if error is ErrorCode.NONE else f", {error.name}"
        connection = ctx.connection
        logger.debug(
            "%s v%d of client %r at %s as %s: %s%s",
            ctx.handler.name,
            ctx.version,
            ctx.client_id,
            connection.peer,
            connection.principal,
            took,
            failed,
        )
        if self._then is not None:
            self._then.observe(ctx, response, error, durations)
