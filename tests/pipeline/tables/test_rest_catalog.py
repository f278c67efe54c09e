"""Tables in a REST catalog: the server is Iceberg's own, that of its tests."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from kwire.pipeline.manifest import Archive
from kwire.pipeline.problems import Problem
from kwire.pipeline.tables.changes import RANGES, change
from kwire.pipeline.tables.content import TableContent
from kwire.pipeline.tables.follower import ArchiveTables
from kwire.pipeline.tables.place import TablePlace
from kwire.pipeline.tables.tables import CommitConflict

from ...support.broker_process import end_process, free_port
from ...support.kafka import QUICK_JVM, jars_or_skip
from ..archive_model import Record, archived, digest, records_of
from .table_model import add_batch, follow, options_of
from .test_follow import compacted

pytestmark = [pytest.mark.jvm]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The catalog's address."""
    folder, port = tmp_path_factory.mktemp("catalog"), free_port()
    hadoop = Path(pyspark.__file__).parent / "jars"
    jars = [jars_or_skip("iceberg-rest-1.10.0") / "*", *hadoop.glob("hadoop-client-*.jar")]
    command = ["java", *QUICK_JVM, "-cp", ":".join(map(str, jars))]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [*command, "org.apache.iceberg.rest.RESTCatalogServer"],
            env={
                **os.environ,
                "CATALOG_REST_PORT": str(port),
                "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
                "CATALOG_WAREHOUSE": str(folder / "warehouse"),
            },
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                said = (folder / "server.log").read_text()
                assert server.poll() is None and time.monotonic() < deadline, said[-3000:]
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        end_process(server)


@pytest.fixture
def catalog(uri: str, tmp_path: Path) -> dict[str, object]:
    """The options of a table in this catalog; each test has its own namespace."""
    properties = [("type", "rest"), ("uri", uri)]
    return {"catalog_properties": properties, "namespace": tmp_path.name}


def in_catalog(path: Path, catalog: dict[str, object]) -> list[Record]:
    """The content of the table, read by pyiceberg."""
    place = TablePlace(Archive(path), options_of("iceberg", **catalog))
    table = place.catalog().load_table((str(catalog["namespace"]), "orders"))
    rows = table.scan().to_arrow().to_pylist()
    place.close()
    return sorted(records_of("orders", rows))


def test_table_in_a_rest_catalog_follows_compacts_and_forgets(
    tmp_path: Path, catalog: dict[str, object]
) -> None:
    path = tmp_path / "archive"
    for number in range(3):
        add_batch(path, 10, batch=number)
        assert follow(path, "iceberg", **catalog) == 1
        assert follow(path, "iceberg", **catalog) == 0
    assert digest(in_catalog(path, catalog)) == digest(archived(path))
    old = compacted(path)
    add_batch(path, 5, partition=1, batch=3)
    options = options_of("iceberg", **catalog)
    follower = ArchiveTables(Archive(path), options)
    assert follower.follow() == 1
    assert follower.expire(-60_000) == 3
    follower.close()
    for entry in old:
        for file in entry.files:
            (path / file.path).unlink()
    assert digest(in_catalog(path, catalog)) == digest(archived(path))
    content = TableContent(Archive(path), "iceberg", {"orders"}, options)
    content.check()
    ends = {(e.topic, e.partition): e.last_offset + 1 for e in content.entries()}
    assert ends == Archive(path).ends()
    # Without its catalog, the table cannot follow; the archive has everything.
    add_batch(path, 5, batch=4)
    gone = {**catalog, "catalog_properties": [("type", "rest"), ("uri", "http://127.0.0.1:1")]}
    with pytest.raises(Problem, match="catalog"):
        follow(path, "iceberg", **gone)
    assert follow(path, "iceberg", **catalog) == 1
    assert digest(in_catalog(path, catalog)) == digest(archived(path))


def test_commit_of_another_in_between_is_refused_by_the_catalog(
    tmp_path: Path, catalog: dict[str, object]
) -> None:
    path = tmp_path / "archive"
    add_batch(path, 10)
    follow(path, "iceberg", **catalog)
    add_batch(path, 10, batch=1)
    archive = Archive(path)
    place = TablePlace(archive, options_of("iceberg", **catalog))
    table = place.table("iceberg", "orders")
    assert table.open(create=False)
    archive.refresh()
    wanted = change(archive, "orders", table.state(), table.files, table.name)
    assert wanted is not None
    # Both have read the same state of the table.
    assert follow(path, "iceberg", **catalog) == 1
    with pytest.raises(CommitConflict):
        table.commit(wanted)
    table.open(create=False)
    assert len([one for one in table.snapshots() if RANGES in one.properties]) == 2
    place.close()
    assert digest(in_catalog(path, catalog)) == digest(archived(path))
