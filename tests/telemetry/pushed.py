"""Metrics as clients push them."""

from __future__ import annotations

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Gauge,
    Histogram,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


def attributes(values: dict[str, str | int]) -> list[KeyValue]:
    return [
        KeyValue(
            key=key,
            value=AnyValue(int_value=value)
            if isinstance(value, int)
            else AnyValue(string_value=value),
        )
        for key, value in values.items()
    ]


def gauge(name: str, value: float, **labels: str | int) -> Metric:
    point = NumberDataPoint(as_double=value, attributes=attributes(labels))
    return Metric(name=name, gauge=Gauge(data_points=[point]))


def total(name: str, value: int, *, delta: bool = True, **labels: str | int) -> Metric:
    point = NumberDataPoint(as_int=value, attributes=attributes(labels))
    temporality = DELTA if delta else CUMULATIVE
    return Metric(
        name=name,
        sum=Sum(data_points=[point], aggregation_temporality=temporality, is_monotonic=True),
    )


def histogram(name: str) -> Metric:
    return Metric(name=name, histogram=Histogram())


def payload(*metrics: Metric, **resource: str) -> bytes:
    """A push of these metrics, with attributes that hold for all of them."""
    data = MetricsData(
        resource_metrics=[
            ResourceMetrics(
                resource=Resource(attributes=attributes(dict(resource))),
                scope_metrics=[ScopeMetrics(metrics=metrics)],
            )
        ]
    )
    return bytes(data.SerializeToString())
