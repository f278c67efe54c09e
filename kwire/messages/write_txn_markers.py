"""WriteTxnMarkers (API key 27): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int8, Int16, Int32, Int64, String


@struct
class WritableTxnMarkerTopic:
    name: str = field(String)
    partition_indexes: list[int] = field(Array(Int32))


@struct
class WritableTxnMarker:
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    transaction_result: bool = field(Bool)  # True commits
    topics: list[WritableTxnMarkerTopic] = field(Array(WritableTxnMarkerTopic))
    coordinator_epoch: int = field(Int32)
    transaction_version: int = field(Int8, "2+", ignorable=True)


@message(api_key=ApiKey.WRITE_TXN_MARKERS, kind="request", versions="0-2", flexible="1+")
class WriteTxnMarkersRequest:
    """A transaction coordinator requests that markers be written to partitions.

    Source: WriteTxnMarkersRequest.json; KIP-98.
    """

    markers: list[WritableTxnMarker] = field(Array(WritableTxnMarker))


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


@struct
class WritableTxnMarkerTopicResult:
    name: str = field(String)
    partitions: list[WritableTxnMarkerPartitionResult] = field(
        Array(WritableTxnMarkerPartitionResult)
    )


@struct
class WritableTxnMarkerResult:
    producer_id: int = field(Int64)
    topics: list[WritableTxnMarkerTopicResult] = field(Array(WritableTxnMarkerTopicResult))


@message(api_key=ApiKey.WRITE_TXN_MARKERS, kind="response", versions="0-2", flexible="1+")
class WriteTxnMarkersResponse:
    """The outcome for each partition. Source: WriteTxnMarkersResponse.json."""

    markers: list[WritableTxnMarkerResult] = field(Array(WritableTxnMarkerResult))
