"""GetTelemetrySubscriptions (API key 71), PushTelemetry (72).

Behavior: a client asks what it should push, as the subscriptions (configs of resources of type CLIENT_METRICS) say, and
pushes it at that interval. What it pushes is shown at /metrics. Both APIs are served only if there is something to show
it: with kwire.http.listener, and if opentelemetry-proto is installed; Apache Kafka serves them only with a plug-in that
takes the metrics.
Versions: 0 (KIP-714).
Omitted: metrics that are not single numbers (histograms, summaries) are counted and dropped.
Source: ClientMetricsManager (4.3).
"""

from __future__ import annotations

from collections.abc import Generator

from kwire.errors import ErrorCode
from kwire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kwire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

from ..telemetry.clients import COMPRESSION_TYPES
from ..telemetry.subscriptions import ClientAttributes
from .context import RequestContext
from .registry import handles


@handles(GetTelemetrySubscriptionsRequest, versions="0", authorize=None)
def get_telemetry_subscriptions(
    ctx: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Return the metrics that a client should push; errors: THROTTLING_QUOTA_EXCEEDED if it asks too often."""
    assert ctx.services.telemetry is not None
    clients = ctx.services.telemetry.clients
    now_ms = ctx.services.clock.monotonic_ms()
    found = clients.get(
        request.client_instance_id,
        client_of(ctx),
        ctx.connection.connection_id,
        now_ms,
        ctx.connection.account,
    )
    if isinstance(found, ErrorCode):
        return GetTelemetrySubscriptionsResponse(error_code=found)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=found.id,
        subscription_id=found.subscription_id,
        accepted_compression_types=list(COMPRESSION_TYPES),
        push_interval_ms=found.interval_ms,
        telemetry_max_bytes=clients.max_bytes,
        delta_temporality=True,
        requested_metrics=found.metrics,
    )


@handles(PushTelemetryRequest, versions="0", authorize=None)
def push_telemetry(
    ctx: RequestContext, request: PushTelemetryRequest
) -> Generator[None, None, PushTelemetryResponse]:
    """Take the metrics of a client."""
    telemetry = ctx.services.telemetry
    assert telemetry is not None
    payload = bytes(request.metrics)
    now_ms = ctx.services.clock.monotonic_ms()
    found = telemetry.clients.push(
        request.client_instance_id,
        client_of(ctx),
        ctx.connection.connection_id,
        now_ms,
        subscription_id=request.subscription_id,
        terminating=request.terminating,
        compression_type=request.compression_type,
        size=len(payload),
        account=ctx.connection.account,
    )
    if isinstance(found, ErrorCode):
        return PushTelemetryResponse(error_code=found)
    error = yield from telemetry.take(
        found, request.compression_type, payload, now_ms, terminating=request.terminating
    )
    return PushTelemetryResponse(error_code=error)


def client_of(ctx: RequestContext) -> ClientAttributes:
    """The client of a request, as subscriptions see it."""
    connection = ctx.connection
    return ClientAttributes(
        client_instance_id="",
        client_id=ctx.client_id or "",
        client_software_name=connection.client_software_name,
        client_software_version=connection.client_software_version,
        client_source_address=connection.client_host,
        client_source_port=str(connection.client_port),
    )
