"""Compare the quotas of kwire with those of Apache Kafka 3.9.2, one broker after the other in one run. python -m bench.quotas

Five measurements of each broker, with the default windows (11 samples of 1 s):

1. `series`: sends the same produce and fetch requests at the same times, each on a connection that is not muted, and compares
   the throttle times of the responses. `--record FILE` keeps those of Apache Kafka for tests/quotas/test_series.py.
2. `bytes`: runs a confluent-kafka producer that is limited to 1 MB/s beside one without a limit, then consumers. Shows the bytes
   of record values in each minute that starts within the minute from 15 s after the start on: the minimum, mean and maximum.
   A client that sends as fast as it may sends in bursts (see tests/quotas/test_long_run.py), five or six in a minute.
3. `exact`: does the same with clients that send one request at a time and sleep for as long as the broker tells them; also
   shows how long the broker lets them wait after that.
4. `mutations`: creates topics as fast as a quota of 5 partitions per second allows, after the burst.
5. `connections`: opens connections as fast as max.connection.creation.rate of 20 per second allows, then as fast as a limit of
   the address allows, after the burst. What an address may do comes in bursts of one window, so measure whole windows
   (`--only connections --seconds 99` measures 33 s).
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import statistics
import tempfile
import time
import uuid
from bisect import bisect_left
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from kwire.api import ApiKey
from tests.support.broker_process import BrokerProcess, KwireBroker
from tests.support.kafka import Kafka39Broker
from tests.support.wire_client import CLIENT_ID, WireClient

from .log import make_batch

LIMIT = 1_000_000
VALUE = b"v" * 10_000
#: Smaller than librdkafka's megabyte: if a request takes a second of the quota, the rate moves in steps.
REQUEST_BYTES = 262_144
WARM_UP_S = 15.0
#: The sizes of requests of clients that wait exactly as long as required.
EXACT_BYTES = (65_536, 262_144)

T = TypeVar("T")

#: Produce requests of the series: the time in ms, and the approximate size in bytes.
SERIES = [(90, 12_000)] * 12 + [(700, 30_000)] * 8 + [(2500, 60_000), (100, 1000), (9000, 90_000)]
SERIES += [(400, 45_000)] * 6 + [(11_500, 2000), (100, 150_000)]
SERIES_LIMIT = 20_000


class Subject:
    """A broker under measurement, with a connection for administrative requests."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.control = self.connect()

    def connect(self, timeout_s: float = 30.0) -> WireClient:
        """A new connection."""
        return WireClient(self.broker.host, self.broker.port, timeout_s)

    def call(self, api: ApiKey, version: int, values: dict[str, Any]) -> dict[str, Any]:
        """An answer on this object's connection."""
        answer = self.control.call(api, version, values)
        assert answer is not None, api
        return answer

    def limit(self, parts: dict[str, str], **quotas: float | None) -> None:
        """Set quotas, or remove them with None."""
        entity = [{"entity_type": kind, "entity_name": name} for kind, name in parts.items()]
        ops = [
            {"key": key, "value": value or 0.0, "remove": value is None}
            for key, value in quotas.items()
        ]
        entry = {"entity": entity, "ops": ops}
        answer = self.call(
            ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": [entry], "validate_only": False}
        )
        assert answer["entries"][0]["error_code"] == 0, answer
        time.sleep(1.0)  # Apache Kafka applies it after ZooKeeper's notification

    def create(self, name: str, **configs: str) -> None:
        """Create a topic of one partition, and wait until it has a leader."""
        topic = {
            "name": name,
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }
        self.call(ApiKey.CREATE_TOPICS, 5, {"topics": [topic], "timeout_ms": 30_000})
        time.sleep(2.0)


# 1. Throttle times


def series(subject: Subject) -> list[dict[str, Any]]:
    """Send the requests of the series, and record when each was answered, its size and its throttle time."""
    rows = []
    for kind, key in (("produce", "producer_byte_rate"), ("fetch", "consumer_byte_rate")):
        subject.limit({"client-id": CLIENT_ID}, **{key: SERIES_LIMIT})
        topic = f"series-{kind}"
        subject.create(topic)
        if kind == "fetch":
            settings = {"bootstrap.servers": subject.broker.bootstrap, "batch.num.messages": 4}
            fill = Producer(settings)
            for _ in range(400):
                fill.produce(topic, b"v" * 980)
            fill.flush()
        clients = [subject.connect() for _ in SERIES]
        began = time.monotonic()
        at_ms = 0
        for client, (wait_ms, size) in zip(clients, SERIES, strict=True):
            at_ms += wait_ms
            time.sleep(max(0.0, began + at_ms / 1000 - time.monotonic()))
            ask = produce_request if kind == "produce" else fetch_request
            answer = client.call(*ask(topic, size))
            assert answer is not None and client.last is not None
            done_ms = round((time.monotonic() - began) * 1000)
            counted = len(client.last.request if kind == "produce" else client.last.response)
            rows.append(
                {
                    "kind": kind,
                    "at_ms": done_ms,
                    "bytes": counted,
                    "throttle_time_ms": answer["throttle_time_ms"],
                }
            )
        for client in clients:
            client.close()
        subject.limit({"client-id": CLIENT_ID}, **{key: None})
        time.sleep(1)
    return rows


