"""A real Apache Kafka log directory: open it with kwire's log and compare with a consumer's records.

The directory is opened three times: unchanged (cleanly closed), without its clean-shutdown marker and recovery points
(every segment is recovered), and without any index. Each time every partition must have the same offsets and return the
same records, read in small and in large pieces, read_committed and not. Closing a clean directory must leave the files
of the partitions byte for byte unchanged.
"""

from __future__ import annotations

import base64
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kwire.codec import decode
from kwire.messages.internal.group_metadata import GroupMetadataKey, GroupMetadataValue
from kwire.messages.internal.offset_commit import OffsetCommitKey, OffsetCommitValue
from kwire.messages.internal.transaction_log import TransactionLogKey, TransactionLogValue
from kwire.records.batch import RecordBatch, iter_batches
from kwire.records.compression import Codec
from kwire.records.control import ControlType, control_type
from kwire.types import uuid_to_str
from server.log.file_layer import FileLayer, FileSlice
from server.log.log import Log, LogSlice
from server.log.log_config import LogConfig
from server.log.log_manager import LogManager
from server.log.producer_state import ProducerStateManager, parse_snapshot
from server.metadata.topic_partition import TopicPartition

from .recorded import read_json, unpack_log_directory

Json = Any
NOT_LOGS = {".lock", ".kafka_cleanshutdown"}
SCHEMAS = {
    each.__name__: each
    for each in (
        OffsetCommitKey,
        OffsetCommitValue,
        GroupMetadataKey,
        GroupMetadataValue,
        TransactionLogKey,
        TransactionLogValue,
    )
}
TRANSACTION_STATES = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
]


class Counts:
    """Runs checks one by one and counts them; prints the failed ones."""

    def __init__(self) -> None:
        self.passed = self.failed = 0

    def check(self, name: str, check: Callable[[], None]) -> None:
        try:
            check()
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, the check has failed
            self.failed += 1
            print(f"logdir {name}: {type(error).__name__}: {error}")
        else:
            self.passed += 1


def equal(what: str, expected: object, actual: object) -> None:
    """Raise AssertionError with a short excerpt where the two differ."""
    if expected != actual:
        raise AssertionError(f"{what}: expected {str(expected)[:300]}, got {str(actual)[:300]}")


def topic_config(tree: Json, topic: str) -> LogConfig:
    """The topic's settings that matter to the log, from the ZooKeeper tree."""
    node = tree.get(f"/config/topics/{topic}")
    text = node["data"] if isinstance(node, dict) else node
    stored = json.loads(text)["config"] if text else {}
    numbers = {
        "segment.bytes": "segment_bytes",
        "index.interval.bytes": "index_interval_bytes",
        "max.message.bytes": "max_message_bytes",
        "retention.ms": "retention_ms",
    }
    known: dict[str, Any] = {
        field: int(stored[key]) for key, field in numbers.items() if key in stored
    }
    if "cleanup.policy" in stored:
        known["cleanup_policy"] = frozenset(stored["cleanup.policy"].split(","))
    for key, field in (
        ("compression.type", "compression_type"),
        ("message.timestamp.type", "message_timestamp_type"),
    ):
        if key in stored:
            known[field] = stored[key]
    return LogConfig(**known)


def open_directory(path: Path, tree: Json, now_ms: int) -> LogManager:
    """Open a log directory as its own broker would."""
    manager = LogManager([str(path)], FileLayer())
    manager.lock()
    meta = manager.meta_properties()
    assert meta is not None and meta.broker_id is not None and meta.cluster_id is not None
    manager.claim(meta.broker_id, meta.cluster_id)
    manager.load(lambda topic: topic_config(tree, topic), now_ms)
    for log in manager.logs():
        log.high_watermark = log.log_end_offset
    return manager


# -- reading as a consumer does --------------------------------------------------------------------


def slices(log: Log, end_offset: int, max_bytes: int) -> Iterator[tuple[LogSlice, bytes]]:
    """Fetch from the log start to end_offset, piece by piece."""
    offset = log.log_start_offset
    while offset < end_offset:
        found = log.read(offset, max_bytes, end_offset)
        assert isinstance(found, LogSlice), found
        data = found.data.read() if isinstance(found.data, FileSlice) else found.data
        if not data:
            return
        yield found, data
        last = list(iter_batches(data))[-1]
        offset = last.header.next_offset


