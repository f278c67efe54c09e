"""Decodes a client's push: OpenTelemetry's MetricsData. opentelemetry-proto is imported on first use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

#: AggregationTemporality of OpenTelemetry: the value is the change since the last push.
DELTA = 1
#: DataPointFlags of OpenTelemetry: there is no value.
NO_RECORDED_VALUE = 1
#: The maximum number of attributes of a value, and of characters in each; more are omitted or cut off.
MAX_ATTRIBUTES = 16
MAX_CHARACTERS = 256

Attributes = tuple[tuple[str, str], ...]


class MalformedTelemetry(ValueError):
    """A push that is not a MetricsData message."""


class Point(NamedTuple):
    """One value. Shape: `is_sum` if it only increases; `is_delta` if it has to be added to earlier values."""

    name: str
    attributes: Attributes
    value: float
    is_sum: bool
    is_delta: bool


def can_decode() -> bool:
    """Whether opentelemetry-proto is installed."""
    try:
        return find_spec("opentelemetry.proto.metrics.v1") is not None
    except ModuleNotFoundError:
        return False


def points(payload: bytes) -> Iterator[Point | None]:
    """The values of a push; None for a metric or value that is not used here, such as a histogram.

    Shape: a step for each row of the message. Errors: MalformedTelemetry, before the first value.
    """
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    try:
        data = MetricsData.FromString(payload)
    except DecodeError as error:
        raise MalformedTelemetry(str(error)) from None
    for resource_metrics in data.resource_metrics:
        resource = attributes_of(resource_metrics.resource.attributes)
        if not resource_metrics.scope_metrics:
            yield None
        for scope_metrics in resource_metrics.scope_metrics:
            if not scope_metrics.metrics:
                yield None
            for metric in scope_metrics.metrics:
                yield from _of_metric(metric, resource)


def _of_metric(metric: Any, resource: Attributes) -> Iterator[Point | None]:
    kind = metric.WhichOneof("data")
    if kind == "gauge":
        rows, is_sum, is_delta = metric.gauge.data_points, False, False
    elif kind == "sum":
        rows = metric.sum.data_points
        is_sum = metric.sum.is_monotonic
        is_delta = metric.sum.aggregation_temporality == DELTA
    else:
        rows = ()
    if not rows:
        yield None
    for row in rows:
        which = row.WhichOneof("value")
        if which is None or row.flags & NO_RECORDED_VALUE:
            yield None
            continue
        own = attributes_of(row.attributes)
        attributes = resource if not own else (*resource, *own)
        yield Point(metric.name, attributes, getattr(row, which), is_sum, is_delta)


def attributes_of(pairs: Iterable[Any]) -> Attributes:
    """Attributes as text, except those whose values are lists or maps."""
    found: list[tuple[str, str]] = []
    for pair in pairs:
        if len(found) == MAX_ATTRIBUTES:
            break
        which = pair.value.WhichOneof("value")
        if which in ("string_value", "bool_value", "int_value", "double_value"):
            text = str(getattr(pair.value, which))
            found.append((pair.key[:MAX_CHARACTERS], text[:MAX_CHARACTERS]))
    return tuple(found)
