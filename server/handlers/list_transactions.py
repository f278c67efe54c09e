"""ListTransactions (API key 66).

Behavior: lists the transactional ids that this broker coordinates and that pass every filter. The
pattern is an expression of RE2 for the whole id. Matching many ids, or with a large expression, is
work for a worker process.
Versions: 0-2 (KIP-664): v1 the duration (KIP-994), v2 the pattern (KIP-1152).
Omitted: regular expressions that need more than 1 MiB, and searches that exceed the limits of a worker
process, are answered with INVALID_REGULAR_EXPRESSION.
Source: TransactionCoordinator.handleListTransactions.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from concurrent.futures import BrokenExecutor
from itertools import compress
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode
from kwire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

from ..coordinator.common.pattern import matching
from ..coordinator.transaction.state import TITLES
from ..workers import TookTooLong, TookTooMuch
from .authorization import AclOperation, ResourceType
from .registry import handles

if TYPE_CHECKING:
    from ..coordinator.transaction.coordinator import DescribedTransaction
    from .context import Later, RequestContext

logger = logging.getLogger(__name__)

#: Matching that takes more steps of the expression than this, over all characters of all ids, runs in a worker process;
#: it can take some milliseconds where RE2 has to follow all alternatives at once.
INLINE_MATCHING = 2_000_000


@handles(ListTransactionsRequest, versions="0-2", authorize=None)
def list_transactions(
    ctx: RequestContext, request: ListTransactionsRequest
) -> Generator[None, None, ListTransactionsResponse | Later[ListTransactionsResponse]]:
    """List the transactional ids that this broker coordinates."""
    error, rows, pattern = yield from ctx.services.transaction_coordinator.transactions(
        request.state_filters,
        request.producer_id_filters,
        request.duration_filter,
        request.transactional_id_pattern,
    )
    allowed, _ = yield from ctx.partition_by_authorized(
        AclOperation.DESCRIBE,
        ResourceType.TRANSACTIONAL_ID,
        (row.transactional_id for row in rows),
    )
    if len(allowed) < len(rows):
        may_see = set(allowed)
        rows = [row for row in rows if row.transactional_id in may_see]
    if pattern is None:
        return (yield from listed_transactions(request, error, rows))
    cost = 0
    for row in rows:
        yield
        cost += pattern.size * (len(row.transactional_id) + 1)
        if cost > INLINE_MATCHING:
            names = [row.transactional_id for row in rows]
            return ctx.later(
                match_elsewhere(ctx, pattern.text, names),
                lambda matched: listed_transactions(
                    request,
                    *((matched, ()) if isinstance(matched, ErrorCode) else (error, rows, matched)),
                ),
            )
    matched = []
    for row in rows:
        yield
        matched.append(pattern.matches(row.transactional_id))
    return (yield from listed_transactions(request, error, rows, matched))


async def match_elsewhere(
    ctx: RequestContext, pattern: str, names: list[str]
) -> list[bool] | ErrorCode:
    """Match names in a worker process. Errors: INVALID_REGULAR_EXPRESSION if that takes too much."""
    try:
        return await ctx.services.executor.in_worker(ctx.connection, matching, pattern, names)
    except (TookTooLong, TookTooMuch, BrokenExecutor) as error:
        logger.warning(
            "the pattern of client %r at %s is refused, as matching %d transactional ids costs too"
            " much: %s: %.100r",
            ctx.client_id,
            ctx.connection.peer,
            len(names),
            error,
            pattern,
        )
        return ErrorCode.INVALID_REGULAR_EXPRESSION


def listed_transactions(
    request: ListTransactionsRequest,
    error: ErrorCode,
    rows: Sequence[DescribedTransaction],
    matched: Sequence[bool] | None = None,
) -> Generator[None, None, ListTransactionsResponse]:
    """The response with the rows that match, in steps."""
    if error is ErrorCode.INVALID_REGULAR_EXPRESSION:
        return ListTransactionsResponse(
            error_code=error, unknown_state_filters=[], transaction_states=[]
        )
    known = frozenset(TITLES.values())
    states = []
    for row in rows if matched is None else compress(rows, matched):
        yield
        states.append(
            TransactionState(
                transactional_id=row.transactional_id,
                producer_id=row.metadata.producer_id,
                transaction_state=row.metadata.state.title,
            )
        )
    unknown = []
    for name in request.state_filters:
        yield
        if name not in known:
            unknown.append(name)
    return ListTransactionsResponse(
        error_code=error,
        unknown_state_filters=unknown,
        transaction_states=states,
    )
