"""Tables of an archive: they contain the records of its manifests, and each commit states which manifests it has
reached.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kwire.pipeline.archive import slices
from kwire.pipeline.archive.files import folders_of
from kwire.pipeline.manifest import Archive, ArchiveFile, ManifestEntry
from kwire.pipeline.problems import Problem
from kwire.pipeline.tables.changes import OFFSETS, RANGES, change
from kwire.pipeline.tables.content import TableContent
from kwire.pipeline.tables.follower import ArchiveTables
from kwire.pipeline.tables.place import TablePlace, raw_schema
from kwire.pipeline.tables.tables import CommitConflict, Table

from ..archive_model import EVENING_MS, archived, failing_once
from .table_model import BOTH, add_batch, follow, in_table, options_of, ranges_follow

DAY_MS = 86_400_000


@pytest.fixture(params=BOTH)
def format(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def opened(path: Path, format: str, topic: str = "orders") -> tuple[TablePlace, Table]:
    place = TablePlace(Archive(path), options_of())
    table = place.table(format, topic)
    assert table.open(create=False)
    return place, table


def test_table_has_what_was_archived_and_says_its_offsets(tmp_path: Path, format: str) -> None:
    add_batch(tmp_path, 30)
    assert follow(tmp_path, format) == 1
    add_batch(tmp_path, 20, batch=1, start_ms=EVENING_MS + DAY_MS)
    add_batch(tmp_path, 5, partition=1, batch=2)
    assert follow(tmp_path, format) == 1
    assert follow(tmp_path, format) == 0
    assert in_table(tmp_path, format) == archived(tmp_path)
    place, table = opened(tmp_path, format)
    said = [one.properties for one in table.snapshots() if one.properties]
    place.close()
    assert [json.loads(one[OFFSETS]) for one in said] == [
        {"orders": {"0": 30}},
        {"orders": {"0": 50, "1": 5}},
    ]
    assert [json.loads(one[RANGES])["orders"] for one in said] == [
        {"0": [0, 29]},
        {"0": [30, 49], "1": [0, 4]},
    ]
    assert ranges_follow(json.loads(one[RANGES])["orders"] for one in said)


def test_each_topic_has_a_table_of_its_own(tmp_path: Path) -> None:
    add_batch(tmp_path, 3)
    add_batch(tmp_path, 4, topic="a.b-c", batch=1)
    assert follow(tmp_path) == 4
    for format in BOTH:
        found = in_table(tmp_path, format) + in_table(tmp_path, format, "a.b-c")
        assert sorted(found) == archived(tmp_path)


def test_commit_of_another_in_between_is_noticed_and_nothing_is_there_twice(
    tmp_path: Path, format: str
) -> None:
    add_batch(tmp_path, 10)
    follow(tmp_path, format)
    add_batch(tmp_path, 10, batch=1)
    archive = Archive(tmp_path)
    slow = ArchiveTables(archive, options_of(format))
    place, table = opened(tmp_path, format)
    # Both have read the same state of the table.
    archive.refresh()
    wanted = change(archive, "orders", table.state(), table.files, table.name)
    assert wanted is not None
    assert follow(tmp_path, format) == 1
    with pytest.raises(CommitConflict):
        table.commit(wanted)
    place.close()
    assert slow.follow() == 0
    slow.close()
    assert in_table(tmp_path, format) == archived(tmp_path)


def roll_back(path: Path, format: str, commits: int) -> None:
    """Make the state after so many commits of kwire the current one, as another program would."""
    if format == "delta":
        DeltaTable(path / "topic=orders").restore(commits)
        return
    place = TablePlace(Archive(path), options_of())
    table = place.catalog().load_table(("kwire", "orders"))
    number = table.snapshots()[commits - 1].snapshot_id
    table.manage_snapshots().set_current_snapshot(snapshot_id=number).commit()
    place.close()


def test_table_that_was_rolled_back_is_refused_until_it_has_its_records_again(
    tmp_path: Path, format: str
) -> None:
    """The archive's next commits do not have the records that it lacks."""
    for batch in range(2):
        add_batch(tmp_path, 10, batch=batch)
        follow(tmp_path, format)
    roll_back(tmp_path, format, 1)
    add_batch(tmp_path, 10, batch=2)
    with pytest.raises(Problem, match=r"was rolled back by another program and lacks records"):
        follow(tmp_path, format)
    assert len(in_table(tmp_path, format)) == 10
    roll_back(tmp_path, format, 2)
    assert follow(tmp_path, format) == 1
    assert in_table(tmp_path, format) == archived(tmp_path)


