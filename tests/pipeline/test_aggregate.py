"""Aggregates equal a plain computation over the same records, with restarts, faults and late records."""

from __future__ import annotations

import json
import random
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from kwire.pipeline.cluster import Cluster
from kwire.pipeline.main import main, make_parser
from kwire.pipeline.problems import Problem

from ..support.broker_process import BrokerProcess
from .aggregate_model import START_MS, Model, Sent, broken, iso, percentile, windows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kwire.pipeline.aggregate.batches import Counts

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
HEADER = "kwire.dead-letter."
MINUTE = 60_000


class Room:
    """A topic and the results of a job: two output topics, a folder of Parquet, a checkpoint."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess, topic: str, path: Path) -> None:
        self.spark, self.broker, self.topic, self.path = spark, broker, topic, path
        self.results, self.letters = f"{topic}-results", f"{topic}-letters"
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self.create(topic)

    def create(self, topic: str) -> None:
        """Create a topic of three partitions that keeps old records."""
        new = NewTopic(topic, 3, 1, config={"retention.ms": "-1"})
        for answer in self.admin.create_topics([new]).values():
            answer.result()

    def send(self, records: Iterable[Sent], seed: random.Random, topic: str | None = None) -> None:
        """Produce records to random partitions, and record their places."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 20})

        def noted(sent: Sent) -> Callable[[Any, Message], None]:
            def note(error: Any, message: Message) -> None:
                assert error is None
                partition, offset = message.partition(), message.offset()
                assert partition is not None and offset is not None
                sent.place = (partition, offset)

            return note

        for sent in records:
            producer.produce(
                topic or self.topic,
                sent.value,
                sent.key,
                partition=seed.randrange(3),
                timestamp=sent.timestamp_ms,
                headers=sent.headers,
                on_delivery=noted(sent),
            )
            producer.poll(0)
        assert producer.flush(60) == 0

    def words(self, kind: str, checkpoint: str = "checkpoint") -> list[str]:
        """The words of the command line for each run."""
        return [
            "aggregate",
            kind,
            f"--bootstrap-server={self.broker.bootstrap}",
            f"--checkpoint-dir={self.path / checkpoint}",
            f"--group={self.topic}",
            "--quiet",
        ]

    def run(
        self,
        kind: str,
        *words: str,
        checkpoint: str = "checkpoint",
        until: Callable[[], object] | None = None,
    ) -> Counts:
        """One run in the shared Spark: of the current topic, or with the options `words` until a function returns."""
        from kwire.pipeline.aggregate.job import aggregate, check_options

        how = [f"--topics={self.topic}", "--once"] if until is None else []
        parser = make_parser("aggregate")
        options = parser.parse_args([*self.words(kind, checkpoint), *how, *words])
        check_options(options)
        if until is None:
            return aggregate(self.spark, options)
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(self._stop_after, until)
            counts = aggregate(self.spark, options)
            ended.result()
        return counts

    def _stop_after(self, until: Callable[[], object]) -> None:
        try:
            until()
        finally:
            for query in self.spark.streams.active:
                query.stop()

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition while the job runs."""
        deadline = time.monotonic() + 240.0
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def read(self, topic: str) -> list[Message]:
        """All records of a topic."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": "reader",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        try:
            consumer.subscribe([topic])
            found, ended = [], 0
            partitions = len(consumer.list_topics(topic, 10).topics[topic].partitions)
            while ended < partitions:
                message = consumer.poll(30)
                assert message is not None, f"no end of {topic} in time"
                if message.error():
                    ended += 1
                else:
                    found.append(message)
            return found
        finally:
            consumer.close()

    def rows(self, name: str) -> list[dict[str, Any]]:
        """All rows of a folder of Parquet, as any reader sees them."""
        folder = self.path / "out" / name
        return pq.read_table(folder).to_pylist() if folder.exists() else []


@pytest.fixture
def room(spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path) -> Room:
    """A topic of three partitions without records."""
    return Room(spark, broker, topic, tmp_path)


