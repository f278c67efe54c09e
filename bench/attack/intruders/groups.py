"""Requests of mallory, who may only use his own group, to alice's share group and consumer group."""

from __future__ import annotations

import time
from typing import Any

from kwire.api import ApiKey

from ..doors import SECRETS, TOPIC, Door, SecuredKwire, allow
from ..wire import errors_in
from .attempt import ALICE, MALLORY, Tried
from .permissions import AUTHORIZATION_ERRORS

GROUP = 3
SHARES, CONSUMERS, OWN = "alices-shares", "alices-consumers", "mallorys"
MEMBER = "alices-member"

Request = tuple[ApiKey, int, dict[str, Any]]


def share_heartbeat(group: str, epoch: int = 0) -> Request:
    """Join a share group that reads alice's topic."""
    names = [TOPIC] if epoch == 0 else None
    values = {"group_id": group, "member_id": MEMBER, "member_epoch": epoch}
    return ApiKey.SHARE_GROUP_HEARTBEAT, 1, {**values, "subscribed_topic_names": names}


def consumer_heartbeat(group: str) -> Request:
    """Join a consumer group that reads alice's topic."""
    return (
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        {
            **{"group_id": group, "member_id": MEMBER, "member_epoch": 0},
            **{"rebalance_timeout_ms": 60_000, "topic_partitions": []},
            "subscribed_topic_names": [TOPIC],
        },
    )


def fetch(group: str, topic_id: bytes, epoch: int = 0) -> Request:
    """Acquire records of alice's topic."""
    rows = [{"partition_index": 0, "acknowledgement_batches": []}]
    return (
        ApiKey.SHARE_FETCH,
        2,
        {
            **{"group_id": group, "member_id": MEMBER, "share_session_epoch": epoch},
            **{"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1_000_000},
            **{"max_records": 100, "batch_size": 100},
            "topics": [{"topic_id": topic_id, "partitions": rows}],
        },
    )


def acknowledge(group: str, topic_id: bytes, epoch: int) -> Request:
    """Reject records of alice's topic."""
    batch = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [3]}
    rows = [{"partition_index": 0, "acknowledgement_batches": [batch]}]
    topics = [{"topic_id": topic_id, "partitions": rows}]
    values = {"group_id": group, "member_id": MEMBER, "share_session_epoch": epoch}
    return ApiKey.SHARE_ACKNOWLEDGE, 2, {**values, "topics": topics}


def alter(group: str) -> Request:
    """Alter a group's start offset in alice's topic."""
    topics = [{"topic_name": TOPIC, "partitions": [{"partition_index": 0, "start_offset": 1_000}]}]
    return ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, {"group_id": group, "topics": topics}


def states(group: str, topic_id: bytes) -> list[Request]:
    """Requests that only brokers send to share coordinators."""
    write = {"partition": 0, "state_epoch": 9, "leader_epoch": 9, "start_offset": 1_000}
    rows: tuple[tuple[ApiKey, int, dict[str, Any]], ...] = (
        (ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, {"partition": 0, "state_epoch": 9}),
        (ApiKey.READ_SHARE_GROUP_STATE, 0, {"partition": 0, "leader_epoch": 9}),
        (ApiKey.WRITE_SHARE_GROUP_STATE, 1, {**write, "state_batches": []}),
        (ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1, {"partition": 0, "leader_epoch": -1}),
        (ApiKey.DELETE_SHARE_GROUP_STATE, 0, {"partition": 0}),
    )
    return [
        (
            api,
            version,
            {"group_id": group, "topics": [{"topic_id": topic_id, "partitions": [row]}]},
        )
        for api, version, row in rows
    ]


def ask(door: Door, request: Request) -> dict[str, Any]:
    api, version, values = request
    return door.call(api, version, **values)


def members_and_starts(answers: tuple[Any, ...]) -> tuple[Any, ...]:
    """The state that only alice may change: the members, and the group's start in each partition that has a state."""
    shares, offsets, consumers = answers
    members = [
        sorted(each["member_id"] for each in answer["groups"][0]["members"])
        for answer in (shares, consumers)
    ]
    topics = offsets["groups"][0]["topics"]
    starts = [
        (topic["topic_name"], row["partition_index"], row["start_offset"])
        for topic in topics
        for row in topic["partitions"]
    ]
    return members, starts


def shown(door: Door) -> tuple[Any, ...]:
    """alice's view of her groups."""
    of_shares = {"group_ids": [SHARES], "include_authorized_operations": False}
    offsets = {"groups": [{"group_id": SHARES, "topics": None}]}
    return (
        ask(door, (ApiKey.SHARE_GROUP_DESCRIBE, 1, of_shares)),
        ask(door, (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, offsets)),
        ask(door, (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {**of_shares, "group_ids": [CONSUMERS]})),
    )


