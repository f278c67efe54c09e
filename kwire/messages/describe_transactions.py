"""DescribeTransactions (API key 65): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, Int64, String


@message(api_key=ApiKey.DESCRIBE_TRANSACTIONS, kind="request", versions="0", flexible="0+")
class DescribeTransactionsRequest:
    """Asks for the state of transactional ids.

    Source: DescribeTransactionsRequest.json; KIP-664.
    """

    transactional_ids: list[str] = field(Array(String))


@struct
class TopicData:
    topic: str = field(String)
    partitions: list[int] = field(Array(Int32))


@struct
class TransactionState:
    error_code: int = field(Int16)
    transactional_id: str = field(String)
    transaction_state: str = field(String)
    transaction_timeout_ms: int = field(Int32)
    transaction_start_time_ms: int = field(Int64)
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    topics: list[TopicData] = field(Array(TopicData))


@message(api_key=ApiKey.DESCRIBE_TRANSACTIONS, kind="response", versions="0", flexible="0+")
class DescribeTransactionsResponse:
    """The state of each transactional id. Source: DescribeTransactionsResponse.json."""

    throttle_time_ms: int = field(Int32)
    transaction_states: list[TransactionState] = field(Array(TransactionState))
