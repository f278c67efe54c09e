"""Golden record batches: read every case, rewrite it, compare.

Per case: the headers, the bytes that are whole batches, every record; a rewrite of each batch
from its records (byte for byte where the codec is none, by content where it is not); a
recompression to every codec. Cases marked `invalid` must be refused for their CRC.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kwire.errors import CorruptRecord
from kwire.records.batch import BatchBuilder, BatchHeader, RecordBatch, iter_batches, valid_bytes
from kwire.records.compression import Codec
from kwire.records.control import ControlType, control_type, read_end_transaction
from kwire.records.convert import recompress
from kwire.records.record import Record, TimestampType, read_records

from .recorded import DATA, read_lines

Case = dict[str, Any]


def load_cases(directory: Path = DATA) -> Iterator[Case]:
    """Yield the cases of `directory`/records/records.jsonl."""
    return read_lines("records/records.jsonl", directory)


def run(directory: Path) -> tuple[int, int]:
    """Check all cases, print the failures and the counts, return (passed, failed)."""
    passed = failed = 0
    for case in load_cases(directory):
        try:
            check_case(case)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, the case has failed
            failed += 1
            print(f"records {case['id']} ({case['description']}): {type(error).__name__}: {error}")
        else:
            passed += 1
    print(f"records: {passed} passed, {failed} failed")
    return passed, failed


def check_case(case: Case) -> None:
    """Check one case. Errors: AssertionError, or any error of the library."""
    data = bytes.fromhex(case["hex"])
    if "invalid" in case:
        check_refused(data)
        return
    batches = list(iter_batches(data))
    equal("valid bytes", case.get("validBytes", len(data)), valid_bytes(data))
    equal("batches", case["batches"], [facts(b) for b in batches])
    records = []
    for batch in batches:
        batch.verify_crc()
        batch_records = list(batch.records())
        records += [to_json(batch, record) for record in batch_records]
        check_rewrite(batch, batch_records)
    equal("records", case["expected"], records)


def equal(what: str, expected: Any, actual: Any) -> None:
    assert expected == actual, f"{what}: expected {expected!r:.500}, got {actual!r:.500}"


def check_refused(data: bytes) -> None:
    """A damaged batch raises CorruptRecord when its CRC is checked."""
    try:
        for batch in iter_batches(data):
            batch.verify_crc()
    except CorruptRecord:
        return
    raise AssertionError("damaged batch was accepted")


def facts(batch: RecordBatch) -> dict[str, Any]:
    """Return the header in the form of the golden file."""
    header = batch.header
    found: dict[str, Any] = {
        "magic": header.magic,
        "sizeInBytes": header.size,
        "baseOffset": header.base_offset if header.magic == 2 else next(batch.records()).offset,
        "lastOffset": header.last_offset,
        "codec": batch.codec.config_name,
        "timestampType": None
        if header.magic == 0
        else {TimestampType.CREATE_TIME: "create", TimestampType.LOG_APPEND_TIME: "append"}[
            header.timestamp_type
        ],
        "maxTimestamp": header.max_timestamp,
        "crc": header.crc,
    }
    if header.magic == 2:
        found |= {
            "count": header.records_count,
            "leaderEpoch": header.partition_leader_epoch,
            "baseTimestamp": header.base_timestamp,
            "producerId": header.producer_id,
            "producerEpoch": header.producer_epoch,
            "baseSequence": header.base_sequence,
            "lastSequence": header.last_sequence,
            "transactional": header.is_transactional,
            "control": header.is_control,
            "deleteHorizonMs": header.delete_horizon_ms,
        }
    return found


def to_json(batch: RecordBatch, record: Record) -> dict[str, Any]:
    """Return the record in the form of the golden file."""
    found: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": to_base64(record.key),
        "value": to_base64(record.value),
    }
    if batch.magic == 2:
        found["sequence"] = batch.sequence_of(record.offset)
        found["headers"] = [[key, to_base64(value)] for key, value in record.headers]
    if batch.is_control:
        kind = control_type(record.key)
        found["controlType"] = kind.name
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            marker = read_end_transaction(record.key, record.value)
            found["coordinatorEpoch"] = marker.coordinator_epoch
    return found


def to_base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def check_rewrite(batch: RecordBatch, records: list[Record]) -> None:
    """Rebuild the batch from its records, and recompress it with each codec."""
    header = batch.header
    rebuilt = rebuild(batch, records)
    if header.codec == Codec.NONE:
        equal("rewritten bytes", bytes(batch.view).hex(), rebuilt.hex())
    else:
        check_same_content(batch, RecordBatch(rebuilt), records)
    if header.magic == 2 and not header.is_control:
        for codec in Codec:
            other = RecordBatch(recompress(batch.view, codec))
            check_same_content(batch, other, records)
            if header.records_count:
                equal("codec", codec, other.codec)


def check_same_content(batch: RecordBatch, other: RecordBatch, records: list[Record]) -> None:
    other.verify_crc()
    equal("header", comparable(batch.header), comparable(other.header))
    equal("content", records, list(other.records()))
    if batch.magic == 2 and batch.header.records_count:
        equal("body", batch.body(), other.body())


def comparable(header: BatchHeader) -> BatchHeader:
    """Return the header without the fields that depend on the encoding of the records."""
    return header._replace(crc=0, batch_length=0, attributes=header.attributes & ~7)


def rebuild(batch: RecordBatch, records: list[Record]) -> bytes:
    """Write the batch again through the builder."""
    header = batch.header
    if header.magic == 2:
        builder = BatchBuilder(
            2,
            header.codec,
            header.timestamp_type,
            base_offset=header.base_offset,
            log_append_time=header.max_timestamp,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
            partition_leader_epoch=header.partition_leader_epoch,
            delete_horizon_ms=header.delete_horizon_ms,
        )
        if header.is_log_append_time and records:
            # The producer's timestamps are still in the deltas.
            records = list(
                read_records(
                    batch.body(), header.records_count, header.base_offset, header.base_timestamp
                )
            )
    else:
        builder = BatchBuilder(
            header.magic,
            header.codec,
            header.timestamp_type,
            base_offset=records[0].offset,
            log_append_time=header.max_timestamp,
        )
    for record in records:
        builder.append_record(record)
    return builder.build(last_offset=header.last_offset, max_timestamp=header.max_timestamp)
