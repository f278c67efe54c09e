"""Keys and values of transactional ids in __transaction_state."""

from __future__ import annotations

from kwire.schema import field, message, struct
from kwire.types import Array, Int8, Int16, Int32, Int64, String


@message(kind="coordinator-key", key_type=0, versions="0")
class TransactionLogKey:
    """Names the transactional id of a TransactionLogValue. Source: TransactionLogKey.json."""

    transactional_id: str = field(String)


@struct
class PartitionsSchema:
    topic: str = field(String)
    partition_ids: list[int] = field(Array(Int32))


@message(kind="coordinator-value", key_type=0, versions="0-1", flexible="1+")
class TransactionLogValue:
    """The state of a transactional id. Source: TransactionLogValue.json."""

    producer_id: int = field(Int64)
    previous_producer_id: int = field(Int64, "1+", tag=0, default=-1)
    next_producer_id: int = field(Int64, "1+", tag=1, default=-1)
    producer_epoch: int = field(Int16)
    next_producer_epoch: int = field(Int16, "1+", tag=3, default=-1)
    transaction_timeout_ms: int = field(Int32)
    transaction_status: int = field(Int8)  # 0 Empty .. 7 PrepareEpochFence
    transaction_partitions: list[PartitionsSchema] | None = field(
        Array(PartitionsSchema), nullable="0+"
    )
    transaction_last_update_timestamp_ms: int = field(Int64)
    transaction_start_timestamp_ms: int = field(Int64)
    client_transaction_version: int = field(Int16, "1+", tag=2)
