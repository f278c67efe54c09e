"""Batches at given offsets, and the markers that end transactions."""

from __future__ import annotations

from kwire.records.builder import BatchBuilder
from kwire.records.compression import Codec
from kwire.records.control import ControlType, EndTransactionMarker, end_transaction_batch

TIMESTAMP = 1_000


def batch(
    base: int,
    *values: bytes | None,
    producer: int = -1,
    transactional: bool = True,
    key: bytes | None = None,
    codec: Codec = Codec.NONE,
) -> bytes:
    """A record per value, a millisecond apart; with a producer id, part of a transaction unless told otherwise."""
    has_producer = producer >= 0
    builder = BatchBuilder(
        codec=codec,
        base_offset=base,
        producer_id=producer,
        producer_epoch=has_producer - 1,
        base_sequence=has_producer - 1,
        is_transactional=has_producer and transactional,
    )
    for number, value in enumerate(values, base):
        builder.append(TIMESTAMP + number, key, value)
    return builder.build()


def marker(base: int, producer: int, kind: ControlType) -> bytes:
    return end_transaction_batch(
        EndTransactionMarker(kind, 0),
        producer_id=producer,
        producer_epoch=0,
        timestamp=TIMESTAMP,
        base_offset=base,
    )
