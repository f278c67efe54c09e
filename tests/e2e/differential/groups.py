"""Coordinators, classic consumer groups and their offsets."""

from __future__ import annotations

from typing import Any

from kwire.api import ApiKey
from kwire.codec import encode
from kwire.messages.join_group import JoinGroupRequest

from ...support.wire_client import WireClient, build
from .peer import Peer
from .scenario import batch, scenario, scenario_of_4

SUBSCRIPTION = bytes.fromhex(
    "000100000001000174ffffffff00000000"
)  # version 1: topic "t", no partitions
SUBSCRIPTION_2 = SUBSCRIPTION[:9] + b"\0\0\0\2xy\0\0\0\0"  # user data "xy"
ASSIGNMENT = bytes.fromhex("0001000000010001740000000100000000ffffffff")  # version 1: t-0


def find(peer: Peer, group: str) -> None:
    """Wait until the group has a coordinator."""
    peer.until(
        lambda answer: answer["error_code"] == 0,
        ApiKey.FIND_COORDINATOR,
        2,
        {"key": group, "key_type": 0},
    )
    peer.until(
        lambda answer: answer["error_code"] == 0,
        ApiKey.OFFSET_FETCH,
        5,
        {"group_id": group, "topics": []},
    )


def join_request(group: str, member: str = "", **more: Any) -> dict[str, Any]:
    """Return a JoinGroup request."""
    return {
        "group_id": group,
        "session_timeout_ms": 3_000,
        "rebalance_timeout_ms": 3_000,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
    } | more


def join(peer: Peer, group: str, version: int = 5, **more: Any) -> tuple[str, int]:
    """Join as the only new member, without comparing; return member id and generation."""
    answer = peer.ask(ApiKey.JOIN_GROUP, version, join_request(group, **more))
    if answer["error_code"] == 79:  # MEMBER_ID_REQUIRED
        again = join_request(group, answer["member_id"], **more)
        answer = peer.ask(ApiKey.JOIN_GROUP, version, again)
    assert answer["error_code"] == 0, answer
    return answer["member_id"], answer["generation_id"]


def stable(peer: Peer, stem: str = "group", **more: Any) -> tuple[str, str, int]:
    """Return group, member id and generation of a group with one member that has its assignment."""
    group = peer.name(stem)
    find(peer, group)
    member, generation = join(peer, group, **more)
    answer = peer.ask(
        ApiKey.SYNC_GROUP,
        3,
        {
            "group_id": group,
            "generation_id": generation,
            "member_id": member,
            "group_instance_id": more.get("group_instance_id"),
            "assignments": [{"member_id": member, "assignment": ASSIGNMENT}],
        },
    )
    assert answer["error_code"] == 0, answer
    return group, member, generation


@scenario(ApiKey.FIND_COORDINATOR, 0, 6)
def coordinators(peer: Peer, version: int) -> None:
    """Of groups; bad keys and kinds; several at once."""
    group = peer.name("group")
    find(peer, group)

    def ask(label: str, *keys: str, kind: int = 0) -> None:
        request = {"key": keys[0] if keys else "", "key_type": kind, "coordinator_keys": list(keys)}
        peer.call(label, ApiKey.FIND_COORDINATOR, version, request)

    ask("group", group)
    ask("empty", "")
    if version >= 1:
        ask("unknown kind", group, kind=5)
        ask("negative kind", group, kind=-1)
        if version < 6:  # then it is a kind only where there are share groups
            ask("share", group, kind=2)
    if version >= 4:
        ask("two", group, peer.name("other"))
        ask("same twice", group, group)
        ask("none")


