"""Replicas moved between log directories: compared with Apache Kafka 3.9.2, by its tool, through kill -9, and
continuing its own moves.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kwire.api import ApiKey
from server.__main__ import main
from tests.support.broker_process import BrokerProcess, KwireBroker
from tests.support.kafka import KAFKA_3, Kafka39Broker, KafkaProcess
from tests.support.kafka_tools import ToolServer, ToolServers
from tests.support.wire_client import WireClient

from ..support.polling import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.slow]

SETTINGS = {"offsets.topic.num.partitions": "1", "zookeeper.session.timeout.ms": "4000"}
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
DYNAMIC_BROKER = 2


def settings(folder: Path) -> dict[str, str]:
    return SETTINGS | {"log.dirs": f"{folder}/one,{folder}/two"}


def call(broker: BrokerProcess, api: ApiKey, version: int, values: dict[str, Any]) -> Any:
    client = WireClient(broker.host, broker.port)
    try:
        return client.call(api, version, values)
    finally:
        client.close()


def move(broker: BrokerProcess, path: str, *tps: tuple[str, int]) -> list[tuple[str, int, int]]:
    """The rows of the answer, sorted: topic, partition, error code."""
    topics = [{"name": topic, "partitions": [number]} for topic, number in tps]
    asked = {"dirs": [{"path": path, "topics": topics}]}
    answer = call(broker, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, asked)
    return sorted(
        (topic["topic_name"], row["partition_index"], row["error_code"])
        for topic in answer["results"]
        for row in topic["partitions"]
    )


def places(broker: BrokerProcess, topic: str) -> dict[int, list[tuple[str, bool, int]]]:
    """Of each partition the directories with a log: name, whether it is a copy being made, and its lag."""
    answer = call(broker, ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
    found: dict[int, list[tuple[str, bool, int]]] = {}
    for result in answer["results"]:
        for each in result["topics"]:
            if each["name"] == topic:
                for row in each["partitions"]:
                    place = (Path(result["log_dir"]).name, row["is_future_key"], row["offset_lag"])
                    found.setdefault(row["partition_index"], []).append(place)
    return {number: sorted(rows) for number, rows in found.items()}


def create(broker: BrokerProcess, *topics: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for made in admin.create_topics(list(topics)).values():
        made.result(20)


def fill(broker: BrokerProcess, topic: str, first: int, count: int, size: int = 10_000) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "log_level": 0})
    for number in range(first, first + count):
        producer.produce(topic, b"%08d" % number + b"x" * size, partition=0)
        if number % 200 == 199:
            assert producer.flush(60) == 0
    assert producer.flush(60) == 0


def end_of(consumer: Consumer, tp: TopicPartition) -> int:
    """The end of a partition's log, which a broker that has just started may not know yet."""
    found: list[int] = []

    def asked() -> bool:
        try:
            found.append(consumer.get_watermark_offsets(tp, 5)[1])
        except KafkaException:
            return False
        return True

    wait_until(asked, f"the end of {tp.topic} is known")
    return found[0]


