"""Spark's JVMs get the archive of classes only if it was made from the same jars."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ..conftest import SPARK_SHARES
from . import spark_start
from .broker_process import REPOSITORY
from .spark_start import QUICK, quick_flags


def test_archive_counts_for_its_jars_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "a.jar").touch()
    (tmp_path / "target").mkdir()
    monkeypatch.setattr(spark_start, "JAVA_ROOM", tmp_path)
    monkeypatch.setattr(spark_start, "_jars", lambda: jars)
    assert quick_flags() == QUICK
    archive = spark_start._archive(jars)
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in quick_flags()
    os.utime(jars / "a.jar", (1, 1))
    assert quick_flags() == QUICK


def test_without_pyspark_there_is_no_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_start, "_jars", lambda: None)
    assert quick_flags() == QUICK


def test_each_file_whose_tests_use_the_shared_session_is_in_one_share() -> None:
    uses = re.compile(r"^def \w+\([^)]*\bspark\b", re.MULTILINE)
    pipeline = REPOSITORY / "tests" / "pipeline"
    found = [path for path in pipeline.rglob("test_*.py") if uses.search(path.read_text())]
    shared = [name for share in SPARK_SHARES for name in share]
    assert sorted(shared) == sorted(str(each.relative_to(pipeline.parent)) for each in found)
