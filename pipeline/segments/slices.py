"""What one Spark task reads: a part of one partition's log, by offsets, and where in which file it was seen."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql.datasource import InputPartition

#: Producer id -> (first offset, offset of the abort marker) of its aborted transactions.
Aborted = dict[int, list[tuple[int, int]]]


@dataclass
class Slice(InputPartition):
    """Records from `start` (inclusive) to `end` (exclusive).

    The offsets say what is meant. The file and the position are where planning saw it: a batch boundary at or before
    the first record; reading stops at `limit` at the latest. Where the file is not the same any more, the offsets are
    looked for again.
    """

    topic: str
    partition: int
    directory: str
    """The partition's."""
    base_offset: int
    """Of the segment."""
    inode: int
    position: int
    limit: int | None
    """None: to the end of the file."""
    start: int
    end: int
    reaches_end: bool = False
    """Whether the file must hold all up to `end`: it is the newest, and `end` was committed."""
    aborted: Aborted = field(default_factory=dict)

    def __str__(self) -> str:
        return f"topic {self.topic} partition {self.partition}"
