"""The worker daemon, whose workers import PySpark from its folder."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kwire.pipeline import process_start, segments
from kwire.pipeline.unpacked import leave_archives, unpacked, without_archives

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("home", "source", "expected"),
    [("spark", "spark/python/pyspark", "spark/python"), ("lib/pyspark", "lib/pyspark", "lib")],
)
def test_archive_beside_its_source_is_replaced_by_it(
    tmp_path: Path, home: str, source: str, expected: str
) -> None:
    (tmp_path / source).mkdir(parents=True)
    archive = f"{tmp_path / home}/python/lib/pyspark.zip"
    assert unpacked(archive) == archive
    (tmp_path / source / "daemon.py").touch()
    assert unpacked(archive) == str(tmp_path / expected)
    other = f"{tmp_path / home}/python/lib/py4j-src.zip"
    assert unpacked(other) == other


def test_folder_with_other_packages_keeps_its_place_on_the_path(tmp_path: Path) -> None:
    site = tmp_path / "lib"
    archive = site / "pyspark" / "python" / "lib" / "pyspark.zip"
    (site / "pyspark").mkdir(parents=True)
    (site / "pyspark" / "daemon.py").touch()
    jar = tmp_path / "jars" / "spark-core_2.13-4.0.0.jar"
    path = ["", str(archive), str(jar), "mine", str(site)]
    assert without_archives(path) == ["", "mine", str(site)]
    assert without_archives(path[:-1]) == ["", str(site), "mine"]


def test_process_that_has_looked_into_the_archive_forgets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python" / "pyspark").mkdir(parents=True)
    (tmp_path / "python" / "pyspark" / "daemon.py").touch()
    archive = f"{tmp_path}/python/lib/pyspark.zip"
    cache = {archive: None, f"{archive}/pyspark/sql": None, "/other.zip": None}
    monkeypatch.setattr(sys, "path", ["", archive])
    monkeypatch.setattr(sys, "path_importer_cache", cache)
    leave_archives()
    assert sys.path == ["", f"{tmp_path}/python"]
    assert list(cache) == ["/other.zip"]


@pytest.mark.spark
def test_workers_of_a_session_have_no_archive_of_pyspark_on_their_path(
    spark: SparkSession,
) -> None:
    def path(_: int) -> tuple[list[str], str]:
        import sys

        import pyspark

        return sys.path, pyspark.__file__

    entries, file = spark.sparkContext.parallelize([0], 1).map(path).first()
    assert not [entry for entry in entries if entry.endswith(("pyspark.zip", ".jar"))]
    assert ".zip" not in file


def test_process_of_a_streaming_query_takes_pyspark_from_its_folder(tmp_path: Path) -> None:
    """The path of such a process: Spark's entries, then those that a registered source requests, then the user's."""
    import pyspark

    home = Path(pyspark.__file__).parent
    (tmp_path / "sitecustomize.py").write_text("print('mine, too')")
    path = [*home.glob("python/lib/*.zip"), *home.glob("jars/spark-core_*.jar")]
    path += [Path(process_start.__file__).parent, tmp_path]
    code = "import sys, pyspark; print(pyspark.__file__); print(sys.path)"
    said = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
    )
    mine, file, entries = said.stdout.splitlines()
    assert (mine, file, said.stderr) == ("mine, too", pyspark.__file__, "")
    assert "pyspark.zip" not in entries and "process_start" not in entries


@pytest.mark.spark
def test_only_a_source_is_registered_with_another_path(spark: SparkSession) -> None:
    before = dict(spark.sparkContext.environment)
    segments.register(spark)
    assert spark.sparkContext.environment == before


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="for glibc")
def test_memory_that_a_worker_frees_is_kept_for_its_next_batch() -> None:
    code = """
import resource
from kwire.pipeline import process_start, segments
from kwire.pipeline.worker_daemon import keep_memory

def faults():
    blocks = [bytes(100_000 + 4096 * number) for number in range(100)]
    del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

keep_memory()
faults()
before = faults()
print(faults() - before)
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    # Of 7,500 pages.
    assert int(found) < 500
