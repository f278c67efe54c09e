"""Prints the files of a log directory as text, for `kwire dump-log`.

There is one line per batch, record or entry, in the format of Apache Kafka's kafka-dump-log, so
that the output of the two can be compared. No file is changed. A damaged record or batch is
reported, and everything else is shown. Source: DumpLogSegments.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TextIO

from kwire.errors import CorruptRecord, RecordError
from kwire.records.batch import BatchHeader, RecordBatch
from kwire.records.compression import Codec
from kwire.records.control import ControlType, control_type, read_end_transaction
from kwire.records.record import Record

from .checkpoint import CorruptCheckpoint, parse_checkpoint
from .file_layer import FileLayer
from .index import offset_index, time_index, transaction_index
from .index.transaction_index import CorruptIndex
from .leader_epoch_cache import FILE_NAME as LEADER_EPOCHS
from .metadata_log import snapshot_of as metadata_snapshot
from .producer_state import CorruptSnapshot, parse_snapshot
from .segment import LogSegment

SHOWN_BYTES = 2000
"""The longest part of a key or value that is shown."""


METADATA_BOOTSTRAP = "bootstrap.checkpoint"
"""What a log directory was formatted with: the first records of a KRaft cluster's metadata."""


TextOf = Callable[[Record], str | None]


class UnknownFile(ValueError):
    """The name is not that of a file in a log directory."""


def dump_file(
    path: str,
    deep: bool,
    out: TextIO,
    layer: FileLayer | None = None,
    text_of: TextOf | None = None,
) -> None:
    """Write a file of a log directory as text; `deep` shows each record of a segment.

    Shape: `text_of` makes text from key and value of a record, or None to show bytes.
    Errors: UnknownFile, OSError. Damaged content is reported in the text.
    """
    layer = layer or FileLayer()
    name = _plain_name(path)
    snapshot = metadata_snapshot(name)
    if not name.endswith(".log") and name != METADATA_BOOTSTRAP and snapshot is None:
        dump = _dumper(name, path)
        data = layer.read_file(path)
        out.write(f"Dumping {path}\n")
        try:
            dump(data, out)
        except (CorruptSnapshot, CorruptCheckpoint, CorruptIndex) as e:
            out.write(f"{path} is damaged: {e}\n")
        return
    file = layer.open_read_only(path)
    is_bootstrap = name == METADATA_BOOTSTRAP
    base_offset = 0 if is_bootstrap else _base_offset(name.replace("-", "."), path)
    segment = LogSegment(layer, os.path.dirname(path), base_offset, file.size(), created_ms=0)
    segment.log = file
    out.write(f"Dumping {path}\n")
    if is_bootstrap:
        out.write("KRaft bootstrap snapshot\n")
    elif snapshot is None:
        out.write(f"Log starting offset: {base_offset}\n")
    else:
        out.write(f"Snapshot end offset: {snapshot[0]}, epoch: {snapshot[1]}\n")
    _dump_segment(segment, deep, out, text_of)
    file.close()


def expect_known(path: str) -> None:
    """Errors: UnknownFile, if the name is not that of a file in a log directory."""
    name = _plain_name(path)
    if name.endswith(".log"):
        _base_offset(name, path)
    elif name != METADATA_BOOTSTRAP and metadata_snapshot(name) is None:
        _dumper(name, path)


def _plain_name(path: str) -> str:
    name = os.path.basename(path)
    for suffix in (".deleted", ".cleaned", ".swap"):
        name = name.removesuffix(suffix)
    return name


def _dumper(name: str, path: str) -> Callable[[bytes, TextIO], None]:
    if name.endswith(".index"):
        base_offset = _base_offset(name, path)
        return lambda data, out: _dump_offset_index(data, base_offset, out)
    if name.endswith(".timeindex"):
        base_offset = _base_offset(name, path)
        return lambda data, out: _dump_time_index(data, base_offset, out)
    if name.endswith(".txnindex"):
        return _dump_transaction_index
    if name.endswith(".snapshot"):
        return _dump_snapshot
    if name == LEADER_EPOCHS:
        return lambda data, out: _dump_table(data, ("epoch", "startOffset"), out)
    if name.endswith("-checkpoint"):
        return lambda data, out: _dump_table(data, ("topic", "partition", "offset"), out)
    raise UnknownFile(
        f"{path}: expected a .log, .index, .timeindex, .txnindex, .snapshot, .checkpoint or *-checkpoint"
    )


def _base_offset(name: str, path: str) -> int:
    digits = name.partition(".")[0]
    if not (digits.isascii() and digits.isdigit()):
        raise UnknownFile(f"{path}: the name does not begin with the segment's base offset")
    return int(digits)


# -- segments --------------------------------------------------------------------------------------


def _dump_segment(segment: LogSegment, deep: bool, out: TextIO, text_of: TextOf | None) -> None:
    valid = 0
    try:
        for position, header in segment.headers(0):
            batch = RecordBatch(segment.log.read_at(header.size, position))
            try:
                batch.verify_crc()
                valid_crc = True
            except CorruptRecord:
                valid_crc = False
            out.write(_batch_line(header, position, valid_crc) + "\n")
            if deep:
                _dump_records(batch, out, text_of)
            valid = position + header.size
    except CorruptRecord as e:
        out.write(f"Corrupt batch at position {valid}: {e}\n")
    if valid < segment.size:
        rest = segment.size - valid
        out.write(
            f"Found {rest} invalid bytes at the end of {os.path.basename(segment.log.path)}\n"
        )


