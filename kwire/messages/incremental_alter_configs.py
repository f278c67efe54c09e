"""IncrementalAlterConfigs (API key 44): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int8, Int16, Int32, String


@struct
class AlterableConfig:
    name: str = field(String)
    config_operation: int = field(Int8)  # 0 set, 1 delete, 2 append, 3 subtract
    value: str | None = field(String, nullable="0+")


@struct
class AlterConfigsResource:
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    configs: list[AlterableConfig] = field(Array(AlterableConfig))


@message(api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS, kind="request", versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    """Sets, deletes, appends to or subtracts from single configs.

    Source: IncrementalAlterConfigsRequest.json; KIP-339.
    """

    resources: list[AlterConfigsResource] = field(Array(AlterConfigsResource))
    validate_only: bool = field(Bool)


@struct
class AlterConfigsResourceResponse:
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    resource_type: int = field(Int8)
    resource_name: str = field(String)


@message(api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS, kind="response", versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    """The outcome for each resource. Source: IncrementalAlterConfigsResponse.json."""

    throttle_time_ms: int = field(Int32)
    responses: list[AlterConfigsResourceResponse] = field(Array(AlterConfigsResourceResponse))
