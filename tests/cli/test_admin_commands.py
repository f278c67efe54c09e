"""groups, configs, transactions, cluster and reassign, on a broker in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, ShareConsumer

from server.__main__ import main

from ..testing.clients import consumer, read


@pytest.fixture
def run(kafka: Any, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command on the broker, and returns its output, including errors."""
    return runner(kafka.bootstrap_servers, capsys)


def runner(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        try:
            found = main([words[0], "--bootstrap", bootstrap, *words[1:]])
        except SystemExit as error:
            found = int(error.code or 0)
        out, err = capsys.readouterr()
        assert found == code, out + err
        return out + err

    return run


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if not line.startswith("kwire: ")]


def test_group_is_described_with_partitions_that_have_no_commit(
    kafka: Any, run: Callable[..., str]
) -> None:
    topic = kafka.topic("t", partitions=2)
    topic.produce("a", "b", partition=0)
    topic.produce("c", partition=1)
    with consumer(kafka.bootstrap_servers, "g") as client:
        client.subscribe(["t"])
        read(client, 3)
        described = rows(run("groups", "describe", "g", "--output", "json"))
        assert [(row["partition"], row["offset"], row["end"], row["lag"]) for row in described] == [
            (0, None, 2, 2),
            (1, None, 1, 1),
        ]
        client.commit(asynchronous=False)
        text = run("groups", "describe", "--all-groups").splitlines()
        assert text[0].startswith("g  Stable  1 member")
        assert [line.split()[1:5] for line in text[2:]] == [
            ["0", "2", "2", "0"],
            ["1", "1", "1", "0"],
        ]
        twice = run("groups", "describe", "g", "g").splitlines()
        assert twice[len(text)] == ""
        assert twice[: len(text)] == twice[len(text) + 1 :] == text
        (member,) = rows(run("groups", "describe", "g", "--members", "--output", "json"))
        assert member["partitions"] == ["t-0", "t-1"]
        (state,) = rows(run("groups", "describe", "g", "--state", "--output", "json"))
        assert (state["state"], state["members"]) == ("Stable", 1)
        refused = run("groups", "reset", "g", "--to", "0", code=1)
        assert refused == "kwire: g: the group has members; stop them first\n"
    assert rows(run("groups", "list", "--state", "Empty", "--output", "json"))[0]["group"] == "g"
    assert rows(run("groups", "list", "--state", "Stable", "--output", "json")) == []


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
        ("DescribeGroups", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
    ],
)
def test_coordinator_that_is_on_its_way_is_waited_for(
    kafka: Any, run: Callable[..., str], api: str, error: str
) -> None:
    kafka.topic("t")
    run("groups", "reset", "g", "-t", "t", "--to", "latest")
    with kafka.fault(api=api, nth=1, error=error):
        assert run("groups", "describe", "g").startswith("g  Empty")


@pytest.mark.parametrize(("nth", "what"), [(1, "start"), (2, "end"), (3, "time")])
def test_group_is_not_reset_if_a_lookup_of_an_offset_fails(
    nth: int, what: str, kafka: Any, run: Callable[..., str]
) -> None:
    """A failed lookup by time is not an answer that there are no later records, which would be the end."""
    kafka.topic("t").produce("a", timestamp=1000)
    run("groups", "reset", "g", "-t", "t", "--to", "earliest")
    with kafka.fault("ListOffsets", nth=nth, topic="t", error="UNKNOWN_SERVER_ERROR"):
        said = run("groups", "reset", "g", "--to-datetime", "1970-01-01", code=1)
    assert said == "kwire: t-0: its leader does not return its offsets\n", what
    assert kafka.committed("g", "t", 0) == 0


