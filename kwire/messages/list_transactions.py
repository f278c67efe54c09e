"""ListTransactions (API key 66): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, Int64, String


@message(api_key=ApiKey.LIST_TRANSACTIONS, kind="request", versions="0-2", flexible="0+")
class ListTransactionsRequest:
    """Asks for the transactional ids that this broker coordinates.

    Source: ListTransactionsRequest.json; KIP-664, KIP-994 (v1 duration filter).
    """

    state_filters: list[str] = field(Array(String))
    producer_id_filters: list[int] = field(Array(Int64))
    duration_filter: int = field(Int64, "1+", default=-1)
    transactional_id_pattern: str | None = field(String, "2+", nullable="2+", default=None)


@struct
class TransactionState:
    transactional_id: str = field(String)
    producer_id: int = field(Int64)
    transaction_state: str = field(String)


@message(api_key=ApiKey.LIST_TRANSACTIONS, kind="response", versions="0-2", flexible="0+")
class ListTransactionsResponse:
    """The transactional ids with their state. Source: ListTransactionsResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    unknown_state_filters: list[str] = field(Array(String))
    transaction_states: list[TransactionState] = field(Array(TransactionState))
