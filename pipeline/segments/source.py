"""`spark.read.format("kwire-log")`: the Spark side.

Spark pickles a source and its readers, and calls them in separate processes; so they hold only options and the schema. The
processes that plan are always forked by Spark's own daemon, and are reused: `leave_archives` makes their next use quicker.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from ..unpacked import leave_archives
from . import admission
from .errors import SegmentError
from .options import LATEST, Bound, Options, parse
from .readers import FilteringReader, SegmentReader, SegmentStreamReader
from .schemas import checked, default_schema


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
        if options.group is not None or options.max_offsets_per_trigger is not None:
            raise SegmentError("group and maxOffsetsPerTrigger are for streams; this is a batch")
        reader = FilteringReader if options.push_filters else SegmentReader
        return reader(options, checked(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = self._parsed()
        if options.end != Bound(LATEST):
            raise SegmentError("a stream has no end: endingOffsets and the like are for batches")
        columns = checked(schema, options)
        if admission.IS_SUPPORTED:
            return admission.AdmittingStreamReader(options, columns)
        return SegmentStreamReader(options, columns)
