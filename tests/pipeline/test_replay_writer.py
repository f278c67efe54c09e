"""A replay task against a broker, without Spark: each record is written once, despite concurrent tasks."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition

from kwire.pipeline.cluster import Cluster
from kwire.pipeline.manifest import Archive
from kwire.pipeline.problems import Problem
from kwire.pipeline.replay.from_archive import archived_partitions
from kwire.pipeline.replay.plan import Job, RecordRange, Task
from kwire.pipeline.replay.progress import Positions
from kwire.pipeline.replay.targets import find_targets, warnings
from kwire.pipeline.replay.writer import Pace, replay_partition, within

from ..support.broker_process import BrokerProcess
from ..support.polling import wait_until
from .faults import check_row
from .replay_data import (
    Record,
    add_to_archive,
    create,
    read_committed,
    some_records,
    without_offsets,
)

pytestmark = [pytest.mark.e2e]


GOES_ON = "continues where it stopped"
ENDS = "continues where the other run is then, and ends that run"


def shown(error: Exception) -> str:
    """A message without the parts that differ between runs: the broker's address and producer id."""
    return re.sub(r"with \d+ message\(s\)|\(broker .*\)", "...", str(error))


def task_of(
    archive: Path,
    bootstrap: str,
    target: str,
    *,
    keep: bool = True,
    within: RecordRange | None = None,
) -> Task:
    (source,) = archived_partitions(Archive(archive), None, RecordRange())
    with Cluster(bootstrap) as cluster:
        ((aim, _),) = find_targets(cluster, {target: 1}).values()
    return Task(source, aim, within or RecordRange(), keep)


def job_of(bootstrap: str, name: str, **more: Any) -> Job:
    more = {"transaction_records": 300, "patience_s": 60.0, **more}
    return Job(name, "digest", {"bootstrap.servers": bootstrap}, **more)


def group_position(bootstrap: str, job: Job, task: Task) -> tuple[int, int]:
    """Offset and records that are committed; zeros if nothing is."""
    with Cluster(bootstrap) as cluster:
        (position,) = Positions(cluster, job, [task]).read()
    return (0, 0) if position is None else position[:2]