@scenario(ApiKey.JOIN_GROUP, 0, 9)
def joining(peer: Peer, version: int) -> None:
    """The first member, and requests that are refused."""
    group = peer.name("group")
    find(peer, group)

    def ask(label: str, request: dict[str, Any]) -> dict[str, Any]:
        return peer.call(label, ApiKey.JOIN_GROUP, version, request) or {}

    for label, more in (
        ("empty group", {"group_id": ""}),
        ("unknown member", {"member_id": "nobody"}),
        ("short session", {"session_timeout_ms": 10}),
        ("long session", {"session_timeout_ms": 100_000_000}),
        ("no protocols", {"protocols": []}),
        ("empty protocol type", {"protocol_type": ""}),
    ):
        ask(label, join_request(group) | more)
    answer = ask("first", join_request(group))
    member = answer.get("member_id", "")
    if answer.get("error_code") == 79:
        answer = ask("with the given id", join_request(group, member))
    generation = answer.get("generation_id", -1)
    other = {"protocols": [{"name": "else", "metadata": b"x"}]}
    ask("other protocols", join_request(group) | other)
    ask("other protocol type", join_request(group) | {"protocol_type": "connect"})
    peer.ask(
        ApiKey.SYNC_GROUP,
        0,
        {
            "group_id": group,
            "generation_id": generation,
            "member_id": member,
            "assignments": [{"member_id": member, "assignment": ASSIGNMENT}],
        },
    )
    ask("leader again", join_request(group, member))
    two = {
        "protocols": [
            {"name": "roundrobin", "metadata": b"1"},
            {"name": "range", "metadata": SUBSCRIPTION},
        ]
    }
    ask("more protocols", join_request(group, member) | two)
    if version >= 8:
        ask("with a reason", join_request(group, member) | {"reason": "why not"})


@scenario(ApiKey.JOIN_GROUP, 5, 9)
def static_members(peer: Peer, version: int) -> None:
    """An instance id keeps its place; the older holder is fenced."""
    group = peer.name("static")
    find(peer, group)

    def ask(label: str, member: str = "", **more: Any) -> dict[str, Any]:
        request = join_request(group, member, group_instance_id="one", **more)
        return peer.call(label, ApiKey.JOIN_GROUP, version, request) or {}

    first = ask("first")
    member, generation = first.get("member_id", ""), first.get("generation_id", -1)
    sync = {
        "group_id": group,
        "generation_id": generation,
        "member_id": member,
        "group_instance_id": "one",
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": member, "assignment": ASSIGNMENT}],
    }
    peer.call("sync", ApiKey.SYNC_GROUP, 5, sync)
    again = ask("again without its id")
    ask("old id", member)
    beat = {"group_id": group, "generation_id": generation, "group_instance_id": "one"}
    peer.call("old heartbeat", ApiKey.HEARTBEAT, 4, beat | {"member_id": member})
    new = again.get("member_id", "")
    peer.call("new heartbeat", ApiKey.HEARTBEAT, 4, beat | {"member_id": new})
    peer.call("old sync", ApiKey.SYNC_GROUP, 5, sync)
    peer.call("new sync", ApiKey.SYNC_GROUP, 5, sync | {"member_id": new})
    ask("unknown id", "nobody")
    peer.call("described", ApiKey.DESCRIBE_GROUPS, 5, {"groups": [group]})
    leave = {"group_id": group, "members": [{"member_id": "", "group_instance_id": "one"}]}
    peer.call("removed", ApiKey.LEAVE_GROUP, 5, leave)
    peer.call("removed again", ApiKey.LEAVE_GROUP, 5, leave)


@scenario(ApiKey.JOIN_GROUP, 0, 9)
def two_members(peer: Peer, version: int) -> None:
    """A second member makes the first join again; both get their assignment from the leader."""
    group, first, generation = stable(peer, "two")
    second = peer.another()
    newcomer = join_request(group, "", protocols=[{"name": "range", "metadata": SUBSCRIPTION_2}])
    if version >= 4:
        answer = second.call(ApiKey.JOIN_GROUP, version, newcomer)
        assert answer is not None and answer["error_code"] == 79
        newcomer["member_id"] = answer["member_id"]
    body = encode(build(JoinGroupRequest, newcomer, version), version)
    second.send(ApiKey.JOIN_GROUP, version, body)
    beat = {"group_id": group, "generation_id": generation, "member_id": first}
    rebalance_in_progress = 27
    peer.until(
        lambda answer: answer["error_code"] == rebalance_in_progress, ApiKey.HEARTBEAT, 0, beat
    )
    peer.call("heartbeat", ApiKey.HEARTBEAT, 0, beat)
    commit = commit_request(group, peer.name("t"), 3, first, generation)
    peer.call("commit while rebalancing", ApiKey.OFFSET_COMMIT, 5, commit)
    leader = peer.call("first joins", ApiKey.JOIN_GROUP, version, join_request(group, first)) or {}
    answer = second.receive(ApiKey.JOIN_GROUP, version)
    note(peer, second, "second joined", ApiKey.JOIN_GROUP, version, answer)
    follower, generation = (answer or {}).get("member_id", ""), leader.get("generation_id", -1)
    assert leader.get("leader") == first
    sync = {"group_id": group, "generation_id": generation}
    assignments = [
        {"member_id": first, "assignment": b"for the first"},
        {"member_id": follower, "assignment": b"for the second"},
    ]
    peer.call(
        "old generation",
        ApiKey.SYNC_GROUP,
        0,
        sync | {"member_id": first, "generation_id": generation - 1},
    )
    peer.call(
        "first syncs", ApiKey.SYNC_GROUP, 0, sync | {"member_id": first, "assignments": assignments}
    )
    answer = second.call(ApiKey.SYNC_GROUP, 0, sync | {"member_id": follower})
    note(peer, second, "second syncs", ApiKey.SYNC_GROUP, 0, answer)
    peer.call("described", ApiKey.DESCRIBE_GROUPS, 5, {"groups": [group]})
    beat = {"group_id": group, "generation_id": generation}
    peer.call("beat", ApiKey.HEARTBEAT, 0, beat | {"member_id": first})
    leave = {"group_id": group, "member_id": follower}
    answer = second.call(ApiKey.LEAVE_GROUP, 0, leave)
    note(peer, second, "second leaves", ApiKey.LEAVE_GROUP, 0, answer)
    peer.call("beat after", ApiKey.HEARTBEAT, 0, beat | {"member_id": first})


