"""Features of Apache Kafka 4 only: offsets of topics by id, configs of groups, levels of features, lists of configs and
of partitions.
"""

from __future__ import annotations

from typing import Any

from kwire.api import ApiKey

from .data import UNKNOWN_ID
from .groups import find, stable
from .peer import NODE_ID, ZERO_ID, Peer
from .scenario import scenario_of_4

# Offsets of topics by id


def part(index: int, offset: int, **more: Any) -> dict[str, Any]:
    """Return a partition's row of OffsetCommit."""
    row = {"partition_index": index, "committed_offset": offset, "committed_metadata": "m"}
    return row | more


def in_order(topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return topics sorted by the content of their partitions: each broker has its own ids, and another order."""
    for topic in topics:
        topic["partitions"].sort(key=lambda row: row["partition_index"])
    return sorted(topics, key=lambda topic: repr(topic["partitions"]))


@scenario_of_4(ApiKey.OFFSET_COMMIT, 10, 10)
def commits_by_id(peer: Peer, version: int) -> None:
    """Of topics that exist, that do not, that are named twice; by members and by others."""
    topic = peer.topic_id(peer.create_topic("t", 2))
    simple = peer.name("simple")
    find(peer, simple)

    def ask(
        label: str,
        *rows: tuple[bytes, list[dict[str, Any]]],
        group: str = simple,
        member: str = "",
        generation: int = -1,
    ) -> None:
        topics = [{"topic_id": topic_id, "partitions": parts} for topic_id, parts in rows]
        request = {
            "group_id": group,
            "member_id": member,
            "generation_id_or_member_epoch": generation,
            "topics": topics,
        }
        answer = peer.client.call(ApiKey.OFFSET_COMMIT, version, request)
        if answer is not None:
            answer["topics"] = in_order(answer["topics"])
        peer.note(label, ApiKey.OFFSET_COMMIT, version, answer)

    ask("one", (topic, [part(0, 5)]))
    ask("leader epoch", (topic, [part(1, 6, committed_leader_epoch=3)]))
    ask("unknown partitions", (topic, [part(0, 7), part(9, 7), part(-1, 7)]))
    ask("unknown id", (UNKNOWN_ID, [part(0, 1), part(1, 1)]))
    ask("zero id", (ZERO_ID, [part(0, 1)]))
    ask("one known", (UNKNOWN_ID, [part(0, 1)]), (topic, [part(0, 8)]), (ZERO_ID, [part(3, 1)]))
    ask("long metadata", (topic, [part(0, 9, committed_metadata="x" * 5000)]))
    ask("none")
    ask("unknown id without partitions", (UNKNOWN_ID, []))
    group, member, generation = stable(peer)
    one = topic, [part(0, 10)]
    ask("member", one, group=group, member=member, generation=generation)
    ask("unknown member", one, group=group, member="nobody", generation=generation)
    ask("wrong generation", one, group=group, member=member, generation=generation + 3)
    ask("not a member", one, group=group)
    ask("generation of a simple group", one, member="x", generation=4)
    ask("member of an unknown group", one, group=peer.name("nowhere"), member="x", generation=4)
    for name in (group, simple):
        peer.call("stored", ApiKey.OFFSET_FETCH, 5, {"group_id": name, "topics": None})


@scenario_of_4(ApiKey.OFFSET_FETCH, 10, 10)
def offsets_by_id(peer: Peer, version: int) -> None:
    """Of topics that exist, that never did, and that exist no more."""
    topic = peer.topic_id(peer.create_topic("t", 3))
    gone_name = peer.create_topic("gone")
    gone = peer.topic_id(gone_name)
    group = peer.name("group")
    find(peer, group)
    for topic_id, parts in ((topic, [part(0, 5), part(1, 6)]), (gone, [part(0, 7)])):
        topics = [{"topic_id": topic_id, "partitions": parts}]
        peer.ask(ApiKey.OFFSET_COMMIT, 10, {"group_id": group, "topics": topics})

    def ask(
        label: str, *groups: tuple[str, list[tuple[bytes, list[int]]] | None], **more: Any
    ) -> None:
        rows = [
            {
                "group_id": name,
                "topics": topics
                and [{"topic_id": one, "partition_indexes": numbers} for one, numbers in topics],
            }
            | more
            for name, topics in groups
        ]
        answer = peer.client.call(ApiKey.OFFSET_FETCH, version, {"groups": rows})
        for row in answer["groups"] if answer is not None else ():
            row["topics"] = in_order(row["topics"])
        peer.note(label, ApiKey.OFFSET_FETCH, version, answer)

    ask("committed", (group, [(topic, [0, 1])]))
    ask("not committed", (group, [(topic, [2, 7, -1])]))
    ask("unknown id", (group, [(UNKNOWN_ID, [0, 1])]))
    ask("zero id", (group, [(ZERO_ID, [0])]))
    ask("one known", (group, [(UNKNOWN_ID, [0]), (topic, [1])]))
    ask("repeated", (group, [(topic, [1, 1])]))
    ask("all", (group, None))
    unknown = peer.name("nowhere")
    ask("several groups", (group, [(topic, [1])]), (unknown, None), (unknown, [(topic, [0])]))
    ask("as a member", (group, [(topic, [1])]), member_id="x", member_epoch=3)
    ask("unknown group as a member", (unknown, [(topic, [1])]), member_id="x", member_epoch=3)
    peer.ask(ApiKey.DELETE_TOPICS, 5, {"topic_names": [gone_name], "timeout_ms": 20_000})
    peer.until(  # Apache Kafka forgets the offsets a moment later
        lambda answer: all(row["name"] != gone_name for row in answer["groups"][0]["topics"]),
        ApiKey.OFFSET_FETCH,
        9,
        {"groups": [{"group_id": group, "topics": None}]},
    )
    ask("deleted", (group, [(gone, [0])]))
    ask("all but the deleted", (group, None))


# Configs of groups

GROUP = 32
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def described(peer: Peer, label: str, version: int, name: str, *keys: str) -> None:
    """Compare the answers of DescribeConfigs for a group's configs."""
    request = {
        "resources": [
            {"resource_type": GROUP, "resource_name": name, "configuration_keys": [*keys] or None}
        ],
        "include_synonyms": True,
    }
    peer.call(label, ApiKey.DESCRIBE_CONFIGS, version, request)


def until_described(peer: Peer, group: str, key: str, value: str) -> None:
    """Wait until a change has taken effect: Apache Kafka answers before."""
    row = {"resource_type": GROUP, "resource_name": group, "configuration_keys": [key]}
    peer.until(
        lambda answer: answer["results"][0]["configs"][0]["value"] == value,
        ApiKey.DESCRIBE_CONFIGS,
        4,
        {"resources": [row]},
    )


@scenario_of_4(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1)
def changed_configs_of_groups(peer: Peer, version: int) -> None:
    """Set, deleted, refused one by one; names of groups that are invalid as names of topics."""
    group = peer.name("g")

    def change(
        label: str, *ops: tuple[str, int, str | None], name: str = group, **more: Any
    ) -> None:
        configs = [
            {"name": key, "config_operation": operation, "value": value}
            for key, operation, value in ops
        ]
        row = {"resource_type": GROUP, "resource_name": name, "configs": configs}
        request = {"resources": [row], "validate_only": False} | more
        peer.call(label, ApiKey.INCREMENTAL_ALTER_CONFIGS, version, request)

    change("validated", (SESSION, 0, "50000"), validate_only=True)
    change("set", (SESSION, 0, "50000"), (HEARTBEAT, 0, "6000"))
    until_described(peer, group, HEARTBEAT, "6000")
    described(peer, "set, described", 4, group)
    for value in ("1", "70000", "x", "0", "", None, "2147483648"):
        change(f"{value}", (SESSION, 0, value))
    for key, value in (
        (HEARTBEAT, "1000"),
        (HEARTBEAT, "20000"),
        ("consumer.assignment.interval.ms", "-1"),
        ("consumer.assignment.interval.ms", "20000"),
        ("share.record.lock.duration.ms", "1000"),
        ("share.delivery.count.limit", "11"),
        ("share.partition.max.record.locks", "5000"),
        ("share.auto.offset.reset", "nope"),
        ("share.auto.offset.reset", "by_duration:PT1H"),
        ("share.isolation.level", "x"),
        ("share.renew.acknowledge.enable", "maybe"),
        ("streams.num.standby.replicas", "3"),
        ("streams.initial.rebalance.delay.ms", "0"),
        ("nope", "1"),
    ):
        change(f"{key} {value}", (key, 0, value))
    change("two wrong", (SESSION, 0, "1"), (HEARTBEAT, 0, "1"))
    change("twice", (SESSION, 0, "50000"), (SESSION, 0, "50001"))
    change("appended", (SESSION, 2, "1"))
    change("subtracted", (SESSION, 3, "1"))
    change("deleted, unknown", ("nope", 1, None))
    change("deleted, not set", ("share.session.timeout.ms", 1, None))
    change("no name", (SESSION, 0, "50000"), name="")
    for odd in ("a/b é.", ".", "..", "x" * 400):
        change(f"named {odd[:9]}", (SESSION, 0, "50000"), name=odd)
        until_described(peer, odd, SESSION, "50000")
    until_described(peer, group, "share.auto.offset.reset", "by_duration:PT1H")
    described(peer, "described", 4, group)
    rows = {"resource_types": [GROUP]}
    peer.call("listed", ApiKey.LIST_CONFIG_RESOURCES, 1, rows)
    for odd in ("a/b é.", ".", "..", "x" * 400):
        change(f"deleted {odd[:9]}", (SESSION, 1, None), name=odd)
    for key in (
        SESSION,
        HEARTBEAT,
        "share.auto.offset.reset",
        "streams.initial.rebalance.delay.ms",
    ):
        change(f"deleted {key}", (key, 1, None))
    until_described(peer, group, "streams.initial.rebalance.delay.ms", "3000")
    peer.call("none listed", ApiKey.LIST_CONFIG_RESOURCES, 1, rows)


@scenario_of_4(ApiKey.ALTER_CONFIGS, 0, 2)
def replaced_configs_of_groups(peer: Peer, version: int) -> None:
    """All of a group's configs at once."""
    group = peer.name("g")

    def replace(label: str, name: str = group, **values: str) -> None:
        configs = [{"name": key.replace("_", "."), "value": value} for key, value in values.items()]
        row = {"resource_type": GROUP, "resource_name": name, "configs": configs}
        request = {"resources": [row], "validate_only": False}
        peer.call(label, ApiKey.ALTER_CONFIGS, version, request)

    replace("two", consumer_session_timeout_ms="50000", consumer_heartbeat_interval_ms="6000")
    until_described(peer, group, HEARTBEAT, "6000")
    replace("wrong", consumer_session_timeout_ms="1")
    replace("unknown", nope="1")
    replace("no name", "", consumer_session_timeout_ms="50000")
    replace("one", consumer_session_timeout_ms="51000")
    until_described(peer, group, HEARTBEAT, "5000")
    described(peer, "described", 4, group, SESSION, HEARTBEAT)
    replace("none")
    until_described(peer, group, SESSION, "46000")


@scenario_of_4(ApiKey.DESCRIBE_CONFIGS, 1, 4)
def described_configs_of_groups(peer: Peer, version: int) -> None:
    """Of an unknown group, and of an empty name."""
    group = peer.name("g")
    described(peer, "all", version, group)
    described(peer, "one", version, group, SESSION, "nope")
    described(peer, "no name", version, "")


# Features

TRANSACTIONS = "transaction.version"
UPGRADE, SAFE, UNSAFE = 1, 2, 3


def until_finalized(peer: Peer, level: int | None, feature: str = TRANSACTIONS) -> None:
    """Wait until ApiVersions shows a level of a feature; None if it shows none."""

    def shown(answer: dict[str, Any]) -> bool:
        rows = {row["name"]: row for row in answer["finalized_features"]}
        row = rows.get(feature)
        return (None if row is None else row["max_version_level"]) == level

    request = {"client_software_name": "test", "client_software_version": "1"}
    peer.until(shown, ApiKey.API_VERSIONS, 4, request)


@scenario_of_4(ApiKey.UPDATE_FEATURES, 0, 2)
def levels_of_features(peer: Peer, version: int) -> None:
    """Down, refused, and up again."""

    def update(label: str, *rows: tuple[str, int, int], **more: Any) -> None:
        updates = [
            {
                "feature": name,
                "max_version_level": level,
                "allow_downgrade": kind != UPGRADE,
                "upgrade_type": kind,
            }
            for name, level, kind in rows
        ]
        request = {"timeout_ms": 10_000, "feature_updates": updates, "validate_only": False} | more
        answer = peer.client.call(ApiKey.UPDATE_FEATURES, version, request)
        text = None if answer is None else answer["error_message"]
        peer.note(label, ApiKey.UPDATE_FEATURES, version, answer)
        peer.note_values(f"{label}, in words", {"said": text})

    update("none")
    update("as it is", (TRANSACTIONS, 2, UPGRADE))
    update("twice", (TRANSACTIONS, 1, SAFE), (TRANSACTIONS, 2, UPGRADE))
    update("down as an upgrade", (TRANSACTIONS, 1, UPGRADE))
    update("too high", (TRANSACTIONS, 3, UPGRADE))
    update("below 0", (TRANSACTIONS, -1, SAFE))
    update("unknown", ("nope", 1, UPGRADE))
    update("unknown, 0", ("nope", 0, SAFE))
    update("no name", ("", 1, UPGRADE))
    update("unknown types", (TRANSACTIONS, 1, 9))
    update("no type", (TRANSACTIONS, 1, 0))
    if version >= 1:
        update("one of two", (TRANSACTIONS, 1, SAFE), ("nope", 1, UPGRADE))
        until_finalized(peer, 2)
        update("validated", (TRANSACTIONS, 1, SAFE), validate_only=True)
        update("down", (TRANSACTIONS, 1, SAFE))
        until_finalized(peer, 1)
        update("down to a higher one", (TRANSACTIONS, 2, SAFE))
        update("to nothing", (TRANSACTIONS, 0, UNSAFE))
        until_finalized(peer, None)
        update("nothing as it is", (TRANSACTIONS, 0, UPGRADE))
    update("up", (TRANSACTIONS, 2, UPGRADE))
    until_finalized(peer, 2)


@scenario_of_4(ApiKey.UPDATE_FEATURES, 2, 2)
def consumer_groups_switched_off(peer: Peer, version: int) -> None:
    """Without group.version there are no consumer groups; classic ones continue."""
    feature = "group.version"

    def update(level: int, kind: int) -> None:
        row = {"feature": feature, "max_version_level": level, "upgrade_type": kind}
        request = {"timeout_ms": 10_000, "feature_updates": [row], "validate_only": False}
        peer.call(f"to {level}", ApiKey.UPDATE_FEATURES, version, request)

    def ask(label: str) -> None:
        member = "AAAAAAAAAAAAAAAAAAAAAA"
        heartbeat = {
            "group_id": group,
            "member_id": member,
            "member_epoch": 0,
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": [peer.name("nowhere")],
            "topic_partitions": [],
        }
        peer.call(f"heartbeat, {label}", ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, heartbeat)
        names = {"group_ids": [group, peer.name("unknown")]}
        peer.call(f"described, {label}", ApiKey.CONSUMER_GROUP_DESCRIBE, 1, names)
        offset = {"name": topic, "partitions": [part(0, 5)]}
        commit = {"group_id": peer.name("simple"), "topics": [offset]}
        peer.call(f"commit, {label}", ApiKey.OFFSET_COMMIT, 9, commit)

    group, topic = peer.name("group"), peer.create_topic("t")
    find(peer, group)
    find(peer, peer.name("simple"))
    update(0, SAFE)
    until_finalized(peer, None, feature)
    ask("without")
    update(1, UPGRADE)
    until_finalized(peer, 1, feature)
    ask("with")


# Lists of resources with configs, and of partitions


@scenario_of_4(ApiKey.LIST_CONFIG_RESOURCES, 0, 1)
def resources_with_configs(peer: Peer, version: int) -> None:
    """Types one by one, several, none, and those that have no list."""
    topic = peer.create_topic("t")
    for types in ([], [2], [4], [8], [16], [2, 4], [4, 4], [1], [0], [99], [-1], [2, 99]):
        answer = peer.client.call(
            ApiKey.LIST_CONFIG_RESOURCES, version, {"resource_types": types if version else []}
        )
        if answer is not None:  # of topics and groups, those of this scenario
            rows = [
                row
                for row in answer["config_resources"]
                if row.get("resource_type") not in (2, GROUP) or row["resource_name"] == topic
            ]
            answer["config_resources"] = sorted(rows, key=lambda row: row.get("resource_type", 0))
        peer.note(f"{types}", ApiKey.LIST_CONFIG_RESOURCES, version, answer)


@scenario_of_4(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0)
def pages_of_partitions(peer: Peer, version: int) -> None:
    """Topics in any order, unknown and invalid ones, and pages that end in between."""
    one, two = peer.create_topic("one", 2), peer.create_topic("two", 3)
    unknown = peer.name("unknown")

    def ask(
        label: str, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
    ) -> None:
        at = cursor and {"topic_name": cursor[0], "partition_index": cursor[1]}
        request = {
            "topics": [{"name": name} for name in names],
            "response_partition_limit": limit,
            "cursor": at or None,
        }
        peer.call(label, ApiKey.DESCRIBE_TOPIC_PARTITIONS, version, request)

    ask("two", two, one)
    ask("the same twice", one, one)
    ask("unknown", unknown, one)
    ask("invalid", "a b", "", "..")
    for limit in (1, 2, 3, 5, 0, -1):
        ask(f"at most {limit}", one, two, limit=limit)
    ask("at most 2 with an unknown one", one, two, unknown, limit=2)
    ask("the same twice, at most 1", one, one, limit=1)
    for name, index in (
        (one, 1),
        (two, 0),
        (two, 2),
        (two, 3),
        (two, -1),
        (one, 9),
        (unknown, 0),
        ("", 0),
    ):
        ask(f"from {name} {index}", one, two, cursor=(name, index))
    ask("from another topic", one, cursor=(two, 0))


@scenario_of_4(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1)
def refused_reassignments(peer: Peer, version: int) -> None:
    """To the current brokers, to none, to nonexistent ones; none to cancel."""
    topic = peer.create_topic("t", 2)
    for label, name, partition, replicas in (
        ("as it is", topic, 0, [NODE_ID]),
        ("none to cancel", topic, 0, None),
        ("empty", topic, 0, []),
        ("twice", topic, 0, [NODE_ID, NODE_ID]),
        ("unknown broker", topic, 0, [77]),
        ("one more", topic, 0, [NODE_ID, 77]),
        ("below 0", topic, 0, [-1]),
        ("unknown partition", topic, 9, [NODE_ID]),
        ("unknown topic", peer.name("unknown"), 0, [NODE_ID]),
    ):
        partitions = [{"partition_index": partition, "replicas": replicas}]
        for allowed in (True, False) if version else (True,):
            request = {
                "timeout_ms": 20_000,
                "allow_replication_factor_change": allowed,
                "topics": [{"name": name, "partitions": partitions}],
            }
            peer.call(f"{label}, {allowed}", ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, request)
