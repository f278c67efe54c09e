"""ApiVersions: which APIs, versions and features this broker serves.

Behavior: the version ranges that both the handler table and the ceiling have, and the feature
levels. A request in an unsupported version is answered in v0 with UNSUPPORTED_VERSION and all
ranges.
Versions: 0-4. Up to v3, supported features with minimum level 0 are left out, because old clients
reject them (KAFKA-17011). v3 brings the client's software name and version (KIP-511).
Omitted: zk_migration_ready is always false.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode
from kwire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

from .registry import handles

if TYPE_CHECKING:
    from .ceilings import ApiRange
    from .context import RequestContext

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest, versions="0-4", authorize=None)
def api_versions(ctx: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Answer with all APIs; errors: INVALID_REQUEST for a malformed software name or version."""
    if ctx.version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not SOFTWARE.fullmatch(name) or not SOFTWARE.fullmatch(version):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        ctx.connection.client_software_name = name
        ctx.connection.client_software_version = version
    response = ApiVersionsResponse(api_keys=api_keys(ctx.services.api_ranges))
    if ctx.version >= 3:
        features = ctx.services.features
        response.supported_features = [
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in features.supported.items()
            if low > 0 or ctx.version >= 4
        ]
        response.finalized_features_epoch = features.epoch
        response.finalized_features = [
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in features.finalized.items()
        ]
    return response


def api_keys(ranges: Mapping[int, ApiRange]) -> list[ApiVersion]:
    """Return the rows of an answer, ordered by key."""
    return [
        ApiVersion(api_key=key, min_version=low, max_version=high)
        for key, low, high in ranges.values()
    ]


def unsupported_version_response(ranges: Mapping[int, ApiRange]) -> ApiVersionsResponse:
    """Return the answer to an unsupported version; to be encoded in v0."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=api_keys(ranges))
