"""Records read from brokers as Arrow batches, without Spark."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kwire.api import ApiKey
from kwire.errors import ErrorCode
from kwire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from kwire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kwire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kwire.pipeline.archive import fetched
from kwire.pipeline.archive.fetched import Span
from kwire.pipeline.audit import gaps
from kwire.pipeline.audit.facts import ClaimedRange, PartitionFacts
from kwire.pipeline.cluster import Cluster
from kwire.pipeline.manifest import COLUMNS
from kwire.pipeline.problems import Problem
from kwire.pipeline.stored_batches import FetchRefused, StoredBatches, StoredClient, Unavailable
from kwire.records.batch import BatchBuilder, iter_batch_headers
from kwire.records.compression import Codec
from kwire.records.record import TimestampType
from kwire.server.client import brokers, contact
from kwire.server.client.errors import NoAnswer
from kwire.server.client.wire import Wire, open_socket
from kwire.testing.secure import SecureBroker

from ..log.logs import batch
from ..support.broker_process import BrokerProcess
from ..support.kafka import KAFKA_3, KAFKA_4, kafka_broker
from ..support.kwire_cluster import KwireCluster
from .archive_model import Record, create_topic, produce, records_of
from .killing import LONG


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
    monkeypatch.setattr(StoredClient, "fetch", lambda *_, **__: StoredBatches(bytes(stored), []))
    span = Span("h:1", "orders", 0, 0, 9, True)
    with pytest.raises(Problem, match=r"orders partition 0: the batch at offset .* is damaged on"):
        list(fetched.read(span, COLUMNS))


def test_refusal_that_is_final_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FetchRefused("cannot read", ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    monkeypatch.setattr(StoredClient, "fetch", refuse)
    with pytest.raises(FetchRefused):
        list(fetched.read(Span("h:1", "orders", 0, 0, 9, True), COLUMNS))


def serve(monkeypatch: pytest.MonkeyPatch, *stored: bytes, last_stable: int = 1 << 60) -> None:
    """Let clients find these batches, of which committed ones begin before the last stable offset."""

    def fetch(
        _: StoredClient, _topic: str, _partition: int, offset: int, _max: int, *, committed: bool
    ) -> StoredBatches:
        found = [
            data
            for data in map(bytes, stored)
            for _, header in [*iter_batch_headers(data)][-1:]
            if header.last_offset >= offset
            and not (committed and header.base_offset >= last_stable)
        ]
        return StoredBatches(b"".join(found), [])

    monkeypatch.setattr(StoredClient, "fetch", fetch)


FORMS = [(magic, codec) for magic in (0, 1) for codec in (0, 1, 2, 3)] + [
    (2, codec) for codec in range(5)
]


@pytest.mark.parametrize(("magic", "codec"), FORMS)
def test_all_formats_and_codecs_are_read(
    magic: int, codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = BatchBuilder(magic, codec, base_offset=7)
    first.append(1000, None, b"a" * 200)
    first.append(999, b"k", None)
    second = BatchBuilder(magic, codec, base_offset=20)
    second.append(-1, b"", b"")
    serve(monkeypatch, bytes(first.build()), bytes(second.build()))
    found = [
        row
        for part in fetched.read(Span("h:1", "orders", 0, 7, 21, True), COLUMNS)
        for row in part.to_pylist()
    ]
    said = [(row["offset"], row["key"], row["value"]) for row in found]
    assert said == [(7, None, b"a" * 200), (8, b"k", None), (20, b"", b"")]
    stamps = [round(row["timestamp"].timestamp() * 1000) for row in found]
    assert stamps == ([1000, 999, -1] if magic else [-1, -1, -1])
    assert {row["timestampType"] for row in found} == {0 if magic else -1}


def test_time_of_the_broker_counts_for_all_records(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = BatchBuilder(2, Codec.LZ4, TimestampType.LOG_APPEND_TIME, log_append_time=5000)
    kept.append(1000, b"k", b"v")
    kept.append(999, b"k", b"v")
    serve(monkeypatch, bytes(kept.build()))
    (part,) = fetched.read(Span("h:1", "orders", 0, 0, 2, True), COLUMNS)
    assert [round(row["timestamp"].timestamp()) for row in part.to_pylist()] == [5, 5]
    assert part.column("timestampType").to_pylist() == [1, 1]


def test_compaction_up_to_an_open_transaction_leaves_nothing_to_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    span = Span("h:1", "orders", 0, 0, 50, True)
    kept = bytes(batch(b"a", b"b"))
    still_open = bytes(batch(b"c", pid=9, transactional=True, base_offset=50))
    serve(monkeypatch, kept, still_open, last_stable=50)
    parts = fetched.read(span, COLUMNS)
    assert [offset for part in parts for offset in part.column("offset").to_pylist()] == [0, 1]
    monkeypatch.setattr(fetched, "PATIENCE_S", 0)
    for uncertain in (
        [kept],  # the end may arrive
        [kept, bytes(batch(b"c", pid=9, transactional=True, base_offset=49))],
        [kept, bytes(batch(b"c", b"d", magic=1, codec=1, base_offset=50))],  # 50 may be its last
    ):
        serve(monkeypatch, *uncertain, last_stable=49)
        with pytest.raises(Problem, match="no broker gave offset 2 of orders-0"):
            list(fetched.read(span, COLUMNS))


def test_answer_without_a_whole_batch_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    half = bytes(batch(b"abcdef"))[:-3]
    monkeypatch.setattr(StoredClient, "fetch", lambda *_, **__: StoredBatches(half, []))
    with pytest.raises(Problem, match=r"the batch at offset 0 is damaged .*it is not whole"):
        list(fetched.read(Span("h:1", "orders", 0, 0, 9, True), COLUMNS))


@pytest.mark.e2e
def test_batch_larger_than_a_fetch_is_read(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap, topic, max_message_bytes="20000000")
    value = b"x" * (fetched.WINDOW + 1_000_000)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 20_000_000})
    for _ in range(2):
        producer.produce(topic, value=value, partition=0)
    assert producer.flush(60) == 0
    parts = fetched.read(span_of(broker, topic, 2), ("value",))
    assert [found for part in parts for found in part.column("value").to_pylist()] == [value] * 2


def read_as(settings: dict[str, str], *, secret: str) -> list[bytes]:
    """The values of a topic, read with these settings as on a machine that does not have their files."""
    at = settings.pop("bootstrap.servers")
    for name in [name for name in settings if name.endswith(".location")]:
        copy = Path(f"{settings[name]}.copy")
        copy.write_bytes(Path(settings[name]).read_bytes())
        settings[name] = str(copy)
    arguments = fetched.arguments_of(list(settings.items()))
    for name in [name for name in settings if name.endswith(".location")]:
        Path(settings[name]).unlink()
    assert arguments is not None
    span = Span(at, "orders", 0, 0, 3, True, arguments)
    assert secret not in repr(span)
    parts = fetched.read(pickle.loads(pickle.dumps(span)), ("value",))
    return [value for part in parts for value in part.column("value").to_pylist()]


@pytest.mark.e2e
def test_records_are_read_with_tls_and_logins() -> None:
    with SecureBroker() as broker:
        broker.user("alice", password="secret, of alice")
        by_certificate = broker.certificate("CN=bob")
        for principal in ("User:alice", "User:CN=bob"):
            broker.allow(principal, "Read", topic="orders")
        broker.topic("orders")
        broker.produce("orders", "a", "b", "c")
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            settings = broker.client_config("alice", mechanism=mechanism)
            assert read_as(dict(settings), secret="of alice") == [b"a", b"b", b"c"]
            wrong = settings | {"sasl.password": "not that"}
            with pytest.raises(Problem, match=f"login as alice with {mechanism}"):
                read_as(wrong, secret="not that")
        settings = broker.client_config(by_certificate)
        assert read_as(dict(settings), secret="PRIVATE KEY") == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    "properties",
    [
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
        {"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"},
        {"security.protocol": "SSL", "ssl.crl.location": "/crl.pem"},
        {"security.protocol": "SSL", "ssl.ca.location": "/absent"},
        {"fetch.message.max.bytes": "1000"},
        {"client.id": "archive"},
    ],
)
def test_settings_that_only_other_clients_know_are_left_to_them(properties: dict[str, str]) -> None:
    assert fetched.arguments_of(list(properties.items())) is None
    assert fetched.arguments_of([]) == {"ssl_contents": {}}


@pytest.mark.e2e
def test_addresses_may_be_dead_or_have_a_protocol(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap, topic)
    wanted = produce(broker.bootstrap, topic, 5)
    words = f"127.0.0.1:1, PLAINTEXT://{broker.bootstrap},"
    found = fetched.read(span_of(broker, topic, 5)._replace(bootstrap=words), COLUMNS)
    assert records(found, topic) == wanted


def limit_reading(broker: BrokerProcess) -> None:
    """Set a quota for the pipeline's client."""
    host, port = broker.bootstrap.split(":")
    client = Wire(open_socket((host, int(port)), 30.0), "client")
    entry = AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type="client-id", entity_name="kwire-pipeline")],
        ops=[OpData(key="consumer_byte_rate", value=2000.0, remove=False)],
    )
    answer = client.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 0)
    assert answer.entries[0].error_code == 0
    client.close()