def _batch_line(header: BatchHeader, position: int, valid: bool) -> str:
    timestamp = "LogAppendTime" if header.is_log_append_time else "CreateTime"
    codec = Codec(header.codec).config_name if header.codec <= Codec.ZSTD else str(header.codec)
    if header.magic < 2:
        return (
            f"offset: {header.last_offset} position: {position} {timestamp}: "
            f"{header.max_timestamp} isvalid: {_lower(valid)} size: {header.size} magic: "
            f"{header.magic} compresscodec: {codec} crc: {header.crc}"
        )
    horizon = header.delete_horizon_ms
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: "
        f"{header.records_count} baseSequence: {header.base_sequence} lastSequence: "
        f"{header.last_sequence} producerId: {header.producer_id} producerEpoch: "
        f"{header.producer_epoch} partitionLeaderEpoch: {header.partition_leader_epoch} "
        f"isTransactional: {_lower(header.is_transactional)} isControl: "
        f"{_lower(header.is_control)} deleteHorizonMs: {_optional(horizon)} position: {position} "
        f"{timestamp}: {header.max_timestamp} size: {header.size} magic: {header.magic} "
        f"compresscodec: {codec} crc: {header.crc} isvalid: {_lower(valid)}"
    )


def _dump_records(batch: RecordBatch, out: TextIO, text_of: TextOf | None) -> None:
    try:
        for record in batch.records():
            out.write(_record_line(batch, record, text_of) + "\n")
    except RecordError as e:
        out.write(f"| the batch's records cannot be read: {e}\n")


def _record_line(batch: RecordBatch, record: Record, text_of: TextOf | None) -> str:
    header = batch.header
    timestamp = "LogAppendTime" if header.is_log_append_time else "CreateTime"
    line = (
        f"| offset: {record.offset} {timestamp}: {record.timestamp} keySize: "
        f"{_size(record.key)} valueSize: {_size(record.value)}"
    )
    if header.magic >= 2:
        keys = ",".join(_text(key.encode("utf-8", "surrogateescape")) for key, _ in record.headers)
        line += f" sequence: {batch.sequence_of(record.offset)} headerKeys: [{keys}]"
    if header.is_control:
        return f"{line} {_control(record, text_of)}"
    decoded = text_of(record) if text_of is not None else None
    if decoded is not None:
        return f"{line} {decoded}"
    if record.key is not None:
        line += f" key: {_text(record.key)}"
    if record.value is not None:
        line += f" payload: {_text(record.value)}"
    return line


def _control(record: Record, text_of: TextOf | None) -> str:
    try:
        kind = control_type(record.key)
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            decoded = text_of(record) if text_of is not None else None
            return decoded or f"controlType: {kind.name}({kind.value})"
        marker = read_end_transaction(record.key, record.value)
    except CorruptRecord as e:
        return f"the control record cannot be read: {e}"
    return f"endTxnMarker: {kind.name} coordinatorEpoch: {marker.coordinator_epoch}"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _lower(flag: bool) -> str:
    return "true" if flag else "false"


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _text(data: bytes) -> str:
    # Control characters are escaped: data from unknown producers must not control the terminal.
    text = data[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
    if not text.isprintable():
        text = "".join(
            c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
        )
    more = len(data) - SHOWN_BYTES
    return f"{text}... ({more} more bytes)" if more > 0 else text


# -- the other files -------------------------------------------------------------------------------


def _dump_offset_index(data: bytes, base_offset: int, out: TextIO) -> None:
    width = offset_index.ENTRY_SIZE
    for at in range(0, len(data) - width + 1, width):
        relative, position = offset_index.ENTRY.unpack_from(data, at)
        if position == 0:  # the zeros at the end of a preallocated file
            out.write(f"{(len(data) - at) // width} entries are preallocated\n")
            break
        out.write(f"offset: {base_offset + relative} position: {position}\n")
    _left_over(data, width, out)


def _dump_time_index(data: bytes, base_offset: int, out: TextIO) -> None:
    width = time_index.ENTRY_SIZE
    for at in range(0, len(data) - width + 1, width):
        timestamp, relative = time_index.ENTRY.unpack_from(data, at)
        if timestamp == 0 and (at or relative == 0):
            out.write(f"{(len(data) - at) // width} entries are preallocated\n")
            break
        out.write(f"timestamp: {timestamp} offset: {base_offset + relative}\n")
    _left_over(data, width, out)


def _left_over(data: bytes, width: int, out: TextIO) -> None:
    if len(data) % width:
        out.write(f"Found {len(data) % width} bytes of an incomplete entry at the end\n")


def _dump_transaction_index(data: bytes, out: TextIO) -> None:
    for entry in transaction_index.parse(data):
        out.write(
            f"version: {transaction_index.VERSION} producerId: {entry.producer_id} firstOffset: "
            f"{entry.first_offset} lastOffset: {entry.last_offset} lastStableOffset: "
            f"{entry.last_stable_offset}\n"
        )


def _dump_snapshot(data: bytes, out: TextIO) -> None:
    for entry in parse_snapshot(data):
        txn = entry.current_txn_first_offset
        line = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
            f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: "
            f"{_optional(txn if txn >= 0 else None)} lastTimestamp: {entry.last_timestamp}"
        )
        for batch in entry.batches:
            line += (
                f" firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} "
                f"lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta} timestamp: "
                f"{batch.timestamp}"
            )
        out.write(line + "\n")


def _dump_table(data: bytes, names: tuple[str, ...], out: TextIO) -> None:
    for entry in parse_checkpoint(data, len(names), "the file"):
        fields = (f"{name}: {value.decode()}" for name, value in zip(names, entry, strict=True))
        out.write(" ".join(fields) + "\n")
