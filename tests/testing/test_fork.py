"""One prepared state in many brokers: forks, snapshots, and copies of data directories."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from kwire.testing import Broker, SecureBroker
from kwire.testing.client.records import LATEST, offset_at
from tests.golden.logdir import unpack_log_directory
from tests.golden.recorded import DATA, read_json

from .clients import consumer, producer, read, send


def values(broker: Broker, topic: str, **options: Any) -> list[bytes | None]:
    """A broker's values in a topic."""
    return [record.value for record in broker.consume(topic, **options)]


def log_of(broker: Broker, directory: str) -> Path:
    """The directory of a partition."""
    return broker._folders[1] / directory


def test_fork_holds_what_the_broker_held() -> None:
    with Broker() as broker:
        topic = broker.topic("orders", partitions=2, configs={"retention.ms": 5_000})
        topic.produce("1", partition=0)
        topic.produce("2", partition=1)
        with consumer(broker.bootstrap_servers, "g") as reader:
            reader.subscribe([topic])
            read(reader, 2)
            reader.commit(asynchronous=False)
        with broker.fork() as fork:
            assert fork.bootstrap_servers != broker.bootstrap_servers
            assert sorted(filter(None, values(fork, "orders"))) == [b"1", b"2"]
            assert [fork.committed("g", "orders", each) for each in (0, 1)] == [1, 1]
            assert fork.group("g").state == "Empty"
            fork.clock.advance("10min")  # the topic has its settings
            assert values(fork, "orders") == []
        assert sorted(filter(None, values(broker, "orders"))) == [b"1", b"2"]


def test_what_happens_after_a_fork_happens_on_one_side() -> None:
    with Broker() as broker:
        topic = broker.topic("orders")
        topic.produce("1")
        one, other = broker.fork(), broker.fork()
        for number, each in enumerate((broker, one, other)):
            send(producer(each.bootstrap_servers), "orders", b"%d" % number)
            each.topic(f"only{number}")
        for number, each in enumerate((broker, one, other)):
            assert values(each, "orders") == [b"1", b"%d" % number]
            assert offset_at(each.client, f"only{number}", 0, LATEST) == 0
        assert not log_of(one, "only2-0").exists()
        third = one.fork()
        assert values(third, "orders") == [b"1", b"1"]


def test_transaction_is_open_in_a_fork_and_is_ended_there_by_its_timeout() -> None:
    with Broker() as broker:
        topic = broker.topic("orders")
        client = producer(
            broker.bootstrap_servers, transactional_id="t", transaction_timeout_ms=60_000
        )
        client.init_transactions(10)
        client.begin_transaction()
        client.produce(topic, b"1")
        client.flush(10)
        with broker.fork() as fork:
            client.commit_transaction(10)
            assert values(broker, topic, read_committed=True) == [b"1"]
            send(producer(fork.bootstrap_servers), topic, b"2")
            assert values(fork, topic, read_committed=True) == []
            fork.clock.advance("2min")
            assert values(fork, topic, read_committed=True) == [b"2"]


def test_producers_are_known_in_a_fork() -> None:
    with Broker() as broker:
        topic = broker.topic("orders")
        client = producer(broker.bootstrap_servers, enable_idempotence=True)
        for value in (b"1", b"2"):
            send(client, topic, value)
        with broker.fork() as fork:
            known = []
            for each in (broker, fork):
                assert each._nodes[1].broker is not None
                logs = each._nodes[1].broker.opened.log_manager.logs()
                [log] = [log for log in logs if log.tp.topic == "orders"]
                [entry] = log.producers.producers.values()
                known.append((entry.producer_id, entry.producer_epoch, entry.last_sequence))
            assert known[0] == known[1]
            assert known[0][2] == 1


def test_fork_has_the_time_of_its_broker() -> None:
    with Broker() as broker:
        broker.clock.jump("30d")
        with broker.fork() as fork:
            assert abs(fork.clock.now_ms() - broker.clock.now_ms()) < 5_000
            assert not fork.clock.is_frozen
        with broker.clock.freeze(), broker.fork() as fork:
            assert fork.clock.is_frozen
            assert fork.clock.now_ms() == broker.clock.now_ms()


