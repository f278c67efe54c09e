"""AddOffsetsToTxn (API key 25): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message
from kwire.types import Int16, Int32, Int64, String


@message(api_key=ApiKey.ADD_OFFSETS_TO_TXN, kind="request", versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    """Adds a group's offsets to a transaction.

    Source: AddOffsetsToTxnRequest.json; KIP-98.
    """

    transactional_id: str = field(String)
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    group_id: str = field(String)


@message(api_key=ApiKey.ADD_OFFSETS_TO_TXN, kind="response", versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    """Whether the group's offsets are part of it now. Source: AddOffsetsToTxnResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
