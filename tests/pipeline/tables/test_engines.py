"""Tables as other programs read them: DuckDB, and Spark with Iceberg's and Delta's own runtimes."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from importlib.metadata import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from pyiceberg.catalog import load_catalog

from kwire.pipeline.manifest import Archive
from kwire.pipeline.tables.place import CATALOG, TablePlace

from ..archive_model import EVENING_MS, archived, digest, records_of
from .table_model import BOTH, add_batch, follow, options_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("key", "value", "partition", "offset", "timestampType", "headers")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with tables of two days and two partitions, in several commits."""
    path = tmp_path_factory.mktemp("engines") / "archive"
    for number in range(3):
        add_batch(path, 200, batch=number)
        follow(path)
    add_batch(path, 100, partition=1, batch=3, start_ms=EVENING_MS + 86_400_000)
    follow(path)
    return path


def test_table_of_a_topic_with_dots_is_found_as_documented(tmp_path: Path) -> None:
    add_batch(tmp_path, 5, topic="a.b.c")
    follow(tmp_path, "iceberg")
    page = (Path(__file__).parents[3] / "docs" / "pipeline" / "tables.md").read_text()
    [code] = re.findall(r"catalog = load_catalog\(.*\)\norders = catalog\.load_table\(.*\)\n", page)
    names: dict[str, Any] = {"load_catalog": load_catalog}
    exec(code.replace("/data/archive", str(tmp_path)).replace('"orders"', '"a.b.c"'), names)
    assert names["orders"].scan().to_arrow().num_rows == 5
    place = TablePlace(Archive(tmp_path), options_of())
    assert place.table("iceberg", "a.b.c").name == "kwire.`a.b.c`"
    place.close()


def duck() -> duckdb.DuckDBPyConnection:
    """DuckDB with its extensions from the package index; it would fetch them from elsewhere itself."""
    engine = duckdb.connect()
    for name in ("avro", "delta", "iceberg"):
        found = [
            one for one in files(f"duckdb-ext-{name}") or () if one.suffix == ".duckdb_extension"
        ]
        engine.execute(f"LOAD '{found[0].locate()}'")
    return engine


def source_of(path: Path, format: str) -> str:
    """The FROM clause for DuckDB."""
    if format == "delta":
        return f"delta_scan('{path}/topic=orders')"
    place = TablePlace(Archive(path), options_of())
    metadata = place.catalog().load_table(("kwire", "orders")).metadata_location
    place.close()
    return f"iceberg_scan('{metadata.removeprefix('file://')}')"


@pytest.mark.parametrize("format", BOTH)
def test_duckdb_reads_what_was_archived(path: Path, format: str) -> None:
    columns = ", ".join(f'"{name}"' for name in COLUMNS)
    query = f'SELECT {columns}, epoch_ms("timestamp") AS ms FROM {source_of(path, format)}'
    with duck() as engine:
        found = engine.execute(query)
        names = [column[0] for column in found.description or ()]
        rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    # DuckDB returns timestamps with a zone by means of another package.
    for row in rows:
        row["timestamp"] = datetime.fromtimestamp(row.pop("ms") / 1000, UTC)
    assert digest(sorted(records_of("orders", rows))) == digest(archived(path))


@pytest.fixture
def lakehouse(spark: SparkSession, path: Path) -> SparkSession:
    """A session with Delta's extension, which a session needs from its start on, and with Iceberg's catalog.

    It shares the Java process of the other tests; `conftest.py` has put the formats' jars there.
    """
    import pyspark
    from pyspark.sql import SparkSession

    if not pyspark.__version__.startswith("4.0."):
        pytest.skip("conftest.py has the formats' jars for Spark 4.0 only")
    settings = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # The name of kwire's own catalog.
        "spark.sql.catalog.kwire": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.kwire.type": "jdbc",
        "spark.sql.catalog.kwire.uri": f"jdbc:sqlite:{path}/{CATALOG}",
        "spark.sql.catalog.kwire.jdbc.schema-version": "V1",
        "spark.sql.catalog.kwire.jdbc.init-catalog-tables": "false",
        "spark.sql.catalog.kwire.warehouse": str(path),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    # PySpark's `builder` and `newSession` would keep the extensions of the session that is there.
    assert spark._jvm is not None and spark._jsc is not None
    session_class = getattr(spark._jvm, "org.apache.spark.sql.classic.SparkSession")
    return SparkSession(spark.sparkContext, session_class(spark._jsc.sc(), settings))


@pytest.mark.spark
def test_spark_reads_what_was_archived(lakehouse: SparkSession, path: Path) -> None:
    def facts(frame: DataFrame) -> list[Any]:
        rows = [row.asDict(recursive=True) for row in frame.select(*COLUMNS, "timestamp").collect()]
        found = sorted(records_of("orders", rows))
        return [len(found), digest(found)]

    wanted = archived(path)
    for frame in (
        lakehouse.table("kwire.kwire.orders"),
        lakehouse.read.format("delta").load(f"{path}/topic=orders"),
    ):
        assert facts(frame) == [len(wanted), digest(wanted)]
    snapshots = lakehouse.sql(
        "SELECT summary FROM kwire.kwire.orders.snapshots ORDER BY committed_at"
    )
    said = [
        {key: value for key, value in row.summary.items() if key.startswith("kwire.")}
        for row in snapshots.collect()
    ]
    place = TablePlace(Archive(path), options_of())
    table = place.table("iceberg", "orders")
    table.open(create=False)
    assert said == [one.properties for one in table.snapshots()]
    place.close()