def note(
    peer: Peer,
    client: WireClient,
    label: str,
    api: ApiKey,
    version: int,
    answer: dict[str, Any] | None,
) -> None:
    """Keep the answer of another connection for comparison."""
    assert answer is not None, f"{peer.broker.kind} closed the second connection"
    assert client.last is not None
    peer.note(label, api, version, answer)


@scenario(ApiKey.SYNC_GROUP, 0, 5)
def syncing(peer: Peer, version: int) -> None:
    """With the right and the wrong member, generation and protocol."""
    group = peer.name("sync")
    find(peer, group)
    member, generation = join(peer, group)

    def ask(label: str, **more: Any) -> None:
        request = {
            "group_id": group,
            "generation_id": generation,
            "member_id": member,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [],
        }
        peer.call(label, ApiKey.SYNC_GROUP, version, request | more)

    ask("unknown member", member_id="nobody")
    ask("wrong generation", generation_id=generation + 5)
    ask("unknown group", group_id=peer.name("nowhere"))
    ask("empty group", group_id="")
    if version >= 5:
        ask("other protocol type", protocol_type="connect")
        ask("other protocol", protocol_name="roundrobin")
        ask("no protocol", protocol_type=None, protocol_name=None)
    if version >= 3:
        ask("unknown instance", group_instance_id="one")
    ask("leader", assignments=[{"member_id": member, "assignment": ASSIGNMENT}])
    ask("again")


@scenario(ApiKey.HEARTBEAT, 0, 4)
def heartbeats(peer: Peer, version: int) -> None:
    """Of members and others."""
    group, member, generation = stable(peer)

    def ask(label: str, **more: Any) -> None:
        request = {"group_id": group, "generation_id": generation, "member_id": member}
        peer.call(label, ApiKey.HEARTBEAT, version, request | more)

    ask("good")
    ask("unknown member", member_id="nobody")
    ask("empty member", member_id="")
    ask("wrong generation", generation_id=99)
    ask("unknown group", group_id=peer.name("nowhere"))
    ask("empty group", group_id="")
    if version >= 3:
        ask("unknown instance", group_instance_id="one")


@scenario(ApiKey.LEAVE_GROUP, 0, 5)
def leaving(peer: Peer, version: int) -> None:
    """Members, strangers, several at once."""
    group, member, _ = stable(peer)

    def ask(label: str, *members: str, group_id: str = group) -> None:
        request = {
            "group_id": group_id,
            "member_id": members[0],
            "members": [{"member_id": one, "group_instance_id": None} for one in members],
        }
        peer.call(label, ApiKey.LEAVE_GROUP, version, request)

    ask("unknown member", "nobody")
    ask("unknown group", member, group_id=peer.name("nowhere"))
    ask("empty group", member, group_id="")
    if version >= 3:
        ask("two, one unknown", "nobody", member)
    else:
        ask("good", member)
    ask("again", member)
    peer.call("described", ApiKey.DESCRIBE_GROUPS, 5, {"groups": [group]})


PATIENT = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000}


