"""Shared by the tests of replay: archives made by hand, and topics read as by a consumer."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kwire.pipeline.manifest import Archive, ArchiveFile, ManifestEntry

Headers = list[tuple[str, bytes | None]]

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


class Record(NamedTuple):
    """One record, with its original offset."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers | None = None


def some_records(
    count: int, partition: int = 0, *, seed: int = 1, now_ms: int = 1_800_000_000_000
) -> list[Record]:
    """Records of all kinds: gaps in offsets, null and empty keys and values, headers, unordered timestamps."""
    chance = random.Random(seed * 1000 + partition)
    records = []
    offset = chance.randrange(3)
    for number in range(count):
        key = chance.choice((None, b"", b"key %d" % chance.randrange(20)))
        value = chance.choice(
            (None, b"", b"value %d of %d" % (number, partition) * chance.randrange(1, 5))
        )
        headers: Headers | None = [
            (f"name-{chance.randrange(3)}", chance.choice((None, b"", b"%d" % number)))
            for _ in range(chance.randrange(3))
        ]
        # Sometimes more than an hour apart, so that the archive puts them into several files.
        timestamp = now_ms + number * 10 + chance.choice((0, 0, 0, 3_600_000, -3_600_000))
        records.append(Record(offset, key, value, timestamp, headers or None))
        offset += chance.choice((1, 1, 1, 1, 2, 5))
    return records


def add_to_archive(path: Path, topic: str, partition: int, records: Sequence[Record]) -> Archive:
    """Add records as one batch of an archive: a file for each hour of their time."""
    archive = Archive(path)
    archive.create()
    hours: dict[int, list[Record]] = {}
    for record in records:
        hours.setdefault(record.timestamp // 3_600_000, []).append(record)
    files = []
    for hour, some in hours.items():
        name = f"{topic}-{partition}-{some[0].offset}-{hour}.parquet"
        columns = [
            [one.key for one in some],
            [one.value for one in some],
            [partition] * len(some),
            [one.offset for one in some],
            pa.array([one.timestamp * 1000 for one in some]).cast(pa.timestamp("us", "UTC")),
            [0] * len(some),
            [
                one.headers and [{"key": key, "value": value} for key, value in one.headers]
                for one in some
            ],
        ]
        arrays = [
            column if isinstance(column, pa.Array) else pa.array(column, field.type)
            for column, field in zip(columns, SCHEMA, strict=True)
        ]
        table = pa.Table.from_arrays(arrays, schema=SCHEMA)
        # Small row groups, so that skipped and merged ranges cross them.
        pq.write_table(table, path / name, row_group_size=500)
        times = [one.timestamp for one in some]
        files.append(
            ArchiveFile(
                name,
                len(some),
                (path / name).stat().st_size,
                some[0].offset,
                some[-1].offset,
                min(times),
                max(times),
            )
        )
    first = archive.ends().get((topic, partition), records[0].offset)
    entry = ManifestEntry(topic, partition, first, records[-1].offset, len(records), tuple(files))
    archive.commit_batch([entry], 0)
    return archive


def create(bootstrap: str, topic: str, partitions: int, **config: str) -> None:
    """Create a topic; `_` in names of settings stands for a dot."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(30)


def read_committed(bootstrap: str, topic: str, partitions: int) -> list[list[Record]]:
    """The records of each partition that a read_committed consumer sees, with the offsets they have there."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[list[Record]] = [[] for _ in range(partitions)]
    open_partitions = set(range(partitions))
    deadline = time.monotonic() + 90.0
    while open_partitions:
        # It returns before the timeout only with the requested number.
        messages = consumer.consume(1000, 0.1)
        assert time.monotonic() < deadline, "is there a transaction that nobody ends?"
        for message in messages:
            number = message.partition()
            if message.error():
                open_partitions.discard(number)
                continue
            found[number].append(
                Record(
                    message.offset(),
                    message.key(),
                    message.value(),
                    message.timestamp()[1],
                    message.headers(),
                )
            )
    consumer.close()
    return found


def without_offsets(records: Iterable[Record]) -> list[Record]:
    """The fields that a replay preserves."""
    return [record._replace(offset=0) for record in records]
