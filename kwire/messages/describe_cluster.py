"""DescribeCluster (API key 60): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int8, Int16, Int32, String


@message(api_key=ApiKey.DESCRIBE_CLUSTER, kind="request", versions="0-2", flexible="0+")
class DescribeClusterRequest:
    """Asks for cluster id, controller and brokers.

    Source: DescribeClusterRequest.json; KIP-700, KIP-919 (v1 endpoint type), KIP-1073 (v2
    fenced brokers).
    """

    include_cluster_authorized_operations: bool = field(Bool)
    endpoint_type: int = field(Int8, "1+", default=1)
    include_fenced_brokers: bool = field(Bool, "2+")


@struct
class DescribeClusterBroker:
    broker_id: int = field(Int32)
    host: str = field(String)
    port: int = field(Int32)
    rack: str | None = field(String, nullable="0+", default=None)
    is_fenced: bool = field(Bool, "2+")


@message(api_key=ApiKey.DESCRIBE_CLUSTER, kind="response", versions="0-2", flexible="0+")
class DescribeClusterResponse:
    """Cluster id, controller and brokers. Source: DescribeClusterResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    endpoint_type: int = field(Int8, "1+", default=1)
    cluster_id: str = field(String)
    controller_id: int = field(Int32, default=-1)
    brokers: list[DescribeClusterBroker] = field(Array(DescribeClusterBroker))
    cluster_authorized_operations: int = field(Int32, default=-2147483648)
