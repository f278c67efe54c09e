"""aiokafka's side of the record exchange."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import aiokafka

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import exchange


async def _produce(
    bootstrap: str,
    topic: str,
    partition: int,
    rows: Iterator[exchange.ExchangeRecord],
    codec: str,
) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=True,
        max_batch_size=65536,
        linger_ms=5,
    )
    await producer.start()
    try:
        futures = [
            await producer.send(
                topic,
                partition=partition,
                key=row.key,
                value=row.value,
                headers=list(row.headers),
                timestamp_ms=row.timestamp_ms,
            )
            for row in rows
        ]
        await asyncio.gather(*futures)
    finally:
        await producer.stop()


async def _consume(bootstrap: str, topic: str, check: exchange.Check) -> None:
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    try:
        consumer.assign([aiokafka.TopicPartition(topic, p) for p in range(len(exchange.CODECS))])
        while not check.done():
            for rows in (await consumer.getmany(timeout_ms=1000, max_records=2000)).values():
                for row in rows:
                    check.record(
                        row.partition, row.offset, row.timestamp, row.key, row.value, row.headers
                    )
    finally:
        await consumer.stop()


def produce(
    bootstrap: str,
    topic: str,
    partition: int,
    rows: Iterator[exchange.ExchangeRecord],
    codec: str,
) -> None:
    """Write all rows in order with one idempotent producer."""
    asyncio.run(_produce(bootstrap, topic, partition, rows, codec))


def consume(bootstrap: str, topic: str, check: exchange.Check) -> None:
    """Read all partitions from the beginning."""
    asyncio.run(_consume(bootstrap, topic, check))


if __name__ == "__main__":
    exchange.run("aiokafka", aiokafka.__version__, produce, consume)
