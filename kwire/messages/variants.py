"""Layouts of 3.9.2's early-access share groups that 4.3.0 changed without a new version.

The rest of kwire uses 4.3.0's layouts; these are for reading the data of 3.9.2.
"""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, Int64, String, Uuid


@struct
class PartitionResult:
    partition: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    state_epoch: int = field(Int32)
    start_offset: int = field(Int64)


@struct
class ReadStateSummaryResult:
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionResult] = field(Array(PartitionResult))


@message(
    api_key=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, kind="response", versions="0", flexible="0+"
)
class ReadShareGroupStateSummaryResponse:
    """ReadShareGroupStateSummaryResponse v0 in the layout of 3.9.2.

    Source: ReadShareGroupStateSummaryResponse.json of 3.9.2.
    """

    results: list[ReadStateSummaryResult] = field(Array(ReadStateSummaryResult))


@message(kind="coordinator-value", key_type=11, versions="0", flexible="0+")
class ShareGroupMetadataValue:
    """ShareGroupMetadataValue v0 in the layout of 3.9.2.

    Source: ShareGroupMetadataValue.json of 3.9.2.
    """

    epoch: int = field(Int32)
