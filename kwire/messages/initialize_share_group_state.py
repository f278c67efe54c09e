"""InitializeShareGroupState (API key 83): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, Int64, String, Uuid


@struct
class PartitionData:
    partition: int = field(Int32)
    state_epoch: int = field(Int32)
    start_offset: int = field(Int64)


@struct
class InitializeStateData:
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionData] = field(Array(PartitionData))


@message(api_key=ApiKey.INITIALIZE_SHARE_GROUP_STATE, kind="request", versions="0", flexible="0+")
class InitializeShareGroupStateRequest:
    """Creates the durable state of share partitions.

    Source: InitializeShareGroupStateRequest.json; KIP-932.
    """

    group_id: str = field(String)
    topics: list[InitializeStateData] = field(Array(InitializeStateData))


@struct
class PartitionResult:
    partition: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)


@struct
class InitializeStateResult:
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionResult] = field(Array(PartitionResult))


@message(api_key=ApiKey.INITIALIZE_SHARE_GROUP_STATE, kind="response", versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    """The outcome for each partition. Source: InitializeShareGroupStateResponse.json."""

    results: list[InitializeStateResult] = field(Array(InitializeStateResult))