def test_replayed_partition_is_as_it_was_and_replaying_again_adds_nothing(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    records = some_records(2000)
    add_to_archive(tmp_path, "orders", 0, records)
    create(broker.bootstrap, topic, 1)
    job, task = job_of(broker.bootstrap, topic), task_of(tmp_path, broker.bootstrap, topic)
    assert replay_partition(job, task, Pace(None)) == ("orders", 0, 2000, 2000, 0)
    assert replay_partition(job, task, Pace(None)) == ("orders", 0, 0, 2000, 0)
    (found,) = read_committed(broker.bootstrap, topic, 1)
    assert without_offsets(found) == without_offsets(records)
    assert group_position(broker.bootstrap, job, task) == (records[-1].offset + 1, 2000)


def test_range_of_offsets_and_times_goes_by_key_to_any_number_of_partitions(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    records = some_records(1000)
    add_to_archive(tmp_path, "orders", 0, records)
    create(broker.bootstrap, topic, 3)
    base = 1_800_000_000_000
    some = RecordRange(200, 1500, base + 2000, base + 8000)
    task = task_of(tmp_path, broker.bootstrap, topic, keep=False, within=some)
    replay_partition(job_of(broker.bootstrap, topic), task, Pace(None))
    found = read_committed(broker.bootstrap, topic, 3)
    expected = [
        one
        for one in records
        if 200 <= one.offset < 1500 and base + 2000 <= one.timestamp < base + 8000
    ]
    assert 100 < len(expected) == sum(map(len, found))
    for partition in found:
        # Each has its part in the order of the source; each key is in one of them.
        rest = iter(without_offsets(expected))
        assert all(one in rest for one in without_offsets(partition))
    for key in {one.key for one in expected if one.key}:
        assert sum(any(one.key == key for one in partition) for partition in found) == 1


def test_second_run_takes_over_and_the_first_gives_up(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    records = some_records(3000)
    add_to_archive(tmp_path, "orders", 0, records)
    create(broker.bootstrap, topic, 1)
    job, task = job_of(broker.bootstrap, topic), task_of(tmp_path, broker.bootstrap, topic)
    told: list[object] = []

    def first() -> None:
        try:
            told.append(replay_partition(job, task, Pace(1000.0)))
        except Problem as problem:
            told.append(str(problem))

    thread = threading.Thread(target=first)
    thread.start()
    wait_until(lambda: group_position(broker.bootstrap, job, task)[1] > 0)
    done = replay_partition(job, task, Pace(None))
    thread.join(60)
    assert len(told) == 1
    check_row("replay", "second run of the same", str(told[0]), ENDS, {topic: "NAME"})
    assert done.total == 3000 > done.records > 0
    (found,) = read_committed(broker.bootstrap, topic, 1)
    assert without_offsets(found) == without_offsets(records)


def test_transaction_of_a_run_that_died_is_ended_by_the_next(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    records = some_records(50)
    add_to_archive(tmp_path, "orders", 0, records)
    create(broker.bootstrap, topic, 1)
    job, task = job_of(broker.bootstrap, topic), task_of(tmp_path, broker.bootstrap, topic)
    dead = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": job.group("orders", 0)}
    )
    dead.init_transactions(30)
    dead.begin_transaction()
    dead.produce(topic, b"never committed", partition=0)
    dead.flush(30)
    replay_partition(job, task, Pace(None))
    (found,) = read_committed(broker.bootstrap, topic, 1)
    assert without_offsets(found) == without_offsets(records)


def test_replay_gives_up_when_no_broker_is_there_for_long(
    new_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = new_broker()
    add_to_archive(tmp_path, "orders", 0, some_records(10))
    create(broker.bootstrap, "target", 1)
    job = job_of(broker.bootstrap, "job", patience_s=3.0)
    task = task_of(tmp_path, broker.bootstrap, "target")
    broker.kill()
    with pytest.raises(Problem) as caught:
        replay_partition(job, task, Pace(None))
    message = re.sub(r"for 3 s: .*; run", "for 120 s: REASON; run", str(caught.value))
    check_row("replay", "broker gone for long", message, GOES_ON, {"target": "again"})


def test_positions_of_a_coordinator_that_goes_away_are_a_problem_not_the_end_of_the_process(
    new_broker: Callable[..., BrokerProcess],
) -> None:
    broker = new_broker()
    create(broker.bootstrap, "target", 1)
    with Cluster(broker.bootstrap) as cluster:
        cluster.commit("job", {("target", 0): 7})
        assert cluster.committed("job") == {("target", 0): (7, None)}
        assert cluster.committed("other") == {}
        broker.kill()
        with pytest.raises(Problem, match="cannot read offsets of group job"):
            cluster.committed("job", {"target": 1}, 1.0)


def test_timestamp_a_topic_refuses_is_named(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    now = int(time.time() * 1000)
    records = [Record(offset, None, b"", now) for offset in range(20)]
    records[13] = records[13]._replace(timestamp=now - 5_000_000)
    add_to_archive(tmp_path, "orders", 0, records)
    create(broker.bootstrap, topic, 1, message_timestamp_before_max_ms="3600000")
    job, task = job_of(broker.bootstrap, topic), task_of(tmp_path, broker.bootstrap, topic)
    said = rf"topic {topic} refuses the timestamp {now - 5_000_000} of offset 13 of orders-0: raise its message.timestamp.before.max.ms"
    with pytest.raises(Problem, match=said):
        replay_partition(job, task, Pace(None))
    assert read_committed(broker.bootstrap, topic, 1) == [[]]


def test_record_too_large_for_a_topic_is_told(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    records = [Record(n, None, os.urandom(size), 1) for n, size in enumerate((10, 10, 50_000))]
    add_to_archive(tmp_path, "orders", 0, records)
    create(broker.bootstrap, topic, 1, max_message_bytes="2000")
    job, task = job_of(broker.bootstrap, topic), task_of(tmp_path, broker.bootstrap, topic)
    with pytest.raises(Problem) as caught:
        replay_partition(job, task, Pace(None))
    again = "replays what is missing, once the topic takes it"
    check_row(
        "replay", "record too large for the topic", shown(caught.value), again, {topic: "again"}
    )


def test_position_of_something_else_is_not_overwritten(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    add_to_archive(tmp_path, "orders", 0, some_records(10))
    create(broker.bootstrap, topic, 1)
    job, task = job_of(broker.bootstrap, topic), task_of(tmp_path, broker.bootstrap, topic)
    replay_partition(job, task, Pace(None))
    other = Job(job.name, "another", job.settings)
    with pytest.raises(Problem) as caught:
        replay_partition(other, task, Pace(None))
    again = "the same; with another name it begins anew"
    check_row("replay", "name of another replay", str(caught.value), again, {topic: "NAME"})
    with Cluster(broker.bootstrap) as cluster:
        cluster.commit(job.group("orders", 0), {(topic, 0): 3})
    with pytest.raises(Problem) as caught:
        replay_partition(job, task, Pace(None))
    check_row("replay", "group of somebody else", str(caught.value), again, {topic: "NAME"})


def test_offsets_of_a_topic_that_is_not_there_are_refused(
    broker: BrokerProcess, topic: str
) -> None:
    """Shows why positions are stored for the target's partition 0, not for the source's partition."""
    create(broker.bootstrap, topic, 1)
    with Cluster(broker.bootstrap) as cluster:
        producer = Producer(cluster.settings(**{"transactional.id": topic}))
        producer.init_transactions(30)
        producer.begin_transaction()
        consumer = cluster.consumer()
        group = consumer.consumer_group_metadata()
        with pytest.raises(KafkaException, match="Unknown topic or partition"):
            producer.send_offsets_to_transaction([TopicPartition("not-there", 0, 1)], group, 2)
        producer.abort_transaction(30)
        consumer.close()


def test_target_says_what_it_would_change(broker: BrokerProcess, topic: str) -> None:
    create(
        broker.bootstrap,
        topic,
        2,
        message_timestamp_type="LogAppendTime",
        cleanup_policy="compact",
    )
    create(broker.bootstrap, f"{topic}-short", 1, retention_ms="1000")
    with Cluster(broker.bootstrap) as cluster:
        found = find_targets(cluster, {topic: 0, f"{topic}-short": 0})
        with pytest.raises(Problem, match="has 2 partitions, but --keep-partitions needs 5"):
            find_targets(cluster, {topic: 5})
        with pytest.raises(
            Problem, match=r"there is no topic absent .* kwire topics create absent -p 2"
        ):
            find_targets(cluster, {"absent": 2})
    stamped, compacted = warnings(*found[topic], 1000)
    assert "LogAppendTime: records get the time of this replay" in stamped
    assert "is compacted" in compacted
    (short,) = warnings(*found[f"{topic}-short"], 1000)
    assert "deletes records older than 1,000 ms" in short and "1970-01-01T00:00:01" in short
    assert warnings(*found[f"{topic}-short"], None) == []


def test_call_that_does_not_return_is_left_alone() -> None:
    ended = threading.Event()
    assert not within(0.05, ended.wait, 30)
    ended.set()
    assert within(30.0, ended.wait, 1)
    with pytest.raises(ZeroDivisionError):
        within(30.0, lambda: 1 // 0)
