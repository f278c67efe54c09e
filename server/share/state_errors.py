"""Maps errors of a share coordinator to errors for members.

Source: SharePartition.
"""

from __future__ import annotations

import logging

from kwire.errors import ErrorCode

from ..net.log_limit import LineLimiter
from .led import Led

#: Errors that fence a share partition: the state has moved to another leader, or is gone.
FENCING = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
#: The errors that members get when the share coordinator refuses.//Source: SharePartition.fetchPersisterError.
TOLD = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


def told(
    lines: LineLimiter, led: Led, done: str, error: ErrorCode, message: str | None
) -> ErrorCode:
    """The error for members; logs a line, unless there are many, because a client may retry immediately."""
    lines.log(
        logging.DEBUG if error is ErrorCode.NETWORK_EXCEPTION else logging.ERROR,
        (done, error),
        "the state of %s for share group %.200s cannot be %s: %s %s",
        led.partition.tp,
        led.key.group_id,
        done,
        error.name,
        message or "",
    )
    return TOLD.get(error, ErrorCode.UNKNOWN_SERVER_ERROR)
