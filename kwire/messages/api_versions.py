"""ApiVersions (API key 18): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int16, Int32, Int64, String


@message(api_key=ApiKey.API_VERSIONS, kind="request", versions="0-4", flexible="3+")
class ApiVersionsRequest:
    """Asks which APIs and versions the broker serves.

    Source: ApiVersionsRequest.json; KIP-35, KIP-511 (v3 client name), KIP-584 (v3 features).
    """

    client_software_name: str = field(String, "3+", ignorable=True)
    client_software_version: str = field(String, "3+", ignorable=True)


@struct
class ApiVersion:
    api_key: int = field(Int16)
    min_version: int = field(Int16)
    max_version: int = field(Int16)


@struct
class SupportedFeatureKey:
    name: str = field(String)
    min_version: int = field(Int16)
    max_version: int = field(Int16)


@struct
class FinalizedFeatureKey:
    name: str = field(String)
    max_version_level: int = field(Int16)
    min_version_level: int = field(Int16)


@message(api_key=ApiKey.API_VERSIONS, kind="response", versions="0-4", flexible="3+")
class ApiVersionsResponse:
    """The APIs with their version ranges, and the cluster's features.

    Source: ApiVersionsResponse.json.
    """

    error_code: int = field(Int16)
    api_keys: list[ApiVersion] = field(Array(ApiVersion))
    throttle_time_ms: int = field(Int32, "1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(
        Array(SupportedFeatureKey), "3+", tag=0, ignorable=True
    )
    finalized_features_epoch: int = field(Int64, "3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field(
        Array(FinalizedFeatureKey), "3+", tag=2, ignorable=True
    )
    zk_migration_ready: bool = field(Bool, "3+", tag=3, ignorable=True)
