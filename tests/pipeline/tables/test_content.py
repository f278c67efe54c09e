"""Replay and audit read tables as they read manifests."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kwire.pipeline.audit.places import archives_at
from kwire.pipeline.manifest import Archive, ArchiveContent
from kwire.pipeline.problems import Problem, WrongCall
from kwire.pipeline.replay.from_archive import archived_partitions
from kwire.pipeline.replay.plan import RecordRange
from kwire.pipeline.tables.content import TableContent
from kwire.pipeline.tables.options import FORMATS, formats

from .table_model import BOTH, add_batch, follow, options_of

EVERYTHING = RecordRange()


def read(content: ArchiveContent) -> list[tuple[object, ...]]:
    """The records that replay would write, in its order."""
    content.check()
    return [
        (one.topic, one.partition, *row.values())
        for one in archived_partitions(content, None, EVERYTHING)
        for batch in one.read(0, 1 << 40)
        for row in batch.to_pylist()
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    for number in range(3):
        add_batch(tmp_path, 20, batch=number)
        add_batch(tmp_path, 10, partition=1, batch=number + 10)
        add_batch(tmp_path, 5, topic="payments", batch=number + 20)
        follow(tmp_path)
    return tmp_path


@pytest.mark.parametrize("format", BOTH)
def test_replay_reads_the_same_from_a_table(path: Path, format: str) -> None:
    archive = Archive(path)
    content = TableContent(archive, format, None, options_of())
    assert read(content) == read(archive)
    assert len(read(content)) == 105
    assert [one[:3] for one in map(_range, content.entries({"orders"}))] == [
        ("orders", 0, 0),
        ("orders", 1, 0),
    ]


def test_tables_of_values_are_not_taken_for_topics(tmp_path: Path) -> None:
    add_batch(tmp_path, 5, topic="shop.orders")
    follow(tmp_path, value_schemas=["id INT"])
    for format in BOTH:
        content = TableContent(Archive(tmp_path), format, None, options_of())
        assert [one.topic for one in content.entries()] == ["shop.orders"]


def _range(entry: object) -> tuple[object, ...]:
    return entry.topic, entry.partition, entry.first_offset  # type: ignore[attr-defined]


def test_audit_has_tables_as_places_beside_the_archive(path: Path) -> None:
    archive, *tables = archives_at(str(path), {"orders"}, options_of())
    assert [one.name for one in tables] == [f"{path} ({format})" for format in BOTH]
    assert [one.ranges for one in tables] == [archive.ranges] * 2
    assert archive.ranges == {("orders", 0): (0, 60), ("orders", 1): (0, 30)}


def test_table_that_another_program_has_rewritten_is_refused(path: Path) -> None:
    DeltaTable(path / "topic=orders").optimize.compact()
    with pytest.raises(Problem, match="another program has written"):
        TableContent(Archive(path), "delta", {"orders"}, options_of())


def test_table_that_lost_a_file_is_noticed(path: Path) -> None:
    table = DeltaTable(path / "topic=orders")
    table.delete('"offset" >= 0 AND "offset" < 20 AND "partition" = 0')
    content = TableContent(Archive(path), "delta", {"orders"}, options_of())
    with pytest.raises(Problem, match="its files have 40 records of partition 0, and it says 60"):
        content.check()


def test_options_of_a_catalog_without_iceberg_are_refused() -> None:
    options = Namespace(table="delta", catalog="prod", catalog_properties=[])
    with pytest.raises(WrongCall, match="are for --table iceberg"):
        formats(options)


@pytest.mark.parametrize("name", FORMATS)
def test_row_of_a_format_names_its_class(name: str) -> None:
    table = FORMATS[name].load()
    assert table.format == name
    assert callable(table.of)
