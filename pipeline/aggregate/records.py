"""Turns a topic's values into records, and gives the reason for each malformed value.

`parse` adds three columns to rows of the kafka source: `data` (the schema's columns), `event_time`, and `reason`, which
is null for a record and otherwise names the fault. A fault never ends the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ..problems import WrongCall
from ..schemas.schema import column, nullable
from .defaults import TIME_UNITS
from .java_syntax import check_time_format, group_numbers

#: The largest valid time, 9999-12-31, in microseconds: Spark's own functions fail for times beyond their range.
LAST_TIME_US = 253_402_300_799_999_999
#: Characters of a wrong value that a reason quotes.
QUOTED = 80


@dataclass(frozen=True)
class ValueFormat:
    """How values are read.

    `pattern` (a regular expression with named groups) splits lines; without it values are JSON objects. `time` is the
    column with the event time, None for the record's own timestamp.
    """

    schema: StructType
    required: tuple[str, ...]
    time: StructField | None
    time_unit: str = "ms"
    time_format: str | None = None
    max_ahead_ms: int = 3_600_000
    pattern: str | None = None


def make_format(
    schema: StructType,
    required: Sequence[str],
    time: str | None,
    *,
    time_unit: str,
    time_format: str | None,
    max_ahead_ms: int,
    pattern: str | None,
) -> ValueFormat:
    """Make a format, after checking all names and types. Raises WrongCall.

    Once Spark runs, Java has the last word on the pattern.
    """
    if pattern is not None:
        pattern = pattern.replace("(?P<", "(?<")
        groups = named_groups(pattern)
        _check_pattern(pattern)
        absent = [name for name in schema.fieldNames() if name not in groups]
        if absent:
            raise WrongCall(f"--pattern has no group named {absent[0]}, which the schema has")
    if time_format is not None:
        try:
            check_time_format(time_format)
        except ValueError as error:
            raise WrongCall(f"--time-format {time_format!r}: {error}") from error
    field = None if time is None else column(schema, time, "--time-column")
    if field is not None and not isinstance(
        field.dataType, TimestampType | TimestampNTZType | IntegralType | StringType
    ):
        said = field.dataType.simpleString().upper()
        raise WrongCall(f"--time-column {time} is {said}, not a timestamp, whole number or string")
    names = [item.name for item in schema.fields if not item.nullable]
    names += [column(schema, name, "--require").name for name in required]
    if field is not None:
        names.append(field.name)
    return ValueFormat(
        schema,
        tuple(dict.fromkeys(names)),
        field,
        time_unit,
        time_format,
        max_ahead_ms,
        pattern,
    )


def named_groups(pattern: str) -> dict[str, int]:
    """Name -> number of the groups of a regular expression in Java's or Python's form. Raises WrongCall."""
    try:
        groups = group_numbers(pattern)
    except ValueError as error:
        raise WrongCall(f"--pattern {pattern!r}: {error}") from error
    if not groups:
        raise WrongCall(f"--pattern {pattern!r} has no named group such as (?<level>\\w+)")
    return groups


def _check_pattern(pattern: str) -> None:
    """Raises WrongCall for a pattern that Java does not accept for a reason that only Java knows."""
    context = SparkContext._active_spark_context
    if context is None:
        return
    jvm: Any = context._jvm
    try:
        jvm.java.util.regex.Pattern.compile(pattern)
    except PySparkException as error:
        raise WrongCall(f"--pattern {pattern!r}: {str(error).splitlines()[0]}") from error


def parse(rows: DataFrame, form: ValueFormat) -> DataFrame:
    """Rows of the kafka source with `data`, `event_time` and `reason`; no row is dropped, whatever its value."""
    text = F.col("value").cast("string")
    rows = rows.withColumn("_text", F.when(F.expr("is_valid_utf8(string(value))"), text))
    # An array of one element that is exploded: Spark pushes filters on the faults below plain columns, and would parse the
    # value again for each column that they mention.
    once = F.array(F.struct((_line(form) if form.pattern else _json(form)).alias("data")))
    rows = rows.select("*", F.explode(once).alias("_once"))
    rows = rows.withColumn("data", _timed(F.col("_once.data"), form))
    rows = rows.withColumn("event_time", _event_time(form))
    rows = rows.withColumn("reason", _reason(form))
    return rows.drop("_text", "_once")


def _json(form: ValueFormat) -> Column:
    # A value followed by more text, such as `{"a":1} x`, passes Spark's reader, which stops after the first object; inside
    # another object it does not.
    whole = F.concat(F.lit('{"v":'), F.col("_text"), F.lit("}"))
    schema = StructType([StructField("v", nullable(_as_read(form)))])
    options = {"allowNonNumericNumbers": "false", "allowSingleQuotes": "false"}
    if form.time_format is not None:
        options["timestampFormat"] = form.time_format
    return F.from_json(whole, schema, options)["v"]


def _line(form: ValueFormat) -> Column:
    pattern = form.pattern or ""
    numbers = named_groups(pattern)
    columns = []
    for field in form.schema.fields:
        found = F.regexp_extract("_text", pattern, numbers[field.name])
        found = F.when(found != "", found)
        if field == form.time and _is_read_as_text(form):
            pass
        elif isinstance(field.dataType, TimestampType) and form.time_format is not None:
            found = F.try_to_timestamp(found, F.lit(form.time_format))
        elif not isinstance(field.dataType, StringType):
            found = found.try_cast(field.dataType)
        columns.append(found.alias(field.name))
    return F.when(F.col("_text").rlike(pattern), F.struct(*columns))


def _is_read_as_text(form: ValueFormat) -> bool:
    """Whether the time column is a timestamp: Spark's reader would take whole numbers for seconds, whatever `time_unit` says."""
    return form.time is not None and isinstance(form.time.dataType, TimestampType)


