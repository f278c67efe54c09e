"""InitializeShareGroupState, ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState and
ReadShareGroupStateSummary (API keys 83 to 87).

Behavior: brokers ask the share coordinator of share partitions, which is the leader of their partition of
__share_group_state. Each row is an operation of its own and has its own error; the response waits until all of them
are committed. The rules are in server/coordinator/share_state/shard.py, the operations in server/coordinator/share_state/operations.py.
Versions: 0; WriteShareGroupState and ReadShareGroupStateSummary 0-1, where v1 brings the number of records whose
delivery is complete.
Source: KafkaApis, ShareCoordinatorService (4.3).
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any

from ..coordinator.share_state.operations import (
    DELETE_STATE,
    INITIALIZE_STATE,
    READ_STATE,
    READ_SUMMARY,
    WRITE_STATE,
    StateOperation,
)
from ..turns import ROWS_IN_STEP, Steps
from .authorization import AclOperation, cluster
from .context import Handler
from .registry import handles

if TYPE_CHECKING:
    from .context import Later, RequestContext

#: Only brokers send these requests.
BROKERS = cluster(AclOperation.CLUSTER_ACTION)


def _handler(operation: StateOperation[Any, Any]) -> Handler[Any]:
    """The handler of an operation, which runs it for each row of a request, one in a step."""

    @handles(operation.request_class, versions=operation.versions, authorize=BROKERS)
    def handle(ctx: RequestContext, request: Any) -> Steps[Later[Any]]:
        coordinator = ctx.services.share_coordinator
        answers = []
        for row in (yield from operation.rows(request)):
            yield
            answers.append(coordinator.ask(operation, request.group_id, row))
        return ctx.later(_all(ctx, answers), operation.response)

    return handle


async def _all(ctx: RequestContext, answers: Iterable[Any]) -> list[Any]:
    """The rows, when all of them are there; one for each share partition, the last, as Apache Kafka does."""
    rows: dict[tuple[bytes, int], Any] = {}
    for number, each in enumerate(answers, start=1):
        row = await each if isinstance(each, Awaitable) else each
        rows[row.topic_id, row.partition] = row
        if not number % ROWS_IN_STEP:
            await ctx.services.turns.pause(ctx.connection)
    return list(rows.values())


initialize_share_group_state = _handler(INITIALIZE_STATE)
read_share_group_state = _handler(READ_STATE)
write_share_group_state = _handler(WRITE_STATE)
delete_share_group_state = _handler(DELETE_STATE)
read_share_group_state_summary = _handler(READ_SUMMARY)
