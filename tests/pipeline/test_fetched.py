"""Records read from brokers as Arrow batches, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from kwire.errors import ErrorCode
from kwire.pipeline import fetched
from kwire.pipeline.cluster import Cluster
from kwire.pipeline.fetched import Span
from kwire.pipeline.manifest import COLUMNS
from kwire.pipeline.plain_client import PlainClient, Refused, StoredBatches
from kwire.pipeline.problems import Problem

from ..log.logs import batch
from ..support.broker_process import BrokerProcess
from .archive_model import Record, create_topic, produce, records_of


def records(batches: Any, topic: str) -> list[Record]:
    return [record for part in batches for record in records_of(topic, part.to_pylist())]


def span_of(broker: BrokerProcess, topic: str, end: int, start: int = 0) -> Span:
    return Span(broker.bootstrap, topic, 0, start, end, True)


@pytest.mark.e2e
@pytest.mark.parametrize("codec", ["uncompressed", "zstd"])
def test_records_are_those_that_were_committed(
    broker: BrokerProcess, topic: str, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetched, "WINDOW", 3000)  # many requests, and batches that are cut off
    create_topic(broker.bootstrap, topic, compression_type=codec)
    wanted = produce(broker.bootstrap, topic, 60, batch_records=7)
    wanted += produce(broker.bootstrap, topic, 40, transaction=True, batch_records=9)
    aborted = produce(broker.bootstrap, topic, 30, transaction=False, batch_records=9)
    wanted += produce(broker.bootstrap, topic, 300)
    with Cluster(broker.bootstrap) as cluster:
        end = cluster.ends({topic: 1}, read_committed=True)[topic, 0]
    assert records(fetched.read(span_of(broker, topic, end), COLUMNS), topic) == wanted
    for start, until in ((17, 50), (59, 61), (100, 131), (end - 1, end), (5, 5)):
        found = records(fetched.read(span_of(broker, topic, until, start), COLUMNS), topic)
        assert found == [r for r in wanted if start <= r.offset < until]
    everything = fetched.read(
        span_of(broker, topic, end)._replace(read_committed=False), ("offset",)
    )
    found = [offset for part in everything for offset in part.column("offset").to_pylist()]
    assert found == sorted(r.offset for r in [*wanted, *aborted])


@pytest.mark.e2e
def test_reading_goes_on_when_the_broker_comes_back(
    new_broker: Callable[..., BrokerProcess], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetched, "WINDOW", 2000)
    broker = new_broker()
    create_topic(broker.bootstrap, topic)
    wanted = produce(broker.bootstrap, topic, 200, batch_records=10)
    batches = fetched.read(span_of(broker, topic, 200), COLUMNS)
    first = next(batches)
    broker.kill()
    broker.start()
    assert records([first, *batches], topic) == wanted


@pytest.mark.e2e
def test_what_is_gone_is_named(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, 20, batch_records=5)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_records([TopicPartition(topic, 0, 10)])
    with Cluster(broker.bootstrap) as cluster:
        while cluster.starts({topic: 1}) != {(topic, 0): 10}:
            pass
    with pytest.raises(Problem, match=f"{topic}-0: offsets from 5 on no longer exist"):
        list(fetched.read(span_of(broker, topic, 20, 5), COLUMNS))
    monkeypatch.setattr(fetched, "PATIENCE_S", 0)
    with pytest.raises(Problem, match=f"no broker gave offset 20 of {topic}-0 .*it has none"):
        list(fetched.read(span_of(broker, topic, 30, 15), COLUMNS))
    monkeypatch.setattr(fetched, "PATIENCE_S", 120)
    monkeypatch.setattr(fetched, "GONE_S", 0)
    with pytest.raises(Problem, match="absent-0: no longer there"):
        list(fetched.read(span_of(broker, "absent", 20), COLUMNS))


def test_damaged_batch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = bytearray(bytes(batch(b"abcdef", None)) + bytes(batch(b"abcdef", None)))
    stored[-5] ^= 1
    monkeypatch.setattr(PlainClient, "fetch", lambda *_, **__: StoredBatches(bytes(stored), []))
    span = Span("h:1", "orders", 0, 0, 9, True)
    with pytest.raises(Problem, match=r"orders partition 0: the batch at offset .* is damaged on"):
        list(fetched.read(span, COLUMNS))


def test_refusal_that_is_final_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Refused("cannot read", ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    monkeypatch.setattr(PlainClient, "fetch", refuse)
    with pytest.raises(Refused):
        list(fetched.read(Span("h:1", "orders", 0, 0, 9, True), COLUMNS))