def produce_request(topic: str, size: int) -> tuple[ApiKey, int, dict[str, Any]]:
    """A Produce request of about this size."""
    data = [{"index": 0, "records": bytes(make_batch(size))}]
    request = {
        "transactional_id": None,
        "acks": 1,
        "timeout_ms": 5000,
        "topic_data": [{"name": topic, "partition_data": data}],
    }
    return ApiKey.PRODUCE, 7, request


def fetch_request(topic: str, size: int) -> tuple[ApiKey, int, dict[str, Any]]:
    """A Fetch of at most this size, without a session."""
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": size}
    request = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": size,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [partition]}],
    }
    return ApiKey.FETCH, 11, request


# 2. Bytes

#: The arrival times of bytes, in seconds since the start, and their number.
Arrivals = list[tuple[float, int]]


class PerMinute(NamedTuple):
    """MB per second in the minutes that begin within one minute."""

    least: float
    mean: float
    most: float


def per_minute(arrivals: Arrivals, seconds: float) -> PerMinute:
    """The arrivals in each `seconds` that begin within `seconds` after the warm-up, in steps of a quarter second."""
    times = [when for when, _ in arrivals]
    sums = [0, *itertools.accumulate(size for _, size in arrivals)]
    begins = [WARM_UP_S + step / 4 for step in range(int(seconds * 4) + 1)]
    rates = [
        (sums[bisect_left(times, begin + seconds)] - sums[bisect_left(times, begin)]) / seconds
        for begin in begins
    ]
    figures = min(rates), statistics.mean(rates), max(rates)
    return PerMinute(*(round(figure / 1e6, 3) for figure in figures))


def produced(subject: Subject, topic: str, client_id: str, seconds: float) -> Arrivals:
    """Produce for some time; returns the acknowledged bytes."""
    began = time.monotonic()
    arrivals: Arrivals = []

    def acknowledged(error: Any, message: Any) -> None:
        if error is None:
            arrivals.append((time.monotonic() - began, len(VALUE)))

    producer = Producer(
        {
            "bootstrap.servers": subject.broker.bootstrap,
            "client.id": client_id,
            "linger.ms": 20,
            "batch.size": REQUEST_BYTES,
            "queue.buffering.max.messages": 1000,
            "message.timeout.ms": 300_000,
        }
    )
    while time.monotonic() < began + seconds:
        try:
            producer.produce(topic, VALUE, on_delivery=acknowledged)
        except BufferError:
            producer.poll(0.05)
        producer.poll(0)
    producer.purge()
    producer.flush(1)
    return arrivals


def consumed(subject: Subject, topic: str, client_id: str, seconds: float) -> Arrivals:
    """Read a topic repeatedly for some time."""
    consumer = Consumer(
        {
            "bootstrap.servers": subject.broker.bootstrap,
            "client.id": client_id,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": 2048,
            "fetch.message.max.bytes": REQUEST_BYTES,
        }
    )
    start = TopicPartition(topic, 0, OFFSET_BEGINNING)
    consumer.assign([start])
    began = time.monotonic()
    arrivals: Arrivals = []
    while (now := time.monotonic()) < began + seconds:
        for message in consumer.consume(100, timeout=0.2):
            if message.error():
                consumer.seek(start)
            else:
                arrivals.append((now - began, len(message.value() or b"")))
    consumer.close()
    return arrivals


def together(*works: Callable[[], T]) -> list[T]:
    """Run functions in threads, and return their results."""
    with ThreadPoolExecutor(len(works)) as pool:
        return [each.result() for each in [pool.submit(work) for work in works]]


