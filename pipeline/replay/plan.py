"""The plan of a replay, as plain values that go to Spark's tasks: a job, and one Task for each source partition."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

#: Columns of a batch of records in offset order: offset (int64), timestamp (int64, ms since 1970), key and value (binary),
#: headers (list of struct key: string, value: binary).
COLUMNS = ("offset", "timestamp", "key", "value", "headers")


class SourcePartition(Protocol):
    """One partition of the source. It is pickled, so it says where the records are and opens nothing before `read`."""

    @property
    def topic(self) -> str:
        """Its topic."""

    @property
    def partition(self) -> int:
        """Its number."""

    @property
    def oldest_ms(self) -> int | None:
        """The oldest timestamp, if known."""

    @property
    def lost(self) -> tuple[tuple[int, int], ...]:
        """Ranges (first and last offset) that are known to be missing."""

    @property
    def first(self) -> int:
        """The first offset."""

    @property
    def end(self) -> int:
        """The offset after the last one."""

    def read(self, offset: int, end: int) -> Iterator[pa.RecordBatch]:
        """The records from `offset` on and before `end`, in batches of COLUMNS; raises Problem for damage."""


class RecordRange(NamedTuple):
    """Which records: offsets from..to and timestamps (ms) from..to; `to` is exclusive, None means no limit."""

    from_offset: int | None = None
    to_offset: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    def of_time(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The records of a batch in the requested time range."""
        for bound, compare in ((self.from_ms, pc.greater_equal), (self.to_ms, pc.less)):
            if bound is not None:
                batch = batch.filter(compare(batch.column("timestamp"), bound))
        return batch


@dataclass(frozen=True)
class TargetTopic:
    """The topic to write to, and the records that it accepts."""

    topic: str
    partitions: int
    #: The first and last timestamp (ms) that the topic accepts; None means no limit.
    earliest_ms: int | None = None
    latest_ms: int | None = None
    #: Size in bytes of the largest batch (the topic's max.message.bytes).
    batch_bytes: int = 1_048_588


@dataclass(frozen=True)
class Task:
    """One source partition on its way to its target."""

    source: SourcePartition
    target: TargetTopic
    within: RecordRange = field(default_factory=RecordRange)
    keep_partition: bool = False

    @property
    def start(self) -> int:
        """The first offset to replay."""
        return max(self.source.first, self.within.from_offset or 0)

    @property
    def end(self) -> int:
        """The offset after the last one to replay."""
        end, to = self.source.end, self.within.to_offset
        return end if to is None else min(end, to)

    @property
    def place(self) -> str:
        """`topic-partition` of the source."""
        return f"{self.source.topic}-{self.source.partition}"


@dataclass(frozen=True)
class Job:
    """The settings that all tasks of a replay share."""

    name: str
    #: Distinguishes replays of different records or to other topics; stored with each position.
    digest: str
    #: Settings of the Kafka clients.
    settings: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    #: A transaction is committed when it has this many records, or is COMMIT_S old.
    transaction_records: int = 20_000
    #: Seconds without progress after which a task gives up.
    patience_s: float = 120.0

    def group(self, topic: str, partition: int) -> str:
        """The transactional id of a source partition, and the consumer group that holds its position."""
        return f"{self.name}-{topic}-{partition}"


class ReplayPosition(NamedTuple):
    """The committed state of a source partition: the next offset, the number of records replayed, and the writer.

    It is stored as the offset that the group `<name>-<topic>-<partition>` has committed for partition 0 of the target
    topic. It cannot be stored for the source's own partition, because brokers refuse offsets of topics that they do not
    have.
    """

    offset: int
    records: int
    #: The identity of the Job.
    digest: str
    #: Distinguishes writers of the same partition: other runs, other attempts of a Spark task.
    run: str

    def metadata(self) -> str:
        """The metadata string of the committed offset."""
        return json.dumps({"records": self.records, "replay": self.digest, "run": self.run})

    @classmethod
    def of(cls, offset: int, metadata: str | None) -> ReplayPosition:
        """Read what `metadata` wrote; raises ValueError for an offset that something else committed."""
        try:
            text = json.loads(metadata or "")
            return cls(offset, int(text["records"]), str(text["replay"]), str(text["run"]))
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"committed offset {offset} is not a replay's: {metadata!r}") from None


class Done(NamedTuple):
    """The outcome for a source partition in this run."""

    topic: str
    partition: int
    records: int
    #: Number of records in all runs.
    total: int
    #: Number of records whose timestamp is 0 ms, which the client cannot write.
    timeless: int


def digest_of(*parts: object) -> str:
    """Eight hex digits that stand for these values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:8]


def shares(
    tasks: Sequence[Task], left: Sequence[int], slots: int, rate: float | None
) -> list[tuple[list[Task], float | None]]:
    """How Spark's tasks divide the work: lists of partitions, each list with its part of the rate.

    Without a rate each partition is a separate task. With one there are as many lists as tasks that run at the same time,
    about equally long, and each gets the rate it needs to end with the others: together they never exceed the total.
    """
    if rate is None:
        return [([task], None) for task in tasks]
    lists: list[list[Task]] = [[] for _ in range(max(1, min(slots, len(tasks))))]
    sums = [0] * len(lists)
    for size, task in sorted(zip(left, tasks, strict=True), key=lambda pair: -pair[0]):
        least = sums.index(min(sums))
        lists[least].append(task)
        sums[least] += max(1, size)
    return [(some, rate * own / sum(sums)) for some, own in zip(lists, sums, strict=True) if some]
