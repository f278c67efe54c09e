"""FindCoordinator: which broker coordinates a group, a transactional id, or the state of a share partition.

Behavior: the leader of the key's partition of __consumer_offsets, __transaction_state or __share_group_state. The
first request creates the topic if it does not exist, and is answered when it can be used; Apache Kafka
answers COORDINATOR_NOT_AVAILABLE until then, and clients ask again.
Versions: 0-6. v1 brings transactional ids (KIP-98), v4 several keys in a request (KIP-699), v6 share
groups (KIP-932): only brokers may ask, by the key GROUP:TOPIC_ID:PARTITION. Without share groups, the answer is
COORDINATOR_NOT_AVAILABLE, as from 3.9.2.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode
from kwire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

from ..coordinator.share_state.coordinator import parsed_key
from ..metadata.internal_topics import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from . import share_version
from .authorization import DENIED, AclOperation, ResourceType, cluster
from .endpoints import address_for
from .registry import handles

if TYPE_CHECKING:
    from ..metadata.image import MetadataImage
    from .context import Later, RequestContext


GROUP, TRANSACTION, SHARE = 0, 1, 2

#: The permissions needed to describe a key, by its type.
RESOURCES = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}
TOPICS = {
    GROUP: GROUP_METADATA_TOPIC,
    TRANSACTION: TRANSACTION_STATE_TOPIC,
    SHARE: SHARE_GROUP_STATE_TOPIC,
}

MESSAGES = {
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.INVALID_REQUEST: "This is not a type of coordinator that this version has.",
}


_BROKERS = cluster(AclOperation.CLUSTER_ACTION)


def _authorize(ctx: RequestContext, request: FindCoordinatorRequest) -> ErrorCode:
    """Share coordinators are for brokers; keys of other types have their own permissions."""
    if request.key_type == SHARE and topic_of(ctx, SHARE)[1] is not None:
        return _BROKERS(ctx, request)
    return ErrorCode.NONE


@handles(
    FindCoordinatorRequest,
    versions="0-6",
    authorize=_authorize,
)
def find_coordinator(
    ctx: RequestContext, request: FindCoordinatorRequest
) -> Generator[None, None, FindCoordinatorResponse | Later[FindCoordinatorResponse]]:
    """Answer with a row for each key. Errors: COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST."""
    keys = request.coordinator_keys if ctx.version >= 4 else [request.key]
    error, topic = topic_of(ctx, request.key_type)
    if topic is None:
        rows = []
        for key in keys:
            yield
            rows.append(failure(key, error))
        return response_for(ctx, rows, explain=request.key_type != SHARE)
    kind = RESOURCES.get(request.key_type)
    denied: list[str] = []
    if kind is not None:
        keys, denied = yield from ctx.partition_by_authorized(AclOperation.DESCRIBE, kind, keys)
    if keys and ctx.services.metadata().topic(topic) is None:
        made = ctx.services.topics.ensure_internal_topic(topic)
        return ctx.later(made, lambda _: answer(ctx, request.key_type, topic, keys, denied))
    return (yield from answer(ctx, request.key_type, topic, keys, denied))


def topic_of(ctx: RequestContext, key_type: int) -> tuple[ErrorCode, str | None]:
    """Return the topic in which coordinators of this type keep their state, or an error."""
    if key_type == SHARE and ctx.version >= 6:
        if not share_version.is_known(ctx.services):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
    elif key_type not in RESOURCES:
        return ErrorCode.INVALID_REQUEST, None
    return ErrorCode.NONE, TOPICS[key_type]


def answer(
    ctx: RequestContext, key_type: int, topic: str, keys: list[str], denied: list[str]
) -> Generator[None, None, FindCoordinatorResponse]:
    services = ctx.services
    image = services.metadata()
    partition_for: Callable[[str], int]
    if key_type == SHARE:
        partition_for = services.share_coordinator.partition_for
    elif key_type == TRANSACTION:
        partition_for = services.transaction_coordinator.partition_for
    else:
        partition_for = services.group_coordinator.partition_for
    rows = []
    for key in keys:
        yield
        found = parsed_key(key) if key_type == SHARE else key
        if found is None:
            rows.append(failure(key, ErrorCode.INVALID_REQUEST))
        else:
            rows.append(row_for(ctx, image, topic, partition_for(found), key))
    for key in denied:
        yield
        rows.append(failure(key, DENIED[RESOURCES[key_type]]))
    return response_for(ctx, rows)


def row_for(
    ctx: RequestContext, image: MetadataImage, topic: str, partition: int, key: str
) -> Coordinator:
    """Return the row that names the leader of a partition, if it has a live one."""
    found = image.partition(topic, partition)
    address = None if found is None else address_for(ctx, image, found.leader)
    if found is None or address is None:
        return failure(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(key=key, node_id=found.leader, host=address.host, port=address.port)


def failure(key: str, error: ErrorCode) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error)


def response_for(
    ctx: RequestContext, rows: list[Coordinator], explain: bool = False
) -> FindCoordinatorResponse:
    """Put the rows into the form of the version; before version 4 there is only one key.

    Shape: as in 3.9.2, every answer up to version 3 has a message ("NONE" if there is no error);
    later ones only if `explain` is set, for an unknown type.
    """
    if ctx.version >= 4:
        if explain:
            for row in rows:
                row.error_message = MESSAGES[ErrorCode(row.error_code)]
        return FindCoordinatorResponse(coordinators=rows)
    row = rows[0]
    return FindCoordinatorResponse(
        error_code=row.error_code,
        error_message=MESSAGES[ErrorCode(row.error_code)],
        node_id=row.node_id,
        host=row.host,
        port=row.port,
    )
