"""The produced records and those in an archive, as sorted lists of the same tuples."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.parquet
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kwire.pipeline.manifest import Archive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: 2026-01-02 23:58 UTC, two minutes before a day ends.
EVENING_MS = 1_767_398_280_000


class Record(NamedTuple):
    """One record; times in ms since 1970."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def create_topic(bootstrap: str, topic: str, partitions: int = 1, **configs: str) -> None:
    """Create a topic and wait for it; configs with `_` for `.`.

    The records here have old timestamps, and retention must not remove them.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    settings.setdefault("retention.ms", "-1")
    new = NewTopic(topic, partitions, 1, config=settings)
    admin.create_topics([new])[topic].result(60)


def produce(
    bootstrap: str,
    topic: str,
    count: int,
    *,
    partitions: int = 1,
    start_ms: int = EVENING_MS,
    step_ms: int = 1000,
    transaction: bool | None = None,
    batch_records: int = 10_000,
) -> list[Record]:
    """Produce records, in turn to each partition, and return them.

    `transaction` True or False puts all into one that commits or aborts.
    """
    done: list[Record] = []
    settings: dict[str, str | int] = {
        "bootstrap.servers": bootstrap,
        "linger.ms": 20,
        "batch.num.messages": batch_records,
    }
    if transaction is not None:
        settings["transactional.id"] = f"{topic}-{transaction}"
    producer = Producer(settings)
    if transaction is not None:
        producer.init_transactions(60)
        producer.begin_transaction()
    for number in range(count):
        key = None if number % 7 == 0 else f"k{number % 13}".encode()
        value = None if number % 11 == 0 else f"value {number} of {topic} ".encode() * (number % 4)
        headers = [("h", b"\x00\xff"), ("h", None)] if number % 3 == 0 else []

        def delivered(
            error: KafkaError | None,
            message: Message,
            key: bytes | None = key,
            value: bytes | None = value,
            headers: list[tuple[str, bytes | None]] = headers,
        ) -> None:
            assert error is None, error
            at = (message.partition() or 0, message.offset() or 0)
            done.append(Record(topic, *at, key, value, tuple(headers), message.timestamp()[1]))

        producer.produce(
            topic,
            key=key,
            value=value,
            headers=headers or None,
            partition=number % partitions,
            timestamp=start_ms + number * step_ms,
            on_delivery=delivered,
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    if transaction is True:
        producer.commit_transaction(60)
    elif transaction is False:
        producer.abort_transaction(60)
    assert len(done) == count
    return sorted(done)


def archived(path: Path | str) -> list[Record]:
    """The content of an archive, read without Spark by its manifests, which are checked against the files."""
    found: list[Record] = []
    for entry in Archive(path).entries():
        rows = 0
        for file in entry.files:
            location = Path(path, file.path)
            table = pyarrow.parquet.read_table(location, partitioning=None)
            assert (table.num_rows, location.stat().st_size) == (file.rows, file.size)
            records = list(records_of(entry.topic, table.to_pylist()))
            assert [r.offset for r in records] == sorted(r.offset for r in records)
            assert (records[0].offset, records[-1].offset) == (file.first_offset, file.last_offset)
            assert {r.partition for r in records} == {entry.partition}
            assert min(r.timestamp_ms for r in records) == file.first_timestamp_ms
            found += records
            rows += file.rows
        assert rows == entry.rows
    return sorted(found)


def rows_of(frame: DataFrame) -> list[Record]:
    """The records of a frame with the kafka source's columns."""
    rows = [row.asDict(recursive=True) for row in frame.collect()]
    return sorted(record for row in rows for record in records_of(row["topic"], [row]))


def records_of(topic: str, rows: Iterable[dict[str, object]]) -> Iterator[Record]:
    """Rows with the columns of the kafka source, as records."""
    for row in rows:
        values = dict(row)
        headers = tuple((h["key"], _bytes(h["value"])) for h in values["headers"] or ())  # type: ignore[attr-defined]
        stamp = values["timestamp"].timestamp()  # type: ignore[attr-defined]
        assert values["timestampType"] == 0
        yield Record(
            topic,
            values["partition"],  # type: ignore[arg-type]
            values["offset"],  # type: ignore[arg-type]
            _bytes(values["key"]),
            _bytes(values["value"]),
            headers,
            round(stamp * 1000),
        )


def _bytes(value: object) -> bytes | None:
    return None if value is None else bytes(value)  # type: ignore[call-overload, no-any-return]


def digest(records: Iterable[Record]) -> str:
    """One hash over all records in order."""
    total = hashlib.sha256()
    for record in records:
        total.update(repr(record).encode())
    return total.hexdigest()


@contextmanager
def failing_once(owner: object, name: str) -> Iterator[None]:
    """Make the first call of a method fail, as if the process had ended there."""
    original = getattr(owner, name)
    left = [1]

    def called(*arguments: object, **options: object) -> object:
        if left:
            left.pop()
            raise RuntimeError(f"killed in {name}")
        return original(*arguments, **options)

    setattr(owner, name, called)
    try:
        yield
    finally:
        setattr(owner, name, original)
    assert not left