def test_restore_to_a_time_is_a_rollback_if_it_is_before_the_newest_commit(tmp_path: Path) -> None:
    for batch in range(2):
        add_batch(tmp_path, 10, batch=batch)
        follow(tmp_path, "delta")
    table = DeltaTable(tmp_path / "topic=orders")
    newest, first = (commit["timestamp"] for commit in table.history(2))
    assert first < newest
    table.restore(datetime.fromtimestamp(first / 1000, UTC))
    with pytest.raises(Problem, match=r"restore its version 2 again"):
        follow(tmp_path, "delta")


def test_commits_of_others_that_take_nothing_back_do_not_stop_a_table(
    tmp_path: Path, format: str
) -> None:
    for batch in range(2):
        add_batch(tmp_path, 10, batch=batch)
        follow(tmp_path, format)
    if format == "delta":
        table = DeltaTable(tmp_path / "topic=orders")
        table.delete("offset < 10")
        table.restore(2)
    else:
        place = TablePlace(Archive(tmp_path), options_of())
        iceberg = place.catalog().load_table(("kwire", "orders"))
        iceberg.delete("offset < 10")
        with iceberg.transaction() as work:
            work.set_properties({"owner": "another"})
        # What the table's own commits said is forgotten.
        expire = iceberg.maintenance.expire_snapshots()
        for snapshot in iceberg.snapshots()[:-1]:
            expire = expire.by_id(snapshot.snapshot_id)
        expire.commit()
        place.close()
    add_batch(tmp_path, 5, batch=2)
    assert follow(tmp_path, format) == 1
    assert len(in_table(tmp_path, format)) == (25 if format == "delta" else 15)


def test_run_killed_after_its_commit_does_not_add_the_files_again(
    tmp_path: Path, format: str
) -> None:
    add_batch(tmp_path, 10)
    follower = ArchiveTables(Archive(tmp_path), options_of(format))
    kind = type(follower._place.table(format, "orders"))
    follower.close()
    original = kind.commit

    def killed(self: Table, change: object) -> None:
        original(self, change)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    kind.commit = killed  # type: ignore[method-assign]
    try:
        with pytest.raises(KeyboardInterrupt):
            follow(tmp_path, format)
    finally:
        kind.commit = original  # type: ignore[method-assign]
    assert follow(tmp_path, format) == 0
    assert in_table(tmp_path, format) == archived(tmp_path)
    add_batch(tmp_path, 10, batch=1)
    with (
        pytest.raises(Problem, match="cannot follow the archive: RuntimeError: killed in commit"),
        failing_once(kind, "commit"),
    ):
        follow(tmp_path, format)
    assert follow(tmp_path, format) == 1
    assert in_table(tmp_path, format) == archived(tmp_path)


def compacted(path: Path) -> tuple[ManifestEntry, ManifestEntry]:
    """Two entries of partition 0 become one, in a file that has the records of both."""
    archive = Archive(path)
    first, second = [entry for entry in archive.entries() if entry.partition == 0][:2]
    (a,), (b,) = first.files, second.files
    table = pa.concat_tables([pq.read_table(path / f.path, partitioning=None) for f in (a, b)])
    name = f"{a.path.rpartition('/')[0]}/orders-0-{a.first_offset:020d}-{b.last_offset:020d}-c1.parquet"
    pq.write_table(table, path / name)
    stamps = (
        min(a.first_timestamp_ms, b.first_timestamp_ms),
        max(a.last_timestamp_ms, b.last_timestamp_ms),
    )
    size = (path / name).stat().st_size
    file = ArchiveFile(name, a.rows + b.rows, size, a.first_offset, b.last_offset, *stamps)
    merged = ManifestEntry("orders", 0, a.first_offset, b.last_offset, file.rows, (file,))
    archive.commit_compaction([first, second], [merged])
    return first, second