def groups_of_others(broker: SecuredKwire) -> Tried:
    """mallory joins, reads, moves and deletes alice's groups, reads her topic with his own group, and poses as a
    broker.
    """
    admin = broker.admin()
    for who, group in ((ALICE, SHARES), (ALICE, CONSUMERS), (MALLORY, OWN)):
        assert allow(admin, f"User:{who}", GROUP, group) == 0
    with Door(broker.ports.sasl) as alice:
        assert alice.plain(ALICE, SECRETS[ALICE]) == 0
        found = alice.call(ApiKey.METADATA, 12, topics=[{"topic_id": bytes(16), "name": TOPIC}])
        topic_id = found["topics"][0]["topic_id"]
        deadline = time.monotonic() + 60
        keys = {"key_type": 0, "coordinator_keys": [SHARES, CONSUMERS]}
        while errors_in(ask(alice, (ApiKey.FIND_COORDINATOR, 4, keys))) - {0}:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        answer = ask(alice, share_heartbeat(SHARES))
        while answer["error_code"] or not answer["assignment"]:
            assert time.monotonic() < deadline, answer
            time.sleep(0.1)
            answer = ask(alice, share_heartbeat(SHARES, max(answer["member_epoch"], 0)))
        while ask(alice, consumer_heartbeat(CONSUMERS))["error_code"]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert not errors_in(ask(alice, fetch(SHARES, topic_id))) - {0}
        before = shown(alice)
        while not before[1]["groups"][0]["topics"]:  # the state of the partition is being created
            assert time.monotonic() < deadline, before
            time.sleep(0.1)
            before = shown(alice)
        assert not errors_in(list(before)) - {0}, before
        yield from attempts(broker, topic_id)
        yield (
            "alice's groups are changed",
            members_and_starts(shown(alice)) != members_and_starts(before),
        )
        again = errors_in(ask(alice, fetch(SHARES, topic_id, 1)))
        yield "alice's share session is taken", bool(again - {0})


def attempts(broker: SecuredKwire, topic_id: bytes) -> Tried:
    """Each request on a separate connection; a request that is answered without a refusal has succeeded."""
    of_shares = {"group_ids": [SHARES], "include_authorized_operations": True}
    named = [{"topic_name": TOPIC, "partitions": [0]}]
    of_alice: list[Request] = [
        share_heartbeat(SHARES),
        share_heartbeat(SHARES, -1),
        fetch(SHARES, topic_id),
        fetch(SHARES, topic_id, 1),
        fetch(SHARES, topic_id, -1),
        acknowledge(SHARES, topic_id, 1),
        acknowledge(SHARES, topic_id, -1),
        alter(SHARES),
        (ApiKey.SHARE_GROUP_DESCRIBE, 1, of_shares),
        (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, {"groups": [{"group_id": SHARES}]}),
        (
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            1,
            {"groups": [{"group_id": SHARES, "topics": named}]},
        ),
        (
            ApiKey.DELETE_SHARE_GROUP_OFFSETS,
            0,
            {"group_id": SHARES, "topics": [{"topic_name": TOPIC}]},
        ),
        (ApiKey.DELETE_GROUPS, 2, {"groups_names": [SHARES]}),
        consumer_heartbeat(CONSUMERS),
        (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {**of_shares, "group_ids": [CONSUMERS]}),
        *states(SHARES, topic_id),
    ]
    of_mallory: list[Request] = [
        share_heartbeat(OWN),
        fetch(OWN, topic_id),
        alter(OWN),
        (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, {"groups": [{"group_id": OWN, "topics": named}]}),
        consumer_heartbeat(OWN),
        *states(OWN, topic_id),
    ]
    for whose, requests in (("alice's", of_alice), ("his own", of_mallory)):
        for request in requests:
            with Door(broker.ports.sasl) as door:
                assert door.plain(MALLORY, SECRETS[MALLORY]) == 0
                answer = ask(door, request)
                told = errors_in(answer) & AUTHORIZATION_ERRORS
                yield f"{request[0].name} by mallory with {whose} group", not told
                yield f"records by {request[0].name} with {whose} group", has_records(answer)
    with Door(broker.ports.sasl) as door:  # the second request of a session of his own group
        assert door.plain(MALLORY, SECRETS[MALLORY]) == 0
        ask(door, fetch(OWN, topic_id))
        told = errors_in(ask(door, acknowledge(OWN, topic_id, 1))) & AUTHORIZATION_ERRORS
        yield "an acknowledgement of alice's records in mallory's session", not told


def has_records(answer: Any) -> bool:
    """Whether an answer contains records anywhere."""
    if isinstance(answer, dict):
        return bool(answer.get("records")) or any(map(has_records, answer.values()))
    return isinstance(answer, list) and any(map(has_records, answer))
