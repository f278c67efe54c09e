"""Tables as other programs read them: DuckDB, and Spark with Iceberg's and Delta's own runtimes."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import files
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kwire.pipeline.manifest import Archive
from kwire.pipeline.tables.place import CATALOG, Place

from ...support.broker_process import REPOSITORY
from ...support.kafka import jars_or_skip
from ..archive_model import EVENING_MS, archived, digest, records_of
from .table_model import BOTH, add_batch, follow, options_of

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
    """What DuckDB selects from."""
    if format == "delta":
        return f"delta_scan('{path}/topic=orders')"
    place = Place(Archive(path), options_of())
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
    # DuckDB gives moments with a zone by way of another package.
    for row in rows:
        row["timestamp"] = datetime.fromtimestamp(row.pop("ms") / 1000, UTC)
    assert digest(sorted(records_of("orders", rows))) == digest(archived(path))


@pytest.mark.spark
def test_spark_reads_what_was_archived(path: Path) -> None:
    """Spark needs Delta's extension from its start on, so this is a Spark of its own, for both."""
    jars = [str(jar) for jar in jars_or_skip("lakehouse-4.0.0").glob("*.jar")]
    found = subprocess.run(
        [sys.executable, "-m", __spec__.name, str(path), *jars],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-3000:]
    said = json.loads(found.stdout.splitlines()[-1])
    wanted = archived(path)
    assert said["iceberg"] == said["delta"] == [len(wanted), digest(wanted)]
    place = Place(Archive(path), options_of())
    table = place.table("iceberg", "orders")
    table.open(create=False)
    assert said["offsets"] == [one.properties for one in table.snapshots()]
    place.close()


def read_by_spark(path: Path, jars: list[str]) -> dict[str, Any]:
    """Number and hash of the records in both tables, and what their snapshots say of offsets, as Spark reads them."""
    from pyspark.sql import DataFrame, SparkSession

    settings = {
        "spark.jars": ",".join(jar for jar in jars if "scala-library" not in jar),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # The name that kwire gives its own catalog.
        "spark.sql.catalog.kwire": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.kwire.type": "jdbc",
        "spark.sql.catalog.kwire.uri": f"jdbc:sqlite:{path}/{CATALOG}",
        "spark.sql.catalog.kwire.jdbc.schema-version": "V1",
        "spark.sql.catalog.kwire.jdbc.init-catalog-tables": "false",
        "spark.sql.catalog.kwire.warehouse": str(path),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "900m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    builder = SparkSession.builder.master("local[2]").appName("engines")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()

    def facts(frame: DataFrame) -> list[Any]:
        rows = [row.asDict(recursive=True) for row in frame.select(*COLUMNS, "timestamp").collect()]
        found = sorted(records_of("orders", rows))
        return [len(found), digest(found)]

    snapshots = spark.sql("SELECT summary FROM kwire.kwire.orders.snapshots ORDER BY committed_at")
    said = {
        "iceberg": facts(spark.table("kwire.kwire.orders")),
        "delta": facts(spark.read.format("delta").load(f"{path}/topic=orders")),
        "offsets": [
            {key: value for key, value in row.summary.items() if key.startswith("kwire.")}
            for row in snapshots.collect()
        ],
    }
    spark.stop()
    return said


if __name__ == "__main__":
    print(json.dumps(read_by_spark(Path(sys.argv[1]), sys.argv[2:])))
