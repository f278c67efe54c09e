"""Batches against kafka-python's and aiokafka's own readers and writers, both ways."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords

from kwire.records.batch import RecordBatch, iter_batches
from kwire.records.record import Record

from .samples import PLAIN_RECORDS, RECORDS, batch_of

with warnings.catch_warnings():
    # Importing kafka-python calls importlib.resources in its deprecated form.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatchBuilder
    from kafka.record.legacy_records import LegacyRecordBatchBuilder
    from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

READERS = pytest.mark.parametrize("reader", [KafkaPythonRecords, AiokafkaRecords])


def read_by(reader: Any, data: bytes) -> list[Record]:
    batches = reader(data)
    records = []
    while batches.has_next():
        batch = batches.next_batch()
        if hasattr(batch, "validate_crc"):
            assert batch.validate_crc()
        records += [
            Record(r.offset, r.timestamp, r.key, r.value, [tuple(h) for h in r.headers])
            for r in batch
        ]
    return records


def read_by_us(data: bytes) -> list[Record]:
    records = []
    for batch in iter_batches(data):
        batch.verify_crc()
        records += [r._replace(headers=list(r.headers)) for r in batch.records()]
    return records


@READERS
@pytest.mark.parametrize("codec", range(5))
def test_our_batches_are_read_by_others(reader: Any, codec: int) -> None:
    data = batch_of(RECORDS, codec=codec) * 2
    assert read_by(reader, data) == RECORDS * 2


@READERS
@pytest.mark.parametrize("codec", range(4))
def test_our_messages_of_magic_1_are_read_by_others(reader: Any, codec: int) -> None:
    if reader is AiokafkaRecords and codec == 0:
        records = PLAIN_RECORDS[:1]  # its reader treats each plain message as a separate batch
    else:
        records = PLAIN_RECORDS
    data = batch_of(records, 1, codec)
    assert read_by(reader, data) == [record._replace(headers=[]) for record in records]


@pytest.mark.parametrize("codec", range(5))
def test_kafka_pythons_batches_are_read_by_us(codec: int) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=1,
        producer_id=123456,
        producer_epoch=123,
        base_sequence=9999,
        batch_size=1 << 20,
    )
    for record in RECORDS:
        builder.append(record.offset, record.timestamp, record.key, record.value, record.headers)
    data = bytes(builder.build())
    assert read_by_us(data) == RECORDS
    header = RecordBatch(data).header
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (123456, 123, 9999)


@pytest.mark.parametrize("codec", range(4))
@pytest.mark.parametrize("magic", [0, 1])
def test_kafka_pythons_messages_are_read_by_us(magic: int, codec: int) -> None:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for record in PLAIN_RECORDS:
        builder.append(record.offset, record.timestamp, record.key, record.value)
    expected = [
        record._replace(headers=[], timestamp=record.timestamp if magic else -1)
        for record in PLAIN_RECORDS
    ]
    assert read_by_us(bytes(builder.build())) == expected
