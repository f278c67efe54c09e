"""DescribeConfigs (API key 32): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int8, Int16, Int32, String


@struct
class DescribeConfigsResource:
    # 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    configuration_keys: list[str] | None = field(Array(String), nullable="0+")  # null for all


@message(api_key=ApiKey.DESCRIBE_CONFIGS, kind="request", versions="0-4", flexible="4+")
class DescribeConfigsRequest:
    """Asks for the configs of topics, brokers and other resources.

    Source: DescribeConfigsRequest.json; KIP-133, KIP-226 (v1 synonyms), KIP-569 (v3 types and
    documentation).
    """

    resources: list[DescribeConfigsResource] = field(Array(DescribeConfigsResource))
    include_synonyms: bool = field(Bool, "1+")
    include_documentation: bool = field(Bool, "3+")


@struct
class DescribeConfigsSynonym:
    name: str = field(String)
    value: str | None = field(String, nullable="1+")
    source: int = field(Int8)


@struct
class DescribeConfigsResourceResult:
    name: str = field(String)
    value: str | None = field(String, nullable="0+")
    read_only: bool = field(Bool)
    is_default: bool = field(Bool, "0")
    # 1 topic, 2 broker, 3 cluster default, 4 properties file, 5 default.
    config_source: int = field(Int8, "1+", default=-1, ignorable=True)
    is_sensitive: bool = field(Bool)
    synonyms: list[DescribeConfigsSynonym] = field(
        Array(DescribeConfigsSynonym), "1+", ignorable=True
    )
    config_type: int = field(Int8, "3+", ignorable=True)
    documentation: str | None = field(String, "3+", nullable="3+", ignorable=True)


@struct
class DescribeConfigsResult:
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    configs: list[DescribeConfigsResourceResult] = field(Array(DescribeConfigsResourceResult))


@message(api_key=ApiKey.DESCRIBE_CONFIGS, kind="response", versions="0-4", flexible="4+")
class DescribeConfigsResponse:
    """The configs with their sources. Source: DescribeConfigsResponse.json."""

    throttle_time_ms: int = field(Int32)
    results: list[DescribeConfigsResult] = field(Array(DescribeConfigsResult))