@scenario(ApiKey.LEAVE_GROUP, 0, 5)
def leaving_with_an_id_only(peer: Peer, version: int) -> None:
    """By 4.3 it begins a rebalance, by 3.9 it changes nothing for the others."""
    group, member, generation = stable(peer, **PATIENT)
    newcomer = peer.ask(ApiKey.JOIN_GROUP, 5, join_request(group, **PATIENT))["member_id"]
    request = {
        "group_id": group,
        "member_id": newcomer,
        "members": [{"member_id": newcomer, "group_instance_id": None}],
    }
    beat = {"group_id": group, "generation_id": generation, "member_id": member}
    peer.call("left", ApiKey.LEAVE_GROUP, version, request)
    peer.call("beat after", ApiKey.HEARTBEAT, 0, beat)
    peer.call("again", ApiKey.LEAVE_GROUP, version, request)
    peer.call("described", ApiKey.DESCRIBE_GROUPS, 5, {"groups": [group]})


@scenario(ApiKey.LEAVE_GROUP, 3, 5)
def leaving_together(peer: Peer, version: int) -> None:
    """In 3.9 the waiting member has joined before it is removed, in 4.3 it has not."""
    group, first, generation = stable(peer, **PATIENT)
    second = peer.another()
    newcomer = join_request(group, **PATIENT)
    newcomer["member_id"] = peer.ask(ApiKey.JOIN_GROUP, 5, newcomer)["member_id"]
    second.send(ApiKey.JOIN_GROUP, 5, encode(build(JoinGroupRequest, newcomer, 5), 5))
    beat = {"group_id": group, "generation_id": generation, "member_id": first}
    peer.until(lambda answer: answer["error_code"] == 27, ApiKey.HEARTBEAT, 0, beat)
    members = [{"member_id": one} for one in (first, newcomer["member_id"])]
    request = {"group_id": group, "members": members}
    rows = peer.ask(ApiKey.LEAVE_GROUP, version, request)["members"]
    peer.note_values("left", {"errors": [row["error_code"] for row in rows]})
    answer = second.receive(ApiKey.JOIN_GROUP, 5)
    note(peer, second, "second joined", ApiKey.JOIN_GROUP, 5, answer)
    peer.call("described", ApiKey.DESCRIBE_GROUPS, 5, {"groups": [group]})
    _, generation = join(peer, group, **PATIENT)
    peer.note_values("joined again", {"generation": generation})


@scenario(ApiKey.DESCRIBE_GROUPS, 0, 5)
@scenario_of_4(ApiKey.DESCRIBE_GROUPS, 5, 6)
def described_groups(peer: Peer, version: int) -> None:
    """Stable, empty, dead, with offsets only."""
    group, member, _ = stable(peer)
    topic = peer.create_topic("t")
    alone = peer.name("alone")
    find(peer, alone)
    peer.ask(ApiKey.OFFSET_COMMIT, 5, commit_request(alone, topic, 1))
    for label, groups in (
        ("stable", [group]),
        ("unknown", [peer.name("nowhere")]),
        ("only offsets", [alone]),
        ("both", [group, alone]),
        ("empty name", [""]),
        ("none", []),
    ):
        request = {"groups": groups, "include_authorized_operations": label == "stable"}
        peer.call(label, ApiKey.DESCRIBE_GROUPS, version, request)
    peer.ask(ApiKey.LEAVE_GROUP, 0, {"group_id": group, "member_id": member})
    peer.call("after leaving", ApiKey.DESCRIBE_GROUPS, version, {"groups": [group]})


@scenario(ApiKey.LIST_GROUPS, 0, 5)
@scenario_of_4(ApiKey.LIST_GROUPS, 4, 5)
def listed_groups(peer: Peer, version: int) -> None:
    """By state and by type; only this scenario's groups are compared."""
    stable(peer)
    topic = peer.create_topic("t")
    find(peer, peer.name("alone"))
    peer.ask(ApiKey.OFFSET_COMMIT, 5, commit_request(peer.name("alone"), topic, 1))

    def ask(label: str, states: list[str], types: list[str]) -> None:
        request = {"states_filter": states, "types_filter": types}
        answer = peer.client.call(ApiKey.LIST_GROUPS, version, request)
        if answer is not None:
            own = [row for row in answer["groups"] if row["group_id"].startswith(peer.prefix + "-")]
            answer["groups"] = own
        peer.note(label, ApiKey.LIST_GROUPS, version, answer)

    ask("all", [], [])
    if version >= 4:
        for state in ("Stable", "Empty", "stable", "Nonsense"):
            ask(f"state {state}", [state], [])
        ask("two states", ["Stable", "Empty"], [])
    if version >= 5:
        for kind in ("classic", "Classic", "consumer", "nonsense"):
            ask(f"type {kind}", [], [kind])


