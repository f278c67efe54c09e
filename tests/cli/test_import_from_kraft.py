"""`kwire coordination import --from-kraft`: refusals, and what they leave unchanged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from server.__main__ import main
from server.composition.opened import refuse_kraft
from server.log.file_layer import FileLayer
from server.log.log_directory import LogDirectory, NotImported
from server.log.meta_properties import MetaProperties

RECORDED = Path(__file__).parents[1] / "coordination" / "kraft_4_3_0"


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A directory as Apache Kafka 4.3.0 has left it."""
    shutil.copytree(RECORDED, tmp_path / "original")
    (tmp_path / "original" / ".lock").touch()
    return tmp_path / "original"


def imported(*options: str | Path) -> int:
    return main(["coordination", "import", *map(str, options)])


def exported(data: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    capsys.readouterr()
    assert main(["coordination", "export", "--data-dir", str(data)]) == 0
    lines = map(json.loads, capsys.readouterr().out.splitlines()[1:])
    return {line["path"]: line["data"] for line in lines}


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_store_gets_the_metadata_and_the_original_stays(
    original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = names(original)
    copy = shutil.copytree(original, tmp_path / "copy")
    assert imported("--from-kraft", original, "--data-dir", copy) == 0
    said = capsys.readouterr().err
    assert "metadata up to offset 52 (snapshot of 37): 3 topics, 4 partitions, 3 ACLs" in said
    assert said.count("left out: ") == 3
    assert "note: ACLs take effect only with an authorizer" in said
    assert names(original) == before
    nodes = exported(copy, capsys)
    assert nodes["/cluster/id"] == '{"version":"1","id":"MkU3OEVBNTcwNTJENDM2Qg"}'
    assert nodes["/controller_epoch"] == "1"


def test_copy_gets_the_store_in_place_once(original: Path) -> None:
    assert imported("--from-kraft", original, "--in-place") == 0
    assert "coordination.db" in names(original)
    assert imported("--from-kraft", original, "--in-place") == 1  # it has topics by now
    assert imported("--from-kraft", original, "--in-place", "--replace") == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--data-dir", "{original}"), "would be changed"),
        ((), "name the destination of the metadata"),
        (("--data-dir", "{tmp}/new", "a-file"), "give either"),
    ],
)
def test_unclear_options_are_refused(
    original: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    said: str,
) -> None:
    before = names(original)
    filled = [option.format(original=original, tmp=tmp_path) for option in options]
    assert imported("--from-kraft", original, *filled) == 1
    assert said in capsys.readouterr().err
    assert names(original) == before


def test_in_place_without_a_kraft_directory_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert imported("--in-place") == 1
    assert "--in-place needs --from-kraft" in capsys.readouterr().err


def test_directory_in_use_is_refused(
    original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = LogDirectory(FileLayer(), str(original))
    directory.lock()
    try:
        assert imported("--from-kraft", original, "--data-dir", tmp_path / "new") == 1
    finally:
        directory.unlock()
    assert "is in use by another broker" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_directory_of_another_cluster_does_not_get_the_metadata(
    original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "meta.properties").write_text("version=1\nnode.id=0\ncluster.id=another\n")
    assert imported("--from-kraft", original, "--data-dir", other) == 1
    assert "belongs to cluster another" in capsys.readouterr().err
    assert names(other) == {"meta.properties"}


@pytest.mark.parametrize("missing", ["meta.properties", "__cluster_metadata-0"])
def test_incomplete_directory_is_refused(original: Path, tmp_path: Path, missing: str) -> None:
    path = original / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert imported("--from-kraft", original, "--data-dir", tmp_path / "new") == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing", "missing is not a directory"),
        ("original/meta.properties", "meta.properties is not a directory"),
        ("original/__cluster_metadata-0", "in which __cluster_metadata-0 is"),
    ],
)
def test_what_is_no_log_directory_is_refused_and_stays_as_it_was(
    original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    before = set(tmp_path.rglob("*"))
    assert imported("--from-kraft", tmp_path / name, "--data-dir", tmp_path / "new") == 1
    assert said in capsys.readouterr().err
    assert set(tmp_path.rglob("*")) == before


def test_broker_does_not_serve_a_directory_of_kraft_before_the_import(tmp_path: Path) -> None:
    kraft = MetaProperties(0, "cluster", "directory", version=1)
    with pytest.raises(NotImported, match="--from-kraft"):
        refuse_kraft(str(tmp_path), kraft)
    refuse_kraft(str(tmp_path), None)
    refuse_kraft(str(tmp_path), MetaProperties(0, "cluster"))
    (tmp_path / "coordination.db").touch()
    refuse_kraft(str(tmp_path), kraft)
