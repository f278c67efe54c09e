"""The records of the transaction coordinator in __transaction_state, as values and as bytes.

A null value is a tombstone. Partitions are null in the state Empty and an array, perhaps without entries, in every other.

Version 1 is written if transaction.version is 1 or more, otherwise version 0; both are read.
Version 1 adds tagged fields: previous and next producer id, and the client's version of the
protocol. NextProducerEpoch belongs to two-phase commit (KIP-939) and is ignored.
Source: TransactionLog.
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import intern
from typing import NamedTuple

from kwire.errors import CorruptRecord
from kwire.messages import internal
from kwire.messages.internal.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

from ...metadata.topic_partition import TopicPartition
from .state import TransactionMetadata, TransactionState

_KEYS = internal.keys([TransactionLogKey])


class TransactionRecord(NamedTuple):
    """The state of a transactional id; None if it was removed."""

    transactional_id: str
    value: TransactionMetadata | None


def encode_record(record: TransactionRecord, version: int = 0) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a record, the value in the given version."""
    key = internal.encode_key(TransactionLogKey(transactional_id=record.transactional_id))
    return key, None if record.value is None else encode_value(record.value, version)


def encode_value(value: TransactionMetadata, version: int = 0) -> bytes:
    """Return the bytes of a TransactionLogValue; version 0 drops the fields it lacks."""
    partitions = None
    if value.state is not TransactionState.EMPTY:
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=numbers)
            for topic, numbers in by_topic(value.partitions).items()
        ]
    message = TransactionLogValue(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        transaction_timeout_ms=value.timeout_ms,
        transaction_status=value.state,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=value.last_update_ms,
        transaction_start_timestamp_ms=value.start_ms,
    )
    if version >= 1:
        message.previous_producer_id = value.previous_producer_id
        message.next_producer_id = value.next_producer_id
        message.client_transaction_version = value.client_version
    return internal.encode_value(message, version)


def decode_record(
    key: bytes | memoryview, value: bytes | memoryview | None
) -> TransactionRecord | None:
    """Decode a stored record; None for a key of a later version.

    Errors: WireError if the bytes do not match their version.
    """
    decoded = internal.decode_key(key, _KEYS)
    if decoded is None:
        return None
    state = None if value is None else decode_value(value)
    return TransactionRecord(decoded.transactional_id, state)


def decode_value(value: bytes | memoryview) -> TransactionMetadata:
    """Decode a TransactionLogValue. Errors: WireError."""
    message = internal.decode_value(TransactionLogValue, value)
    try:
        state = TransactionState(message.transaction_status)
    except ValueError:
        status = message.transaction_status
        raise CorruptRecord(f"transaction status {status} is not known") from None
    return TransactionMetadata(
        message.producer_id,
        message.producer_epoch,
        message.transaction_timeout_ms,
        state,
        frozenset(
            TopicPartition(intern(topic.topic), partition)
            for topic in message.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        message.transaction_last_update_timestamp_ms,
        message.transaction_start_timestamp_ms,
        message.previous_producer_id,
        message.next_producer_id,
        message.client_transaction_version,
    )


def by_topic(tps: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partitions by topic; both sorted, so that equal sets give equal bytes."""
    topics: dict[str, list[int]] = {}
    for topic, partition in tps:
        topics.setdefault(topic, []).append(partition)
    return {topic: sorted(topics[topic]) for topic in sorted(topics)}
