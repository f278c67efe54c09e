"""Apache Kafka 3.9.2 and kwire compact the same directory to the same batches."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kwire.records.batch import BatchBuilder, iter_batches
from kwire.records.record import Record
from server.log.file_layer import FileLayer
from server.log.index.transaction_index import parse
from server.log.log_manager import LogManager
from server.metadata.topic_partition import TopicPartition
from tests.support.kafka import Kafka39Broker, KafkaProcess
from tests.support.kafka_tools import ToolServers

from ..logs import config
from ..test_kafka_interchange import open_directory
from .cleaning import clean
from .writing import Writer

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TOPIC = "compacted"
RETENTION_MS = 200
SETTINGS = config(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=6000,
    min_cleanable_dirty_ratio=0.01,
    delete_retention_ms=RETENTION_MS,
    index_interval_bytes=200,
)


class StoredBatch(NamedTuple):
    """A batch without the fields that may differ: sizes, CRC, and the base of the deltas."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    attributes: int
    max_timestamp: int
    producer: tuple[int, int, int]
    records: list[Record]


def stored(directory: Path) -> dict[str, list[object]]:
    """Every sealed segment's batches and aborted transactions."""
    found: dict[str, list[object]] = {}
    for path in sorted(directory.glob("*.log"))[:-1]:
        batches = found[path.name] = []
        for each in iter_batches(path.read_bytes()):
            each.verify_crc()
            header = each.header
            batches.append(
                StoredBatch(
                    header.base_offset,
                    header.last_offset,
                    header.partition_leader_epoch,
                    header.attributes,
                    header.max_timestamp,
                    (header.producer_id, header.producer_epoch, header.base_sequence),
                    list(each.records()),
                )
            )
    for path in sorted(directory.glob("*.txnindex")):
        if path.stat().st_size:
            found[path.name] = list(parse(path.read_bytes()))
    return found


class SmallRecords(Writer):
    """Writes records with 60 keys, some without values."""

    def add_records(self, builder: BatchBuilder, *, transactional: bool) -> int:
        """Add up to five records."""
        chooser = self.chooser
        count = chooser.randrange(1, 6)
        for _ in range(count):
            key = b"%d" % chooser.randrange(60)
            value = None if chooser.random() < 0.15 else b"value " * chooser.randrange(1, 9)
            headers = [("h", b"1")] if chooser.random() < 0.1 else []
            builder.append(self.now_ms + chooser.randrange(-500, 0), key, value, headers)
        return count


def wait_until_cleaned(directory: Path, offset: int) -> None:
    """Wait until Apache Kafka's checkpoint shows that it has cleaned."""
    path = directory / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        if path.exists() and f"{TOPIC} 0 {offset}" in path.read_text().splitlines():
            return
        time.sleep(0.1)
    raise AssertionError(path.read_text() if path.exists() else "no checkpoint")


def compact_here(directory: Path) -> None:
    """Compact the log in a copied directory with kwire."""
    manager = LogManager([str(directory)], FileLayer())
    manager.load(lambda topic: SETTINGS, int(time.time() * 1000))
    log = next(log for log in manager.logs() if log.tp.topic == TOPIC)
    log.high_watermark = log.log_end_offset
    assert clean(log, now_ms=int(time.time() * 1000)) == 1
    manager.shutdown(int(time.time() * 1000))


def test_same_batches_stay_as_with_apache_kafka(tmp_path: Path) -> None:
    """Three rounds: old values are removed, then tombstones, then empty transactions with their markers."""
    broker = Kafka39Broker(
        tmp_path / "kafka",
        config={"log.cleaner.backoff.ms": "100"},
    )
    broker.start()
    try:
        topic = NewTopic(
            TOPIC,
            1,
            1,
            config={
                "cleanup.policy": "compact",
                "segment.bytes": str(SETTINGS.segment_bytes),
                "min.cleanable.dirty.ratio": "0.01",
                "delete.retention.ms": str(RETENTION_MS),
            },
        )
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([topic])[TOPIC].result()
        KafkaProcess.stop(broker)
        for round_ in range(3):
            time.sleep(RETENTION_MS / 1000)  # the horizons that the last round set have passed
            manager = open_directory(broker.log_dir, SETTINGS)
            log = next(log for log in manager.logs() if log.tp.topic == TOPIC)
            log.high_watermark = log.log_end_offset
            SmallRecords(log, round_, int(time.time() * 1000)).run(150)
            target = log.active_segment.base_offset
            partition = Path(log.dir)
            manager.shutdown(int(time.time() * 1000))
            before = stored(partition)
            mine = tmp_path / f"mine-{round_}"
            shutil.copytree(broker.log_dir, mine)

            broker.start()
            wait_until_cleaned(broker.log_dir, target)
            KafkaProcess.stop(broker)
            compact_here(mine)

            theirs, ours = stored(partition), stored(mine / f"{TOPIC}-0")
            assert list(ours) == list(theirs)
            for name in theirs:
                assert ours[name] == theirs[name], name
            assert before != ours
            text = (mine / "cleaner-offset-checkpoint").read_text()
            assert f"{TOPIC} 0 {target}" in text.splitlines()
    finally:
        broker.stop()


def test_kafka_dump_log_has_no_complaint_about_compacted_segments(
    tmp_path: Path, tool_servers: ToolServers
) -> None:
    """--deep-iteration reads every record, the index checks every entry."""
    manager = LogManager([str(tmp_path)], FileLayer())
    manager.load(lambda topic: SETTINGS, 0)
    log = manager.create(TopicPartition(TOPIC, 0), None, SETTINGS, int(time.time() * 1000))
    writer = SmallRecords(log, 7, int(time.time() * 1000))
    writer.run(200)
    assert clean(log, now_ms=writer.now_ms) == 1
    manager.shutdown(writer.now_ms)
    tools = tool_servers("3.9.2")
    files = [
        str(path)
        for suffix in ("log", "index", "timeindex", "txnindex", "snapshot")
        for path in sorted(Path(log.dir).glob(f"*.{suffix}"))
    ]
    logs = [path for path in files if path.endswith(".log")]
    result = tools.run("kafka-dump-log", "--deep-iteration", "--files", ",".join(logs))
    assert result.status == 0, result.errors
    assert "isvalid: false" not in result.output and "isvalid: true" in result.output
    records = sum(
        each.header.records_count for path in logs for each in iter_batches(Path(path).read_bytes())
    )
    assert result.output.count("| offset: ") == records
    for path in files:
        result = tools.run("kafka-dump-log", "--files", path)
        text = (result.output + result.errors).lower()
        assert result.status == 0, result.errors
        for word in ("mismatch", "misses", "found", "corrupt", "out of order", "exception"):
            assert word not in text, (path, text[-1000:])
