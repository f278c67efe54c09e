"""A log directory moved from Apache Kafka to kwire and back, after clean stops and after kills."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from server.log.file_layer import FileLayer
from server.log.log import AppendInfo
from server.log.log_config import LogConfig
from server.log.log_manager import LogManager
from tests.support.kafka import Kafka39Broker, KafkaProcess

from .logs import batch, config, end_transaction

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

COUNT = 300


def produce(address: str, first: int) -> None:
    """Send COUNT numbered records with an idempotent producer that compresses."""
    producer = Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 5,
            "batch.num.messages": 20,
        }
    )
    for number in range(first, first + COUNT):
        producer.produce("numbers", b"%d" % number, partition=0)
    assert producer.flush(30) == 0


def consume(address: str, end_offset: int) -> list[bytes]:
    """All values up to end_offset, read by a read_committed consumer."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "check",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("numbers", 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + 30
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error():
                if consumer.position([TopicPartition("numbers", 0)])[0].offset >= end_offset:
                    return values
                continue
            values.append(message.value())
        raise AssertionError(f"only {len(values)} records before the deadline")
    finally:
        consumer.close()


def open_directory(path: Path, settings: LogConfig) -> LogManager:
    """The log directory, opened as the broker it belongs to."""
    manager = LogManager([str(path)], FileLayer())
    manager.lock()
    meta = manager.meta_properties()
    assert meta is not None
    assert meta.broker_id is not None and meta.cluster_id is not None
    manager.claim(meta.broker_id, meta.cluster_id)
    manager.load(lambda topic: settings, int(time.time() * 1000))
    return manager


@pytest.mark.parametrize("killed", [False, True])
def test_directory_goes_from_kafka_to_kwire_and_back(tmp_path: Path, killed: bool) -> None:
    """Records of both, a duplicate and an aborted transaction; neither broker has to repair anything."""
    broker = Kafka39Broker(tmp_path / "kafka")
    broker.start()
    try:
        produce(broker.bootstrap, 0)
        if killed:
            broker.kill()
            broker.zookeeper.end_sessions()
        else:
            KafkaProcess.stop(broker)

        settings = config(segment_bytes=4000, index_interval_bytes=200)
        manager = open_directory(broker.log_dir, settings)
        log = next(log for log in manager.logs() if log.tp.topic == "numbers")
        assert log.log_end_offset == COUNT
        log.high_watermark = COUNT
        now = int(time.time() * 1000)
        epoch = log.leader_epoch_cache.latest
        for number in range(COUNT, 2 * COUNT):
            info = log.append_as_leader(batch(b"%d" % number, timestamp=now), epoch, now)
            assert isinstance(info, AppendInfo)
        aborted = batch(b"never seen", timestamp=now, pid=900, transactional=True)
        assert isinstance(log.append_as_leader(aborted, epoch, now), AppendInfo)
        end_transaction(log, 900, commit=False, epoch=epoch)
        end_offset = log.log_end_offset
        assert len(log.segments) > 4
        if killed:
            manager.checkpoint(now)
            manager.unlock()
        else:
            manager.shutdown(now)
        broker.log_path.unlink()

        broker.start()
        produce(broker.bootstrap, 2 * COUNT)
        expected = [b"%d" % number for number in range(3 * COUNT)]
        assert consume(broker.bootstrap, end_offset + COUNT) == expected
        KafkaProcess.stop(broker)
        complaints = [
            line
            for line in broker.log_path.read_text(errors="replace").splitlines()
            if "kafka.log." in line or "storage.internals" in line
        ]
        assert complaints == []

        again = open_directory(broker.log_dir, settings)
        log = next(log for log in again.logs() if log.tp.topic == "numbers")
        assert log.log_end_offset == end_offset + COUNT
        again.shutdown(now)
    finally:
        broker.stop()
