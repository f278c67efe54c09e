"""EndTxn (API key 26): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message
from kwire.types import Bool, Int16, Int32, Int64, String


@message(api_key=ApiKey.END_TXN, kind="request", versions="0-5", flexible="3+")
class EndTxnRequest:
    """Commits or aborts a transaction.

    Source: EndTxnRequest.json; KIP-98, KIP-890 (v5 epoch bump).
    """

    transactional_id: str = field(String)
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    committed: bool = field(Bool)  # False to abort


@message(api_key=ApiKey.END_TXN, kind="response", versions="0-5", flexible="3+")
class EndTxnResponse:
    """Whether the outcome is decided; since v5 also the next epoch. Source: EndTxnResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    producer_id: int = field(Int64, "5+", default=-1, ignorable=True)
    producer_epoch: int = field(Int16, "5+", default=-1, ignorable=True)