def test_offsets_are_reset_in_every_way(
    kafka: Any, run: Callable[..., str], tmp_path: Path
) -> None:
    topic = kafka.topic("t", partitions=2)
    for number in range(5):
        topic.produce(str(number), partition=0, timestamp=1000 * (number + 1))
    topic.produce("x", partition=1)

    def reset(*words: str, **options: Any) -> list[int]:
        return [
            row["offset"]
            for row in rows(run("groups", "reset", "g", *words, "--output", "json", **options))
        ]

    assert "no topics to reset" in run("groups", "reset", "g", "--to", "0", code=1)
    assert reset("-t", "t", "--to-latest") == [5, 1]
    assert reset("--shift-by", "-2") == [3, 0]
    assert reset("--to", "current", "--dry-run") == [3, 0]
    assert reset("--to-earliest", "--dry-run") == [0, 0]
    assert "nothing is set" in run("groups", "reset", "g", "--to", "0", "--dry-run")
    assert kafka.committed("g", "t", 0) == 3
    assert reset("-t", "t:0", "--to-datetime", "1970-01-01T00:00:02+00:00") == [1]
    assert reset("-t", "t:0", "--by-duration", "P1D") == [5]
    assert reset("--to-offset", "2") == [2, 1]
    exported = run("groups", "reset", "g", "--to", "earliest", "--export")
    assert exported == "t,0,0\nt,1,0\n"
    plan = tmp_path / "plan.csv"
    plan.write_text("t,0,4\n")
    assert reset("--from-file", str(plan)) == [4]
    assert kafka.committed("g", "t", 0) == 4
    assert "no partition 7" in run("groups", "reset", "g", "-t", "t:7", "--to", "0", code=1)
    run("groups", "reset", "g", code=2)
    plan.write_text("nonsense\n")
    assert "line 1" in run("groups", "reset", "g", "--from-file", str(plan), code=2)
    run("groups", "--reset-offsets", "--group", "g", "--to-earliest", "--all-topics")
    assert kafka.committed("g", "t", 0) == 4
    run("groups", "--reset-offsets", "--group", "g", "--to-earliest", "--execute")
    assert kafka.committed("g", "t", 0) == 0
    run("groups", "delete-offsets", "g", "-t", "t:1")
    assert kafka.committed("g", "t", 1) is None
    run("groups", "delete", "g")
    assert run("groups", "describe", "g", code=1) == "kwire: g: no such group\n"
    assert run("groups", "delete", "g", code=1) == "kwire: g: no such group\n"
    assert "no group is named" in run("groups", "delete", code=2)


def test_topics_that_are_there_or_not_may_be_left_alone(
    kafka: Any, run: Callable[..., str]
) -> None:
    run("topics", "create", "t", "-p", "2")
    assert "already exists" in run("topics", "create", "t", code=1)
    run("topics", "create", "t", "u", "--if-not-exists")
    listed = {row["topic"]: row for row in rows(run("topics", "list", "--output", "json"))}
    assert (listed["t"]["partitions"], listed["u"]["internal"]) == (2, False)
    described = rows(run("topics", "describe", "t", "--output", "json"))
    assert [(row["partition"], row["end"]) for row in described] == [(0, 0), (1, 0)]
    run("topics", "delete", "v", code=1)
    run("topics", "delete", "v", "u", "--if-exists")
    run("topics", "alter", "v", "-p", "9", "--if-exists")
    assert run("topics", "list") == "t\n"