def numbers(broker: BrokerProcess, topic: str) -> list[int]:
    """The numbers of all records, in order."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "log_level": 0})
    end = end_of(consumer, TopicPartition(topic, 0))
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    deadline = time.monotonic() + 60
    while len(found) < end:
        assert time.monotonic() < deadline, f"{len(found)} of {end}"
        for message in consumer.consume(500, 0.2):
            assert message.error() is None
            found.append(int((message.value() or b"")[:8]))
    consumer.close()
    return found


def limit(broker: BrokerProcess, rate: int | None) -> None:
    """Set the throttle of moves, or remove it."""
    config = {"name": RATE, "config_operation": 0, "value": str(rate)}
    if rate is None:
        config |= {"config_operation": 1, "value": None}
    resource = {"resource_type": 4, "resource_name": "0", "configs": [config]}
    asked = {"resources": [resource], "validate_only": False}
    answer = call(broker, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)
    assert answer["responses"][0]["error_code"] == 0, answer
    keys = [{"resource_type": 4, "resource_name": "0", "configuration_keys": [RATE]}]
    asked = {"resources": keys, "include_synonyms": False, "include_documentation": False}

    def in_effect() -> bool:
        row = call(broker, ApiKey.DESCRIBE_CONFIGS, 3, asked)["results"][0]["configs"]
        dynamic = [each["value"] for each in row if each["config_source"] == DYNAMIC_BROKER]
        return dynamic == ([] if rate is None else [str(rate)])

    wait_until(in_effect, f"{RATE} is {rate}")


# -- beside Apache Kafka


def answers(broker: BrokerProcess, folder: Path) -> list[Any]:
    """A broker's answers to a fixed sequence of requests."""
    one, two = f"{folder}/one", f"{folder}/two"
    create(broker, NewTopic("t", 2, 1), NewTopic("x" * 215, 1, 1))
    fill(broker, "t", 0, 300)  # more than Apache Kafka copies in one step, which no throttle stops
    here = {n: rows[0][0] for n, rows in places(broker, "t").items()}
    own, other = (one, two) if here[0] == "one" else (two, one)
    said: list[Any] = [
        move(broker, "/no/such/directory", ("t", 0)),
        move(broker, "two", ("t", 0)),
        move(broker, two + "/", ("t", 0)),
        move(broker, other, ("nothing", 0), ("t", 7)),
        move(broker, other, ("x" * 215, 0)),
        move(broker, own, ("t", 0)),
        call(broker, ApiKey.ALTER_REPLICA_LOG_DIRS, 1, {"dirs": []}),
        move(broker, other, ("t", 0), ("later", 0)),
    ]
    wait_until(
        lambda: places(broker, "t")[0] == [(Path(other).name, False, 0)], "the replica is moved"
    )
    create(broker, NewTopic("later", 1, 1))
    said.append([row[0] == Path(other).name for row in places(broker, "later")[0]])
    said.append(move(broker, own, ("t", 0)))
    wait_until(
        lambda: places(broker, "t")[0] == [(Path(own).name, False, 0)], "the replica is back"
    )
    limit(broker, 1)
    said.append(move(broker, other, ("t", 0)))
    time.sleep(0.5)
    said.append(sorted((flag, lag > 0) for _, flag, lag in places(broker, "t")[0]))
    said.append(move(broker, own, ("t", 0)))
    said.append(len(places(broker, "t")[0]))
    limit(broker, None)
    said.append(numbers(broker, "t"))
    return said


def test_answers_are_those_of_apache_kafka(tmp_path: Path) -> None:
    said = []
    for kind in (Kafka39Broker, KwireBroker):
        folder = tmp_path / kind.__name__
        arguments = {"arguments": ("--node-id", "0")} if kind is KwireBroker else {}
        broker = kind(folder, config=settings(folder), **arguments)  # type: ignore[arg-type]
        with broker:
            said.append(answers(broker, folder))
    assert said[0] == said[1]


# -- the tool, and kill -9


@pytest.fixture
def tools(tool_servers: ToolServers) -> ToolServer:
    return tool_servers(KAFKA_3)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KwireBroker]:
    broker = KwireBroker(tmp_path, config=settings(tmp_path), arguments=("--node-id", "0"))
    broker.start()
    yield broker
    broker.kill()


def reassign(tools: ToolServer, broker: BrokerProcess, tmp_path: Path, verb: str, to: str) -> str:
    """Run kafka-reassign-partitions.sh for partition 0 of `t`; returns its output."""
    plan = tmp_path / "plan.json"
    row = {"topic": "t", "partition": 0, "replicas": [0], "log_dirs": [f"{tmp_path}/{to}"]}
    plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
    words = ["--bootstrap-server", broker.bootstrap, "--reassignment-json-file", str(plan)]
    if verb == "execute":
        words += ["--replica-alter-log-dirs-throttle", "100000"]
    done = tools.run("kafka-reassign-partitions", *words, f"--{verb}")
    assert done.status == 0, done.output + done.errors
    return done.output


