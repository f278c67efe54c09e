"""Why brokers cannot be asked, or refuse, in words for the user. Pure."""

from __future__ import annotations

from kwire.errors import ErrorCode

#: By error code: texts that are the same for every command and API, whatever a broker's message is.
WORDS: dict[int, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not authorized to access this topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not authorized to access this group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not authorized to do this in the cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not authorized to use this transactional id",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "not authorized to use this delegation token",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic, or not authorized to see it",
    ErrorCode.UNKNOWN_TOPIC_ID: "no such topic, or not authorized to see it",
    ErrorCode.GROUP_ID_NOT_FOUND: "no such group",
}


class ClientError(Exception):
    """A permanent error: nothing can be sent, or a broker refuses for good. The text is for the user."""


class ContactError(Exception):
    """The reason that a broker cannot be used; the text is for the user and contains no secret."""


class NoAnswer(ContactError):
    """A broker accepts the connection, and does not answer the first request; another broker may."""


class Unavailable(Exception):
    """A request cannot be made: no broker answers, or the broker does not serve it. The text is for the user."""


class Unreached(Unavailable):
    """A broker refuses connections, so nothing was sent to it: it has died, and the others do not know that yet."""


class NoWholeAnswer(TimeoutError):
    """A response has begun and does not end."""


def words_of(error_code: int, message: str | None = None) -> str:
    """An error code in words. Shape: `message` is that of the response, which says more than the name of a code."""
    if error_code in WORDS:
        return WORDS[error_code]
    if message:
        return message
    try:
        return ErrorCode(error_code).name.replace("_", " ").lower()
    except ValueError:
        return f"error {error_code}"


def is_passing(error_code: int) -> bool:
    """Whether an error may disappear after a new request for the leader."""
    try:
        return ErrorCode(error_code).retriable and error_code != ErrorCode.CORRUPT_MESSAGE
    except ValueError:
        return False


def no_partition(topic: str, partition: int, count: int) -> ClientError:
    """The error for a nonexistent partition. Shape: the topic's partitions are 0 to `count` - 1."""
    there = "its only partition is 0" if count == 1 else f"its partitions are 0 to {count - 1}"
    return ClientError(f"{topic}: no partition {partition}; {there}")