def test_configs_are_described_altered_and_deleted(kafka: Any, run: Callable[..., str]) -> None:
    kafka.topic("t")

    def described(*words: str) -> dict[str, tuple[str, str]]:
        found = rows(run("configs", "describe", *words, "--output", "json"))
        return {row["config"]: (row["value"], row["source"]) for row in found}

    assert "only defaults" in run("configs", "describe", "--topic", "t")
    run("configs", "alter", "--topic", "t", "retention.ms=5000", "cleanup.policy=compact")
    run("configs", "alter", "--topic", "t", "--append", "cleanup.policy=delete")
    assert described("--topic", "t") == {
        "cleanup.policy": ("compact,delete", "topic"),
        "retention.ms": ("5000", "topic"),
    }
    run("configs", "alter", "--topic", "t", "--dry-run", "retention.ms=6000")
    run("configs", "delete", "--topic", "t", "retention.ms")
    assert described("--topic", "t", "retention.ms")["retention.ms"] == ("604800000", "default")
    said = run("configs", "delete", "--topic", "t", "cleanup.policy", "retention.ms", "x", code=1)
    assert said == "kwire: topic t: these are not set: retention.ms, x\n"
    assert "cleanup.policy" in described("--topic", "t")
    assert len(described("--topic", "t", "--all")) > 20
    run("configs", "alter", "--broker-default", "log.cleaner.threads=2")
    assert described("--broker-default") == {"log.cleaner.threads": ("2", "brokers' default")}
    words = ("--entity-type", "brokers", "--entity-default", "--delete-config")
    run("configs", "--alter", *words, "log.cleaner.threads")
    said = run("configs", "--alter", *words, "log.cleaner.threads", code=1)
    assert said == "kwire: all brokers: these are not set: log.cleaner.threads\n"
    run("configs", "--alter", "--entity-type", "topics", "--entity-name", "t",
        "--add-config", "cleanup.policy=[compact,delete],retention.ms=7")  # fmt: skip
    assert described("--topic", "t")["retention.ms"] == ("7", "topic")
    assert "no config nonsense" in run("configs", "describe", "--topic", "t", "nonsense", code=1)
    assert "Unknown topic config" in run("configs", "alter", "--topic", "t", "nonsense=1", code=1)
    assert "kwire users" in run("configs", "describe", "--entity-type", "users", code=2)
    assert "give a resource" in run("configs", "describe", code=2)
    assert "nothing to change" in run("configs", "alter", "--topic", "t", code=2)
    run("configs", "describe", "--topic", "nosuch", code=1)


def test_transactions_are_listed_described_and_aborted(kafka: Any, run: Callable[..., str]) -> None:
    topic = kafka.topic("t")
    client = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "id"})
    client.init_transactions(20)
    client.begin_transaction()
    client.produce("t", "a")
    client.flush()
    (listed,) = rows(run("transactions", "list", "--output", "json"))
    assert (listed["transactional_id"], listed["state"]) == ("id", "Ongoing")
    assert rows(run("transactions", "list", "--state", "Empty", "--output", "json")) == []
    (found,) = rows(run("transactions", "describe", "id", "--output", "json"))
    assert found["partitions"] == ["t-0"]
    (state,) = rows(
        run(
            "transactions",
            "describe-producers",
            "--topic",
            "t",
            "--partition",
            "0",
            "--output",
            "json",
        )
    )
    assert state["transaction_start_offset"] == 0
    assert run("transactions", "find-hanging") == "kwire: no hanging transactions\n"
    assert topic.consume(read_committed=True) == []
    words = ("--topic", "t", "--partition", "0")
    assert "is open" in run("transactions", "abort", *words, "--start-offset", "7", code=1)
    assert "by --start-offset or" in run("transactions", "abort", *words, code=2)
    run("transactions", "abort", *words, "--start-offset", "0")
    assert topic.end_offset() == 2
    assert rows(run("transactions", "find-hanging", *words, "--output", "json")) == []
    assert "No coordinator knows" in run("transactions", "describe", "nobody", code=1)
    assert "no such state" in run("transactions", "list", "--state", "Odd", code=2)


def test_cluster_is_described_and_healthy(kafka: Any, run: Callable[..., str]) -> None:
    kafka.topic("t", partitions=3)
    (node,) = rows(run("cluster", "describe", "--output", "json"))
    assert (node["controller"], node["leaders"], node["replicas"]) == (True, 3, 3)
    assert run("cluster", "health") == "healthy\n"