def letters_of(room: Room, *, twice: bool = False) -> dict[tuple[int, int], tuple[str, Message]]:
    """Place -> reason and record of the dead letters; after an interruption a place may occur twice."""
    found = {}
    for message in room.read(room.letters):
        headers = dict(message.headers() or [])
        said = {
            key[len(HEADER) :]: value for key, value in headers.items() if key.startswith(HEADER)
        }
        assert said["topic"] == room.topic.encode()
        place = (int(said["partition"]), int(said["offset"]))
        assert twice or place not in found
        found[place] = (said["reason"].decode(), message)
    return found


def check_letters(room: Room, sent: list[Sent], late: list[Sent]) -> None:
    """Check that each malformed or late record is a dead letter, unchanged, with its place and reason."""
    found = letters_of(room)
    reasons = {one.place: one.fault for one in sent if one.fault is not None}
    reasons |= {one.place: "late: the watermark, 20" for one in late}
    assert found.keys() == reasons.keys()
    by_place = {one.place: one for one in sent}
    for place, (reason, message) in found.items():
        assert reason.startswith(str(reasons[place])), reason
        one = by_place[place]
        assert (message.key(), message.value()) == (one.key, one.value)
        headers = message.headers() or []
        assert [pair for pair in headers if not pair[0].startswith(HEADER)] == one.headers
        assert dict(headers)[f"{HEADER}timestamp"] == str(one.timestamp_ms).encode()


def metrics(seed: random.Random, count: int, first_ms: int, span_ms: int) -> list[Sent]:
    """Values of five names, with unordered event times within a span."""
    found = []
    for _ in range(count):
        time_ms = first_ms + seed.randrange(span_ms)
        name, value = seed.choice("abcdé"), seed.randrange(-4000, 4000) / 4
        text = json.dumps(
            {"time": iso(time_ms), "name": name, "value": value, "n": "x", "other": [1]}
        )
        found.append(
            Sent(text.encode(), b"k", [("h", b"1")], time_ms=time_ms, group=(name,), number=value)
        )
    return found


def test_metrics_in_sliding_windows_with_late_and_malformed_records_equal_the_model(
    room: Room,
) -> None:
    seed = random.Random(11)
    model = Model(5 * MINUTE, windows(4 * MINUTE, MINUTE))
    everything: list[Sent] = []
    counted: Counter[str] = Counter()
    # The second run's records reach back behind the watermark of the first; the third's close all windows but its own.
    for first, span in ((0, 20), (5, 25), (60, 1)):
        sent = metrics(seed, 250, START_MS + first * MINUTE, span * MINUTE)
        sent += broken(seed, "value", "DOUBLE", "TIMESTAMP") if first != 60 else []
        seed.shuffle(sent)
        room.send(sent, seed)
        model.run(sent)
        counts = room.run(
            "metrics",
            "--schema=time TIMESTAMP, name STRING, value DOUBLE, n BIGINT",
            "--percentiles=0,50,99.9",
            "--exact",
            "--window=4m",
            "--slide=1m",
            "--watermark=5m",
            f"--to-topic={room.results}",
            f"--to-parquet={room.path / 'out'}",
            f"--dead-letter-topic={room.letters}",
            "--late=dead-letter",
        )
        everything += sent
        counted.update(malformed=counts.malformed, late=counts.late, results=counts.results)
        assert counts.records == sum(one.fault is None for one in sent)

    wanted = {}
    for group, start, end, events in model.results:
        numbers = [event.number for event in events]
        wanted[group[0], iso(start), iso(end)] = {
            "count": len(numbers),
            "min": min(numbers),
            "max": max(numbers),
            "mean": pytest.approx(sum(numbers) / len(numbers)),
            "p0": min(numbers),
            "p50": percentile(numbers, 50),
            "p99_9": pytest.approx(percentile(numbers, 99.9)),
        }
    got = {}
    for message in room.read(room.results):
        row = json.loads(message.value() or b"")
        assert (message.key() or b"").decode() == row["name"]
        place = row.pop("name"), row.pop("window_start"), row.pop("window_end")
        assert place not in got
        got[place] = row
    assert got == wanted
    stored = {
        (row["name"], iso_of(row["window_start"]), iso_of(row["window_end"])): row["count"]
        for row in room.rows("windows")
    }
    assert stored == {place: row["count"] for place, row in wanted.items()}
    assert model.late
    check_letters(room, everything, model.late)
    malformed = sum(one.fault is not None for one in everything)
    assert counted == {
        "malformed": malformed,
        "late": len(model.late),
        "results": len(wanted),
    }


