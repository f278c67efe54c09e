"""Timestamps of single records, fetched by their offsets."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from .cluster import PATIENCE, Cluster
from .offsets import Offsets


def timestamps_at(cluster: Cluster, offsets: Offsets, patience_s: float = 10.0) -> Offsets:
    """(topic, partition) -> timestamp of the first record at or after an offset, in ms since 1970.

    Shape: partitions where no record arrives in time are left out; records of open transactions count.
    """
    found: Offsets = {}
    if not offsets:
        return found
    # Little is fetched from each partition, and nothing twice.
    settings: dict[str, str | int | float | bool] = {
        "isolation.level": "read_uncommitted",
        "auto.offset.reset": "earliest",
        "fetch.message.max.bytes": 4096,
        "queued.max.messages.kbytes": 1024,
    }
    consumer = cluster.consumer(**settings)
    try:
        consumer.assign([TopicPartition(*where, offset) for where, offset in offsets.items()])
        deadline = time.monotonic() + patience_s
        while len(found) < len(offsets) and time.monotonic() < deadline:
            record = consumer.poll(0.2)
            if record is None or record.error() is not None:
                continue
            topic, partition = record.topic(), record.partition()
            assert topic is not None and partition is not None
            if (topic, partition) not in found:
                found[topic, partition] = record.timestamp()[1]
                consumer.pause([TopicPartition(topic, partition)])
    finally:
        consumer.close()
    return found


def newest_timestamps(cluster: Cluster, topics: Mapping[str, int]) -> Offsets:
    """(topic, partition) -> its largest timestamp; left out are empty partitions and those whose broker does not know it."""
    asked = {
        TopicPartition(topic, number): OffsetSpec.max_timestamp()
        for topic, count in topics.items()
        for number in range(count)
    }
    found: Offsets = {}
    if asked:
        admin = AdminClient(cluster.settings())  # must be kept alive until the answers have arrived
        for place, answer in admin.list_offsets(asked, request_timeout=PATIENCE).items():
            try:
                timestamp = answer.result().timestamp
            except KafkaException:
                continue
            if timestamp >= 0:
                found[place.topic, place.partition] = timestamp
    return found
