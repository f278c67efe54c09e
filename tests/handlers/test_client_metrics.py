"""Subscriptions to client metrics, and the requests of clients, compared with the answers of Apache Kafka 4.3.0."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.messages import incremental_alter_configs as incremental
from kwire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kwire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from kwire.messages.list_config_resources import ListConfigResourcesRequest
from kwire.messages.push_telemetry import PushTelemetryRequest
from server.composition.following import ClientMetricsSettings
from server.handlers.ceilings import CEILING_4_3
from server.handlers.config_resources import list_config_resources
from server.handlers.configs import describe_configs, incremental_alter_configs
from server.handlers.registry import HandlerTable
from server.handlers.table import HANDLERS, WITHOUT_TELEMETRY
from server.handlers.telemetry import get_telemetry_subscriptions, push_telemetry
from server.metadata.image import BrokerRegistration, TopicImage
from server.telemetry.clients import ZERO_ID
from server.telemetry.receiver import Telemetry
from tests.handlers.test_client_quotas import StoredConfigs, with_configs
from tests.support.replicas import Replicas
from tests.support.services import with_rooms
from tests.telemetry.pushed import gauge, payload

CLIENT_METRICS = 16
DOCS = {
    "interval.ms": "Metrics push interval in milliseconds",
    "match": "Client match criteria",
    "metrics": "Telemetry metric name prefix list",
}
DEFAULTS = {"interval.ms": "300000", "match": "", "metrics": ""}


@pytest.fixture
def stored(room: Replicas) -> StoredConfigs:
    stored = with_configs(room)
    room.services = with_rooms(room.services, ceiling="4.3", telemetry=Telemetry(100_000, 100))
    return stored


def call(room: Replicas, handler: Any, request: Any, version: int = 0) -> Any:
    return asyncio.run(room.ask(handler, request, version))


def alter(room: Replicas, name: str, values: dict[str, str | None]) -> tuple[int, str | None]:
    configs = [
        incremental.AlterableConfig(
            name=key, config_operation=0 if value is not None else 1, value=value
        )
        for key, value in values.items()
    ]
    resource = incremental.AlterConfigsResource(
        resource_type=CLIENT_METRICS, resource_name=name, configs=configs
    )
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
    (row,) = call(room, incremental_alter_configs, request, 1).responses
    return row.error_code, row.error_message


def describe(room: Replicas, name: str, keys: list[str] | None = None) -> Any:
    resource = DescribeConfigsResource(
        resource_type=CLIENT_METRICS, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=True
    )
    (result,) = call(room, describe_configs, request, 4).results
    return result


def rows(result: Any) -> list[tuple[Any, ...]]:
    return [
        (
            row.name,
            row.value,
            row.read_only,
            row.config_source,
            row.is_sensitive,
            [(each.name, each.value, each.source) for each in row.synonyms],
            row.config_type,
            row.documentation,
        )
        for row in result.configs
    ]


def expected(**values: str) -> list[tuple[Any, ...]]:
    given = {name.replace("_", "."): value for name, value in values.items()}
    return [
        (
            name,
            given.get(name, default),
            False,
            7 if name in given else 5,
            False,
            [(name, given[name], 7)] if name in given else [],
            3 if name == "interval.ms" else 7,
            DOCS[name],
        )
        for name, default in DEFAULTS.items()
    ]


def test_subscription_is_stored_described_and_removed(
    room: Replicas, stored: StoredConfigs
) -> None:
    values = {"interval.ms": "1000", "metrics": "org.apache.kafka.", "match": "client_id=a.*"}
    assert alter(room, "s 1/x", dict(values)) == (0, None)
    assert stored.image.configs["client-metrics"] == {"s%201%2Fx": values}
    assert rows(describe(room, "s 1/x")) == expected(
        interval_ms="1000", metrics="org.apache.kafka.", match="client_id=a.*"
    )
    assert [row[0] for row in rows(describe(room, "s 1/x", ["metrics"]))] == ["metrics"]
    assert alter(room, "s 1/x", dict.fromkeys(values)) == (0, None)
    assert not stored.image.configs["client-metrics"]


def test_subscription_that_does_not_exist_has_defaults(
    room: Replicas, stored: StoredConfigs
) -> None:
    assert rows(describe(room, "absent")) == expected()


def test_subscription_without_a_name_is_refused(room: Replicas, stored: StoredConfigs) -> None:
    result = describe(room, "")
    assert (result.error_code, result.error_message) == (
        42,
        "Client metrics subscription name must not be empty",
    )
    assert alter(room, "", {"metrics": "*"}) == (42, "Subscription name can't be empty")


def test_refused_subscription_is_not_stored(room: Replicas, stored: StoredConfigs) -> None:
    assert alter(room, "s", {"interval.ms": "10"})[0] == 42
    assert "client-metrics" not in stored.image.configs


def test_resources_are_listed_by_type(room: Replicas, stored: StoredConfigs) -> None:
    alter(room, "s/1", {"metrics": "*"})
    image = stored.image.edit().put_brokers({1: BrokerRegistration(1, ())}).build()
    image = image.with_topics([TopicImage("orders", bytes(16), {})])
    room.services = with_rooms(room.services, metadata=lambda: image)

    def listed(version: int, *types: int) -> Any:
        request = ListConfigResourcesRequest(resource_types=list(types))
        answer = call(room, list_config_resources, request, version)
        return answer.error_code or [
            (row.resource_name, row.resource_type) for row in answer.config_resources
        ]

    assert listed(0) == listed(1, 16) == listed(1, 16, 16) == [("s/1", 16)]
    assert listed(1, 4, 2) == [("1", 4), ("orders", 2)]
    assert listed(1, 32) == []
    assert listed(1, 1) == ErrorCode.UNSUPPORTED_VERSION
    assert listed(1) == [("s/1", 16), ("1", 8), ("1", 4), ("orders", 2)]


def test_client_pushes_what_it_is_asked_for(room: Replicas, stored: StoredConfigs) -> None:
    telemetry = room.services.telemetry
    assert telemetry is not None
    before = stored.image
    alter(room, "s", {"metrics": "*", "interval.ms": "1000"})
    ClientMetricsSettings(telemetry, has_http=True).on_image(before, stored.image)
    asked = GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_ID)
    told = call(room, get_telemetry_subscriptions, asked)
    assert (told.error_code, told.requested_metrics, told.push_interval_ms) == (0, ["*"], 1000)
    assert told.accepted_compression_types == [4, 3, 1, 2]
    assert (told.telemetry_max_bytes, told.delta_temporality) == (100_000, True)

    def push(**changes: Any) -> int:
        values = {
            "client_instance_id": told.client_instance_id,
            "subscription_id": told.subscription_id,
            "metrics": payload(gauge("org.apache.kafka.producer.x", 1.0)),
            **changes,
        }
        return int(call(room, push_telemetry, PushTelemetryRequest(**values)).error_code)

    assert push() == 0
    assert list(telemetry.series.families) == ["kafka_client_producer_x"]
    assert push() == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(terminating=True, metrics=b"") == 0
    again = call(
        room,
        get_telemetry_subscriptions,
        GetTelemetrySubscriptionsRequest(client_instance_id=told.client_instance_id),
    )
    assert again.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_telemetry_is_served_only_where_something_takes_it() -> None:
    assert {71, 72} <= set(HandlerTable(HANDLERS, CEILING_4_3).ranges)
    assert not {71, 72} & set(HandlerTable(WITHOUT_TELEMETRY, CEILING_4_3).ranges)


@pytest.mark.parametrize(
    ("has_http", "why"), [(False, "kwire.http.listener"), (True, "opentelemetry-proto")]
)
def test_subscription_without_effect_is_logged(
    room: Replicas,
    stored: StoredConfigs,
    caplog: pytest.LogCaptureFixture,
    has_http: bool,
    why: str,
) -> None:
    before = stored.image
    alter(room, "a b", {"metrics": "*"})
    ClientMetricsSettings(None, has_http=has_http).on_image(before, stored.image)
    (record,) = caplog.records
    assert "'a b' has no effect" in record.getMessage()
    assert why in record.getMessage()
