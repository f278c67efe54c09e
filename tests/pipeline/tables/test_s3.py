"""An archive and its tables on S3, by `s3a:` paths: moto's server is the store."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest
from deltalake import DeltaTable

from kwire.pipeline import leases
from kwire.pipeline.archive import job
from kwire.pipeline.manifest import Archive
from kwire.pipeline.replay.from_archive import archived_partitions
from kwire.pipeline.replay.plan import RecordRange
from kwire.pipeline.storage import HadoopStorage
from kwire.pipeline.tables.content import TableContent
from kwire.pipeline.tables.delta import Delta
from kwire.pipeline.tables.place import TablePlace
from kwire.pipeline.tables.stores import for_delta, store_settings

from ...support.broker_process import BrokerProcess, free_port
from ..archive_model import Record, create_topic, digest, failing_once, produce, records_of
from .table_model import BOTH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

BUCKET = "lake"


@pytest.fixture(scope="module")
def s3(spark: SparkSession) -> Iterator[str]:
    """The store's address; Spark's Hadoop client knows it."""
    # In a separate process, because deltalake waits for some answers while it holds the interpreter's lock.
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            wait_for(port)
            create_bucket(address)
            tell_spark(spark, address)
            yield address
        finally:
            server.terminate()


def wait_for(port: int) -> None:
    """Wait until the port has a listener."""
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def create_bucket(address: str) -> None:
    boto3.client(
        "s3",
        endpoint_url=address,
        region_name="us-east-1",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
    ).create_bucket(Bucket=BUCKET)


def tell_spark(spark: SparkSession, address: str) -> None:
    """A user's `--conf spark.hadoop.fs.s3a....`, for a session that is already running."""
    assert spark.sparkContext._jsc is not None
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    for name, value in {
        "endpoint": address,
        "endpoint.region": "us-east-1",
        "access.key": "key",
        "secret.key": "secret",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
    }.items():
        hadoop.set(f"fs.s3a.{name}", value)


def test_one_of_many_creates_a_name(s3: str) -> None:
    storage = HadoopStorage(f"s3a://{BUCKET}/names")
    texts = [b"%d" % number for number in range(8)]
    for name in ("a/1", "a/2", "a/3"):
        with ThreadPoolExecutor(len(texts)) as pool:
            made = list(pool.map(lambda text, name=name: storage.create(name, text), texts))
        assert made.count(True) == 1
        assert storage.read(name) == texts[made.index(True)]
        assert storage.read(name, last=1) == texts[made.index(True)]
    assert [item.name for item in storage.list("a")] == ["1", "2", "3"]
    storage.replace("a/1", b"new")
    storage.move("a/1", "b/1")
    assert storage.read("b/1") == b"new" and storage.read("a/1") is None


def test_lease_holds_others_off_until_its_holder_is_dead(
    s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE_S", 10.0)
    monkeypatch.setattr(leases, "RENEWAL_S", 0.5)
    storage = HadoopStorage(f"s3a://{BUCKET}/leases")
    with storage.hold("_locks/a") as held:
        assert held is not None
        held()
        with storage.hold("_locks/a") as second:
            assert second is None
        held()
    # One that was killed gave nothing back, and does not renew.
    dead = leases.Lease(storage, "_locks/a")
    assert dead.take()
    with storage.hold("_locks/a") as held:
        assert held is not None
    with pytest.raises(Exception, match=r"was not renewed|another job"):
        dead.renew()


def options_of(broker: BrokerProcess, topic: str, path: str, catalog: Path) -> Namespace:
    parser = ArgumentParser()
    job.add_arguments(parser)
    tables = [f"--table={name}" for name in BOTH]
    sql = ("--catalog-property=type=sql", f"--catalog-property=uri=sqlite:///{catalog}")
    words = ["-b", broker.bootstrap, f"--topics={topic}", f"--path={path}", "--once", "--quiet"]
    return parser.parse_args([*words, *tables, *sql])


def in_tables(path: str, topic: str, options: Namespace) -> dict[str, list[Record]]:
    """The content of both tables, read by their own libraries."""
    storage = for_delta(store_settings(path))
    delta = DeltaTable(f"{path}/topic={topic}", storage_options=storage).to_pyarrow_table()
    place = TablePlace(Archive(path), options)
    iceberg = place.catalog().load_table(("kwire", topic)).scan().to_arrow()
    place.close()
    found = {"delta": delta, "iceberg": iceberg}
    return {name: sorted(records_of(topic, table.to_pylist())) for name, table in found.items()}


def test_archive_and_tables_on_s3_have_each_record_once(
    s3: str, spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    path = f"s3a://{BUCKET}/archive"
    options = options_of(broker, topic, path, tmp_path / "catalog.db")
    create_topic(broker.bootstrap, topic, 2)
    wanted = produce(broker.bootstrap, topic, 60, partitions=2)

    def archive() -> None:
        with job.cluster_of(options) as cluster:
            assert job.archive_topics(spark, cluster, options) == 0

    # Interrupted between the manifest and Delta's commit: Iceberg's is there.
    with pytest.raises(Exception, match="killed in"), failing_once(Delta, "commit"):
        archive()
    wanted += produce(broker.bootstrap, topic, 40, partitions=2)
    archive()
    wanted.sort()
    for rows in in_tables(path, topic, options).values():
        assert digest(rows) == digest(wanted)
    for name in BOTH:
        content = TableContent(Archive(path), name, {topic}, options)
        content.check()
        assert content.entries() != []
        assert {(e.partition, e.last_offset + 1) for e in content.entries()} == {
            (number, end) for (_, number), end in Archive(path).ends().items()
        }
        offsets = [
            (one.partition, offset)
            for one in archived_partitions(content, None, RecordRange())
            for batch in one.read(0, 1 << 40)
            for offset in batch.column("offset").to_pylist()
        ]
        assert offsets == [(one.partition, one.offset) for one in wanted]
