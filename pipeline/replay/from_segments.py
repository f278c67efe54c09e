"""Segments as replay reads them: the committed records of one partition, from a broker's log folders."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ..segments import plan, tasks
from ..segments.options import Options, parse
from ..segments.slices import OffsetSlice
from .from_archive import between, conformed
from .plan import COLUMNS


@dataclass(frozen=True)
class StoredPartition:
    """The committed records in the log of one partition; a SourcePartition."""

    topic: str
    partition: int
    first: int
    end: int
    slices: tuple[OffsetSlice, ...]
    options: Options
    oldest_ms: int | None = None
    lost: tuple[tuple[int, int], ...] = ()

    def read(self, offset: int, end: int) -> Iterator[pa.RecordBatch]:
        """See SourcePartition."""
        for cut in self.slices:
            if cut.end <= offset or cut.start >= end:
                continue
            part = replace(cut, start=max(cut.start, offset), end=min(cut.end, end))
            for batch in tasks.read(part, self.options, COLUMNS):
                found = between(conformed(batch, str(cut)), offset, end)
                if found.num_rows:
                    yield found


def stored_partitions(
    folders: Sequence[str], topics: Collection[str] | None
) -> list[StoredPartition]:
    """The partitions of these topics (of all but internal ones, for None) in log folders.

    Raises Problem for folders and topics that do not exist.
    """
    words = {"paths": json.dumps(list(folders)), "isolation": "read_committed"}
    if topics is not None:
        words["topics"] = ",".join(sorted(topics))
    options = parse(words)
    logs = plan.find(options)
    starts, ends = plan.starts(logs, options), plan.ends(logs, options)
    slices = plan.between(logs, starts, ends, options)
    return [
        StoredPartition(
            *place,
            starts[place],
            ends[place],
            tuple(cut for cut in slices if (cut.topic, cut.partition) == place),
            options,
        )
        for place in logs
    ]