def test_closed_segments_are_shared_until_one_side_deletes_them() -> None:
    with Broker() as broker:
        topic = broker.topic("orders", configs={"segment.bytes": 2_000, "retention.ms": 60_000})
        for number in range(10):
            topic.produce(str(number) * 500)
        before = values(broker, topic)
        with broker.fork() as fork:
            logs = [sorted(log_of(each, "orders-0").glob("*.log")) for each in (broker, fork)]
            shared = [one.samefile(other) for one, other in zip(*logs, strict=True)]
            assert shared == [True] * (len(shared) - 1) + [False]
            assert len(shared) > 2
            fork.clock.advance("10min")
            assert values(fork, topic) == []
        assert values(broker, topic) == before


def test_secure_broker_is_forked_with_its_users() -> None:
    with SecureBroker() as broker:
        broker.topic("orders")
        broker.user("alice", password="secret")
        broker.allow("User:alice", "Write", topic="orders")
        with broker.fork() as fork:
            client = producer(
                **{"bootstrap": fork.bootstrap_servers}, **fork.client_config("alice")
            )
            send(client, "orders", b"1")
            assert values(fork, "orders") == [b"1"]
        assert values(broker, "orders") == []


def test_forks_end_with_their_broker() -> None:
    threads = threading.active_count()
    broker = Broker().start()
    fork = broker.fork()
    folder = fork._folders[1]
    assert fork.fork() is not None
    broker.stop()
    assert not folder.exists()
    assert threading.active_count() == threads
    with pytest.raises(RuntimeError, match="a fork cannot be started again"):
        fork.start()


def test_broker_whose_disk_has_failed_cannot_be_forked() -> None:
    with Broker() as broker:
        topic = broker.topic("orders")
        client = producer(broker.bootstrap_servers, retries=0)
        fault = broker.disk_fault("write", path="*.log", error="ENOSPC")
        with fault, pytest.raises(KafkaException):
            send(client, topic)
        with pytest.raises(OSError, match="the log directory is offline") as raised:
            broker.fork()
        assert raised.value.errno == errno.EIO
        assert not list(broker._folders[1].parent.glob("fork-*"))


# -- snapshots


def test_snapshot_is_restored_at_the_same_address(tmp_path: Path) -> None:
    with Broker() as broker:
        broker.topic("orders").produce("1")
        path = broker.snapshot(tmp_path / "shop")
        address = broker.bootstrap_servers
        broker.produce("orders", "2")
        broker.topic("more")
        client = producer(broker.bootstrap_servers)
        send(client, "orders", b"3")
        with broker.fault("Produce", client_id="nobody", error="UNKNOWN_SERVER_ERROR") as rule:
            broker.restore(path)
            assert broker.faults == (rule,)
            rule.matched = 1  # no warning
        assert broker.bootstrap_servers == address
        assert values(broker, "orders") == [b"1"]
        broker.topic("more")  # it is not there
        send(client, "orders", b"4")
        broker.clock.advance("1min", keep_members=True)
        assert values(broker, "orders") == [b"1", b"4"]
    with Broker.from_directory(path) as broker:
        assert values(broker, "orders") == [b"1"]


def test_snapshot_with_a_plain_name_is_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Broker() as broker:
        for number in range(2):  # the second takes the place of the first
            broker.topic(f"t{number}")
            broker.snapshot("shop")
        assert os.listdir(".kafka-snapshots") == ["shop"]
        with pytest.raises(ValueError, match="is not the name of a snapshot"):
            broker.snapshot("..")
        (tmp_path / "mine").mkdir()
        with pytest.raises(ValueError, match="mine already exists and is not a snapshot"):
            broker.snapshot(tmp_path / "mine")
    with Broker() as broker:
        broker.restore("shop")
        assert [offset_at(broker.client, each, 0, LATEST) for each in ("t0", "t1")] == [0, 0]


def test_broker_goes_on_after_a_restore_that_cannot_be(tmp_path: Path) -> None:
    with Broker() as broker:
        broker.topic("orders").produce("1")
        with pytest.raises(ValueError, match="shop is not there, where a data directory should be"):
            broker.restore(tmp_path / "shop")
        path = broker.snapshot(tmp_path / "shop")
        (path / "coordination.db").write_bytes(b"x" * 5000)
        with pytest.raises(
            ValueError, match=r"not a store, or damaged .*: .*/shop/coordination\.db"
        ):
            broker.restore(path)
        assert values(broker, "orders") == [b"1"]


# -- data directories


