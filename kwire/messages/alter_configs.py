"""AlterConfigs (API key 33): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int8, Int16, Int32, String


@struct
class AlterableConfig:
    name: str = field(String)
    value: str | None = field(String, nullable="0+")


@struct
class AlterConfigsResource:
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    configs: list[AlterableConfig] = field(Array(AlterableConfig))


@message(api_key=ApiKey.ALTER_CONFIGS, kind="request", versions="0-2", flexible="2+")
class AlterConfigsRequest:
    """Replaces all configs of resources.

    Source: AlterConfigsRequest.json; KIP-133; superseded by IncrementalAlterConfigs.
    """

    resources: list[AlterConfigsResource] = field(Array(AlterConfigsResource))
    validate_only: bool = field(Bool)


@struct
class AlterConfigsResourceResponse:
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    resource_type: int = field(Int8)
    resource_name: str = field(String)


@message(api_key=ApiKey.ALTER_CONFIGS, kind="response", versions="0-2", flexible="2+")
class AlterConfigsResponse:
    """The outcome for each resource. Source: AlterConfigsResponse.json."""

    throttle_time_ms: int = field(Int32)
    responses: list[AlterConfigsResourceResponse] = field(Array(AlterConfigsResourceResponse))