def test_partitions_are_moved(
    kafka_cluster: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    run = runner(kafka_cluster.bootstrap_servers, capsys)
    kafka_cluster.topic("t", partitions=2, replication_factor=1)
    plan = tmp_path / "plan.json"
    plan.write_text(run("reassign", "generate", "t", "--brokers", "1,2", "-r", "2"))
    assert all(
        sorted(row["replicas"]) == [1, 2] for row in json.loads(plan.read_text())["partitions"]
    )
    run("reassign", "verify", str(plan), code=1)
    before = run("reassign", "execute", str(plan), "--throttle", "1000000").splitlines()[0]
    assert json.loads(before)["partitions"][0]["topic"] == "t"
    kafka_cluster.wait_for(lambda: all(kafka_cluster.in_sync("t", n) == (1, 2) for n in (0, 1)))
    kafka_cluster.wait_for(lambda: run("reassign", "list", "--output", "json") == "")
    done = rows(run("reassign", "verify", str(plan), "--output", "json"))
    assert [row["state"] for row in done] == ["done", "done"]
    assert "only defaults" in run("configs", "describe", "--topic", "t")
    assert (
        run("reassign", "cancel", str(plan)) == "kwire: none of these partitions is being moved\n"
    )
    monkeypatch.setattr(
        sys, "stdin", StringIO('{"partitions": [{"topic": "t", "partition": 9, "replicas": [1]}]}')
    )
    assert "t: no partition 9" in run("reassign", "execute", "-", code=1)
    assert "broker 7 is not in the cluster" in run(
        "reassign", "generate", "t", "--brokers", "7", code=1
    )
    assert "name the file" in run("reassign", "verify", code=2)
    for verb, *words in (("describe",), ("alter", "share.isolation.level=read_committed")):
        said = run("configs", verb, "--group", "g", *words, code=1)
        assert "brokers with ZooKeeper have no configs of groups" in said
    kafka_cluster.topic("wide", replication_factor=3)
    kafka_cluster.wait_for(lambda: kafka_cluster.in_sync("wide") == (1, 2, 3))
    kafka_cluster.kill(3)
    kafka_cluster.wait_for(lambda: kafka_cluster.in_sync("wide") == (1, 2))
    sick = run("cluster", "health", code=1)
    assert "under-replicated partitions" in sick


def test_share_group_is_shown_reset_and_deleted(kafka: Any, run: Callable[..., str]) -> None:
    topic = kafka.topic("t")
    topic.produce("a", "b", "c")
    run("configs", "alter", "--group", "queue", "share.auto.offset.reset=earliest")
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "queue", "log_level": 0}
    member = ShareConsumer(settings | {"share.acknowledgement.mode": "explicit"})
    member.subscribe(["t"])
    taken: list[Any] = []
    while not taken:
        taken = [each for each in member.poll(0.2) if each.error() is None]
    member.acknowledge(taken[0])
    member.commit_sync()
    (listed,) = rows(run("groups", "list", "--type", "share", "--output", "json"))
    assert (listed["group"], listed["state"], listed["type"]) == ("queue", "Stable", "share")
    assert run("groups", "list", "--type", "classic", "--output", "json") == ""
    assert run("groups", "describe", "queue").startswith("queue  Stable  1 member")
    (row,) = rows(run("groups", "describe", "queue", "--output", "json"))
    assert (row["end"], row["lag"]) == (3, 2)
    (shown,) = rows(run("groups", "describe", "queue", "--members", "--output", "json"))
    assert shown["partitions"] == ["t-0"]
    assert run("groups", "describe", "queue").splitlines()[1].split()[2] == "start"
    (state,) = rows(run("groups", "describe", "queue", "--state", "--output", "json"))
    assert state["type"] == "share"
    assert state["epoch"] == shown["epoch"] > 0
    group, partition = rows(run("explain", "queue", "--output", "json"))
    assert (group["cause"], partition["cause"]) == ("group_stable", "share_unacknowledged")
    refused = run("groups", "reset", "queue", "--to", "0", code=1)
    assert refused == "kwire: queue: the group has members; stop them first\n"
    member.close()
    (set_to,) = rows(run("groups", "reset", "queue", "--to", "2", "--output", "json"))
    assert set_to["offset"] == 2
    (row,) = rows(run("groups", "describe", "queue", "--output", "json"))
    assert (row["offset"], row["lag"]) == (2, 1)
    assert "whole topics" in run("groups", "delete-offsets", "queue", "-t", "t:0", code=2)
    run("groups", "delete-offsets", "queue", "-t", "t")
    assert rows(run("groups", "describe", "queue", "--output", "json")) == []
    run("groups", "delete", "queue")
    assert run("groups", "describe", "queue", code=1) == "kwire: queue: no such group\n"