@scenario(ApiKey.DELETE_GROUPS, 0, 2)
def deleted_groups(peer: Peer, version: int) -> None:
    """With members, without, unknown."""
    group, member, _ = stable(peer)

    def ask(label: str, *groups: str) -> None:
        peer.call(label, ApiKey.DELETE_GROUPS, version, {"groups_names": list(groups)})

    ask("with a member", group)
    ask("unknown", peer.name("nowhere"))
    ask("empty name", "")
    peer.ask(ApiKey.LEAVE_GROUP, 0, {"group_id": group, "member_id": member})
    ask("empty and unknown", group, peer.name("nowhere"))
    ask("again", group)
    ask("none")


# Offsets


def commit_request(
    group: str, topic: str, offset: int, member: str = "", generation: int = -1, **row: Any
) -> dict[str, Any]:
    """Return an OffsetCommit request for partition 0."""
    part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
    return {
        "group_id": group,
        "member_id": member,
        "generation_id_or_member_epoch": generation,
        "topics": [{"name": topic, "partitions": [part | row]}],
    }


@scenario(ApiKey.OFFSET_COMMIT, 0, 9)
@scenario_of_4(ApiKey.OFFSET_COMMIT, 8, 9)
def commits(peer: Peer, version: int) -> None:
    """By members, by clients that are not members, and by those that may not commit."""
    group, member, generation = stable(peer)
    topic = peer.create_topic("t", 2)
    simple = peer.name("simple")
    find(peer, simple)

    def ask(label: str, request: dict[str, Any], **more: Any) -> None:
        peer.call(label, ApiKey.OFFSET_COMMIT, version, request | more)

    ask("without a group's members", commit_request(simple, topic, 5))
    ask("leader epoch", commit_request(simple, topic, 6, committed_leader_epoch=3))
    ask("null metadata", commit_request(simple, topic, 6, committed_metadata=None))
    ask("long metadata", commit_request(simple, topic, 7, committed_metadata="x" * 5000))
    ask("negative offset", commit_request(simple, topic, -1))
    ask("unknown partition", commit_request(simple, topic, 1, partition_index=9))
    ask("unknown topic", commit_request(simple, peer.name("nowhere"), 1))
    ask("empty group", commit_request("", topic, 1))
    # Version 0 keeps its offsets elsewhere in Apache Kafka, and other scenarios describe this
    # group.
    peer.ask(ApiKey.DELETE_GROUPS, 0, {"groups_names": [""]})
    ask("no topics", commit_request(simple, topic, 1), topics=[])
    if version >= 1:
        ask("member", commit_request(group, topic, 8, member, generation))
        ask("unknown member", commit_request(group, topic, 9, "nobody", generation))
        ask("wrong generation", commit_request(group, topic, 9, member, generation + 3))
        ask("generation of a simple group", commit_request(simple, topic, 9, "x", 4))
    ask("simple commit to a group with members", commit_request(group, topic, 9))
    if version >= 7:
        ask(
            "unknown instance",
            commit_request(group, topic, 9, member, generation),
            group_instance_id="i",
        )
    for name in (group, simple):
        request = {"group_id": name, "topics": None}
        peer.call("stored", ApiKey.OFFSET_FETCH, 5, request)


@scenario(ApiKey.OFFSET_FETCH, 0, 9)
@scenario_of_4(ApiKey.OFFSET_FETCH, 8, 9)
def fetched_offsets(peer: Peer, version: int) -> None:
    """Committed, not committed, all, of unknown groups; several groups at once."""
    topic = peer.create_topic("t", 3)
    group = peer.name("group")
    find(peer, group)
    peer.ask(ApiKey.OFFSET_COMMIT, 6, commit_request(group, topic, 5, committed_leader_epoch=0))
    later = commit_request(group, topic, 6, partition_index=1, committed_metadata=None)
    peer.ask(ApiKey.OFFSET_COMMIT, 6, later)

    def ask(label: str, rows: dict[str, list[int]] | None, name: str = group, **more: Any) -> None:
        topics = rows and [
            {"name": one, "partition_indexes": indexes} for one, indexes in rows.items()
        ]
        topics = [] if rows == {} else topics
        request = {
            "group_id": name,
            "topics": topics,
            "groups": [{"group_id": name, "topics": topics}],
        }
        peer.call(label, ApiKey.OFFSET_FETCH, version, request | more)

    ask("committed", {topic: [0, 1]})
    ask("not committed", {topic: [2, 7]})
    ask("unknown topic", {peer.name("nowhere"): [0]})
    ask("nothing", {})
    ask("unknown group", {topic: [0]}, name=peer.name("none"))
    ask("empty group", {topic: [0]}, name="")
    if version >= 2:
        ask("all", None)
        ask("all of an unknown group", None, name=peer.name("none"))
    if version >= 7:
        ask("stable", {topic: [0]}, require_stable=True)
    if version >= 8:
        rows = [{"group_id": name, "topics": None} for name in (group, peer.name("none"))]
        peer.call("two groups", ApiKey.OFFSET_FETCH, version, {"groups": rows})
    if version >= 9:
        rows = [{"group_id": group, "member_id": "x", "member_epoch": 4, "topics": None}]
        peer.call("of a member", ApiKey.OFFSET_FETCH, version, {"groups": rows})


