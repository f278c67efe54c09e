"""Manifests of an archive: sums of commits, concurrent commits, damage; and the rules of a batch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kwire.pipeline.archive.compaction import runs
from kwire.pipeline.archive.plan import OffsetsToArchive, check, plan
from kwire.pipeline.checkpoints import Checkpoint
from kwire.pipeline.manifest import (
    SNAPSHOT_EVERY,
    Archive,
    ArchiveFile,
    Conflict,
    ManifestEntry,
    sealed,
)
from kwire.pipeline.problems import Problem
from kwire.pipeline.replay.from_archive import archived_partitions
from kwire.pipeline.replay.plan import RecordRange
from kwire.pipeline.storage import LocalStorage

PLACE = ("orders", 0)


def entry(first: int, last: int, hour: str = "05", size: int = 100) -> ManifestEntry:
    path = f"topic=orders/date=2026-01-02/hour={hour}/orders-0-{first:020d}-{last:020d}-b0.parquet"
    rows = last - first + 1
    return ManifestEntry(
        "orders", 0, first, last, rows, (ArchiveFile(path, rows, size, first, last, 1, 2),)
    )


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "archive")
    made.create()
    return made


def test_commits_add_up_for_a_reader_that_looks_again(archive: Archive) -> None:
    reader = Archive(archive.path)
    assert reader.entries() == []
    archive.commit_batch([entry(0, 9)], 0)
    archive.commit_batch([replace(entry(10, 19), lost=((10, 12),))], 1)
    assert reader.entries() == []
    reader.refresh()
    assert reader.entries() == [entry(0, 9), replace(entry(10, 19), lost=((10, 12),))]
    assert reader.ends() == {PLACE: 20}
    assert reader.files(["orders"]) == [
        str(Path(archive.path) / e.files[0].path) for e in reader.entries()
    ]
    assert reader.files(["payments"]) == []


def test_second_writer_of_same_offsets_is_refused(archive: Archive) -> None:
    other = Archive(archive.path)
    assert other.ends() == {}
    archive.commit_batch([entry(0, 9)], 0)
    with pytest.raises(Conflict, match="orders-0 now ends at 10"):
        other.commit_batch([entry(0, 4)], 0)
    other.commit_batch([entry(10, 14)], 1)
    archive.refresh()
    assert archive.ends() == {PLACE: 15}


def test_compaction_swaps_entries_and_keeps_note_of_old_files(archive: Archive) -> None:
    for first in (0, 10, 20):
        archive.commit_batch([entry(first, first + 9)], first)
    old = archive.entries()
    late = Archive(archive.path)
    assert len(late.entries()) == 3
    archive.commit_compaction(old, [entry(0, 29)])
    assert archive.entries() == [entry(0, 29)]
    assert set(archive.replaced()) == {file.path for e in old for file in e.files}
    with pytest.raises(Conflict, match="has been replaced already"):
        late.commit_compaction(old[:2], [entry(0, 19)])
    archive.commit_swept(list(archive.replaced()))
    assert Archive(archive.path).replaced() == {}


def test_snapshot_gives_what_all_commits_give(archive: Archive) -> None:
    for number in range(SNAPSHOT_EVERY + 3):
        archive.commit_batch([entry(number, number)], number)
    manifests = Path(archive.path, "_archive")
    assert [path.name for path in manifests.glob("*.snapshot.json")] == [
        f"{SNAPSHOT_EVERY:020d}.snapshot.json"
    ]
    # The content of the snapshot is not read again.
    (manifests / f"{1:020d}.json").write_text("{")
    assert Archive(archive.path).entries() == archive.entries()


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        (1, None, "00000000000000000001.json is missing"),
        (2, "{", "00000000000000000002.json is damaged"),
        (2, "[" * 200_000, "00000000000000000002.json is damaged"),
        (2, '{"format": 1, "number": 2, "columns": 5}', "00000000000000000002.json is damaged"),
        (2, '{"format": 1, "number": 1}', r"00000000000000000002.json is damaged: it is commit 1$"),
        (2, '{"format": 1}', r"00000000000000000002.json is damaged: it is commit None$"),
        (2, '{"format": 1, "number": 2, "added": [7]}', "00000000000000000002.json is damaged"),
        (
            2,
            '{"format": 1, "number": 2, "added": [{"topic": "t", "partition": 0, "first_offset": "0",'
            ' "last_offset": 1, "rows": 2, "files": [], "lost": []}]}',
            "00000000000000000002.json is damaged: .*first_offset is '0'",
        ),
        (0, '{"format": 9}', "archive of another layout"),
        (0, '{"format": 1, "columns": ["offset"]}', r"another layout \(format 1, columns offset\)"),
    ],
)
def test_damaged_or_foreign_archive_is_named(
    archive: Archive, file: int, text: str | None, said: str
) -> None:
    archive.commit_batch([entry(0, 9)], 0)
    archive.commit_batch([entry(10, 19)], 1)
    path = Path(archive.path, "_archive", f"{file:020d}.json")
    if text is None:
        path.unlink()
    else:
        # Except for the tested part, written as by a program.
        whole = text.startswith("{") and text.endswith("}")
        path.write_bytes(sealed(json.loads(text)) if whole else text.encode())
    with pytest.raises(Problem, match=said):
        Archive(archive.path).create()


def _changed(path: Path, *, keeps_checksum: bool) -> None:
    """Remove the entries of a manifest by hand; most people would keep the checksum."""
    tree = json.loads(path.read_text())
    tree["added"] = []
    if not keeps_checksum:
        del tree["sha256"]
    path.write_text(json.dumps(tree))


def test_entries_removed_by_hand_are_noticed(archive: Archive) -> None:
    for number in range(3):
        archive.commit_batch([entry(number * 10, number * 10 + 9)], number)
    manifests = sorted(Path(archive.path, "_archive").glob("*.json"))
    content = [path.read_bytes() for path in manifests]
    for keeps, said in (
        (
            True,
            "00000000000000000003.json is damaged: its content was changed after it was written",
        ),
        (False, "00000000000000000003.json is damaged: it has no checksum"),
    ):
        _changed(manifests[3], keeps_checksum=keeps)
        with pytest.raises(Problem, match=said):
            Archive(archive.path).refresh()
        manifests[3].write_bytes(content[3])
    # In an archive of an earlier version, which has no checksums: detected by what follows.
    for path in manifests:
        tree = json.loads(path.read_text())
        del tree["sha256"]
        path.write_text(
            json.dumps({**tree, "added": [] if path is manifests[2] else tree.get("added", [])})
        )
    with pytest.raises(Problem, match=r"no manifest has offsets 10 to 19 of orders-0, which had"):
        archived_partitions(Archive(archive.path), None, RecordRange())
    tree = json.loads(content[2])
    tree["added"][0]["files"] = []
    del tree["sha256"]
    manifests[2].write_text(json.dumps(tree))
    with pytest.raises(Problem, match=r"for offsets 10 to 19 of orders-0 do not have 10 records"):
        archived_partitions(Archive(archive.path), None, RecordRange())
    tree = json.loads(content[2])
    del tree["sha256"]
    manifests[2].write_text(json.dumps(tree))
    assert len(archived_partitions(Archive(archive.path), None, RecordRange())) == 1


def test_snapshot_is_sealed_too(archive: Archive) -> None:
    archive.commit_batch([entry(0, 9)], 0)
    archive._write_snapshot()
    path = Path(archive.path, "_archive", f"{1:020d}.snapshot.json")
    assert Archive(archive.path).entries() == [entry(0, 9)]
    tree = json.loads(path.read_text())
    path.write_text(json.dumps({**tree, "entries": []}))
    with pytest.raises(Problem, match=r"snapshot\.json is damaged: its content was changed"):
        Archive(archive.path).refresh()


def test_snapshot_that_is_not_of_its_commit_is_named(archive: Archive) -> None:
    """The commits between what it has and its number would be left out."""
    archive.commit_batch([entry(0, 9)], 0)
    archive._write_snapshot()
    archive.commit_batch([entry(10, 19)], 1)
    folder = Path(archive.path, "_archive")
    content = (folder / f"{1:020d}.snapshot.json").read_bytes()
    copy = folder / f"{2:020d}.snapshot.json"
    copy.write_bytes(content)
    with pytest.raises(Problem, match=rf"{copy.name} is damaged: it is the snapshot of commit 1$"):
        Archive(archive.path).refresh()
    copy.rename(folder / f"{3:020d}.snapshot.json")
    with pytest.raises(Problem, match=rf"is damaged: _archive/{3:020d}\.json is missing"):
        Archive(archive.path).refresh()


def test_snapshot_whose_checksum_was_removed_is_named(archive: Archive) -> None:
    archive.commit_batch([entry(0, 9)], 0)
    archive._write_snapshot()
    path = Path(archive.path, "_archive", f"{1:020d}.snapshot.json")
    tree = json.loads(path.read_text())
    del tree["sha256"]
    path.write_text(json.dumps({**tree, "entries": []}))
    with pytest.raises(Problem, match=r"snapshot\.json is damaged: it has no checksum$"):
        Archive(archive.path).refresh()


def test_files_of_others_beside_the_manifests_do_not_count(archive: Archive) -> None:
    archive.commit_batch([entry(0, 9)], 0)
    for name in ("README", "7", "7.json", "²²²²².json", f"{9:020d}.json~", f"{9:020d}.copy"):
        Path(archive.path, "_archive", name).write_text("?")
    assert Archive(archive.path).entries() == [entry(0, 9)]


def test_damaged_snapshot_is_named(archive: Archive) -> None:
    archive.commit_batch([entry(0, 9)], 0)
    Path(archive.path, "_archive", f"{1:020d}.snapshot.json").write_text('{"format": 1}')
    with pytest.raises(Problem, match=r"00000000000000000001\.snapshot\.json is damaged"):
        Archive(archive.path).refresh()


def test_folder_of_others_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").write_bytes(b"")
    with pytest.raises(Problem, match=r"holds part-0.parquet"):
        Archive(tmp_path).create()
    with pytest.raises(Problem, match="there is no archive"):
        Archive(tmp_path).entries()


def test_taken_name_is_not_written_again(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    assert storage.create("a/b", b"first")
    assert not storage.create("a/b", b"second")
    assert storage.read("a/b") == b"first"
    assert storage.read("a/b", last=3) == b"rst"
    assert [item.name for item in storage.list("a")] == ["b"]


# The content of a batch


def test_batch_goes_on_where_the_archive_ends() -> None:
    ranges = plan({PLACE: 5}, {PLACE: 20}, {PLACE: 0}, {PLACE: 12}, {PLACE: 3}, go_on=False)
    assert ranges == {PLACE: OffsetsToArchive(12, 20)}
    assert plan({PLACE: 5}, {PLACE: 12}, {PLACE: 0}, {PLACE: 12}, {PLACE: 3}, go_on=False) == {}


def test_new_partition_is_read_from_its_beginning() -> None:
    assert plan({}, {PLACE: 4}, {}, {}, {PLACE: 0}, go_on=False) == {PLACE: OffsetsToArchive(0, 4)}
    assert plan({PLACE: 7}, {PLACE: 9}, {PLACE: 7}, {}, {PLACE: 0}, go_on=False) == {
        PLACE: OffsetsToArchive(7, 9)
    }


def test_deleted_offsets_are_told_or_noted() -> None:
    with pytest.raises(
        Problem, match=r"orders-0: offset 5 is needed next.*now begins at 8: 3 offsets"
    ):
        plan({PLACE: 5}, {PLACE: 20}, {}, {PLACE: 5}, {PLACE: 8}, go_on=False)
    assert plan({PLACE: 5}, {PLACE: 20}, {}, {PLACE: 5}, {PLACE: 8}, go_on=True) == {
        PLACE: OffsetsToArchive(5, 20, (5, 7))
    }
    # Spark may have moved on to the existing records.
    assert plan({PLACE: 8}, {PLACE: 20}, {}, {PLACE: 5}, {PLACE: 8}, go_on=True) == {
        PLACE: OffsetsToArchive(5, 20, (5, 7))
    }


def test_checkpoint_beyond_the_archive_is_refused() -> None:
    with pytest.raises(Problem, match="ends at offset 5, but the checkpoint continues at 9"):
        plan({PLACE: 9}, {PLACE: 20}, {}, {PLACE: 5}, {PLACE: 0}, go_on=True)
    with pytest.raises(Problem, match="ends at offset 5, but the checkpoint continues at 9"):
        check({PLACE: 9}, {PLACE: 5}, {PLACE: 0}, {PLACE: 20}, go_on=True)


def test_partition_that_became_shorter_is_refused() -> None:
    with pytest.raises(Problem, match="offset 9 is needed next, but the partition ends at 2"):
        plan({PLACE: 9}, {PLACE: 2}, {}, {PLACE: 9}, {PLACE: 0}, go_on=True)
    with pytest.raises(Problem, match="offset 9 is needed next, but the partition ends at 2"):
        check({}, {PLACE: 9}, {PLACE: 0}, {PLACE: 2}, go_on=True)


# Compaction


def test_run_ends_where_it_would_become_too_large() -> None:
    entries = [entry(first, first + 9, size=100) for first in range(0, 70, 10)]
    assert [[e.first_offset for e in run.entries] for run in runs(entries, 300)] == [
        [0, 10, 20],
        [30, 40, 50],
    ]


def test_hours_with_one_file_are_not_rewritten() -> None:
    entries = [entry(0, 9, "05"), entry(10, 19, "05"), entry(20, 29, "06")]
    (run,) = runs(entries, 1000)
    alone, rewritten = run.split()
    assert [file.first_offset for file in alone] == [20]
    assert [file.first_offset for file in rewritten] == [0, 10]
    assert runs([entry(0, 9, "05"), entry(10, 19, "06")], 1000) == []


# Checkpoints


def checkpoint(path: Path) -> Checkpoint:
    """A checkpoint as Spark leaves it when batch 1 is done and batch 2 has begun."""
    files = {
        "metadata": '{"id":"5f1c"}',
        "sources/0/0": '\0v1\n{"orders":{"0":3}}',
        **{f"offsets/{n}": f'v1\n{{"a":1}}\n{{"orders":{{"0":{10 * n}}}}}' for n in range(3)},
        **{f"commits/{n}": 'v1\n{"nextBatchWatermarkMs":0}' for n in range(2)},
    }
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return Checkpoint(path)


def test_checkpoint_tells_the_offsets_of_a_batch(tmp_path: Path) -> None:
    made = checkpoint(tmp_path)
    made.check()
    assert made.initial() == {PLACE: 3}
    assert made.batch(0) == ({PLACE: 3}, {PLACE: 0})
    assert made.batch(2) == made.last() == ({PLACE: 10}, {PLACE: 20})


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("metadata", "{"),
        ("offsets/2", ""),
        ("offsets/2", 'v1\n{"a":1}'),
        ("offsets/2", 'v1\n{"a":1}\n{"orders":{"0"'),
        ("commits/1", "v2\n{}"),
        ("commits/7", "v1\n{}"),
        ("sources/0/0", "\0v1\n[]"),
    ],
)
def test_damaged_checkpoint_is_named(tmp_path: Path, file: str, text: str) -> None:
    made = checkpoint(tmp_path)
    (tmp_path / file).write_text(text)
    with pytest.raises(Problem, match=f"checkpoint {tmp_path} is damaged"):
        made.check()
        made.initial()


def test_checkpoint_belongs_to_one_job(tmp_path: Path) -> None:
    made = Checkpoint(tmp_path / "new")
    made.claim("archive", {"archive": "/a"})
    made.claim("archive", {"archive": "/a"})
    for job, about in (("replay", {}), ("archive", {"archive": "/b"})):
        with pytest.raises(Problem, match=r"belongs to job archive \(archive /a\)"):
            made.claim(job, about)
    strange = checkpoint(tmp_path / "strange")
    with pytest.raises(Problem, match="is not a checkpoint of kwire's"):
        strange.claim("archive", {})
    (tmp_path / "new" / "kwire.json").write_text(json.dumps([]))
    with pytest.raises(Problem, match=r"kwire.json is damaged"):
        made.claim("archive", {})