def test_another_broker_goes_on_with_a_directory(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker:
        broker.topic("orders", partitions=2, configs={"retention.ms": 5_000}).produce("1")
        with consumer(broker.bootstrap_servers, "g") as reader:
            reader.subscribe(["orders"])
            read(reader, 1)
        with pytest.raises(ValueError, match="directory of its own cannot be restored"):
            broker.restore(tmp_path)
    for api in ("4.3", "3.9"):
        with Broker(directory=tmp_path, api=api) as broker:
            assert values(broker, "orders") == [b"1"]
            assert sum(broker.committed("g", "orders", each) or 0 for each in (0, 1)) == 1


def contents(directory: Path) -> dict[str, tuple[str, int]]:
    """The content of a directory, and the times of its files."""
    return {
        str(path.relative_to(directory)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            path.stat().st_mtime_ns,
        )
        for path in [directory, *directory.rglob("*")]
    }


@pytest.mark.parametrize("clean", [True, False])
def test_directory_of_apache_kafka_is_served_from_a_copy(tmp_path: Path, clean: bool) -> None:
    expected = read_json("logdir/expected.json", DATA)
    directory = unpack_log_directory(tmp_path, DATA)
    if not clean:
        (directory / ".kafka_cleanshutdown").unlink()
    before = contents(directory)
    with Broker.from_directory(directory) as broker:
        for topic, rows in expected["topics"].items():
            for number, row in rows.items():
                found = broker.consume(topic, partition=int(number))
                assert [record.offset for record in found] == [
                    each[0] for each in row["read_uncommitted"]
                ], topic
                assert offset_at(broker.client, topic, int(number), LATEST) == row["endOffset"]
        for group, offsets in expected["groupOffsets"].items():
            for partition, row in offsets.items():
                topic, _, number = partition.rpartition("-")
                assert broker.committed(group, topic, int(number)) == row[0]
        client = producer(broker.bootstrap_servers, transactional_id="tx-1")
        client.init_transactions(10)
        client.begin_transaction()
        client.produce("plain", b"new", partition=0)
        client.commit_transaction(10)
        assert values(broker, "plain", partition=0, read_committed=True)[-1] == b"new"
        broker.clock.advance("1w")  # nothing is deleted: how long topics keep records is not known
        assert values(broker, "deleted")
        assert any("its settings are not known" in line for line in broker.log)
    assert contents(directory) == before


def test_directory_in_use_is_refused(tmp_path: Path) -> None:
    with (
        Broker(directory=tmp_path),
        pytest.raises(ValueError, match=r"a broker is running on .*; stop it, or fork it"),
    ):
        Broker.from_directory(tmp_path).start()


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (
            lambda path: (path / "meta.properties").unlink(),
            r"is not the data directory of a broker: it has no meta\.properties",
        ),
        (
            lambda path: (path / "meta.properties").write_text("version=7"),
            r"meta\.properties: unknown version 7",
        ),
        (
            lambda path: (path / "meta.properties").write_text("version=0"),
            r"meta\.properties has no broker id",
        ),
        (
            lambda path: (path / "plain-0" / "partition.metadata").write_text("version: 1"),
            r"plain-0/partition\.metadata: unknown version 1",
        ),
        (
            lambda path: (path / "plain-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n"),
            r"plain-0/leader-epoch-checkpoint: 1 entries, line 2 says",
        ),
        (
            lambda path: (path / "plain-0" / "partition.metadata").write_bytes(
                (path / "txn-0" / "partition.metadata").read_bytes()
            ),
            "the partitions of plain have different topic ids",
        ),
    ],
)
def test_broken_directory_is_refused_by_name(tmp_path: Path, broken: Any, said: str) -> None:
    directory = unpack_log_directory(tmp_path, DATA)
    broken(directory)
    threads = threading.active_count()
    with pytest.raises(ValueError, match=said) as raised:
        Broker.from_directory(directory).start()
    assert str(directory) in str(raised.value) or "different topic ids" in said
    assert threading.active_count() == threads


def test_directory_that_is_not_there_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "customers").mkdir()
    with Broker() as broker:
        broker.snapshot(tmp_path / "shop")
        for refused in (
            lambda: broker.restore(tmp_path / "shpo"),
            lambda: Broker.from_directory(tmp_path / "shpo").start(),
        ):
            with pytest.raises(ValueError, match=r"shpo is not there.*; did you mean 'shop'"):
                refused()


def test_file_in_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(ValueError, match="f is a file, where a data directory should be"):
        Broker.from_directory(tmp_path / "f").start()
