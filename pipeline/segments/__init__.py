"""Reads history without the brokers: Spark reads the segments of log directories, `format("kwire-log")`.

options.py  the options of a source       logs.py     what is in a directory
plan.py     from options to offsets       slices.py   what one task reads
walk.py     from a file to batches        decode.py   from batches to the positions of fields, with numpy
columns.py  from there to Arrow           stream.py   offsets of a streaming query
pushdown.py filters that save work        readers.py  what Spark calls to plan and to read
group.py    a stream's lag                admission.py  readers of streams, for Spark 4.2
source.py   the source; Spark finds it in `pyspark_kwire`
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Path = str | Sequence[str]

_registered: WeakSet[SparkSession] = WeakSet()


def register(spark: SparkSession) -> None:
    """Make `kwire-log` known to a session, once; the functions of this module do so by themselves.

    Needed where Spark does not find `pyspark_kwire`, as in a checkout. It is not done for every session, because the first
    time a Python source is mentioned, Spark starts a process that looks for sources, which costs a second and 50 MB.
    """
    from pyspark.errors import AnalysisException

    from .source import SegmentSource

    if spark not in _registered:
        _same_python(spark)
        try:
            with _quick_start(spark):
                spark.dataSource.register(SegmentSource)
        except AnalysisException as error:
            # Spark has found `pyspark_kwire`, and lets nobody replace what it has found.
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
        _registered.add(spark)


def _same_python(spark: SparkSession) -> None:
    """Let Spark's processes on this machine run the Python of this one, unless the user has chosen another.

    By default Spark takes the first `python3` of PATH, which need not have kwire, nor even PySpark.
    """
    import sys

    context = spark.sparkContext
    is_chosen = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
    if (context.master or "").startswith("local") and not is_chosen:
        context.pythonExec = sys.executable


@contextmanager
def _quick_start(spark: SparkSession) -> Iterator[None]:
    """Let processes on this machine for a source that is registered meanwhile run `process_start` first."""
    from pathlib import Path

    from .. import process_start

    context = spark.sparkContext
    if not (context.master or "").startswith("local"):
        yield
        return
    before = dict(context.environment)
    # Spark puts its own path before it, and that of this process after it.
    context.environment["PYTHONPATH"] = os.pathsep.join(
        [str(Path(process_start.__file__).parent), *filter(None, [before.get("PYTHONPATH")])]
    )
    try:
        yield
    finally:
        context.environment = before


def read(
    spark: SparkSession,
    path: Path,
    *,
    columns: Sequence[str] | None = None,
    topics: str | Sequence[str] | None = None,
    **options: Any,
) -> DataFrame:
    """The records of log directories; only what the columns need is decoded.

    The path is a log directory, a glob pattern for some, or a list of these. `docs/pipeline/segments.md` lists the options.
    """
    register(spark)
    push = spark.conf.get("spark.sql.python.filterPushdown.enabled", None)
    return _load(spark.read, path, columns, topics, options, push)


def read_stream(
    spark: SparkSession,
    path: Path,
    *,
    columns: Sequence[str] | None = None,
    topics: str | Sequence[str] | None = None,
    **options: Any,
) -> DataFrame:
    """Like `read`, as a stream that follows new records."""
    register(spark)
    return _load(spark.readStream, path, columns, topics, options)


def batches(
    spark: SparkSession,
    path: Path,
    *,
    columns: Sequence[str] | None = None,
    topics: str | Sequence[str] | None = None,
    **options: Any,
) -> DataFrame:
    """The record batches of log directories, one row each, from their headers."""
    return read(spark, path, columns=columns, topics=topics, rows="batches", **options)


def counts(
    spark: SparkSession,
    path: Path,
    *,
    topics: str | Sequence[str] | None = None,
    **options: Any,
) -> DataFrame:
    """For each partition with records: records, firstOffset, lastOffset, bytes, from batch headers alone."""
    from pyspark.sql import functions as f

    columns = ("topic", "partition", "firstOffset", "lastOffset", "records", "bytes")
    found = batches(spark, path, columns=columns, topics=topics, **options)
    return found.groupBy("topic", "partition").agg(
        f.sum("records").alias("records"),
        f.min("firstOffset").alias("firstOffset"),
        f.max("lastOffset").alias("lastOffset"),
        f.sum("bytes").alias("bytes"),
    )


def damaged(
    spark: SparkSession,
    path: Path,
    *,
    topics: str | Sequence[str] | None = None,
    **options: Any,
) -> DataFrame:
    """The damaged batches, with file, position and what is wrong; this reads all batches."""
    columns = (
        "topic",
        "partition",
        "firstOffset",
        "lastOffset",
        "bytes",
        "file",
        "position",
        "valid",
        "problem",
    )
    found = batches(spark, path, columns=columns, topics=topics, **options)
    return found.where("not valid").drop("valid")


def _load(
    reader: Any,
    path: Path,
    columns: Sequence[str] | None,
    topics: str | Sequence[str] | None,
    options: dict[str, Any],
    push: str | None = None,
) -> DataFrame:
    import json

    from .options import parse
    from .schemas import schema_of

    words = {name: _text(value) for name, value in options.items()}
    if topics is not None:
        words["topics"] = topics if isinstance(topics, str) else ",".join(topics)
    if isinstance(path, str):
        words["path"] = path
    else:
        words["paths"] = json.dumps(list(path))
    # Errors are raised here, in one line, before Spark wraps them.
    parsed = parse(words)
    if push is not None and "pushFilters" not in words:
        words["pushFilters"] = push
    reader = reader.format("kwire-log").options(**words)
    if columns is not None:
        reader = reader.schema(schema_of(tuple(columns), parsed))
    found: DataFrame = reader.load()
    return found


def _text(value: Any) -> str:
    import json

    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, dict | list) else str(value)
