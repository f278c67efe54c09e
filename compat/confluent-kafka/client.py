"""confluent-kafka's side of the record exchange."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import exchange


def produce(
    bootstrap: str,
    topic: str,
    partition: int,
    rows: Iterator[exchange.ExchangeRecord],
    codec: str,
) -> None:
    """Write all rows in order with one idempotent producer."""
    failures: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 20,
        }
    )

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(str(error))

    for row in rows:
        while True:
            try:
                producer.produce(
                    topic,
                    partition=partition,
                    key=row.key,
                    value=row.value,
                    headers=list(row.headers),
                    timestamp=row.timestamp_ms,
                    on_delivery=delivered,
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(60)
    if left or failures:
        sys.exit(f"{left} records not sent, {len(failures)} refused: {failures[:1]}")


def consume(bootstrap: str, topic: str, check: exchange.Check) -> None:
    """Read all partitions from the beginning."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "exchange-unused",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(len(exchange.CODECS))])
    while not check.done():
        for message in consumer.consume(2000, timeout=1.0):
            if message.error():
                raise KafkaException(message.error())
            check.record(
                message.partition(),
                message.offset(),
                message.timestamp()[1],
                message.key(),
                message.value(),
                message.headers() or (),
            )
    consumer.close()


if __name__ == "__main__":
    exchange.run(
        "confluent-kafka",
        f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})",
        produce,
        consume,
    )
