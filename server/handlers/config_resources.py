"""ListConfigResources (API key 74), before 4.1 ListClientMetricsResources.

Behavior: the names of what has configs: topics, brokers (also as their loggers), subscriptions to clients' metrics, and
groups with configs of their own.
Versions: 0 (KIP-714) lists subscriptions only, 1 (KIP-1142) the types that are asked for.
Source: KafkaApis.handleListConfigResources (4.3).
"""

from __future__ import annotations

from collections.abc import Iterable

from kwire.errors import ErrorCode
from kwire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

from ..config.changes import ConfigResourceType
from ..coordination.paths import desanitize
from ..metadata.image import CLIENT_METRICS, EMPTY, GROUPS, MetadataImage
from ..turns import Steps
from .authorization import AclOperation, cluster
from .context import RequestContext
from .registry import handles

LISTED = (
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.BROKER,
    ConfigResourceType.TOPIC,
    ConfigResourceType.GROUP,
)


@handles(
    ListConfigResourcesRequest,
    versions="0-1",
    authorize=cluster(AclOperation.DESCRIBE_CONFIGS),
)
def list_config_resources(
    ctx: RequestContext, request: ListConfigResourcesRequest
) -> Steps[ListConfigResourcesResponse]:
    """List resources with configs; errors: UNSUPPORTED_VERSION for a type that has none."""
    wanted: Iterable[int] = request.resource_types or LISTED
    if ctx.version == 0:
        wanted = (ConfigResourceType.CLIENT_METRICS,)
    wanted = set(wanted)
    if not wanted.issubset(LISTED):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    image = ctx.services.metadata()
    rows = []
    for kind in LISTED:
        if kind not in wanted:
            continue
        for name in names_of(image, kind):
            yield
            rows.append(ConfigResource(resource_name=name, resource_type=kind))
    return ListConfigResourcesResponse(config_resources=rows)


def names_of(image: MetadataImage, kind: ConfigResourceType) -> Iterable[str]:
    """The resources of one type."""
    match kind:
        case ConfigResourceType.TOPIC:
            return iter(image.topics)
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
            return map(str, image.brokers)
        case ConfigResourceType.CLIENT_METRICS:
            return map(desanitize, image.configs.get(CLIENT_METRICS, EMPTY))
        case ConfigResourceType.GROUP:
            return map(desanitize, image.configs.get(GROUPS, EMPTY))
        case _:
            return ()