@pytest.mark.e2e
def test_quota_delays_reading(
    new_broker: Callable[..., BrokerProcess], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = new_broker({"quota.window.num": "2"})
    create_topic(broker.bootstrap, topic)
    wanted = produce(broker.bootstrap, topic, 300, batch_records=10)
    limit_reading(broker)
    waits: list[float] = []
    monkeypatch.setattr(fetched, "WINDOW", 3000)
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda s: (waits.append(s), sleep(s)))
    assert records(fetched.read(span_of(broker, topic, 100), COLUMNS), topic) == wanted[:100]
    assert waits


@pytest.mark.e2e
def test_reading_goes_on_at_another_broker(
    tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader, which was the only named broker, is killed."""
    monkeypatch.setattr(fetched, "WINDOW", 2000)
    cluster_ = KwireCluster(tmp_path)
    try:
        every = cluster_.start().bootstrap
        admin = AdminClient({"bootstrap.servers": every})
        admin.create_topics([NewTopic(topic, 1, 3, config={"retention.ms": "-1"})])[topic].result()
        wanted = produce(every, topic, 200, batch_records=10)
        (leader,) = cluster_.leaders(0, topic)
        with Cluster(cluster_.brokers[leader].bootstrap) as cluster:
            assert cluster.servers == cluster.bootstrap
            cluster.partitions()
            assert set(cluster.servers.split(",")) == set(every.split(","))
            alone = Span(cluster.bootstrap, topic, 0, 0, 200, True)
            later = alone._replace(bootstrap=cluster.servers)
        batches = fetched.read(alone, COLUMNS)
        first = next(batches)
        cluster_.brokers[leader].kill()
        assert records([first, *batches], topic) == wanted
        assert records(fetched.read(later, COLUMNS), topic) == wanted
    finally:
        cluster_.stop()


class FakeWire:
    """A connection to a broker of a cluster in which broker 1 is dead; it leads a topic, and later broker 2 does."""

    versions: ClassVar = {int(key): (0, 11) for key in (ApiKey.FETCH, ApiKey.METADATA)}
    sock = SimpleNamespace(settimeout=lambda _: None)
    leaders: list[int]
    stored: bytes

    def ask(self, request: object, _version: int) -> object:
        if isinstance(request, FetchRequest):
            found = PartitionData(partition_index=0, records=self.stored)
            return FetchResponse(
                responses=[FetchableTopicResponse(topic="orders", partitions=[found])]
            )
        leader = self.leaders.pop(0)
        part = MetadataResponsePartition(error_code=0, partition_index=0, leader_id=leader)
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=1, host="dead", port=1),
                MetadataResponseBroker(node_id=2, host="alive", port=2),
            ],
            topics=[MetadataResponseTopic(error_code=0, name="orders", partitions=[part])],
        )

    def close(self) -> None:
        pass


@pytest.fixture
def fake_wire(monkeypatch: pytest.MonkeyPatch) -> FakeWire:
    wire = FakeWire()
    wire.leaders, wire.stored = [1, 2], bytes(batch(b"value"))

    def connected(host: str, *_: object) -> FakeWire:
        if host == "dead":
            raise ConnectionRefusedError
        if host == "other":
            raise NoAnswer("this is no Kafka")
        return wire

    monkeypatch.setattr(contact, "connected", connected)
    monkeypatch.setattr(brokers, "connected", connected)
    return wire


def test_dead_broker_that_is_still_named_as_leader_is_asked_for_again(fake_wire: FakeWire) -> None:
    """The cluster notices a broker's end later than its clients: the first answer still names it as the leader."""
    with StoredClient("alive:2", {}) as client:
        with pytest.raises(Unavailable, match=r"broker 1 \(dead:1\)"):
            client.fetch("orders", 0, 0, 1000)
        assert client.fetch("orders", 0, 0, 1000).records == fake_wire.stored


def test_address_where_something_else_listens_is_passed_over(fake_wire: FakeWire) -> None:
    fake_wire.leaders = [2]
    with StoredClient("other:1,alive:2", {}) as client:
        assert client.fetch("orders", 0, 0, 1000).records == fake_wire.stored


def test_gaps_are_examined_although_the_broker_is_away_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away: list[Exception] = [Unavailable("away"), FetchRefused("no leader", None)]
    stored = bytes(batch(b"a", b"b"))

    def fetch(*_: object, **__: object) -> StoredBatches:
        if away:
            raise away.pop()
        return StoredBatches(stored, [])

    monkeypatch.setattr(StoredClient, "fetch", fetch)
    monkeypatch.setattr(gaps, "AGAIN_S", 0)
    facts = PartitionFacts("h:1", "orders", 0, ClaimedRange(0, 2))
    with gaps.TopicGaps("h:1", {}, committed=True) as looker:
        piece = looker._piece(facts, 0)
    assert piece is not None and (piece.start, piece.end) == (0, 2)
    away.append(FetchRefused("no", ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(FetchRefused):
        looker._piece(facts, 7)


@pytest.mark.e2e
@pytest.mark.jvm
@pytest.mark.skipif(not LONG, reason="KWIRE_LONG=1 reads from Apache Kafka")
@pytest.mark.parametrize("version", [KAFKA_3, KAFKA_4])
def test_records_of_apache_kafka_are_read(
    version: str, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetched, "WINDOW", 3000)
    with kafka_broker(version, tmp_path, config={"quota.window.num": "2"}) as broker:
        create_topic(broker.bootstrap, topic, max_message_bytes="20000000")
        wanted = produce(broker.bootstrap, topic, 60, batch_records=7)
        wanted += produce(broker.bootstrap, topic, 40, transaction=True, batch_records=9)
        produce(broker.bootstrap, topic, 30, transaction=False, batch_records=9)
        wanted += produce(broker.bootstrap, topic, 300, batch_records=11)
        with Cluster(broker.bootstrap) as cluster:
            end = cluster.ends({topic: 1}, read_committed=True)[topic, 0]
        assert records(fetched.read(span_of(broker, topic, end), COLUMNS), topic) == wanted
        limit_reading(broker)
        found = records(fetched.read(span_of(broker, topic, 101), COLUMNS), topic)
        assert found == [r for r in wanted if r.offset < 101]
