"""GetTelemetrySubscriptions (API key 71): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message
from kwire.types import Array, Bool, Int8, Int16, Int32, String, Uuid


@message(api_key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, kind="request", versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    """A client asks which metrics it should push.

    Source: GetTelemetrySubscriptionsRequest.json; KIP-714.
    """

    client_instance_id: bytes = field(Uuid)


@message(api_key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, kind="response", versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    """The requested metrics. Source: GetTelemetrySubscriptionsResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    client_instance_id: bytes = field(Uuid)
    subscription_id: int = field(Int32)
    accepted_compression_types: list[int] = field(Array(Int8))
    push_interval_ms: int = field(Int32)
    telemetry_max_bytes: int = field(Int32)
    delta_temporality: bool = field(Bool)
    requested_metrics: list[str] = field(Array(String))