def test_compaction_replaces_files_in_one_commit_and_expiry_forgets_old_states(
    tmp_path: Path, format: str
) -> None:
    for number in range(3):
        add_batch(tmp_path, 10, batch=number)
        follow(tmp_path, format)
    old = compacted(tmp_path)
    add_batch(tmp_path, 5, batch=3)
    follower = ArchiveTables(Archive(tmp_path), options_of(format))
    assert follower.follow() == 1
    assert in_table(tmp_path, format) == archived(tmp_path)
    place, table = opened(tmp_path, format)
    assert not table.files() & {file.path for entry in old for file in entry.files}
    assert len(table.files()) == 3
    place.close()
    # Delta's log stays for 30 days.
    assert follower.expire(-60_000) == (3 if format == "iceberg" else 0)
    for entry in old:
        for file in entry.files:
            (tmp_path / file.path).unlink()
    follower.close()
    assert in_table(tmp_path, format) == archived(tmp_path)
    add_batch(tmp_path, 5, batch=4)
    assert follow(tmp_path, format) == 1
    assert in_table(tmp_path, format) == archived(tmp_path)


def test_table_of_another_archive_is_refused(tmp_path: Path, format: str) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    add_batch(ours, 10)
    add_batch(theirs, 10, batch=7)
    follow(ours, format)
    follow(theirs, format)
    shutil.rmtree(theirs / "_archive")
    shutil.copytree(ours / "_archive", theirs / "_archive")
    with pytest.raises(Problem, match="is of another archive"):
        follow(theirs, format)
    # An older copy of the manifests.
    add_batch(ours, 10, batch=1)
    follow(ours, format)
    (ours / "_archive" / f"{2:020d}.json").unlink()
    with pytest.raises(Problem, match="older copy"):
        follow(ours, format)


def test_files_are_kept_while_a_table_that_does_not_follow_may_name_them(tmp_path: Path) -> None:
    add_batch(tmp_path, 10)
    follow(tmp_path)
    path = "topic=orders/date=2026-01-02/hour=23/x.parquet"
    for formats, topics, free in (
        (BOTH, [], True),
        (BOTH, ["orders"], True),
        (BOTH, ["others"], False),
        (("delta",), [], False),
    ):
        follower = ArchiveTables(Archive(tmp_path), options_of(*formats, topics=topics))
        assert follower.is_free(path) == free
        follower.close()
    with pytest.raises(Problem, match="add --table iceberg"):
        ArchiveTables(Archive(tmp_path), options_of("delta")).check_all()


def test_a_topic_has_one_iceberg_table(tmp_path: Path) -> None:
    """A second one, of another catalog or namespace, would keep files that the first one drops, and the reverse."""
    add_batch(tmp_path, 10)
    follow(tmp_path, "iceberg")
    add_batch(tmp_path, 10, batch=1)
    for place in ({"namespace": "other"}, {"catalog_properties": [("type", "in-memory")]}):
        with pytest.raises(Problem, match="give the same --catalog and --namespace"):
            follow(tmp_path, "iceberg", **place)
    assert follow(tmp_path, "iceberg") == 1
    # It was dropped: the message names the file to remove.
    place, _ = opened(tmp_path, "iceberg")
    place.catalog().drop_table(("kwire", "orders"))
    place.close()
    with pytest.raises(Problem, match="if it was dropped, remove") as refused:
        follow(tmp_path, "iceberg")
    Path(str(refused.value).split("remove ")[1]).unlink()
    follow(tmp_path, "iceberg")
    assert in_table(tmp_path, "iceberg") == archived(tmp_path)


