"""LeaderAndIsr, StopReplica, UpdateMetadata (API keys 4, 5, 6): what a controller tells a broker.

Behavior: a request meant for an earlier process of this broker (with an older broker epoch) is
refused with STALE_BROKER_EPOCH, one from an earlier controller with STALE_CONTROLLER_EPOCH, and one with
a name that no topic can have with INVALID_REQUEST. Roles are taken and logs created before the answer;
the config of a topic that is new to this broker is read from the coordination store first. A broker
that is the controller itself asks the store whether another one has been elected,
and if not, the sender is refused with STALE_CONTROLLER_EPOCH.
Versions: all versions of Apache Kafka 3.9; only in a cluster (ceiling 3.9).
Omitted: requests of a KRaft controller that takes over a ZooKeeper cluster (migration to KRaft).
Source: KafkaApis.handleLeaderAndIsrRequest, handleStopReplicaRequest, handleUpdateMetadataRequest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from kwire.errors import ErrorCode
from kwire.messages.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from kwire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kwire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

from ..controller.topics import invalid_topic_name
from ..coordination.store import StoreClosed, StoreError
from ..metadata.image import TOPICS
from ..metadata.updates import updated
from ..replication.replica_manager import by_topic, stopped_topics
from ..replication.role_slices import AT_ONCE, stop_replicas, take_roles
from ..turns import Steps
from .authorization import AclOperation, cluster
from .context import Later, RequestContext
from .registry import handles

logger = logging.getLogger(__name__)

RETRY_S = 0.2

#: The number of topics of UpdateMetadata that are adopted at once.
TOPICS_AT_ONCE = 500

#: From this version on a LeaderAndIsr response has its errors by topic id.
BY_TOPIC_ID_SINCE = 5


Told = TypeVar("Told", LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest)
Answer = TypeVar("Answer", LeaderAndIsrResponse, StopReplicaResponse, UpdateMetadataResponse)


def _obey(
    ctx: RequestContext,
    request: Told,
    refused: Callable[[ErrorCode], Answer],
    take: Callable[[RequestContext, Told], Answer | Coroutine[Any, Any, Answer]],
) -> Steps[Answer | Later[Answer]]:
    """Carry out a request if it comes from the current controller.

    Shape: `refused` makes the response with an error; `take` returns the response, or a coroutine of it.
    """
    if error := _refusal(ctx, request):
        return refused(error)
    if (yield from _is_malformed(request)):
        # Names become directories, and paths in the store: "../x" must not.
        logger.warning(
            "%s from %s has an invalid topic name or partition",
            type(request).__name__.removesuffix("Request"),
            ctx.connection.client_host,
        )
        return refused(ErrorCode.INVALID_REQUEST)
    if ctx.services.controller.holds_office:
        return ctx.later(_obey_another(ctx, request, refused, take))
    answer = take(ctx, request)
    return ctx.later(answer) if isinstance(answer, Coroutine) else answer


async def _obey_another(
    ctx: RequestContext,
    request: Told,
    refused: Callable[[ErrorCode], Answer],
    take: Callable[[RequestContext, Told], Answer | Coroutine[Any, Any, Answer]],
) -> Answer:
    """Obey if the store says that this broker is no longer the controller."""
    if not await ctx.services.controller.is_deposed(request.controller_epoch):
        logger.warning(
            "%s from %s names controller %d of epoch %d and is refused: this broker is the controller",
            type(request).__name__.removesuffix("Request"),
            ctx.connection.client_host,
            request.controller_id,
            request.controller_epoch,
        )
        return refused(ErrorCode.STALE_CONTROLLER_EPOCH)
    answer = take(ctx, request)
    return await answer if isinstance(answer, Coroutine) else answer


def _is_malformed(request: Told) -> Steps[bool]:
    """Whether a request has a topic name that no topic can have, or a partition below 0; in steps."""
    names: set[str] = set()
    partitions: set[int] = set()
    for topic in request.topic_states:
        yield
        names.add(topic.topic_name)
        partitions.update(state.partition_index for state in topic.partition_states)
    if isinstance(request, StopReplicaRequest):
        for old in request.topics:
            yield
            names.add(old.name)
            partitions.update(old.partition_indexes)
        for stopped in request.ungrouped_partitions:
            yield
            names.add(stopped.topic_name)
            partitions.add(stopped.partition_index)
    else:
        for state in request.ungrouped_partition_states:
            yield
            names.add(state.topic_name)
            partitions.add(state.partition_index)
    for name in names:
        yield
        if invalid_topic_name(name) is not None:
            return True
    return min(partitions, default=0) < 0


def _refusal(ctx: RequestContext, request: Told) -> ErrorCode:
    """STALE_BROKER_EPOCH for a request that is meant for an earlier process of this broker, otherwise NONE."""
    if 0 <= request.broker_epoch < ctx.services.controller.broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    return ErrorCode.NONE


async def _pause() -> None:
    """Let others go first: the controller's requests are not counted as a client's work."""
    await asyncio.sleep(0)


@handles(
    LeaderAndIsrRequest,
    versions="0-7",
    authorize=cluster(AclOperation.CLUSTER_ACTION),
    throttled=False,
)
def leader_and_isr(
    ctx: RequestContext, request: LeaderAndIsrRequest
) -> Steps[LeaderAndIsrResponse | Later[LeaderAndIsrResponse]]:
    """Take the roles of partitions."""
    return _obey(ctx, request, _no_roles, _roles)


def _no_roles(error: ErrorCode) -> LeaderAndIsrResponse:
    return LeaderAndIsrResponse(error_code=error)


def _roles(
    ctx: RequestContext, request: LeaderAndIsrRequest
) -> LeaderAndIsrResponse | Coroutine[Any, Any, LeaderAndIsrResponse]:
    replicas = ctx.services.replica_manager
    image = ctx.services.metadata()
    told = request.topic_states or by_topic(request.ungrouped_partition_states)
    unknown = [
        topic.topic_name
        for topic in told
        if not image.topic_config(topic.topic_name)
        and any(
            replicas.get(topic.topic_name, state.partition_index) is None
            for state in topic.partition_states
        )
    ]
    if not unknown and sum(len(topic.partition_states) for topic in told) <= AT_ONCE:
        return as_of(ctx.version, replicas.become_leader_or_follower(request))
    return _take_roles(ctx, request, told, unknown)


async def _take_roles(
    ctx: RequestContext,
    request: LeaderAndIsrRequest,
    told: list[LeaderAndIsrTopicState],
    unknown: list[str],
) -> LeaderAndIsrResponse:
    """Read the configs of topics that are new here, then take the roles, a few at a time."""
    if unknown:
        found = await _configs(ctx, unknown)
        edit = ctx.services.publisher.image.edit()
        for (kind, name), config in found.items():
            edit.put_config(kind, name, config)
        ctx.services.publisher.publish(edit.build())
    whole = await take_roles(
        ctx.services.replica_manager, request, told, _pause, lambda: _refusal(ctx, request)
    )
    return as_of(ctx.version, whole)


async def _configs(
    ctx: RequestContext, topics: list[str]
) -> Mapping[tuple[str, str], Mapping[str, str]]:
    """The configs of topics. Retries forever, because the controller sends everything only once."""
    while True:
        try:
            return await ctx.services.cluster.configs([(TOPICS, name) for name in topics])
        except StoreClosed:
            raise
        except StoreError as error:
            logger.warning("cannot read the configs of %d new topics yet: %s", len(topics), error)
        await asyncio.sleep(RETRY_S)


def as_of(version: int, response: LeaderAndIsrResponse) -> LeaderAndIsrResponse:
    """The response in the form of a version: errors by topic id since 5, by name before."""
    if version >= BY_TOPIC_ID_SINCE:
        response.partition_errors = []
    else:
        response.topics = []
    return response


@handles(
    StopReplicaRequest,
    versions="0-4",
    authorize=cluster(AclOperation.CLUSTER_ACTION),
    throttled=False,
)
def stop_replica(
    ctx: RequestContext, request: StopReplicaRequest
) -> Steps[StopReplicaResponse | Later[StopReplicaResponse]]:
    """Stop following partitions, and delete those that the request says to delete."""
    return _obey(ctx, request, _not_stopped, _stop)


def _not_stopped(error: ErrorCode) -> StopReplicaResponse:
    return StopReplicaResponse(error_code=error)


def _stop(
    ctx: RequestContext, request: StopReplicaRequest
) -> StopReplicaResponse | Coroutine[Any, Any, StopReplicaResponse]:
    told = stopped_topics(request)
    if sum(len(topic.partition_states) for topic in told) <= AT_ONCE:
        return ctx.services.replica_manager.stop_replicas(request)
    return stop_replicas(
        ctx.services.replica_manager, request, told, _pause, lambda: _refusal(ctx, request)
    )


@handles(
    UpdateMetadataRequest,
    versions="0-8",
    authorize=cluster(AclOperation.CLUSTER_ACTION),
    throttled=False,
)
def update_metadata(
    ctx: RequestContext, request: UpdateMetadataRequest
) -> Steps[UpdateMetadataResponse | Later[UpdateMetadataResponse]]:
    """Adopt the controller's view of the cluster; clients are answered from it from now on."""
    return _obey(ctx, request, _not_updated, _update)