def record_row(batch: RecordBatch, record: Any) -> list[Json]:
    """One record in the form of expected.json."""
    header = batch.header
    return [
        record.offset,
        record.timestamp,
        int(header.is_log_append_time),
        None if record.key is None else base64.b64encode(record.key).decode(),
        None if record.value is None else base64.b64encode(record.value).decode(),
        [
            [key, None if value is None else base64.b64encode(value).decode()]
            for key, value in record.headers
        ],
        header.partition_leader_epoch,
    ]


def consume(log: Log, *, committed: bool, max_bytes: int) -> list[list[Json]]:
    """All records that a consumer gets: no control records, with committed no aborted data."""
    end_offset = log.last_stable_offset if committed else log.high_watermark
    rows = []
    aborting: set[int] = set()
    for found, data in slices(log, end_offset, max_bytes):
        pending: list[tuple[int, int]] = []
        if committed:
            aborted = log.aborted_transactions(found.first_offset, found.next_offset)
            pending = sorted(aborted, key=lambda each: each[1])
            aborting = set()
        for batch in iter_batches(data):
            header = batch.header
            while pending and pending[0][1] <= header.last_offset:
                aborting.add(pending.pop(0)[0])
            records = list(batch.records())
            if header.is_control:
                if records and control_type(records[0].key) is ControlType.ABORT:
                    aborting.discard(header.producer_id)
                continue
            if header.is_transactional and header.producer_id in aborting:
                continue
            rows += [
                record_row(batch, record)
                for record in records
                if record.offset >= log.log_start_offset
            ]
    return rows


# -- checks ----------------------------------------------------------------------------------------


def check_log(counts: Counts, how: str, log: Log, expected: Json) -> None:
    """Offsets and records of one partition."""
    name = f"{how} {log.tp}"
    counts.check(
        f"{name} offsets",
        lambda: equal(
            "start, end, stable",
            [expected["logStartOffset"], expected["endOffset"], expected["lastStableOffset"]],
            [log.log_start_offset, log.log_end_offset, log.last_stable_offset],
        ),
    )
    for max_bytes in (1, 700, 5000, 1 << 20):
        for kind, committed in (("read_uncommitted", False), ("read_committed", True)):
            counts.check(
                f"{name} {kind} in {max_bytes} bytes",
                lambda kind=kind, committed=committed, max_bytes=max_bytes: equal(  # type: ignore[misc]
                    kind,
                    expected[kind],
                    consume(log, committed=committed, max_bytes=max_bytes),
                ),
            )
    if "decoded" in expected:
        counts.check(f"{name} decoded", lambda: check_decoded(log, expected["decoded"]))
    counts.check(f"{name} timestamps", lambda: check_timestamps(log, expected["read_uncommitted"]))


