"""The processing of metrics that clients push."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kwire.errors import ErrorCode
from kwire.records.compression import Codec, compress
from server.metrics.exposition import text_of_clients
from server.telemetry.clients import ZERO_ID, ClientInstance
from server.telemetry.receiver import Telemetry
from server.telemetry.subscriptions import ClientAttributes
from server.turns import exhaust
from tests.metrics.scraped import Series, parse, value
from tests.telemetry.pushed import gauge, histogram, payload, total

LATENCY = "org.apache.kafka.producer.request.latency.avg"
SENT = "org.apache.kafka.producer.records.total"


def client_of(
    telemetry: Telemetry, client_id: str = "billing", now_ms: int = 0, account: str = "10.0.0.1"
) -> ClientInstance:
    client = ClientAttributes("", client_id, "java", "4.3.0", "127.0.0.1", "1")
    instance = telemetry.clients.get(ZERO_ID, client, f"c-{client_id}", now_ms, account)
    assert isinstance(instance, ClientInstance)
    return instance


def take(telemetry: Telemetry, instance: ClientInstance, data: bytes, codec: int = 0) -> ErrorCode:
    return exhaust(telemetry.take(instance, codec, data, 0))


def shown(telemetry: Telemetry) -> list[Series]:
    return parse("".join(text_of_clients(telemetry.series)))


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry(100_000, 100)


@pytest.fixture
def instance(telemetry: Telemetry) -> ClientInstance:
    return client_of(telemetry)


def ids(instance: ClientInstance) -> dict[str, str]:
    return {"client_id": "billing", "client_instance_id": instance.client.client_instance_id}


@pytest.mark.parametrize("codec", list(Codec))
def test_push_of_any_codec_is_shown(
    telemetry: Telemetry, instance: ClientInstance, codec: Codec
) -> None:
    data = payload(gauge(LATENCY, 12.5, node_id=3), group_id="g")
    assert take(telemetry, instance, compress(codec, 2, data), codec) is ErrorCode.NONE
    found = value(
        shown(telemetry),
        "kafka_client_producer_request_latency_avg",
        group_id="g",
        node_id="3",
        **ids(instance),
    )
    assert found == 12.5


def test_changes_are_added_up_and_totals_are_taken_as_they_are(
    telemetry: Telemetry, instance: ClientInstance
) -> None:
    for amount in (10, 5):
        take(telemetry, instance, payload(total(SENT, amount), total("a", amount, delta=False)))
    series = shown(telemetry)
    assert value(series, "kafka_client_producer_records_total", **ids(instance)) == 15
    assert value(series, "kafka_client_a", **ids(instance)) == 5


def test_value_that_is_no_number_is_written_as_prometheus_does(
    telemetry: Telemetry, instance: ClientInstance
) -> None:
    names = {"nan": float("nan"), "high": float("inf"), "low": float("-inf")}
    take(telemetry, instance, payload(*(gauge(name, each) for name, each in names.items())))
    lines = "".join(text_of_clients(telemetry.series)).splitlines()
    assert [line.split()[-1] for line in lines if line[0] != "#"] == ["NaN", "+Inf", "-Inf"]


def test_client_cannot_pass_for_another_nor_break_the_text(
    telemetry: Telemetry, instance: ClientInstance
) -> None:
    hostile = {"client_id": "other", 'a"b': 'x"\n}', "9": "nine", "": "empty"}
    take(telemetry, instance, payload(gauge("n}\n 1\nm", 1.0, **hostile)))
    (series,) = shown(telemetry)
    assert series.name == "kafka_client_n___1_m"
    assert series.labels == {"a_b": 'x"\n}', "_9": "nine", "_": "empty", **ids(instance)}


def test_histograms_are_counted_and_left_out(
    telemetry: Telemetry, instance: ClientInstance
) -> None:
    assert take(telemetry, instance, payload(histogram("h"), gauge("g", 1.0))) is ErrorCode.NONE
    assert [each.name for each in shown(telemetry)] == ["kafka_client_g"]
    assert telemetry.series.ignored == 1


def test_series_beyond_the_limit_are_left_out_and_those_within_go_on() -> None:
    telemetry = Telemetry(100_000, 3)  # of which one client may have two
    instance = client_of(telemetry)
    for amount in (1, 2):
        take(telemetry, instance, payload(*(total(f"m{k}", amount) for k in range(5))))
    assert {each.name: each.value for each in shown(telemetry)} == {
        "kafka_client_m0": 3,
        "kafka_client_m1": 3,
    }
    assert (telemetry.series.count, telemetry.series.left_out) == (2, 6)


def test_series_of_a_silent_client_go_with_it(telemetry: Telemetry) -> None:
    early, late = client_of(telemetry, "early"), client_of(telemetry, "late", 800_000)
    take(telemetry, early, payload(gauge("both", 1.0), gauge("one", 1.0)))
    take(telemetry, late, payload(gauge("both", 2.0)))
    exhaust(telemetry.expire(900_000))
    (left,) = shown(telemetry)
    assert (left.labels["client_id"], left.value) == ("late", 2.0)
    assert telemetry.series.count == 1


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
def test_push_that_inflates_beyond_the_limit_is_too_large(
    telemetry: Telemetry, instance: ClientInstance, codec: Codec
) -> None:
    bomb = compress(codec, 2, bytes(10_000_000))
    assert take(telemetry, instance, bomb[:90_000], codec) is ErrorCode.TELEMETRY_TOO_LARGE
    assert telemetry.failed == 1


@pytest.mark.parametrize(
    ("codec", "data"), [(0, b"\xff\xff\xff"), (1, b"not gzip"), (4, b"\0\0\0\0")]
)
def test_push_that_cannot_be_read_is_an_invalid_record(
    telemetry: Telemetry, instance: ClientInstance, codec: int, data: bytes
) -> None:
    assert take(telemetry, instance, data, codec) is ErrorCode.INVALID_RECORD
    assert instance.last_error is ErrorCode.INVALID_RECORD


def test_long_push_is_taken_in_steps(telemetry: Telemetry, instance: ClientInstance) -> None:
    data = payload(*(gauge("same", float(k)) for k in range(1000)))
    steps: Iterator[None] = telemetry.take(instance, 0, data, 0)
    assert sum(1 for _ in steps) > 1000 // 64


def test_rows_without_metrics_are_steps_too(telemetry: Telemetry, instance: ClientInstance) -> None:
    """A push of a million empty rows must not be one step."""
    empty = b"\x0a\x00" * 10_000
    assert sum(1 for _ in telemetry.take(instance, 0, empty, 0)) > 100


def test_attribute_cannot_replace_the_name_of_a_series(
    telemetry: Telemetry, instance: ClientInstance
) -> None:
    forged = gauge(LATENCY, 1.0, **{"__name__": "kafka_server_brokerstate", "__": "x"})
    assert take(telemetry, instance, payload(forged)) is ErrorCode.NONE
    ((labels, _),) = telemetry.series.families[
        "kafka_client_producer_request_latency_avg"
    ].values.items()
    assert dict(labels) == {"name": "kafka_server_brokerstate", "_": "x", **ids(instance)}


def test_one_client_cannot_use_up_the_series_of_others() -> None:
    telemetry = Telemetry(100_000, 100)
    for number in range(10):
        greedy = client_of(telemetry, f"mallory-{number}", account="User:mallory")
        take(telemetry, greedy, payload(*(total(f"m{k}", 1) for k in range(20))))
    assert telemetry.series.count == 75
    honest = client_of(telemetry, account="User:alice")
    take(telemetry, honest, payload(*(total(f"m{k}", 1) for k in range(10))))
    assert len([each for each in shown(telemetry) if each.labels["client_id"] == "billing"]) == 10


def test_series_with_very_long_labels_count_more_than_once() -> None:
    telemetry = Telemetry(1_000_000, 40)
    instance = client_of(telemetry)
    long = {f"{k:x<200}": "y" * 250 for k in range(16)}
    take(telemetry, instance, payload(*(gauge(f"m{k}", 1, **long) for k in range(10))))
    assert len(shown(telemetry)) == 3
    assert telemetry.series.count > 20
    telemetry.clients.instances[instance.id].expires_ms = 0
    exhaust(telemetry.clients.expire(1))
    assert (telemetry.series.count, shown(telemetry)) == (0, [])


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\xff\xff\xff", ErrorCode.INVALID_RECORD),
        (bytes(200_000), ErrorCode.TELEMETRY_TOO_LARGE),
    ],
)
def test_last_push_counts_only_if_its_metrics_are_taken(
    telemetry: Telemetry, instance: ClientInstance, data: bytes, error: ErrorCode
) -> None:
    def last(data: bytes) -> ErrorCode:
        packed = compress(Codec.GZIP, 2, data)
        return exhaust(telemetry.take(instance, Codec.GZIP, packed, 0, terminating=True))

    assert last(data) is error
    assert not instance.terminating
    assert last(payload(gauge(LATENCY, 1.0))) is ErrorCode.NONE
    assert instance.terminating
