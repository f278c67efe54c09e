"""DeleteShareGroupOffsets (API key 92): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, String, Uuid


@struct
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str = field(String)


@message(api_key=ApiKey.DELETE_SHARE_GROUP_OFFSETS, kind="request", versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    """Deletes a share group's offsets of topics.

    Source: DeleteShareGroupOffsetsRequest.json; KIP-932.
    """

    group_id: str = field(String)
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field(
        Array(DeleteShareGroupOffsetsRequestTopic)
    )


@struct
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str = field(String)
    topic_id: bytes = field(Uuid)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)


@message(api_key=ApiKey.DELETE_SHARE_GROUP_OFFSETS, kind="response", versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    """The outcome for each topic. Source: DeleteShareGroupOffsetsResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field(
        Array(DeleteShareGroupOffsetsResponseTopic)
    )