def test_tool_moves_a_replica_through_kills_under_load(
    broker: KwireBroker, tools: ToolServer, tmp_path: Path
) -> None:
    """Each record exists once, in order; the move continues after each kill -9."""
    create(broker, NewTopic("t", 1, 1, config={"segment.bytes": "1048576"}))
    fill(broker, "t", 0, 400)
    ((name, _, _),) = places(broker, "t")[0]
    target = "two" if name == "one" else "one"
    said = reassign(tools, broker, tmp_path, "execute", target)
    assert "uccessfully started moving log directory" in said
    count = 400
    lags = []
    for _ in range(3):
        rows = places(broker, "t")[0]
        lags += [lag for _, flag, lag in rows if flag]
        fill(broker, "t", count, 20)
        count += 20
        broker.kill()
        broker.start()
        assert numbers(broker, "t") == list(range(count))
    assert len(lags) == 3, "it was moved too soon"
    assert lags == sorted(lags, reverse=True), "it began anew"
    assert "is still in progress" in reassign(tools, broker, tmp_path, "verify", target)
    shown = tools.run(
        *("kafka-log-dirs", "--bootstrap-server", broker.bootstrap, "--describe"),
        *("--topic-list", "t"),
    ).output
    (described,) = json.loads(shown[shown.index("{") :])["brokers"]
    rows = {
        Path(each["logDir"]).name: [
            (row["isFuture"], row["offsetLag"]) for row in each["partitions"]
        ]
        for each in described["logDirs"]
    }
    assert rows[name] == [(False, 0)]
    ((is_future, lag),) = rows[target]
    assert is_future
    assert 0 < lag <= lags[-1] + 20
    limit(broker, None)
    wait_until(lambda: places(broker, "t")[0] == [(target, False, 0)], "the replica is moved")
    assert "is complete" in reassign(tools, broker, tmp_path, "verify", target)
    fill(broker, "t", count, 20)
    assert numbers(broker, "t") == list(range(count + 20))
    broker.restart()
    assert places(broker, "t")[0] == [(target, False, 0)]
    assert numbers(broker, "t") == list(range(count + 20))


def test_kwire_reassign_moves_a_replica_and_says_the_way_back(
    broker: KwireBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(broker, NewTopic("t", 1, 1))
    fill(broker, "t", 0, 300)
    ((name, _, _),) = places(broker, "t")[0]
    target = "two" if name == "one" else "one"
    plan = tmp_path / "plan.json"
    row = {"topic": "t", "partition": 0, "replicas": [0], "log_dirs": [f"{tmp_path}/{target}"]}

    def run(verb: str, *words: str) -> int:
        return main(["reassign", "--bootstrap", broker.bootstrap, verb, str(plan), *words])

    plan.write_text(json.dumps({"partitions": [row | {"log_dirs": ["/no/such/directory"]}]}))
    assert run("execute") == 1
    assert "t-0: broker 0 has no log directory /no/such/directory" in capsys.readouterr().err
    plan.write_text(json.dumps({"partitions": [row]}))
    assert run("execute", "--replica-alter-log-dirs-throttle", "100000") == 0
    back = json.loads(capsys.readouterr().out.splitlines()[0])
    assert back["partitions"] == [row | {"log_dirs": [f"{tmp_path}/{name}"]}]
    assert run("verify") == 1
    limit(broker, None)
    wait_until(lambda: run("verify") == 0, "the replica is moved")
    assert places(broker, "t")[0] == [(target, False, 0)]


# -- a move that one of them has begun


@pytest.mark.parametrize("first", ["Apache Kafka", "kwire"])
def test_move_begun_by_one_broker_is_ended_by_the_other(tmp_path: Path, first: str) -> None:
    """With ZooKeeper, after a kill: the copy is used unchanged, and everything is there."""
    kafka = Kafka39Broker(tmp_path, config=settings(tmp_path))
    kafka.zookeeper.start()
    words = ("--node-id", "0", "--zookeeper", kafka.zookeeper.address)
    kwire = KwireBroker(tmp_path, config=settings(tmp_path), port=kafka.port, arguments=words)
    order: list[BrokerProcess] = [kafka, kwire] if first == "Apache Kafka" else [kwire, kafka]
    try:
        begins, ends = order
        begins.start()
        create(begins, NewTopic("t", 1, 1))
        fill(begins, "t", 0, 300)
        ((name, _, _),) = places(begins, "t")[0]
        target = "two" if name == "one" else "one"
        limit(begins, 500_000)
        move(begins, f"{tmp_path}/{target}", ("t", 0))
        wait_until(
            lambda: any(flag and lag < 280 for _, flag, lag in places(begins, "t")[0]),
            "a part is copied",
        )
        begins.kill()
        (copy,) = (tmp_path / target).glob("t-0.*-future")
        assert sum(path.stat().st_size for path in copy.glob("*.log")) > 100_000
        kafka.zookeeper.end_sessions()
        ends.start()
        limit(ends, None)
        wait_until(lambda: places(ends, "t")[0] == [(target, False, 0)], "the replica is moved")
        assert numbers(ends, "t") == list(range(300))
        fill(ends, "t", 300, 10)
        KafkaProcess.stop(kafka) if ends is kafka else ends.stop()
        begins.start()
        wait_until(lambda: places(begins, "t")[0] == [(target, False, 0)], "it is there")
        assert numbers(begins, "t") == list(range(310))
    finally:
        for each in order:
            each.kill()
        kafka.zookeeper.stop()