@scenario(ApiKey.OFFSET_DELETE, 0, 0)
def deleted_offsets(peer: Peer, version: int) -> None:
    """Of subscribed topics, others, unknown ones."""
    group, member, generation = stable(peer)  # subscribed to "t"
    other = peer.create_topic("other")
    alone = peer.name("alone")
    find(peer, alone)
    peer.ask(ApiKey.OFFSET_COMMIT, 5, commit_request(group, other, 4, member, generation))
    peer.ask(ApiKey.OFFSET_COMMIT, 5, commit_request(alone, other, 4))

    def ask(label: str, name: str, topic: str, *partitions: int) -> None:
        rows = [{"partition_index": index} for index in partitions]
        request = {"group_id": name, "topics": [{"name": topic, "partitions": rows}]}
        peer.call(label, ApiKey.OFFSET_DELETE, version, request)

    ask("subscribed", group, "t", 0)
    ask("not subscribed", group, other, 0)
    ask("again", group, other, 0)
    ask("simple", alone, other, 0, 5)
    ask("unknown topic", alone, peer.name("nowhere"), 0)
    ask("unknown group", peer.name("nobody"), other, 0)
    ask("empty group", "", other, 0)
    peer.call("stored", ApiKey.OFFSET_FETCH, 5, {"group_id": alone, "topics": None})


@scenario(ApiKey.OFFSET_DELETE, 0, 0)
def last_offset(peer: Peer, version: int) -> None:
    """By 4.3 the group stays until the next check, by 3.9 it is gone; also if the topic is deleted."""
    topic = peer.create_topic("other")
    gone = peer.create_topic("gone")
    emptied, member, generation = stable(peer, "emptied", **PATIENT)
    peer.ask(ApiKey.OFFSET_COMMIT, 5, commit_request(emptied, topic, 4, member, generation))
    peer.ask(ApiKey.LEAVE_GROUP, 2, {"group_id": emptied, "member_id": member})
    simple, of_topic = peer.name("simple"), peer.name("of-topic")
    for name, read in ((simple, topic), (of_topic, gone)):
        find(peer, name)
        peer.ask(ApiKey.OFFSET_COMMIT, 5, commit_request(name, read, 4))
    for name in (emptied, simple):
        rows = [{"name": topic, "partitions": [{"partition_index": 0}]}]
        request = {"group_id": name, "topics": rows}
        peer.call(f"deleted {name}", ApiKey.OFFSET_DELETE, version, request)
    peer.ask(ApiKey.DELETE_TOPICS, 5, {"topic_names": [gone], "timeout_ms": 20_000})
    peer.until(
        lambda answer: not answer["topics"],
        ApiKey.OFFSET_FETCH,
        5,
        {"group_id": of_topic, "topics": None},
    )
    for name in (emptied, simple, of_topic):
        peer.call(f"described {name}", ApiKey.DESCRIBE_GROUPS, 5, {"groups": [name]})
        _, generation = join(peer, name, **PATIENT)
        peer.note_values(f"joined again {name}", {"generation": generation})


@scenario(ApiKey.OFFSET_COMMIT, 5, 5)
def commits_are_records(peer: Peer, version: int) -> None:
    """Only the coordinator writes to its topic."""
    find(peer, peer.name("group"))
    rows = [{"index": 0, "records": batch(b"x")}]
    request = {
        "acks": -1,
        "timeout_ms": 1000,
        "topic_data": [{"name": "__consumer_offsets", "partition_data": rows}],
    }
    peer.call("produced to", ApiKey.PRODUCE, 9, request)
