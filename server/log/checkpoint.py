"""Checkpoint files: small text tables, replaced atomically.

    0                               version
    <count>
    <topic> <partition> <offset>    one line each

`recovery-point-offset-checkpoint`: below it everything is on the device.
`replication-offset-checkpoint`: high watermarks. `log-start-offset-checkpoint`: only of logs whose
start is not their first segment's. `cleaner-offset-checkpoint`: first dirty offsets.
An empty file has no entries. Source: CheckpointFile, OffsetCheckpointFile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..metadata.topic_partition import TopicPartition
from .file_layer import FileLayer

VERSION = b"0"

RECOVERY_POINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
LOG_START_OFFSET = "log-start-offset-checkpoint"
CLEANER_OFFSET = "cleaner-offset-checkpoint"


class CorruptCheckpoint(Exception):
    """A checkpoint file cannot be read; the message names file and line."""


def parse_checkpoint(data: bytes, columns: int, path: str) -> list[list[bytes]]:
    """The fields of each entry. Errors: CorruptCheckpoint."""
    lines = data.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    if not lines:
        return []
    if lines[0].strip() != VERSION:
        raise CorruptCheckpoint(f"{path}: unknown version {lines[0][:20]!r}")
    try:
        count = int(lines[1]) if len(lines) > 1 else -1
    except ValueError:
        count = -1
    if count < 0 or count != len(lines) - 2:
        raise CorruptCheckpoint(f"{path}: {len(lines) - 2} entries, line 2 says {lines[1:2]}")
    entries = []
    for number, line in enumerate(lines[2:], start=3):
        fields = line.split()
        if len(fields) != columns or not all(map(is_number, fields[columns - 2 :])):
            raise CorruptCheckpoint(f"{path}, line {number}: {line[:80]!r}")
        entries.append(fields)
    return entries


def is_number(field: bytes) -> bool:
    """Whether a field is an integer of 64 bits."""
    digits = field.removeprefix(b"-")
    return digits.isdigit() and len(digits) <= 19 and int(digits) < 1 << 63


def format_checkpoint(entries: Iterable[tuple[object, ...]]) -> bytes:
    """The file content for entries of any width."""
    lines = [" ".join(map(str, entry)) for entry in entries]
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def read_offsets(layer: FileLayer, path: str) -> dict[TopicPartition, int]:
    """Offsets by partition; a missing file means none. Errors: CorruptCheckpoint."""
    try:
        data = layer.read_file(path)
    except FileNotFoundError:
        return {}
    entries = parse_checkpoint(data, 3, path)
    try:
        return {
            TopicPartition(topic.decode(), int(partition)): int(offset)
            for topic, partition, offset in entries
        }
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(
            f"{path}: a topic's name is not UTF-8: {error.object[:80]!r}"
        ) from None


def write_offsets(layer: FileLayer, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the file by these offsets, on the device when this returns."""
    layer.replace_file(
        path,
        format_checkpoint((tp.topic, tp.partition, offset) for tp, offset in offsets.items()),
    )
