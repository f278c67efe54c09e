"""PushTelemetry (API key 72): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message
from kwire.types import Bool, Bytes, Int8, Int16, Int32, Uuid


@message(api_key=ApiKey.PUSH_TELEMETRY, kind="request", versions="0", flexible="0+")
class PushTelemetryRequest:
    """A client pushes its metrics.

    Source: PushTelemetryRequest.json; KIP-714.
    """

    client_instance_id: bytes = field(Uuid)
    subscription_id: int = field(Int32)
    terminating: bool = field(Bool)
    compression_type: int = field(Int8)
    metrics: bytes = field(Bytes)


@message(api_key=ApiKey.PUSH_TELEMETRY, kind="response", versions="0", flexible="0+")
class PushTelemetryResponse:
    """Whether the metrics were accepted. Source: PushTelemetryResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
