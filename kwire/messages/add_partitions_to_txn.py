"""AddPartitionsToTxn (API key 24): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int16, Int32, Int64, String


@struct
class AddPartitionsToTxnTopic:
    name: str = field(String)
    partitions: list[int] = field(Array(Int32))


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: str = field(String)
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    verify_only: bool = field(Bool)
    topics: list[AddPartitionsToTxnTopic] = field(Array(AddPartitionsToTxnTopic))


@message(api_key=ApiKey.ADD_PARTITIONS_TO_TXN, kind="request", versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    """Adds partitions to a transaction; from v4 on brokers send it, for several transactions.

    Source: AddPartitionsToTxnRequest.json; KIP-98, KIP-890 (v4 batches).
    """

    transactions: list[AddPartitionsToTxnTransaction] = field(
        Array(AddPartitionsToTxnTransaction), "4+"
    )
    v3_and_below_transactional_id: str = field(String, "0-3")
    v3_and_below_producer_id: int = field(Int64, "0-3")
    v3_and_below_producer_epoch: int = field(Int16, "0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(
        Array(AddPartitionsToTxnTopic), "0-3"
    )


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: int = field(Int32)
    partition_error_code: int = field(Int16)


@struct
class AddPartitionsToTxnTopicResult:
    name: str = field(String)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(
        Array(AddPartitionsToTxnPartitionResult)
    )


@struct
class AddPartitionsToTxnResult:
    transactional_id: str = field(String)
    topic_results: list[AddPartitionsToTxnTopicResult] = field(Array(AddPartitionsToTxnTopicResult))


@message(api_key=ApiKey.ADD_PARTITIONS_TO_TXN, kind="response", versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    """The outcome for each partition. Source: AddPartitionsToTxnResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16, "4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(
        Array(AddPartitionsToTxnResult), "4+"
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        Array(AddPartitionsToTxnTopicResult), "0-3"
    )