def rates(subject: Subject, seconds: float) -> dict[str, PerMinute]:
    """MB per second of limited clients and of the unlimited ones."""
    # The unlimited client would fill the disk.
    subject.create("bytes", **{"retention.bytes": "1000000000", "segment.bytes": "200000000"})
    figures: dict[str, PerMinute] = {}
    for kind, key, work in (
        ("produce", "producer_byte_rate", produced),
        ("fetch", "consumer_byte_rate", consumed),
    ):
        subject.limit({"client-id": "limited"}, **{key: LIMIT})
        time.sleep(4.0)  # wait until excess data of the topic is removed
        limited, free = together(
            *(
                functools.partial(work, subject, "bytes", client_id, WARM_UP_S + 2 * seconds)
                for client_id in ("limited", "free")
            )
        )
        figures[f"{kind}, limited"] = per_minute(limited, seconds)
        figures[f"{kind}, beside it"] = per_minute(free, seconds)
    return figures


# 3. Clients that wait exactly as long as required


def exact(subject: Subject, seconds: float) -> dict[str, Any]:
    """MB per second on the wire of clients that sleep for the throttle time, and how many ms they waited after that."""
    subject.limit({"client-id": CLIENT_ID}, producer_byte_rate=LIMIT, consumer_byte_rate=LIMIT)
    figures: dict[str, Any] = {}
    for size in EXACT_BYTES:
        topics = [f"exact-{kind}-{size}" for kind in ("produce", "fetch")]
        for topic in topics:
            subject.create(topic, **{"retention.ms": "-1"})  # the batches have an old timestamp
        for _ in range(4):
            subject.call(*produce_request(topics[1], size))
        time.sleep(WARM_UP_S)  # the windows are empty again
        asked = zip(("produce", "fetch"), topics, (produce_request, fetch_request), strict=True)
        works = [
            functools.partial(told, subject, kind, ask(topic, size), WARM_UP_S + 2 * seconds)
            for kind, topic, ask in asked
        ]
        for kind, (arrivals, late_ms) in zip(("produce", "fetch"), together(*works), strict=True):
            figures[f"{kind} of {size}"] = {
                "MB a second": per_minute(arrivals, seconds),
                "late ms": {
                    "median": round(statistics.median(late_ms or [0.0]), 1),
                    "worst": round(max(late_ms, default=0.0), 1),
                },
                "throttled": len(late_ms),
            }
    subject.limit({"client-id": CLIENT_ID}, producer_byte_rate=None, consumer_byte_rate=None)
    return figures


def told(
    subject: Subject, kind: str, request: tuple[ApiKey, int, dict[str, Any]], seconds: float
) -> tuple[Arrivals, list[float]]:
    """Send a request repeatedly; returns the bytes counted for the quota, and the delay of answers after a throttle
    time.
    """
    client = subject.connect()
    began = time.monotonic()
    arrivals: Arrivals = []
    late_ms: list[float] = []
    throttle_ms = 0
    while (now := time.monotonic()) < began + seconds:
        answer = client.call(*request)
        assert answer is not None and client.last is not None
        done = time.monotonic()
        if throttle_ms:
            late_ms.append((done - now) * 1000)
        throttle_ms = answer["throttle_time_ms"]
        if kind == "produce":
            arrivals.append((done - began, len(client.last.request)))
        elif not throttle_ms:  # otherwise it has no records
            arrivals.append((done - began, len(client.last.response)))
        if throttle_ms:
            time.sleep(max(0.0, done + throttle_ms / 1000 - time.monotonic()))
    client.close()
    return arrivals, late_ms


# 4. and 5. Changes and connections


def mutations(subject: Subject, seconds: float) -> dict[str, float]:
    """Partitions created per second by a client that continues until it is refused, and waits as required."""
    subject.limit({"client-id": CLIENT_ID}, controller_mutation_rate=5.0)
    client, number, refused, waited_ms = subject.connect(), 0, 0, 0
    while not refused:  # the burst
        refused, waited_ms = create_one(client, f"burst-{number}")
        number += 1
    burst = number - 1
    time.sleep(waited_ms / 1000)
    began, created, refusals = time.monotonic(), 0, 0
    while time.monotonic() - began < seconds:
        error, waited_ms = create_one(client, f"steady-{created}")
        created += not error
        refusals += bool(error)
        time.sleep(waited_ms / 1000)
    client.close()
    rate = created / (time.monotonic() - began)
    subject.limit({"client-id": CLIENT_ID}, controller_mutation_rate=None)
    return {"burst": burst, "created a second": rate, "refused": refusals}


