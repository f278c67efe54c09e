"""AllocateProducerIds (API key 67): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message
from kwire.types import Int16, Int32, Int64


@message(api_key=ApiKey.ALLOCATE_PRODUCER_IDS, kind="request", versions="0", flexible="0+")
class AllocateProducerIdsRequest:
    """A broker asks the controller for a block of producer ids.

    Source: AllocateProducerIdsRequest.json; KIP-730.
    """

    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64, default=-1)


@message(api_key=ApiKey.ALLOCATE_PRODUCER_IDS, kind="response", versions="0", flexible="0+")
class AllocateProducerIdsResponse:
    """The block. Source: AllocateProducerIdsResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    producer_id_start: int = field(Int64)
    producer_id_len: int = field(Int32)
