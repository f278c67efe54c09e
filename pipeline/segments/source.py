"""`spark.read.format("kwire-log")`: the Spark side.

Spark pickles a source and its readers, and calls them in separate processes; so they hold only options and the schema. The
processes that plan are always forked by Spark's own daemon, and are reused: `leave_archives` makes their next use quicker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from ..worker_daemon import leave_archives
from . import plan, tasks
from .options import Options, parse
from .schemas import checked, default_schema
from .slices import Slice
from .stream import Follower


class SegmentSource(DataSource):
    """Records from the segments of log directories, in the columns of Spark's kafka source."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        leave_archives()

    @classmethod
    def name(cls) -> str:
        return "kwire-log"

    def _parsed(self) -> Options:
        return parse(self.options)

    def schema(self) -> StructType:
        return default_schema(self._parsed())

    def reader(self, schema: StructType) -> DataSourceReader:
        leave_archives()
        options = self._parsed()
        return SegmentReader(options, checked(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = self._parsed()
        return SegmentStreamReader(options, checked(schema, options))


class SegmentReader(DataSourceReader):
    """One batch query."""

    def __init__(self, options: Options, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        logs = plan.find(options)
        return plan.between(logs, plan.starts(logs, options), plan.ends(logs, options), options)

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        # If there is nothing to read, Spark makes one task with None.
        if partition is None:
            return iter(())
        leave_archives()
        assert isinstance(partition, Slice)
        return tasks.read(partition, self._options, self._columns)


class SegmentStreamReader(DataSourceStreamReader):
    """One streaming query."""

    def __init__(self, options: Options, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._follower = Follower(options)

    def initialOffset(self) -> dict[str, Any]:
        return self._follower.initial()

    def latestOffset(self) -> dict[str, Any]:
        return self._follower.latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._follower.slices(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Slice)
        return tasks.read(partition, self._options, self._columns)
