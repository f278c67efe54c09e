"""kafka-python's side of the record exchange."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import kafka

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import exchange


def produce(
    bootstrap: str,
    topic: str,
    partition: int,
    rows: Iterator[exchange.ExchangeRecord],
    codec: str,
) -> None:
    """Write all rows in order with one producer."""
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        acks="all",
        batch_size=65536,
        linger_ms=20,
        max_in_flight_requests_per_connection=1,
    )
    futures = [
        producer.send(
            topic,
            partition=partition,
            key=row.key,
            value=row.value,
            headers=list(row.headers),
            timestamp_ms=row.timestamp_ms,
        )
        for row in rows
    ]
    producer.flush()
    for future in futures:
        future.get(30)
    producer.close()


def consume(bootstrap: str, topic: str, check: exchange.Check) -> None:
    """Read all partitions from the beginning."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=2000,
    )
    consumer.assign([kafka.TopicPartition(topic, p) for p in range(len(exchange.CODECS))])
    while not check.done():
        for rows in consumer.poll(timeout_ms=1000).values():
            for row in rows:
                check.record(
                    row.partition, row.offset, row.timestamp, row.key, row.value, row.headers
                )
    consumer.close(autocommit=False)


if __name__ == "__main__":
    exchange.run("kafka-python", kafka.__version__, produce, consume)
