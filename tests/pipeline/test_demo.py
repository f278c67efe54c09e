"""`make pipeline-demo` with few records: all jobs, one after another.

It uses the shared Spark; with KWIRE_LONG=1 it is a separate process with more records.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kwire.pipeline.demo import Checksum, main

from ..support.broker_process import REPOSITORY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG = os.environ.get("KWIRE_LONG", "") not in ("", "0")
FOUND = "every record is there once, in order and unchanged\n"


@pytest.mark.e2e
@pytest.mark.spark
def test_demo_finds_every_record_again(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--records", "4000"]) == 0
    said = capsys.readouterr().out
    assert "4,000 records, and 320 in aborted transactions" in said
    for name in ("iceberg table kwire.orders", "delta table "):
        assert f"\n{name}" in said
    assert 'offsets {"orders": {"0": [0, ' in said
    for line in (line for line in said.splitlines() if "(delta)" in line and " by offset" in line):
        assert line.endswith("equal")
    assert said.endswith(FOUND)


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.skipif(not LONG, reason="KWIRE_LONG=1 runs it as its users do")
def test_demo_by_itself_finds_every_record_again(connector: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "kwire.pipeline.demo", "--records", "20000"],
        env={
            **os.environ,
            "KWIRE_SPARK_JARS": str(connector),
            "KWIRE_SPARK_MASTER": "local[2]",
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-3000:]
    assert "20,000 records, and 1,600 in aborted transactions" in made.stdout
    assert made.stdout.endswith(FOUND)


def test_content_tells_any_difference() -> None:
    record = (1, b"key", b"value", 5, [("a", b"1"), ("b", None)])
    known = Checksum()
    known.add(*record)
    for other in (
        (2, *record[1:]),
        (1, None, *record[2:]),
        (1, b"key", b"", *record[3:]),
        (*record[:3], 6, record[4]),
        (*record[:4], [("a", b"1"), ("b", b"")]),
        (*record[:4], None),
    ):
        content = Checksum()
        content.add(*other)  # type: ignore[arg-type]
        assert content != known
    known.add(*record)
    twice = Checksum()
    twice.add(*record)
    assert twice != known
