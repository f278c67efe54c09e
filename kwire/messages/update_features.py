"""UpdateFeatures (API key 57): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int8, Int16, Int32, String


@struct
class FeatureUpdateKey:
    feature: str = field(String)
    max_version_level: int = field(Int16)
    allow_downgrade: bool = field(Bool, "0")
    upgrade_type: int = field(Int8, "1+", default=1)


@message(api_key=ApiKey.UPDATE_FEATURES, kind="request", versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    """Changes finalized feature versions of the cluster.

    Source: UpdateFeaturesRequest.json; KIP-584, KIP-778 (v1 upgrade types).
    """

    timeout_ms: int = field(Int32, default=60000)
    feature_updates: list[FeatureUpdateKey] = field(Array(FeatureUpdateKey))
    validate_only: bool = field(Bool, "1+")


@struct
class UpdatableFeatureResult:
    feature: str = field(String)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")


@message(api_key=ApiKey.UPDATE_FEATURES, kind="response", versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    """The outcome for each feature. Source: UpdateFeaturesResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    results: list[UpdatableFeatureResult] = field(
        Array(UpdatableFeatureResult), "0-1", ignorable=True
    )
