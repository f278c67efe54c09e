"""ListConfigResources (API key 74): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int8, Int16, Int32, String


@message(api_key=ApiKey.LIST_CONFIG_RESOURCES, kind="request", versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    """Asks for the resources that have configs; before v1 client metrics subscriptions only.

    Source: ListConfigResourcesRequest.json; KIP-714 (as ListClientMetricsResources), KIP-1142
    (v1 all types).
    """

    resource_types: list[int] = field(Array(Int8), "1+")


@struct
class ConfigResource:
    resource_name: str = field(String)
    resource_type: int = field(Int8, "1+", default=16, ignorable=True)


@message(api_key=ApiKey.LIST_CONFIG_RESOURCES, kind="response", versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    """The resources. Source: ListConfigResourcesResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    config_resources: list[ConfigResource] = field(Array(ConfigResource))
