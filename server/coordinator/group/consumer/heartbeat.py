"""ConsumerGroupHeartbeat: a member joins, stays, changes its subscription, or leaves.

Source: GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid,
GroupMetadataManager.consumerGroupHeartbeat and consumerGroupLeave; KIP-848, KIP-1082 (ids made by clients).
"""

from __future__ import annotations

from collections.abc import Sequence

from kwire.errors import ErrorCode
from kwire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

from ....metadata.image import MetadataImage
from ..modern.context import GroupClient, GroupContext, GroupSettings
from ..modern.members import JOIN_EPOCH, LEAVE_EPOCH, MemberState
from ..modern.refusal import GroupRefusal
from . import deadlines
from .conversion import remove_members
from .current_assignment import Owned
from .draft import ConsumerDraft
from .group import ConsumerGroup
from .heartbeat_steps import apply_subscription, move
from .member import LEAVE_STATIC_EPOCH, ConsumerGroupMember
from .membership import check_memory, member_to_join, member_to_stay
from .records import CurrentRecord
from .regexes import RegexChange, update_regexes

#: The first version in which the client generates the member id.
CLIENT_MADE_ID_VERSION = 1

#: The maximum number of topics of a member: they are counted and stored in one turn.
MAX_NAMES = 10_000

#: The maximum number of topics, and of partitions, that a member may report: they are processed in one turn.
MAX_OWNED_TOPICS = 50_000
MAX_OWNED = 200_000


def check_request(
    request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]
) -> None:
    """Refuse a request that no group could accept.

    Errors: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR.
    """
    epoch = request.member_epoch
    needs_id = version >= CLIENT_MADE_ID_VERSION or epoch > 0 or epoch == LEAVE_EPOCH
    if needs_id and not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if not request.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if request.instance_id is not None and not request.instance_id.strip():
        raise _invalid("InstanceId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif epoch == LEAVE_STATIC_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    names = len(request.subscribed_topic_names or ())
    if names > MAX_NAMES:
        raise _invalid(f"SubscribedTopicNames has {names} names; {MAX_NAMES} are possible.")
    if request.topic_partitions:
        _check_owned(request.topic_partitions)
    assignor = request.server_assignor
    if assignor is not None and assignor not in assignors:
        raise GroupRefusal(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _check_owned(owned: Sequence[TopicPartitions]) -> None:
    """Refuse a member that reports more partitions than one turn can process."""
    if len(owned) > MAX_OWNED_TOPICS:
        raise _invalid(f"TopicPartitions has {len(owned)} topics; {MAX_OWNED_TOPICS} are possible.")
    partitions = sum([len(row.partitions) for row in owned])
    if partitions > MAX_OWNED:
        raise _invalid(f"TopicPartitions has {partitions} partitions; {MAX_OWNED} are possible.")


def _invalid(message: str) -> GroupRefusal:
    return GroupRefusal(ErrorCode.INVALID_REQUEST, message)


def refused(refusal: GroupRefusal) -> ConsumerGroupHeartbeatResponse:
    """The answer to a request that is refused."""
    return ConsumerGroupHeartbeatResponse(
        error_code=refusal.error, error_message=refusal.message, member_epoch=0
    )


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Owned:
    """The partitions that the member reports; None if it reports none."""
    if request.topic_partitions is None:
        return None
    return [(row.topic_id, row.partitions) for row in request.topic_partitions]


def unchanged(
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    client: GroupClient,
    image: MetadataImage,
) -> ConsumerGroupMember | None:
    """Return the member if its request only keeps it alive and the group needs no work; else None.

    Shape: for such a request, `heartbeat` only restarts the member's session.
    """
    member = group.members.get(request.member_id)
    epoch = request.member_epoch
    if (
        member is None
        or epoch <= JOIN_EPOCH
        or not epoch == member.member_epoch == group.assignment_epoch
        or member.state is not MemberState.STABLE
        or group.group_epoch > epoch
        or group.image_version != image.version
        or group.regexes
        or not _says_nothing(member, request, client)
        or (
            request.instance_id
            and group.static_members.get(request.instance_id) != member.member_id
        )
    ):
        return None
    return member


def answer_to(
    member: ConsumerGroupMember, settings: GroupSettings
) -> ConsumerGroupHeartbeatResponse:
    """Return a member's epoch, without its assignment."""
    return ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
    )


def heartbeat(
    context: GroupContext,
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    client: GroupClient,
    draft: ConsumerDraft,
) -> None:
    """Let a member join or stay.

    Errors: those of member_to_join, member_to_stay and check_memory; INVALID_REGULAR_EXPRESSION.
    """
    owned = owned_partitions(request)
    if request.member_epoch == JOIN_EPOCH:
        old = member_to_join(context, group, request.member_id, request.instance_id, draft)
    else:
        old = member_to_stay(
            context, group, request.member_id, request.instance_id, request.member_epoch, owned
        )
    new = _with_subscription(old, request, client)
    check_memory(context, group, old, new)
    names_changed = new.subscribed_topic_names != old.subscribed_topic_names
    if new != old:
        draft.write_member(group, new)
    regex_change = update_regexes(context, group, old, new, client, draft)
    target_epoch, target = apply_subscription(
        context,
        group,
        old,
        new,
        names_changed or regex_change is RegexChange.RESOLVED,
        draft,
    )
    member = move(
        context,
        group,
        new,
        target_epoch,
        target,
        owned,
        subscription_changed=names_changed or regex_change is not RegexChange.NONE,
        draft=draft,
    )
    deadlines.keep_alive(
        group.group_id, member.member_id, context.settings.session_timeout_ms, draft
    )
    response = answer_to(member, context.settings)
    is_full = (
        request.rebalance_timeout_ms != -1
        and owned is not None
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
    )
    if request.member_epoch == JOIN_EPOCH or is_full or old.assigned != member.assigned:
        response.assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(some))
                for topic_id, some in member.assigned.items()
            ]
        )
    draft.answer = response


def _says_nothing(
    member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest, client: GroupClient
) -> bool:
    """Whether a request changes nothing in the subscription and identity of a member."""
    return (
        request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms == -1
        and not request.server_assignor
        and request.rack_id is None
        and (request.instance_id is None or request.instance_id == member.instance_id)
        and client.client_id == member.client_id
        and client.client_host == member.client_host
        and member.classic is None
    )


def _with_subscription(
    member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest, client: GroupClient
) -> ConsumerGroupMember:
    """The member updated from its request; null fields do not change."""
    if _says_nothing(member, request, client):
        return member
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    rebalance_ms = request.rebalance_timeout_ms
    new = member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if rebalance_ms == -1 else rebalance_ms,
        server_assignor=request.server_assignor or member.server_assignor,
        subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
        subscribed_topic_regex=member.subscribed_topic_regex if regex is None else regex,
        client_id=client.client_id,
        client_host=client.client_host,
        classic=None,
    )
    return member if new == member else new


def leave(
    context: GroupContext,
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    draft: ConsumerDraft,
) -> None:
    """Remove a member; a static one may leave temporarily.

    Errors: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    member = member_to_stay(context, group, request.member_id, request.instance_id, None, None)
    draft.answer = ConsumerGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch
    )
    if request.instance_id is not None and request.member_epoch == LEAVE_STATIC_EPOCH:
        gone = member._replace(
            member_epoch=LEAVE_STATIC_EPOCH,
            assigned={topic: dict.fromkeys(some, 0) for topic, some in member.assigned.items()},
            revoking={},
        )
        draft.write(CurrentRecord(group.group_id, member.member_id, gone))
        return
    remove_members(context, group, [member], draft)
