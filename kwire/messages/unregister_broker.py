"""UnregisterBroker (API key 64): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message
from kwire.types import Int16, Int32, String


@message(api_key=ApiKey.UNREGISTER_BROKER, kind="request", versions="0", flexible="0+")
class UnregisterBrokerRequest:
    """Removes a broker's registration.

    Source: UnregisterBrokerRequest.json; KIP-631.
    """

    broker_id: int = field(Int32)


@message(api_key=ApiKey.UNREGISTER_BROKER, kind="response", versions="0", flexible="0+")
class UnregisterBrokerResponse:
    """Whether the registration was removed. Source: UnregisterBrokerResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
