"""The input of one Spark task: part of one partition's log by offsets, and the file and position where it was found."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql.datasource import InputPartition

#: Producer id -> (first offset, offset of the abort marker) of its aborted transactions.
Aborted = dict[int, list[tuple[int, int]]]


@dataclass
class OffsetSlice(InputPartition):
    """Records from `start` (inclusive) to `end` (exclusive).

    The offsets define the slice. File and position are where planning found it: a batch boundary at or before the first
    record; reading stops at `limit` at the latest. If the file has been replaced, the offsets are looked up again.
    """

    topic: str
    partition: int
    directory: str
    """The partition's."""
    base_offset: int
    """Inode of the segment."""
    inode: int
    position: int
    limit: int | None
    """None means to the end of the file."""
    start: int
    end: int
    reaches_end: bool = False
    """Whether the file must hold everything up to `end`: it is the newest, and `end` was committed."""
    aborted: Aborted = field(default_factory=dict)
    next_offset: int | None = None
    """The offset at which the batch at `limit`, or the next segment, begins; None if there is neither."""

    def __str__(self) -> str:
        return f"topic {self.topic} partition {self.partition}"
