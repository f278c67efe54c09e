"""DeleteTopics (API key 20): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, String, Uuid


@struct
class DeleteTopicState:
    name: str | None = field(String, nullable="6+", default=None)
    topic_id: bytes = field(Uuid)


@message(api_key=ApiKey.DELETE_TOPICS, kind="request", versions="0-6", flexible="4+")
class DeleteTopicsRequest:
    """Deletes topics, by name or since v6 by id.

    Source: DeleteTopicsRequest.json; KIP-4, KIP-516 (v6 topic ids).
    """

    topics: list[DeleteTopicState] = field(Array(DeleteTopicState), "6+")
    topic_names: list[str] = field(Array(String), "0-5", ignorable=True)
    timeout_ms: int = field(Int32)


@struct
class DeletableTopicResult:
    name: str | None = field(String, nullable="6+")
    topic_id: bytes = field(Uuid, "6+", ignorable=True)
    error_code: int = field(Int16)
    error_message: str | None = field(String, "5+", nullable="5+", default=None, ignorable=True)


@message(api_key=ApiKey.DELETE_TOPICS, kind="response", versions="0-6", flexible="4+")
class DeleteTopicsResponse:
    """The outcome for each topic. Source: DeleteTopicsResponse.json."""

    throttle_time_ms: int = field(Int32, "1+", ignorable=True)
    responses: list[DeletableTopicResult] = field(Array(DeletableTopicResult))
