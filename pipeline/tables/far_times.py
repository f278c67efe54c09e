"""Files with records of times that Python's datetime does not reach: a producer that counts microseconds is in the year 58,000.

Parquet, Iceberg, Delta and Spark know such times. pyiceberg reads the bounds of a file's columns as Python objects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatsAggregator,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_file_to_data_file,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import TimestampType, TimestamptzType
from pyiceberg.utils import datetime as days


def data_file(io: FileIO, metadata: TableMetadata, location: str) -> DataFile:
    """The description of a Parquet file in an Iceberg table, with bounds of all times.

    Source: pyiceberg.io.pyarrow.parquet_file_to_data_file, which does the rest.
    """
    try:
        return parquet_file_to_data_file(io, metadata, location)
    except OverflowError:
        # pyiceberg names the day of each file that it adds in passing, without using it.
        days.to_human_day = _human_day
    source = io.new_input(location)
    with source.open() as stream:
        footer = pq.read_metadata(stream)
    schema = metadata.schema()
    columns = compute_statistics_plan(schema, metadata.properties)
    times = {
        number: column
        for number, column in columns.items()
        if isinstance(column.iceberg_type, TimestampType | TimestamptzType)
    }
    counted = {
        number: replace(column, mode=MetricsMode(MetricModeTypes.COUNTS))
        for number, column in times.items()
    }
    ids = parquet_path_to_id_mapping(schema)
    known = data_file_statistics_from_parquet_metadata(footer, {**columns, **counted}, ids)
    for at in range(footer.num_columns):
        number = ids.get(footer.schema.column(at).path)
        if number in times and (bounds := _bounds(footer, at)) is not None:
            ends = StatsAggregator(times[number].iceberg_type, "INT64")
            ends.current_min, ends.current_max = bounds
            known.column_aggregates[number] = ends
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=known.partition(metadata.spec(), schema),
        file_size_in_bytes=len(source),
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **known.to_serialized_dict(),
    )


def _human_day(day_ordinal: int) -> str:
    return str(np.datetime64(day_ordinal, "D"))


def _bounds(footer: Any, at: int) -> tuple[int, int] | None:
    """The smallest and the largest number in a column, as stored."""
    groups = [
        footer.row_group(group).column(at).statistics for group in range(footer.num_row_groups)
    ]
    found = [each for each in groups if each is not None and each.has_min_max]
    if not found:
        return None
    return min(each.min_raw for each in found), max(each.max_raw for each in found)
