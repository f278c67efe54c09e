"""ControlledShutdown, AlterPartition, AllocateProducerIds (API keys 7, 56, 67): brokers ask the controller.

Behavior: when a broker shuts down, its leaderships are moved away and nothing waits for it any
longer; partitions for which it is the only possible leader are named in the answer, so that it asks
again. Leaders change the in-sync replicas of their partitions only through these requests. Producer
ids are reserved in blocks of a thousand. A broker that is not the controller answers
NOT_CONTROLLER; a request from an earlier process of the sender gets STALE_BROKER_EPOCH.
Versions: ControlledShutdown 0-3 (v2 broker epoch, KIP-380), AlterPartition 0-3 (v1 leader recovery, v2
    topic ids, v3 the replicas' broker epochs), AllocateProducerIds 0; only in a cluster (ceiling 3.9).
Source: KafkaApis.handleControlledShutdownRequest, handleAlterPartitionRequest,
    handleAllocateProducerIdsRequest.
"""

from __future__ import annotations

from kwire.errors import ErrorCode
from kwire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from kwire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from kwire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)

from ..controller.leadership import Shutdown
from ..coordination.paths import ProducerIdBlock
from .authorization import AclOperation, cluster
from .context import Later, RequestContext
from .registry import handles


@handles(
    ControlledShutdownRequest,
    versions="0-3",
    authorize=cluster(AclOperation.CLUSTER_ACTION),
    throttled=False,
)
def controlled_shutdown(
    ctx: RequestContext, request: ControlledShutdownRequest
) -> Later[ControlledShutdownResponse]:
    """Move leaderships away from the broker that sends the request."""
    return ctx.later(
        ctx.services.controller.controlled_shutdown(request.broker_id, request.broker_epoch),
        _shut_down,
    )


def _shut_down(shutdown: Shutdown) -> ControlledShutdownResponse:
    return ControlledShutdownResponse(
        error_code=shutdown.error,
        remaining_partitions=[
            RemainingPartition(topic_name=tp.topic, partition_index=tp.partition)
            for tp in shutdown.remaining
        ],
    )


@handles(
    AlterPartitionRequest,
    versions="0-3",
    authorize=cluster(AclOperation.CLUSTER_ACTION),
    throttled=False,
)
def alter_partition(
    ctx: RequestContext, request: AlterPartitionRequest
) -> Later[AlterPartitionResponse]:
    """Change in-sync replicas."""
    return ctx.later(ctx.services.controller.alter_partition(request, ctx.version))


@handles(AllocateProducerIdsRequest, versions="0", authorize=cluster(AclOperation.CLUSTER_ACTION))
def allocate_producer_ids(
    ctx: RequestContext, request: AllocateProducerIdsRequest
) -> Later[AllocateProducerIdsResponse]:
    """Reserve a block of producer ids."""
    return ctx.later(
        ctx.services.controller.allocate_producer_ids(request.broker_id, request.broker_epoch),
        _allocated,
    )


def _allocated(block: ProducerIdBlock | ErrorCode) -> AllocateProducerIdsResponse:
    if isinstance(block, ErrorCode):
        return AllocateProducerIdsResponse(error_code=block)
    return AllocateProducerIdsResponse(
        producer_id_start=block.first, producer_id_len=block.last - block.first + 1
    )
