"""librdkafka as a producer or a consumer, in a separate process; prints one JSON object.

usage: python -m bench.suite.rdkafka produce|consume '{"brokers": ..., "topic": ..., ...}'
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

#: librdkafka's value for letting the client choose.
PARTITION_UA = -1


def produce(work: dict[str, Any]) -> dict[str, Any]:
    """Send the records; a callback reports every one that was not delivered.

    Shape: with `partitions`, these get one record each in turn; without it, the client chooses.
    """
    values = Path(work["payloads"]).read_bytes().split()
    connections, failures = work["connections"], []
    settings = {
        "bootstrap.servers": work["brokers"],
        "batch.size": work["batch"],
        "message.max.bytes": max(1_000_000, work["batch"]),
        "batch.num.messages": 1_000_000,
        "linger.ms": 5,
        "acks": work["acks"],
        "compression.type": work["compression"],
        "enable.idempotence": work["idempotent"],
        "queue.buffering.max.messages": max(2000, 400_000 // connections),
        "queue.buffering.max.kbytes": max(2048, 65_536 // connections),
        "delivery.report.only.error": True,
        # Idempotent producers get their producer ids before the clock starts.
    }

    def report(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(str(error))

    producers = [Producer({**settings, "on_delivery": report}) for _ in range(connections)]
    for producer in producers:
        producer.list_topics(work["topic"], 30)
    topic, records, kinds = work["topic"], work["records"], len(values)
    partitions = range(work["partitions"]) if "partitions" in work else (PARTITION_UA,)
    size = 0
    begin = time.monotonic()
    for number in range(records):
        producer = producers[number % connections]
        value = values[number % kinds]
        partition = partitions[number % len(partitions)]
        while True:
            try:
                producer.produce(topic, value, partition=partition)
                break
            except BufferError:
                producer.poll(0.05)
        size += len(value)
    left = sum(producer.flush(120) for producer in producers)
    seconds = time.monotonic() - begin
    if failures or left:
        raise SystemExit(f"{len(failures)} records failed ({failures[:1]}), {left} were not sent")
    return {"records": records, "bytes": size, "seconds": seconds}


def consume(work: dict[str, Any]) -> dict[str, Any]:
    """Read a whole topic by assignment."""
    consumer = Consumer(
        {
            "bootstrap.servers": work["brokers"],
            "group.id": "bench",
            "enable.auto.commit": False,
            "max.partition.fetch.bytes": work["fetch"],
            "auto.offset.reset": "earliest",
        }
    )
    begin = time.monotonic()
    consumer.assign(
        [TopicPartition(work["topic"], p, OFFSET_BEGINNING) for p in range(work["partitions"])]
    )
    read = size = 0
    last = begin
    while read < work["records"]:
        messages = consumer.consume(10_000, 1.0)
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            size += len(message)
        read += len(messages)
        now = time.monotonic()
        last = now if messages else last
        if now - last > 30:
            raise SystemExit(f"read {read} of {work['records']} records, then nothing for 30 s")
    seconds = time.monotonic() - begin
    consumer.close()
    return {"records": read, "bytes": size, "seconds": seconds}


if __name__ == "__main__":
    print(
        json.dumps({"produce": produce, "consume": consume}[sys.argv[1]](json.loads(sys.argv[2])))
    )
