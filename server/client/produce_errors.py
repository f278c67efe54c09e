"""What a producer does about the errors of Produce, and what it says. Pure."""

from __future__ import annotations

from kwire.errors import ErrorCode

from .errors import words_of

RETRIABLE = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
SAID = {
    ErrorCode.MESSAGE_TOO_LARGE: "a record is larger than the topic allows (max.message.bytes)",
    ErrorCode.RECORD_LIST_TOO_LARGE: "a record is larger than a segment (segment.bytes)",
    ErrorCode.NOT_ENOUGH_REPLICAS: "too few replicas are in sync (min.insync.replicas)",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "too few replicas are in sync (min.insync.replicas)",
    ErrorCode.LEADER_NOT_AVAILABLE: "no leader",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "no leader",
}


def said_of(error: int, message: str | None = None) -> str:
    """An error code in words. Shape: `message` is that of the response."""
    return SAID.get(error) or words_of(error, message)  # type: ignore[call-overload]
