"""JVMs get an archive of classes only for the jars from which it was made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .class_archives import BROKER, ZOOKEEPER, archive_of, flags_for


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "kafka-1"
    folder.mkdir()
    (folder / "a.jar").touch()
    return folder


def test_without_an_archive_there_are_no_flags(jars: Path) -> None:
    assert flags_for(jars, BROKER) == ()


def test_archive_counts_for_its_kind_and_jars(jars: Path) -> None:
    archive_of(jars, BROKER).touch()
    assert f"-XX:SharedArchiveFile={archive_of(jars, BROKER)}" in flags_for(jars, BROKER)
    assert flags_for(jars, ZOOKEEPER) == ()
    os.utime(jars / "a.jar", (1, 1))
    assert flags_for(jars, BROKER) == ()


def test_archive_does_not_count_elsewhere(jars: Path) -> None:
    archive_of(jars, BROKER).touch()
    moved = jars.parent / "elsewhere" / jars.name
    moved.parent.mkdir()
    jars.rename(moved)
    assert flags_for(moved, BROKER) == ()