def _not_updated(error: ErrorCode) -> UpdateMetadataResponse:
    return UpdateMetadataResponse(error_code=error)


def _update(
    ctx: RequestContext, request: UpdateMetadataRequest
) -> UpdateMetadataResponse | Coroutine[Any, Any, UpdateMetadataResponse]:
    if len(request.topic_states) > TOPICS_AT_ONCE:
        return _update_in_parts(ctx, request)
    if not ctx.services.replica_manager.take_controller_epoch(request.controller_epoch):
        return _not_updated(ErrorCode.STALE_CONTROLLER_EPOCH)
    publisher = ctx.services.publisher
    publisher.publish(updated(publisher.image, request))
    return UpdateMetadataResponse()


async def _update_in_parts(
    ctx: RequestContext, request: UpdateMetadataRequest
) -> UpdateMetadataResponse:
    """Adopt many topics, a few at a time; the others stay unchanged until their turn."""
    for first in range(0, len(request.topic_states), TOPICS_AT_ONCE):
        part = UpdateMetadataRequest(
            controller_id=request.controller_id,
            controller_epoch=request.controller_epoch,
            topic_states=request.topic_states[first : first + TOPICS_AT_ONCE],
            live_brokers=request.live_brokers,
        )
        answer = _update(ctx, part)
        assert isinstance(answer, UpdateMetadataResponse)
        if answer.error_code:
            return answer
        await _pause()
    return UpdateMetadataResponse()