def test_pattern_read_at_an_interval_has_approximate_percentiles(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.Random(15)
    other, accuracy = f"{room.topic}.other", 20
    room.create(other)
    sent = [metrics(seed, 400, START_MS, 10 * MINUTE) for _ in range(2)]
    room.send(sent[0], seed)
    room.send(sent[1], seed, other)
    commits = room.path / "checkpoint" / "commits"

    def until() -> None:
        room.wait(lambda: (commits / "0").exists())
        # The records of the first batch are output by a later one, for which no run with --once would wait.
        room.send(metrics(seed, 20, START_MS + 60 * MINUTE, MINUTE), seed, other)
        with Cluster(room.broker.bootstrap) as cluster:
            room.wait(lambda: sum(cluster.ends({room.results: 1}).values()) >= 5)

    # The pattern also matches the topic of the results, which is not read.
    words = (f"--topics-pattern={room.topic}.*", "--interval=200ms", "--window=10m")
    words += ("--watermark=0s", "--percentiles=50,95", f"--accuracy={accuracy}")
    counts = room.run("metrics", *words, f"--to-topic={room.results}", until=until)
    assert (counts.records, counts.malformed) == (820, 0)
    rows = [json.loads(message.value() or b"") for message in room.read(room.results)]
    assert {row["name"] for row in rows} == set("abcdé") and len(rows) == 5
    for row in rows:
        numbers = sorted(one.number for some in sent for one in some if one.group == (row["name"],))
        assert row["count"] == len(numbers)
        for percent in (50, 95):
            value = row[f"p{percent}"]
            ranks = range(bisect_left(numbers, value), bisect_right(numbers, value))
            wanted, error = len(numbers) * percent / 100, len(numbers) / accuracy + 1
            assert any(abs(rank - wanted) <= error for rank in ranks), (value, percent)

    # The same checkpoint with another topic of the same name: reported at the start, and while the job runs.
    room.admin.delete_topics([room.topic])[room.topic].result()
    room.create(room.topic)
    anew = f"topic {room.topic} was deleted and created again: the checkpoint"
    with pytest.raises(Problem, match=anew):
        room.run(
            "metrics",
            "--window=10m",
            "--percentiles=50,95",
            f"--accuracy={accuracy}",
            words[3],
            f"--to-topic={room.results}",
        )
    room.send(sent[0], seed)
    ids = count()
    monkeypatch.setattr(
        Cluster, "topic_ids", lambda _, names: {name: f"{next(ids)}" for name in names}
    )
    with pytest.raises(Problem, match=anew):
        room.run("metrics", f"--to-topic={room.results}", checkpoint="other")
    assert not (room.path / "other" / "commits" / "0").exists()


def test_once_ends_well_and_says_what_is_open(
    room: Room, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from kwire.pipeline.aggregate import job

    def once(*values: tuple[int, float]) -> tuple[list[str], list[dict[str, Any]]]:
        """The output of a run and the existing results, after values of (minute, number)."""
        texts = [
            json.dumps({"time": iso(START_MS + minute * MINUTE), "name": "a", "value": number})
            for minute, number in values
        ]
        room.send([Sent(text.encode()) for text in texts], random.Random(16))
        words = [*room.words("metrics"), f"--topics={room.topic}", "--once", "--watermark=2m"]
        capsys.readouterr()
        assert main([*words, f"--to-parquet={room.path / 'out'}"]) == 0
        return capsys.readouterr().out.splitlines(), room.rows("windows")

    monkeypatch.setattr(job, "start_session", lambda *_: room.spark)
    monkeypatch.setattr(type(room.spark), "stop", lambda _: None)
    nothing = "aggregate metrics: 0 records, 0 of them late, 0 malformed, 0 results"
    (line,), rows = once()
    assert line.startswith(nothing) and not rows
    # All is read; a window that ends after the watermark waits for later records.
    said, rows = once((0, 1.0), (0, 3.0), (1, 5.0), (3, 7.0))
    assert said[0].startswith("aggregate metrics: 4 records, 0 of them late, 0 malformed, 1 result")
    assert said[1] == (
        "windows that end after the watermark, 2026-01-01T00:01:00.000Z, are still open; later records close them in a"
        " later run"
    )
    assert [(iso_of(row["window_start"]), row["count"], row["mean"]) for row in rows] == [
        (iso(START_MS), 2, 2.0)
    ]
    said, rows = once()
    assert said[0].startswith(nothing) and "T00:01:00.000Z" in said[1] and len(rows) == 1
    _, rows = once((30, 0.0))
    assert [iso_of(row["window_start"])[14:16] for row in rows] == ["00", "01", "03"]


def lines(seed: random.Random, count: int, first_ms: int, span_ms: int) -> list[Sent]:
    """Log lines of three services, and some invalid ones."""
    found = []
    for number in range(count):
        time_ms = first_ms + seed.randrange(span_ms)
        group = seed.choice(("api", "db", "web shop/é")), seed.choice(("INFO", "WARN"))
        text = f"{iso(time_ms)} {group[1]} [{group[0]}] request {number} took 5 ms"
        found.append(Sent(text.encode(), time_ms=time_ms, group=group))
    unlike = "does not match the pattern"
    found.append(Sent(b"Traceback (most recent call last):", fault=unlike))
    found.append(Sent(f"{iso(first_ms)} INFO [] no service".encode(), fault="service is missing"))
    found.append(Sent(b"2026-13-01T00:00:00.000Z INFO [db] x", fault="time is not a time: 2026-13"))
    seed.shuffle(found)
    return found


def test_logs_by_pattern_cut_off_between_output_and_commit_are_stored_once(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kwire.pipeline.aggregate.batches import BatchWriter

    seed = random.Random(12)
    words = [
        r"--pattern=^(?<time>\S+) (?P<level>[A-Z]+) \[(?<service>.*?)\] (?<message>.*)$",
        "--time-format=yyyy-MM-dd'T'HH:mm:ss.SSSX",
        "--watermark=2m",
        f"--to-topic={room.results}",
        f"--to-parquet={room.path / 'out'}",
        f"--dead-letter-topic={room.letters}",
    ]
    model = Model(2 * MINUTE, windows(MINUTE, MINUTE))
    everything: list[Sent] = []
    write = BatchWriter._to_parquet
    cut: list[str] = []

    def cut_off(writer: BatchWriter, rows: Any, name: str, partitions: list[str]) -> None:
        write(writer, rows, name, partitions)
        if cut and cut[0] == name:
            raise OSError(f"cut off after {cut.pop(0)}")

    monkeypatch.setattr(BatchWriter, "_to_parquet", cut_off)
    for first, cuts in ((0, []), (3, ["records", "windows"])):
        sent = lines(seed, 200, START_MS + first * MINUTE, 8 * MINUTE)
        room.send(sent, seed)
        model.run(sent)
        everything += sent
        cut += cuts
        for name in cuts:
            with pytest.raises(Exception, match=f"cut off after {name}"):
                room.run("logs", *words)
        room.run("logs", *words)

    good = {one.place: one for one in everything if one.fault is None}
    stored = {}
    for row in room.rows("records"):
        place = row["source"]["partition"], row["source"]["offset"]
        assert place not in stored
        assert row["source"]["topic"] == room.topic
        assert str(row["date"]) == iso_of(row["event_time"])[:10]
        text = f"{row['time']} {row['level']} [{row['service']}] {row['message']}"
        stored[place] = text.encode()
    assert stored == {place: one.value for place, one in good.items()}

    wanted = {
        (*group, iso(start), iso(end)): len(events) for group, start, end, events in model.results
    }
    assert sorted((*count_of(row), row["count"]) for row in room.rows("windows")) == sorted(
        (*place, count) for place, count in wanted.items()
    )
    said = [(message.key(), message.value() or b"") for message in room.read(room.results)]
    given = {}
    for key, value in set(said):
        row = json.loads(value)
        assert json.loads(key or b"") == {name: row[name] for name in ("service", "level")}
        place = row["service"], row["level"], row["window_start"], row["window_end"]
        assert place not in given  # repeated results were the same
        given[place] = row["count"]
    assert given == wanted
    # The cut after the windows were stored comes before they are written to the topic: no duplicates here.
    assert model.late
    reasons = {place: reason for place, (reason, _) in letters_of(room, twice=True).items()}
    assert reasons.keys() == {one.place for one in everything if one.fault is not None}


def count_of(row: dict[str, Any]) -> tuple[str, ...]:
    """The key of a row of counts."""
    times = iso_of(row["window_start"]), iso_of(row["window_end"])
    return row["service"], row["level"], *times


def visits(seed: random.Random, first_ms: int, span_ms: int, *, latest_first: int) -> list[Sent]:
    """Events of users, at most `latest_first` ms out of order."""
    found = []
    for user in range(12):
        time_ms = first_ms + seed.randrange(MINUTE)
        while time_ms < first_ms + span_ms:
            name = f"user {user}"
            text = json.dumps({"time": time_ms, "user": name})
            found.append(Sent(text.encode(), time_ms=time_ms, group=(name,)))
            # The gap is ten minutes: some events stand exactly at it.
            time_ms += seed.choice(
                (1, 30_000, 5 * MINUTE, 10 * MINUTE, 10 * MINUTE + 1, 14 * MINUTE)
            )
    found.sort(key=lambda one: one.time_ms + seed.randrange(latest_first))
    return found


def test_sessions_of_two_runs_equal_those_of_one_and_the_model(room: Room) -> None:
    seed = random.Random(13)
    schema = {
        "type": "object",
        "properties": {"time": {"type": "integer"}, "user": {"type": "string"}},
    }
    words = [f"--schema={json.dumps(schema)}", "--gap=10m", "--watermark=20m"]
    words += [f"--dead-letter-topic={room.letters}"]
    gap = 10 * MINUTE
    model = Model(20 * MINUTE, lambda time_ms: [(time_ms, time_ms + gap)], merged=True)

    def wanted() -> list[tuple[Any, ...]]:
        return sorted(
            (*group, iso(start), iso(end - gap), end - gap - start, len(events))
            for group, start, end, events in model.results
        )

    def given(topic: str) -> list[tuple[Any, ...]]:
        rows = [json.loads(message.value() or b"") for message in room.read(topic)]
        names = ("user", "session_start", "session_end", "duration_ms", "count")
        return sorted(tuple(row[name] for name in names) for row in rows)

    sent = visits(seed, START_MS, 200 * MINUTE, latest_first=15 * MINUTE)
    sent += broken(seed, "user", "STRING", "BIGINT")
    half = len(sent) // 2
    for part in (sent[:half], sent[half:]):
        room.send(part, seed)
        model.run(part)
        room.run("sessions", *words, f"--to-topic={room.results}")
    assert not model.late
    check_letters(room, sent, [])
    assert given(room.results) == wanted()
    one_run = f"{room.topic}-at-once"
    room.run(
        "sessions",
        *words[:-1],
        f"--dead-letter-topic={room.topic}-x",
        f"--to-topic={one_run}",
        checkpoint="other",
    )
    assert given(one_run) == wanted()

    # Behind the watermark, and far beyond, which closes all sessions before it.
    more = visits(seed, START_MS + 150 * MINUTE, 60 * MINUTE, latest_first=1)
    more += visits(seed, START_MS + 1000 * MINUTE, 30 * MINUTE, latest_first=1)
    room.send(more, seed)
    model.run(more)
    counts = room.run("sessions", *words, f"--to-topic={room.results}")
    assert counts.late == len(model.late) > 0
    assert given(room.results) == wanted()


def test_malformed_record_without_place_for_it_holds_its_batch_back(room: Room) -> None:
    seed = random.Random(14)
    sent = [Sent(b"x" * 5000, fault="not a JSON object")]
    room.send(sent, seed)
    out = f"--to-topic={room.results}"
    partition, offset = sent[0].place
    where = f"record {offset} of {room.topic}-{partition} is malformed .not a JSON object.*--dead-letter-topic"
    with pytest.raises(Problem, match=where):
        room.run("sessions", out)
    # One that takes only small records.
    small = NewTopic(room.letters, 1, 1, config={"max.message.bytes": "1000", "retention.ms": "-1"})
    for answer in room.admin.create_topics([small]).values():
        answer.result()
    with pytest.raises(Problem, match=f"cannot write to topic {room.letters}: RecordTooLarge"):
        room.run("sessions", out, f"--dead-letter-topic={room.letters}")
    assert not (room.path / "checkpoint" / "commits" / "0").exists()
    larger = ConfigEntry("max.message.bytes", "100000", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ConfigResource.Type.TOPIC, room.letters, incremental_configs=[larger])
    for answer in room.admin.incremental_alter_configs([change]).values():
        answer.result()
    counts = room.run("sessions", out, f"--dead-letter-topic={room.letters}")
    assert counts.malformed == 1
    check_letters(room, sent, [])


def test_times_are_read_in_the_unit_asked_for_or_as_they_are_written(spark: SparkSession) -> None:
    from kwire.pipeline.aggregate.records import make_format, parse
    from kwire.pipeline.schemas.schema import read_schema

    moment = START_MS + 123

    def times(schema: str, *texts: str, unit: str = "ms", form: str | None = None) -> list[Any]:
        made = make_format(
            read_schema(schema, None, ""),
            (),
            "Time",
            time_unit=unit,
            time_format=form,
            max_ahead_ms=MINUTE,
            pattern=None,
        )
        rows = [(json.dumps({"Time": json.loads(text)}).encode(),) for text in texts]
        frame = spark.createDataFrame(rows, "value BINARY").selectExpr(
            "value", f"timestamp_millis({moment}) AS timestamp", "0 AS timestampType"
        )
        found = parse(frame, made).selectExpr("unix_micros(event_time) AS us", "reason").collect()
        return [row.reason or row.us for row in found]

    for kind in ("TIMESTAMP", "BIGINT"):
        assert times(f"Time {kind}", f"{moment}") == [moment * 1000]
        assert times(f"Time {kind}", f"{moment // 1000}", unit="s") == [moment // 1000 * 1_000_000]
        assert times(f"Time {kind}", f"{moment}777", unit="us") == [moment * 1000 + 777]
    texts = (
        f'"{iso(moment)}"',
        '"2026-01-01 00:00:00"',
        '{"a": 1}',
        "99999999999999999999",
    )
    assert times("Time TIMESTAMP", *texts) == [
        moment * 1000,
        START_MS * 1000,
        'Time is not TIMESTAMP: {"a":1}',
        "Time is not TIMESTAMP: 99999999999999999999",
    ]
    assert times("Time TIMESTAMP", '"20260101"', form="yyyyMMdd") == [START_MS * 1000]


def iso_of(moment: Any) -> str:
    """A time of Parquet like one of JSON."""
    return iso(round(moment.timestamp() * 1000))
