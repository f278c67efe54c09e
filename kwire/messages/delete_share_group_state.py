"""DeleteShareGroupState (API key 86): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, String, Uuid


@struct
class PartitionData:
    partition: int = field(Int32)


@struct
class DeleteStateData:
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionData] = field(Array(PartitionData))


@message(api_key=ApiKey.DELETE_SHARE_GROUP_STATE, kind="request", versions="0", flexible="0+")
class DeleteShareGroupStateRequest:
    """Deletes the durable state of share partitions.

    Source: DeleteShareGroupStateRequest.json; KIP-932.
    """

    group_id: str = field(String)
    topics: list[DeleteStateData] = field(Array(DeleteStateData))


@struct
class PartitionResult:
    partition: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)


@struct
class DeleteStateResult:
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionResult] = field(Array(PartitionResult))


@message(api_key=ApiKey.DELETE_SHARE_GROUP_STATE, kind="response", versions="0", flexible="0+")
class DeleteShareGroupStateResponse:
    """The outcome for each partition. Source: DeleteShareGroupStateResponse.json."""

    results: list[DeleteStateResult] = field(Array(DeleteStateResult))
