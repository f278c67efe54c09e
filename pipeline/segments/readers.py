"""The readers of queries: what Spark calls to plan and to read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from ..unpacked import leave_archives
from ..worker_daemon import keep_memory
from . import plan, tasks
from .group import GroupProgress
from .options import Options
from .pushdown import Pushed, take
from .slices import OffsetSlice
from .stream import Follower, from_json


class SegmentReader(DataSourceReader):
    """One batch query."""

    def __init__(self, options: Options, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._pushed = Pushed()

    def partitions(self) -> Sequence[InputPartition]:
        return plan.slices(self._options, self._pushed)

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        # If there is nothing to read, Spark makes one task, with None or (from 4.1 on) an InputPartition of nothing.
        if not isinstance(partition, OffsetSlice):
            return iter(())
        leave_archives()
        keep_memory()
        return tasks.read(partition, self._options, self._columns, self._pushed)


class FilteringReader(SegmentReader):
    """One batch query whose filters Spark pushes down, from 4.1 on.

    A class of its own, because Spark refuses a reader that takes filters while `spark.sql.python.filterPushdown.enabled` is off.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Take the usable filters; return those that Spark still has to apply."""
        self._pushed, left = take(filters, self._options.rows)
        return left


class SegmentStreamReader(DataSourceStreamReader):
    """One streaming query, as Spark 4.0 and 4.1 call it."""

    def __init__(self, options: Options, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._follower = Follower(options)
        self._progress = GroupProgress(options)

    def initialOffset(self) -> dict[str, Any]:
        return self._follower.initial()

    def latestOffset(self) -> dict[str, Any]:
        return self._follower.latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._follower.slices(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, OffsetSlice)
        return tasks.read(partition, self._options, self._columns, Pushed())

    def commit(self, end: dict[str, Any]) -> None:
        self._progress.commit(from_json(end))

    def stop(self) -> None:
        self._progress.close()