def check_timestamps(log: Log, rows: list[list[Json]]) -> None:
    """The first record at or after each timestamp is found, and the latest one."""
    if not rows:
        return
    for wanted in sorted({row[1] for row in rows})[:: max(1, len(rows) // 40)]:
        first = next(row for row in rows if row[1] >= wanted)
        found = log.offset_for_timestamp(wanted)
        assert found is not None
        # A control record may also have the timestamp, and come first.
        equal("timestamp", True, found[1] >= wanted and found[0] <= first[0])
        if found[0] < first[0]:
            equal("a data record before it", [], [r for r in rows if r[0] == found[0]])
    newest = log.max_timestamp_offset()
    assert newest is not None
    equal("max timestamp", True, newest[1] >= max(row[1] for row in rows))


def check_batches(log: Log, path: Path, expected: Json) -> None:
    """Every batch of one segment file, as `headers` reads it, and a lookup of each offset."""
    segment = next(s for s in log.segments if s.log.path.endswith(path.name))
    actual = []
    for position, header in segment.headers(0):
        batch = RecordBatch(segment.log.read_at(header.size, position))
        batch.verify_crc()
        records = list(batch.records())
        row: dict[str, Json] = {
            "position": position,
            "sizeInBytes": header.size,
            "magic": header.magic,
            "baseOffset": header.base_offset,
            "lastOffset": header.last_offset,
            "count": header.records_count,
            "crc": header.crc,
            "codec": Codec(header.codec).config_name,
            "maxTimestamp": header.max_timestamp,
            "timestampType": int(header.is_log_append_time),
            "producerId": header.producer_id,
            "producerEpoch": header.producer_epoch,
            "baseSequence": header.base_sequence,
            "lastSequence": header.last_sequence,
            "transactional": header.is_transactional,
            "control": header.is_control,
            "leaderEpoch": header.partition_leader_epoch,
            "recordOffsets": [record.offset for record in records],
        }
        if header.is_control and records:
            row["controlType"] = control_type(records[0].key).name
        if header.delete_horizon_ms is not None:
            row["deleteHorizonMs"] = header.delete_horizon_ms
        actual.append(row)
    equal("number of batches", len(expected), len(actual))
    for wanted, row in zip(expected, actual, strict=True):
        equal(f"batch at {wanted['position']}", wanted, row)
        for offset in (wanted["baseOffset"], wanted["lastOffset"]):
            equal(
                f"position of {offset}",
                (wanted["position"], wanted["baseOffset"], wanted["sizeInBytes"]),
                segment.locate(offset),
            )


def same(message: object, wanted: Json) -> bool:
    """Whether a decoded message has the values of a JSON object in Kafka's own names."""
    if isinstance(wanted, dict):
        return all(
            same(getattr(message, re.sub(r"[A-Z]", lambda m: f"_{m[0].lower()}", key)), value)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        assert isinstance(message, list)
        return len(message) == len(wanted) and all(map(same, message, wanted))
    if isinstance(message, bytes):
        return message == base64.b64decode(wanted)
    return message == wanted


def check_decoded(log: Log, expected: list[Json]) -> None:
    """Keys and values of an internal topic's records, field by field."""
    wanted = {row["offset"]: row for row in expected}
    seen = 0
    for _, data in slices(log, log.log_end_offset, 1 << 20):
        for batch in iter_batches(data):
            if batch.is_control:
                continue
            for record in batch.records():
                row = wanted[record.offset]
                key = record.key or b""
                equal("key type", row["keyType"], int.from_bytes(key[:2], "big"))
                found = decode(SCHEMAS[row["keySchema"]], key, 0, 2)
                equal(f"key at {record.offset}", True, same(found, row["key"]))
                if row["value"] is None:
                    equal("value", None, record.value)
                else:
                    value = record.value or b""
                    version = int.from_bytes(value[:2], "big")
                    equal("value version", row["valueVersion"], version)
                    found = decode(SCHEMAS[row["valueSchema"]], value, version, 2)
                    equal(f"value at {record.offset}", True, same(found, row["value"]))
                seen += 1
    equal("records", len(expected), seen)


def latest_values(logs: list[Log], topic: str) -> dict[bytes, bytes]:
    """Newest value of each key in an internal topic; deleted keys are omitted."""
    values: dict[bytes, bytes] = {}
    for log in logs:
        if log.tp.topic != topic:
            continue
        for _, data in slices(log, log.last_stable_offset, 1 << 20):
            for batch in iter_batches(data):
                if batch.is_control:
                    continue
                for record in batch.records():
                    if record.key is None:
                        continue
                    if record.value is None:
                        values.pop(record.key, None)
                    else:
                        values[record.key] = record.value
    return values


def check_group_offsets(logs: list[Log], expected: Json) -> None:
    """Committed offsets of all groups."""
    groups: dict[str, dict[str, list[Json]]] = {}
    for raw_key, raw in latest_values(logs, "__consumer_offsets").items():
        if int.from_bytes(raw_key[:2], "big") != 1:
            continue
        key = decode(OffsetCommitKey, raw_key, 0, 2)
        value = decode(OffsetCommitValue, raw, int.from_bytes(raw[:2], "big"), 2)
        epoch = None if value.leader_epoch < 0 else value.leader_epoch
        offsets = groups.setdefault(key.group, {})
        offsets[f"{key.topic}-{key.partition}"] = [value.offset, value.metadata, epoch]
    equal("group offsets", expected, groups)


def check_transactions(logs: list[Log], expected: Json) -> None:
    """Producer id and state of all transactional ids."""
    found = {}
    for raw_key, raw in latest_values(logs, "__transaction_state").items():
        key = decode(TransactionLogKey, raw_key, 0, 2)
        value = decode(TransactionLogValue, raw, int.from_bytes(raw[:2], "big"), 2)
        found[key.transactional_id] = {
            "producerId": value.producer_id,
            "state": TRANSACTION_STATES[value.transaction_status],
        }
    equal("transactions", expected, found)


def contents(directory: Path, wanted: Callable[[Path], bool]) -> dict[str, bytes]:
    """Content of the files below a directory, by relative path."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and wanted(path)
    }


def check_unchanged(before: dict[str, bytes], after: dict[str, bytes]) -> None:
    """The same files with the same bytes; an epoch without a record may have gone, as in Kafka."""
    equal("file names", sorted(before), sorted(after))
    for name, data in before.items():
        if name.endswith("leader-epoch-checkpoint"):
            equal(
                name,
                data.split(b"\n")[2:][: len(after[name].split(b"\n")) - 3],
                after[name].split(b"\n")[2:-1],
            )
        else:
            equal(name, data, after[name])


def is_partition_file(path: Path) -> bool:
    """True for files in partition directories."""
    return re.search(r"-\d+$", path.parent.name) is not None


def run(directory: Path) -> tuple[int, int]:
    """Check the folder `directory`/logdir, print failures and counts, return (passed, failed)."""
    expected = read_json("logdir/expected.json", directory)
    batches = read_json("logdir/batches.json", directory)
    tree = read_json("logdir/zk-tree.json", directory)
    counts = Counts()
    newest = max(
        batch["maxTimestamp"]
        for files in batches.values()
        for rows in files.values()
        for batch in rows
    )
    for how in ("clean", "recovered", "without indexes"):
        with tempfile.TemporaryDirectory() as folder:
            path = unpack_log_directory(Path(folder), directory)
            if how == "recovered":
                (path / ".kafka_cleanshutdown").unlink()
                (path / "recovery-point-offset-checkpoint").unlink()
            if how == "without indexes":
                for file in path.rglob("*.*index"):
                    if file.suffix != ".txnindex":
                        file.unlink()
            before = contents(path, is_partition_file)
            manager = open_directory(path, tree, newest + 1000)
            try:
                check_directory(counts, how, manager, path, expected, batches)
            finally:
                manager.shutdown(newest + 2000)
            after = contents(path, is_partition_file)
            if how == "clean":
                counts.check("files after closing", lambda b=before, a=after: check_unchanged(b, a))
            else:
                check_rebuilt(counts, how, directory, after)
            counts.check(f"{how} marker", lambda p=path: (p / ".kafka_cleanshutdown").stat())
    print(f"logdir: {counts.passed} passed, {counts.failed} failed")
    return counts.passed, counts.failed


def check_directory(
    counts: Counts, how: str, manager: LogManager, path: Path, expected: Json, batches: Json
) -> None:
    """All that is expected of an open log directory."""
    meta = manager.meta_properties()
    counts.check("cluster id", lambda: equal("id", expected["clusterId"], meta and meta.cluster_id))
    logs = {log.tp: log for log in manager.logs()}
    partitions = {
        TopicPartition(topic, int(number)): row
        for topic, rows in expected["topics"].items()
        for number, row in rows.items()
    }
    counts.check(f"{how} partitions", lambda: equal("names", set(partitions), set(logs)))
    for tp, row in partitions.items():
        log = logs[tp]
        check_log(counts, how, log, row)
        counts.check(
            f"{how} {tp} topic id",
            lambda log=log: equal(  # type: ignore[misc]
                "id", expected["topicIds"][log.tp.topic], uuid_to_str(log.topic_id or b"")
            ),
        )
        for name, rows in batches[str(tp)].items():
            counts.check(
                f"{how} {tp}/{name} batches",
                lambda log=log, name=name, rows=rows: check_batches(log, path / name, rows),  # type: ignore[misc]
            )
    everything = list(logs.values())
    counts.check(
        f"{how} group offsets", lambda: check_group_offsets(everything, expected["groupOffsets"])
    )
    counts.check(
        f"{how} transactions", lambda: check_transactions(everything, expected["transactions"])
    )
    for snapshot in path.rglob("*.snapshot"):
        counts.check(
            f"{how} {snapshot.parent.name}/{snapshot.name}",
            lambda s=snapshot: check_snapshot(s),  # type: ignore[misc]
        )


def check_snapshot(path: Path) -> None:
    """A producer snapshot read and written again is the same bytes."""
    data = path.read_bytes()
    producers = ProducerStateManager(1 << 62)
    producers.producers = {entry.producer_id: entry for entry in parse_snapshot(data)}
    equal("snapshot", data, producers.snapshot())


def check_rebuilt(counts: Counts, how: str, directory: Path, after: dict[str, bytes]) -> None:
    """Recovery rebuilds the files of Apache Kafka, byte for byte.

    Compacted logs are omitted: the cleaner writes several batches at once and indexes accordingly.
    """
    with tempfile.TemporaryDirectory() as folder:
        original = contents(unpack_log_directory(Path(folder), directory), is_partition_file)
    for name, data in original.items():
        if name.startswith(("compacted-", "__")) or not name.endswith(("index", ".snapshot")):
            continue
        counts.check(
            f"{how} rebuilt {name}",
            lambda name=name, data=data: equal(name, data.hex(), after.get(name, b"").hex()),  # type: ignore[misc]
        )