def _as_read(form: ValueFormat) -> StructType:
    """The schema with which values are read."""
    if not _is_read_as_text(form):
        return form.schema
    text = StringType()
    fields = form.schema.fields
    return StructType(
        [StructField(f.name, text if f == form.time else f.dataType, f.nullable) for f in fields]
    )


def _timed(data: Column, form: ValueFormat) -> Column:
    """`data` with the time in the type that the schema gives it."""
    if form.time is None or not _is_read_as_text(form):
        return data
    name = form.time.name
    # Unquoted, a dot would select a field of a struct.
    return data.withField(f"`{name}`", _time_of_text(data.getField(name), form))


def _value(name: str) -> Column:
    return F.col("data").getField(name)


def _event_time(form: ValueFormat) -> Column:
    if form.time is None:
        # A record of the oldest format has no timestamp, which arrives as -1 ms.
        known = (F.col("timestampType") >= 0) & (F.unix_micros("timestamp") >= 0)
        return F.when(known, F.col("timestamp"))
    value = _value(form.time.name)
    kind = form.time.dataType
    if isinstance(kind, IntegralType):
        return _time_of_number(value.cast("bigint"), form)
    if isinstance(kind, StringType):
        return _time_of_text(value, form)
    return value.cast("timestamp")


def _time_of_number(number: Column, form: ValueFormat) -> Column:
    factor = TIME_UNITS[form.time_unit]
    inside = number.between(0, LAST_TIME_US // factor)
    return F.when(inside, F.timestamp_micros(number * factor))


def _time_of_text(text: Column, form: ValueFormat) -> Column:
    """Read a time in the given format; by default a whole number in the unit, or a date and time as in SQL."""
    if form.time_format is not None:
        return F.try_to_timestamp(text, F.lit(form.time_format))
    number = _time_of_number(text.try_cast("bigint"), form)
    return F.when(text.rlike(r"^-?\d+$"), number).otherwise(text.try_cast("timestamp"))


def _reason(form: ValueFormat) -> Column:
    """The first fault, or null."""
    whole = "does not match the pattern" if form.pattern else "not a JSON object"
    faults = [
        F.when(F.col("value").isNull(), F.lit("no value")),
        F.when(F.col("_text").isNull(), F.lit("not UTF-8")),
        F.when(F.col("data").isNull(), F.lit(whole)),
    ]
    for name in form.required:
        field = column(form.schema, name, "--require")
        bad = _value(field.name).isNull()
        if isinstance(field.dataType, StringType):
            bad = bad | (_value(field.name) == "")
        if isinstance(field.dataType, DoubleType | FloatType):
            bad = bad | F.isnan(_value(field.name)) | (F.abs(_value(field.name)) == float("inf"))
        faults.append(F.when(bad, _wrong(field, form)))
    if form.time is None:
        faults.append(F.when(F.col("event_time").isNull(), F.lit("the record has no timestamp")))
    else:
        said = _value(form.time.name).cast("string")
        unread = F.concat(F.lit(f"{form.time.name} is not a time: "), F.left(said, F.lit(QUOTED)))
        faults.append(F.when(F.col("event_time").isNull(), unread))
        # One clock that is ahead would advance the watermark, and make all other records late.
        written = F.unix_millis("timestamp")
        ahead = (written >= 0) & (F.unix_millis("event_time") - written > form.max_ahead_ms)
        text = F.concat(F.lit(f"{form.time.name} is ahead of the record's timestamp: "), said)
        faults.append(F.when(ahead, text))
    return F.coalesce(*faults)


def _wrong(field: StructField, form: ValueFormat) -> Column:
    """Say that a column is missing, or what it holds instead of its type."""
    kind = field.dataType.simpleString().upper()
    if form.pattern:
        found = F.regexp_extract("_text", form.pattern, group_numbers(form.pattern)[field.name])
        found = F.when(found != "", found)
    else:
        # The path language has no escape for a quote.
        plain = "'" not in field.name
        found = F.get_json_object("_text", f"$['{field.name}']") if plain else F.lit(None)
    wrong = F.concat(F.lit(f"{field.name} is not {kind}: "), F.left(found, F.lit(QUOTED)))
    return F.coalesce(F.when(found != "", wrong), F.lit(f"{field.name} is missing"))