@pytest.mark.parametrize("how", [shutil.move, shutil.copytree])
def test_iceberg_tables_of_an_archive_elsewhere_are_made_anew(
    tmp_path: Path, how: Callable[[Path, Path], object]
) -> None:
    """They name their files by absolute paths; those of a copy would write among those of the original."""
    add_batch(tmp_path / "a", 10, values=[b'{"id": 1}'])
    follow(tmp_path / "a", value_schemas=["id INT"])
    how(tmp_path / "a", tmp_path / "b")
    add_batch(tmp_path / "b", 5, batch=1)
    with pytest.raises(Problem, match="_iceberg and _tables/ids of the copy"):
        follow(tmp_path / "b", value_schemas=["id INT"])
    (tmp_path / "b" / "_catalog.db").unlink()
    for folder in ("_iceberg", "_tables/ids"):
        shutil.rmtree(tmp_path / "b" / folder)
    follow(tmp_path / "b", value_schemas=["id INT"])
    for format in BOTH:
        assert in_table(tmp_path / "b", format) == archived(tmp_path / "b")
    # A link to the place is the place.
    (tmp_path / "c").symlink_to("b")
    assert follow(tmp_path / "c", "iceberg") == 0


def test_files_of_log_directories_have_the_columns_of_tables() -> None:
    """Those are written without Spark, and a table accepts only files that fit its own columns."""
    assert slices._SCHEMA.equals(raw_schema())


@pytest.mark.parametrize(
    "far_ms", [253_402_300_800_000, EVENING_MS * 1000, 9_223_372_036_854_775, -(1 << 46)]
)
def test_times_that_python_does_not_know_do_not_stop_a_table(
    tmp_path: Path, format: str, far_ms: int
) -> None:
    """Producers that count microseconds or nanoseconds are in the year 58,000, or at the end of Spark's range."""
    add_batch(tmp_path, 10)
    follow(tmp_path, format)
    archive = Archive(tmp_path)
    hour = far_ms // 3_600_000
    columns = {name: pa.array([None], kind) for name, kind in _kinds().items()}
    columns |= {
        "partition": pa.array([0], pa.int32()),
        "offset": pa.array([10], pa.int64()),
        "timestamp": pa.array([far_ms * 1000], pa.int64()).cast(_kinds()["timestamp"]),
    }
    name = f"topic=orders/{folders_of(f'{hour}')}/orders-0-{10:020d}-{10:020d}-b1.parquet"
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table(columns, schema=raw_schema()), file)
    far = ArchiveFile(name, 1, file.stat().st_size, 10, 10, far_ms, far_ms)
    archive.commit_batch([ManifestEntry("orders", 0, 10, 10, 1, (far,))], 1)
    assert follow(tmp_path, format) == 1
    add_batch(tmp_path, 5, batch=2)
    assert follow(tmp_path, format) == 1
    content = TableContent(archive, format, None, options_of())
    files = {file.path: file for entry in content.entries() for file in entry.files}
    assert files.keys() == {
        file.path for entry in Archive(tmp_path).entries() for file in entry.files
    }
    found = files[name]
    assert found.first_timestamp_ms <= far_ms <= found.last_timestamp_ms
    if format == "delta":
        table = pa.table(
            DeltaTable(tmp_path / "topic=orders").to_pyarrow_table(columns=["offset", "timestamp"])
        )
    else:
        place = TablePlace(archive, options_of())
        table = place.catalog().load_table(("kwire", "orders")).scan().to_arrow()
        place.close()
    stamps = dict(
        zip(
            *(table.column(n).cast(pa.int64()).to_pylist() for n in ("offset", "timestamp")),
            strict=True,
        )
    )
    assert len(stamps) == 16
    assert stamps[10] == far_ms * 1000


def _kinds() -> dict[str, pa.DataType]:
    return {field.name: field.type for field in raw_schema()}
