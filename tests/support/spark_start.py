"""How Spark's JVMs start in tests: with the first compiler alone, and from an archive of classes (see class_archives.py).

`python -m tests.support.class_archives` makes the archive. It holds the classes in PySpark's own jars that a small session
loads. Jars that a session is given, such as those of the kafka connector, have a class loader that knows no archives.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from fcntl import LOCK_EX, flock
from importlib.util import find_spec
from pathlib import Path

from .broker_process import REPOSITORY
from .class_archives import SILENT, flags_with, jars_in, key_of
from .kafka import JAVA_ROOM

#: Most of these JVMs live for less than a minute, and the few others run small queries: the second compiler would cost more
#: than it saves. Classes from jars are not verified.
QUICK = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
_NAME = "pyspark-"


def quick_flags() -> tuple[str, ...]:
    """The flags for the JVMs of drivers, executors, masters and workers."""
    jars = _jars()
    return QUICK if jars is None else (*QUICK, *flags_with(_archive(jars)))


def _jars() -> Path | None:
    """The folder with PySpark's jars, without importing it."""
    found = find_spec("pyspark")
    return None if found is None or found.origin is None else Path(found.origin).parent / "jars"


def _archive(jars: Path) -> Path:
    return JAVA_ROOM / "target" / f"{_NAME}{key_of(jars)}.jsa"


def make_archive() -> None:
    """Run a session and note the classes that it loads, unless that was done or there is no PySpark."""
    jars = _jars()
    if jars is None or not jars_in(jars):
        return
    archive = _archive(jars)
    with archive.with_name(f"{_NAME}archive.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if archive.exists():
            return
        for old in archive.parent.glob(f"{_NAME}*.jsa*"):
            old.unlink()
        made = archive.with_suffix(".new")
        with tempfile.TemporaryDirectory() as place:
            # In a separate process, which can wait for the end of its JVM.
            command = [sys.executable, "-m", __name__, str(made), place]
            done = subprocess.run(
                command, cwd=REPOSITORY, capture_output=True, text=True, check=False
            )
        if done.returncode != 0:
            raise OSError(f"the session failed: {done.stderr[-1000:]}")
        made.rename(archive)


def _use(made: Path, place: Path) -> None:
    """Let a session do a little of everything, and wait for its JVM, which writes the archive at its end."""
    from pyspark.sql import SparkSession

    flags = (*QUICK, *SILENT, f"-XX:ArchiveClassesAtExit={made}")
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.extraJavaOptions", " ".join(flags))
    )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    some = [(n, f"k{n % 3}", b"%d" % n) for n in range(20)]
    rows = spark.createDataFrame(some, "n long, k string, v binary")
    rows = rows.selectExpr("*", "timestamp_seconds(n) AS at", "to_json(struct(n, k)) AS j")
    out = str(place / "rows")
    rows.repartition(2).sortWithinPartitions("n").write.partitionBy("k").parquet(out)
    stored = spark.read.parquet(out)
    assert stored.selectExpr("from_json(j, 'n long') AS s", "k").groupBy("k").count().count() == 3
    stream = spark.readStream.schema(stored.schema).parquet(out).withWatermark("at", "1 second")
    query = (
        stream.groupBy("at")
        .count()
        .writeStream.format("parquet")
        .option("path", str(place / "counts"))
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    gateway = spark.sparkContext._gateway
    spark.stop()
    java = gateway.proc  # type: ignore[union-attr]
    java.stdin.close()
    assert java.wait(300) == 0


if __name__ == "__main__":
    _use(Path(sys.argv[1]), Path(sys.argv[2]))
