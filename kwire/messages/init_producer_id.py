"""InitProducerId (API key 22): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message
from kwire.types import Bool, Int16, Int32, Int64, String


@message(api_key=ApiKey.INIT_PRODUCER_ID, kind="request", versions="0-6", flexible="2+")
class InitProducerIdRequest:
    """Asks for a producer id and epoch.

    Source: InitProducerIdRequest.json; KIP-98, KIP-360 (v3 recovery), KIP-890 (v5), KIP-939 (v6
    two-phase commit).
    """

    transactional_id: str | None = field(String, nullable="0+")
    transaction_timeout_ms: int = field(Int32)
    producer_id: int = field(Int64, "3+", default=-1)  # -1 for a new one
    producer_epoch: int = field(Int16, "3+", default=-1)
    enable2_pc: bool = field(Bool, "6+")
    keep_prepared_txn: bool = field(Bool, "6+")


@message(api_key=ApiKey.INIT_PRODUCER_ID, kind="response", versions="0-6", flexible="2+")
class InitProducerIdResponse:
    """The producer id and epoch. Source: InitProducerIdResponse.json."""

    throttle_time_ms: int = field(Int32, ignorable=True)
    error_code: int = field(Int16)
    producer_id: int = field(Int64, default=-1)
    producer_epoch: int = field(Int16)
    ongoing_txn_producer_id: int = field(Int64, "6+", default=-1)
    ongoing_txn_producer_epoch: int = field(Int16, "6+", default=-1)