def create_one(client: WireClient, name: str) -> tuple[int, int]:
    """Create a topic of one partition; returns its error and the throttle time."""
    topic = {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    answer = client.call(
        ApiKey.CREATE_TOPICS, 6, {"topics": [topic], "timeout_ms": 30_000, "validate_only": False}
    )
    assert answer is not None
    error = answer["topics"][0]["error_code"]
    assert error in (0, 89), answer
    return error, answer["throttle_time_ms"]


def connections(subject: Subject, seconds: float) -> dict[str, float]:
    """Answered connections per second, from clients that connect as fast as they can."""
    figures = {}
    settings = {"resource_type": 4, "resource_name": ""}
    for name, on, off in (
        ("broker", "20", None),
        ("address", 20.0, None),
    ):
        if name == "address":
            subject.limit({"ip": "127.0.0.1"}, connection_creation_rate=on)  # type: ignore[arg-type]
        else:
            config = {
                "name": "max.connection.creation.rate",
                "config_operation": 0,
                "value": on,
            }
            answer = subject.call(
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                1,
                {"resources": [settings | {"configs": [config]}], "validate_only": False},
            )
            assert answer["responses"][0]["error_code"] == 0, answer
            time.sleep(1)
        figures[name] = sum(
            together(*[lambda: float(connect_for(subject, seconds)) for _ in range(8)])
        ) / (seconds)
        if name == "broker":
            config = {"name": "max.connection.creation.rate", "config_operation": 1, "value": off}
            subject.call(
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                1,
                {"resources": [settings | {"configs": [config]}], "validate_only": False},
            )
        else:
            subject.limit({"ip": "127.0.0.1"}, connection_creation_rate=None)
    return figures


def connect_for(subject: Subject, seconds: float) -> int:
    """The number of answered connections in some time, after the burst that the windows allow."""
    begins = time.monotonic() + WARM_UP_S
    ends = begins + seconds
    answered = 0
    while time.monotonic() < ends:
        try:
            client = subject.connect(5.0)
            if client.call(ApiKey.API_VERSIONS, 0, {}) is not None:
                answered += begins <= time.monotonic() < ends
            client.close()
        except OSError:
            pass
    return answered


def differences(found: dict[str, list[dict[str, Any]]]) -> str:
    """The differences between the throttle times of two series."""
    one, other = found.values()
    apart = [
        abs(a["throttle_time_ms"] - b["throttle_time_ms"]) for a, b in zip(one, other, strict=True)
    ]
    both = sum(
        (a["throttle_time_ms"] > 0) == (b["throttle_time_ms"] > 0)
        for a, b in zip(one, other, strict=True)
    )
    return (
        f"{both} of {len(one)} requests throttled by both or neither; at most {max(apart)} ms apart"
    )


def measure(subject: Subject, only: str | None, seconds: float) -> dict[str, Any]:
    """All measurements of one broker, or only one of them."""
    works: dict[str, Callable[[], Any]] = {
        "series": lambda: series(subject),
        "bytes": lambda: rates(subject, seconds),
        "exact": lambda: exact(subject, seconds),
        "mutations": lambda: mutations(subject, seconds / 3),
        "connections": lambda: connections(subject, seconds / 3),
    }
    figures = {}
    for name, work in works.items():
        if only in (None, name):
            figures[name] = work()
            if name != "series":
                print(subject.broker.kind, name, json.dumps(figures[name]), flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=60.0,
        help="length of the minute in `bytes` and `exact`; other measurements take a third of it",
    )
    parser.add_argument("--only", choices=["series", "bytes", "exact", "mutations", "connections"])
    parser.add_argument("--record", type=Path, help="keep Apache Kafka's series in this file")
    options = parser.parse_args()
    measured: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="kwire-quotas-") as folder:
        for kind in (Kafka39Broker, KwireBroker):
            directory = Path(folder) / kind.__name__
            directory.mkdir()
            broker = kind(directory, config={"log.retention.check.interval.ms": "3000"})
            broker.start()
            try:
                figures = measure(Subject(broker), options.only, options.seconds)
            finally:
                broker.stop()
            measured[broker.kind] = figures
    if options.only in (None, "series"):
        found = {kind: figures["series"] for kind, figures in measured.items()}
        for rows in zip(*found.values(), strict=True):
            print(rows[0]["kind"], *[(r["at_ms"], r["bytes"], r["throttle_time_ms"]) for r in rows])
        print(differences(found))
        if options.record is not None:
            options.record.write_text(json.dumps(found["Apache Kafka"]) + "\n")


if __name__ == "__main__":
    main()
