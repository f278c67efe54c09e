"""Groups of both protocols, and transactional ids: their coordinators, members and offsets."""

from __future__ import annotations

from typing import Any, NamedTuple

from kwire.api import ApiKey
from kwire.errors import ErrorCode
from kwire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kwire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kwire.messages.describe_groups import DescribeGroupsRequest
from kwire.messages.init_producer_id import InitProducerIdRequest
from kwire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kwire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kwire.server.client.requests import GROUP, TRANSACTION, coordinator_request

from .connections import Address, Client, KafkaError

#: Those of groups of both kinds, as Kafka's tools show them.
GROUP_STATES = (
    "Stable",
    "Empty",
    "Dead",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
)

# Versions that Apache Kafka 2.4 and later all serve.
FIND_COORDINATOR, DESCRIBE_GROUPS, OFFSET_FETCH, LEAVE_GROUP, INIT_PRODUCER_ID = 2, 5, 6, 3, 2
#: Those of 4.0 and later.
CONSUMER_GROUP_DESCRIBE, CONSUMER_GROUP_HEARTBEAT = 0, 0
#: The epoch with which a member leaves (KIP-848).
LEAVES = -1


class Group(NamedTuple):
    """A consumer group of either protocol. Shape: `state` is Kafka's word (Stable, Empty, PreparingRebalance, Dead); `members` are member ids."""

    name: str
    state: str
    members: tuple[str, ...]


def coordinator(client: Client, key: str, kind: int = GROUP) -> Address:
    """The address of the coordinator of a group (kind GROUP) or of a transactional id (kind TRANSACTION)."""
    what = "transactional id" if kind == TRANSACTION else "group"

    def look() -> Address:
        answer = client.ask(coordinator_request(kind, key), FIND_COORDINATOR)
        if answer.error_code:
            raise KafkaError(f"coordinator of {what} {key!r}", answer.error_code)
        return answer.host, answer.port

    return client.patiently(look)


def described(client: Client, name: str) -> Group:
    """The state of a group; Dead without members if there is none."""

    def look() -> Group:
        request = DescribeGroupsRequest(groups=[name])
        row = client.ask(request, DESCRIBE_GROUPS, coordinator(client, name)).groups[0]
        if row.group_state == "Dead" and client.serves(ApiKey.CONSUMER_GROUP_DESCRIBE):
            other = _consumer_group(client, name)
            row = row if other is None else other
        if row.error_code:
            raise KafkaError(f"group {name!r}", row.error_code)
        return Group(name, row.group_state, tuple(each.member_id for each in row.members))

    return client.patiently(look)


def _consumer_group(client: Client, name: str) -> Any:
    """A group of the consumer protocol (KIP-848); None if there is no such."""
    request = ConsumerGroupDescribeRequest(group_ids=[name])
    answer = client.ask(request, CONSUMER_GROUP_DESCRIBE, coordinator(client, name))
    row = answer.groups[0]
    # Apache Kafka 3.9 lists the API, but does not have it with ZooKeeper.
    has_none = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
    return None if row.error_code in has_none else row


def committed(client: Client, group: str, topic: str, partition: int) -> int | None:
    """The committed offset of a group; None if there is none."""

    def look() -> int | None:
        topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])]
        request = OffsetFetchRequest(group_id=group, topics=topics)
        answer = client.ask(request, OFFSET_FETCH, coordinator(client, group))
        row = answer.topics[0].partitions[0]
        for code in (answer.error_code, row.error_code):
            if code:
                raise KafkaError(f"offsets of group {group!r}", code)
        return int(row.committed_offset) if row.committed_offset >= 0 else None

    return client.patiently(look)


def remove_members(client: Client, group: str) -> int:
    """Remove all members of a group; return how many there were."""
    members = described(client, group).members
    if members and client.serves(ApiKey.CONSUMER_GROUP_DESCRIBE) and _consumer_group(client, group):
        for each in members:
            _leave(client, group, each)
    elif members:
        request = LeaveGroupRequest(
            group_id=group, members=[MemberIdentity(member_id=each) for each in members]
        )
        answer = client.ask(request, LEAVE_GROUP, coordinator(client, group))
        for code in (answer.error_code, *(each.error_code for each in answer.members)):
            if code:
                raise KafkaError(f"members of group {group!r}", code)
    return len(members)


def _leave(client: Client, group: str, member: str) -> None:
    """Let a member of a group of the consumer protocol leave."""
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=LEAVES)
    answer = client.ask(request, CONSUMER_GROUP_HEARTBEAT, coordinator(client, group))
    if answer.error_code:
        raise KafkaError(f"member {member!r} of group {group!r}", answer.error_code)


def fence_producer(client: Client, transactional_id: str) -> None:
    """Give a transactional id a new epoch, as another producer with it would."""

    def init() -> None:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        address = coordinator(client, transactional_id, TRANSACTION)
        answer = client.ask(request, INIT_PRODUCER_ID, address)
        if answer.error_code:
            raise KafkaError(f"transactional id {transactional_id!r}", answer.error_code)

    client.patiently(init)
