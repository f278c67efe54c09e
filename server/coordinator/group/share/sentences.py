"""Apache Kafka's error messages for requests about the offsets of share groups.

Source: org.apache.kafka.common.protocol.Errors.
"""

from __future__ import annotations

from kwire.errors import ErrorCode

_SENTENCES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: (
        "The coordinator is loading and hence can't process requests."
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
    ErrorCode.INVALID_GROUP_ID: "The group id is invalid.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.UNSUPPORTED_VERSION: "The version of API is not supported.",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
    ErrorCode.FENCED_STATE_EPOCH: (
        "The share coordinator rejected the request because the share-group state epoch did not match."
    ),
    ErrorCode.FENCED_LEADER_EPOCH: (
        "The leader epoch in the request is older than the epoch on the broker."
    ),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: (
        "For requests intended only for the leader, this error indicates that the broker is not the current leader. "
        "For requests intended for any replica, this error indicates that the broker is not a replica of the "
        "topic partition."
    ),
}


def sentence(error: ErrorCode | int) -> str | None:
    """Apache Kafka's message for an error, if the error occurs here; None without an error."""
    return _SENTENCES.get(ErrorCode(error))
