"""The available columns, with Spark's types; a reader may be asked for any of them, in any order."""

from __future__ import annotations

from typing import Any

from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from .batch_rows import BATCH_COLUMNS
from .columns import RECORD_COLUMNS
from .errors import SegmentError
from .options import Options


def _columns(options: Options) -> dict[str, Any]:
    return BATCH_COLUMNS if options.rows == "batches" else RECORD_COLUMNS


def schema_of(names: tuple[str, ...], options: Options) -> StructType:
    """The schema of these columns. Errors: SegmentError for an unknown column."""
    columns = _columns(options)
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise SegmentError(
            f"there is no column {', '.join(unknown)}; there are {', '.join(columns)}"
        )
    return StructType([StructField(name, from_arrow_type(columns[name])) for name in names])


def default_schema(options: Options) -> StructType:
    """The default columns; `headers` only with includeHeaders, as in the kafka source."""
    names = tuple(
        name
        for name in _columns(options)
        if name not in ("headers", "topicId", "valid", "problem")
        or (name == "headers" and options.include_headers)
    )
    return schema_of(names, options)


def checked(schema: StructType, options: Options) -> tuple[str, ...]:
    """The names of a schema's columns. Errors: SegmentError for unknown names and wrong types."""
    names = tuple(schema.fieldNames())
    for field, ours in zip(schema, schema_of(names, options), strict=True):
        if field.dataType.simpleString() != ours.dataType.simpleString():
            raise SegmentError(
                f"column {field.name} has type {ours.dataType.simpleString()}, not {field.dataType.simpleString()}"
            )
    return names
