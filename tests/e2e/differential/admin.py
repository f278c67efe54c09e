"""ApiVersions, Metadata, topics, configs, the cluster and its log directories."""

from __future__ import annotations

from typing import Any

from kwire.api import ApiKey

from .data import UNKNOWN_ID
from .peer import NODE_ID, Peer
from .scenario import batch, scenario, scenario_of_4

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8


@scenario(ApiKey.API_VERSIONS, 0, 4)
def api_versions(peer: Peer, version: int) -> None:
    """Names of client software; the version ranges are compared by another test."""
    for label, name, text in (
        ("good", "apache-kafka-java", "3.9.2"),
        ("empty", "", ""),
        ("bad characters", "a b", "1!"),
    ):
        request = {"client_software_name": name, "client_software_version": text}
        answer = peer.client.call(ApiKey.API_VERSIONS, version, request)
        if answer is not None:
            # Which APIs there are is another matter, and features go with the store.
            for field in (
                "api_keys",
                "supported_features",
                "finalized_features",
                "finalized_features_epoch",
                "zk_migration_ready",
            ):
                answer.pop(field, None)
        peer.note(label, ApiKey.API_VERSIONS, version, answer)


# Metadata


@scenario(ApiKey.METADATA, 0, 12)
@scenario_of_4(ApiKey.METADATA, 12, 13)
def known_and_unknown_topics(peer: Peer, version: int) -> None:
    """By name, by id, none, and invalid names."""
    topic = peer.create_topic("known", 3)
    auto = {"allow_auto_topic_creation": False}

    def ask(label: str, topics: list[dict[str, Any]] | None, **more: Any) -> None:
        peer.call(label, ApiKey.METADATA, version, {"topics": topics} | auto | more)

    ask("one", [{"name": topic}])
    ask("twice", [{"name": topic}, {"name": topic}])
    if version >= 1:
        ask("none", [])
    if version >= 4:
        ask("unknown", [{"name": peer.name("nowhere")}])
        for label, name in (("empty", ""), ("dot", "."), ("slash", "a/b"), ("long", "x" * 250)):
            ask(f"bad name {label}", [{"name": name}])
            ask(f"bad name {label}, auto", [{"name": name}], allow_auto_topic_creation=True)
    if version >= 8:
        ask("operations", [{"name": topic}], include_topic_authorized_operations=True)
        if version <= 10:
            ask("of the cluster", [], include_cluster_authorized_operations=True)
    if version >= 12:
        ask("by id", [{"name": None, "topic_id": peer.topic_id(topic)}])
        ask("by unknown id", [{"name": None, "topic_id": UNKNOWN_ID}])
        ask("by null", [{"name": None, "topic_id": bytes(16)}])
    if version >= 10:
        ask("by id and name", [{"name": topic, "topic_id": peer.topic_id(topic)}])


@scenario(ApiKey.METADATA, 0, 12)
@scenario_of_4(ApiKey.METADATA, 13, 13)
def auto_creation(peer: Peer, version: int) -> None:
    """The first answer may come before there is a leader; in the end the topic exists."""
    name = peer.name("auto")
    request = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
    peer.until(
        lambda answer: (
            answer["topics"][0]["error_code"] == 0
            and all(part["error_code"] == 0 for part in answer["topics"][0]["partitions"])
        ),
        ApiKey.METADATA,
        version,
        request,
    )
    peer.call("created", ApiKey.METADATA, version, request)


# Topics


def new_topic(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
    """Return a row of CreateTopics."""
    row = {"name": name, "num_partitions": partitions, "replication_factor": replicas}
    return row | {"assignments": [], "configs": []} | more


@scenario(ApiKey.CREATE_TOPICS, 0, 7)
def created_and_refused(peer: Peer, version: int) -> None:
    """Counts, names, assignments, configs, repetitions."""

    def create(label: str, *rows: dict[str, Any], **more: Any) -> None:
        # Apache Kafka takes this long for a topic that cannot get a leader.
        request = {"topics": list(rows), "timeout_ms": 1_000} | more
        peer.call(label, ApiKey.CREATE_TOPICS, version, request)

    name = peer.name
    create("good", new_topic(name("a"), 2))
    create("exists", new_topic(name("a")))
    create("two, one exists", new_topic(name("a")), new_topic(name("b")))
    create("same name twice", new_topic(name("c")), new_topic(name("c")))
    create("none")
    for count in (0, -2):
        create(f"{count} partitions", new_topic(name("d"), count))
    create("-1 partitions", new_topic(name("d1"), -1))
    for count in (0, -2, 2):
        create(f"{count} replicas", new_topic(name("e"), 1, count))
    create("-1 replicas", new_topic(name("e1"), 1, -1))
    for label, bad in (
        *(("empty", ""), ("dot", "."), ("dots", ".."), ("slash", "a/b"), ("space", "a b")),
        *(("long", "x" * 250), ("umlaut", "ä")),
    ):
        create(f"name {label}", new_topic(bad))
    create("longest name", new_topic((name("l") + "x" * 249)[:249]))
    create("with dot", new_topic(name("col.lide")))
    create("with underscore", new_topic(name("col_lide")))
    create("internal", new_topic("__consumer_offsets"))

    def assigned(*rows: tuple[int, list[int]]) -> list[dict[str, Any]]:
        return [{"partition_index": index, "broker_ids": ids} for index, ids in rows]

    for label, assignments, partitions, replicas in (
        ("good", assigned((0, [NODE_ID]), (1, [NODE_ID])), -1, -1),
        ("with counts", assigned((0, [NODE_ID])), 1, 1),
        ("with partitions", assigned((0, [NODE_ID])), 1, -1),
        ("not from zero", assigned((1, [NODE_ID])), -1, -1),
        ("gap", assigned((0, [NODE_ID]), (2, [NODE_ID])), -1, -1),
        ("twice the same", assigned((0, [NODE_ID]), (0, [NODE_ID])), -1, -1),
        ("unknown broker", assigned((0, [99])), -1, -1),
        ("broker twice", assigned((0, [NODE_ID, NODE_ID])), -1, -1),
        ("no broker", assigned((0, [])), -1, -1),
        ("uneven", assigned((0, [NODE_ID]), (1, [NODE_ID, 99])), -1, -1),
    ):
        row = new_topic(name("m-" + label.replace(" ", "-")), partitions, replicas)
        create(f"assignment {label}", row | {"assignments": assignments})
    for number, (key, value) in enumerate(
        (
            ("retention.ms", "1000"),
            ("retention.ms", "soon"),
            ("retention.ms", None),
            ("retention.years", "1"),
            ("cleanup.policy", "compact,delete"),
            ("cleanup.policy", "shred"),
            ("max.message.bytes", "-1"),
            ("min.insync.replicas", "0"),
            ("compression.type", "brotli"),
            ("segment.bytes", "13"),
            ("segment.bytes", "14"),
            ("message.timestamp.type", "Later"),
            ("leader.replication.throttled.replicas", "x"),
            ("unclean.leader.election.enable", "maybe"),
            ("min.cleanable.dirty.ratio", "1.1"),
        )
    ):
        row = new_topic(name(f"conf{number}"), configs=[{"name": key, "value": value}])
        create(f"config {key}={value}", row)
    if version >= 1:
        create("validated", new_topic(name("v")), validate_only=True)
        create("validated, exists", new_topic(name("a")), validate_only=True)
        create("validated, bad", new_topic(name("v"), 0), validate_only=True)


@scenario(ApiKey.DELETE_TOPICS, 0, 6)
def deleted(peer: Peer, version: int) -> None:
    """By name, by id, unknown, twice."""

    def delete(label: str, *names: str, states: list[dict[str, Any]] | None = None) -> None:
        rows = (
            states
            if states is not None
            else [{"name": one, "topic_id": bytes(16)} for one in names]
        )
        request = {"topics": rows, "topic_names": list(names), "timeout_ms": 10_000}
        peer.call(label, ApiKey.DELETE_TOPICS, version, request)

    for stem in ("a", "b", "c", "d"):
        peer.create_topic(stem)
    name = peer.name
    delete("one", name("a"))
    delete("again", name("a"))
    delete("one of two unknown", name("b"), name("nowhere"))
    delete("twice at once", name("c"), name("c"))
    delete("empty name", "")
    delete("none")
    if version >= 6:
        topic_id = peer.topic_id(name("d"))
        delete("unknown id", states=[{"name": None, "topic_id": UNKNOWN_ID}])
        delete("neither", states=[{"name": None, "topic_id": bytes(16)}])
        delete("both", states=[{"name": name("d"), "topic_id": topic_id}])
        delete("by id", states=[{"name": None, "topic_id": topic_id}])
        delete("by id again", states=[{"name": None, "topic_id": topic_id}])


@scenario(ApiKey.CREATE_PARTITIONS, 0, 3)
def grown(peer: Peer, version: int) -> None:
    """More, fewer, as many; assignments; unknown topics."""
    topic = peer.create_topic("grown", 2)

    def grow(
        label: str, count: int, assignments: Any = None, name: str = topic, **more: Any
    ) -> None:
        rows = [{"name": name, "count": count, "assignments": assignments}]
        request = {"topics": rows, "timeout_ms": 10_000, "validate_only": False} | more
        peer.call(label, ApiKey.CREATE_PARTITIONS, version, request)

    grow("validated", 5, validate_only=True)
    grow("to 3", 3)
    grow("to 3 again", 3)
    grow("to 2", 2)
    grow("to 0", 0)
    grow("to -1", -1)
    grow("assigned", 4, [{"broker_ids": [NODE_ID]}])
    grow("assigned too many", 5, [{"broker_ids": [NODE_ID]}] * 2)
    grow("assigned too few", 6, [{"broker_ids": [NODE_ID]}])
    grow("unknown broker", 5, [{"broker_ids": [77]}])
    grow("broker twice", 5, [{"broker_ids": [NODE_ID, NODE_ID]}])
    grow("no broker", 5, [{"broker_ids": []}])
    grow("unknown topic", 5, name=peer.name("nowhere"))
    rows = [{"name": topic, "count": 6, "assignments": None}] * 2
    request = {"topics": rows, "timeout_ms": 10_000, "validate_only": False}
    peer.call("twice", ApiKey.CREATE_PARTITIONS, version, request)
    auto = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    peer.call("metadata after", ApiKey.METADATA, 12, auto)


# Configs


def config_names(peer: Peer) -> list[str]:
    """Return the names of topic configs that are requested from both brokers."""
    return [
        *("cleanup.policy", "compression.type", "delete.retention.ms", "file.delete.delay.ms"),
        *("flush.messages", "flush.ms", "index.interval.bytes", "max.compaction.lag.ms"),
        *("max.message.bytes", "message.timestamp.type", "message.timestamp.after.max.ms"),
        *("message.timestamp.before.max.ms", "min.cleanable.dirty.ratio"),
        *("min.compaction.lag.ms", "min.insync.replicas", "preallocate", "retention.bytes"),
        *("segment.bytes", "segment.index.bytes", "segment.jitter.ms", "segment.ms"),
        *("unclean.leader.election.enable", "message.downconversion.enable"),
    ]


@scenario(ApiKey.DESCRIBE_CONFIGS, 0, 4)
def described_configs(peer: Peer, version: int) -> None:
    """Topics, brokers, single keys, unknown things."""
    topic = peer.create_topic("shown", max_message_bytes="5000", cleanup_policy="compact")

    def ask(label: str, kind: int, name: str, keys: list[str] | None, **more: Any) -> None:
        row = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        request = {"resources": [row], "include_synonyms": True} | more
        peer.call(label, ApiKey.DESCRIBE_CONFIGS, version, request)

    ask("topic", TOPIC, topic, config_names(peer))
    ask("topic without synonyms", TOPIC, topic, config_names(peer), include_synonyms=False)
    ask("documented", TOPIC, topic, ["retention.bytes"], include_documentation=True)
    ask("unknown key", TOPIC, topic, ["nothing.like.it", "segment.ms"])
    ask("no keys", TOPIC, topic, [])
    ask("unknown topic", TOPIC, peer.name("nowhere"), None)
    ask("bad topic", TOPIC, "a/b", None)
    broker_keys = [
        *(
            "log.segment.bytes",
            "num.io.threads",
            "offsets.topic.num.partitions",
            "log.retention.ms",
        ),
        *("message.max.bytes", "log.cleaner.threads", "compression.type", "ssl.keystore.password"),
        *("auto.create.topics.enable", "group.min.session.timeout.ms", "background.threads"),
    ]
    ask("broker", BROKER, str(NODE_ID), broker_keys)
    ask("default of brokers", BROKER, "", broker_keys)
    ask("other broker", BROKER, "42", broker_keys)
    ask("broker with a bad name", BROKER, "one", broker_keys)
    ask("unknown kind", 77, "x", None)
    rows = [
        {"resource_type": TOPIC, "resource_name": name, "configuration_keys": ["segment.ms"]}
        for name in (topic, topic)
    ]
    peer.call("twice", ApiKey.DESCRIBE_CONFIGS, version, {"resources": rows})


@scenario(ApiKey.ALTER_CONFIGS, 0, 2)
def replaced_configs(peer: Peer, version: int) -> None:
    """All at once: unnamed keys return to their defaults."""
    topic = peer.create_topic("replaced", max_message_bytes="5000")

    def alter(
        label: str, name: str, *pairs: tuple[str, str | None], kind: int = TOPIC, **more: Any
    ) -> None:
        configs = [{"name": key, "value": value} for key, value in pairs]
        rows = [{"resource_type": kind, "resource_name": name, "configs": configs}]
        request = {"resources": rows, "validate_only": False} | more
        peer.call(label, ApiKey.ALTER_CONFIGS, version, request)
        if name == topic:
            keys = ["max.message.bytes", "retention.ms", "cleanup.policy"]
            row = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": keys}
            peer.call(f"{label}, then", ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [row]})

    alter("validated", topic, ("retention.ms", "777"), validate_only=True)
    alter("good", topic, ("retention.ms", "777"))
    alter("unknown key", topic, ("retention.years", "7"))
    alter("bad value", topic, ("retention.ms", "x"))
    alter("null", topic, ("retention.ms", None))
    alter("none", topic)
    alter("unknown topic", peer.name("nowhere"), ("retention.ms", "777"))
    alter("bad topic", "a/b", ("retention.ms", "777"))
    alter("unknown kind", "x", ("a", "b"), kind=77)


def values_of(answer: dict[str, Any]) -> dict[str, str]:
    """The configs of the only resource."""
    return {row["name"]: row["value"] for row in answer["results"][0]["configs"]}


@scenario(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1)
def changed_configs(peer: Peer, version: int) -> None:
    """Set, delete, append and subtract; brokers too."""
    topic = peer.create_topic("changed", max_message_bytes="5000")
    set_, delete, append, subtract = range(4)

    def alter(
        label: str,
        name: str,
        *changes: tuple[str, int, str | None],
        kind: int = TOPIC,
        in_force: tuple[str, str | None] | None = None,
        **more: Any,
    ) -> None:
        configs = [
            {"name": key, "config_operation": operation, "value": value}
            for key, operation, value in changes
        ]
        rows = [{"resource_type": kind, "resource_name": name, "configs": configs}]
        request = {"resources": rows, "validate_only": False} | more
        peer.call(label, ApiKey.INCREMENTAL_ALTER_CONFIGS, version, request)
        keys = ["max.message.bytes", "retention.ms", "cleanup.policy"]
        row = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": keys}
        if kind == BROKER:
            keys = ["log.cleaner.threads", "message.max.bytes"]
            row = {"resource_type": BROKER, "resource_name": name, "configuration_keys": keys}
            if in_force is not None:  # Apache Kafka follows its store
                key, value = in_force
                peer.until(
                    lambda answer: (
                        value == values_of(answer).get(key)  # None: the row is gone
                    ),
                    ApiKey.DESCRIBE_CONFIGS,
                    4,
                    {"resources": [row]},
                )
        peer.call(
            f"{label}, then",
            ApiKey.DESCRIBE_CONFIGS,
            4,
            {"resources": [row], "include_synonyms": True},
        )

    alter("validated", topic, ("retention.ms", set_, "777"), validate_only=True)
    alter("set", topic, ("retention.ms", set_, "777"))
    alter("append", topic, ("cleanup.policy", append, "compact"))
    alter("append again", topic, ("cleanup.policy", append, "compact"))
    alter("subtract", topic, ("cleanup.policy", subtract, "delete"))
    alter("append to no list", topic, ("retention.ms", append, "1"))
    alter("delete", topic, ("retention.ms", delete, None))
    alter("delete what is not set", topic, ("retention.ms", delete, None))
    alter("set null", topic, ("retention.ms", set_, None))
    alter("bad value", topic, ("retention.ms", set_, "x"))
    alter("unknown key", topic, ("retention.years", set_, "x"))
    alter("unknown operation", topic, ("retention.ms", 9, "1"))
    alter("key twice", topic, ("retention.ms", set_, "1"), ("retention.ms", set_, "2"))
    alter("unknown topic", peer.name("nowhere"), ("retention.ms", set_, "1"))
    alter(
        "broker",
        str(NODE_ID),
        ("log.cleaner.threads", set_, "2"),
        kind=BROKER,
        in_force=("log.cleaner.threads", "2"),
    )
    alter(
        "broker back",
        str(NODE_ID),
        ("log.cleaner.threads", delete, None),
        kind=BROKER,
        in_force=("log.cleaner.threads", "1"),
    )
    alter("broker, read only", str(NODE_ID), ("log.dir", set_, "/x"), kind=BROKER)
    alter("broker, bad value", str(NODE_ID), ("log.cleaner.threads", set_, "-1"), kind=BROKER)
    alter(
        "all brokers",
        "",
        ("message.max.bytes", set_, "1048588"),
        kind=BROKER,
        in_force=("message.max.bytes", "1048588"),
    )
    alter(
        "all brokers back",
        "",
        ("message.max.bytes", delete, None),
        kind=BROKER,
        in_force=("message.max.bytes", None),
    )
    alter("other broker", "42", ("message.max.bytes", set_, "1"), kind=BROKER)


# The cluster


@scenario(ApiKey.DESCRIBE_CLUSTER, 0, 1)
@scenario_of_4(ApiKey.DESCRIBE_CLUSTER, 1, 2)
def cluster(peer: Peer, version: int) -> None:
    """With and without operations; controllers as endpoints."""
    for operations in (False, True):
        request: dict[str, Any] = {"include_cluster_authorized_operations": operations}
        peer.call(f"operations {operations}", ApiKey.DESCRIBE_CLUSTER, version, request)
    if version >= 1:
        for kind in (1, 2, 3):
            request = {"include_cluster_authorized_operations": False, "endpoint_type": kind}
            peer.call(f"endpoint type {kind}", ApiKey.DESCRIBE_CLUSTER, version, request)
    if version >= 2:
        request = {"include_cluster_authorized_operations": False, "include_fenced_brokers": True}
        peer.call("with fenced brokers", ApiKey.DESCRIBE_CLUSTER, version, request)


@scenario(ApiKey.DESCRIBE_LOG_DIRS, 0, 4)
@scenario_of_4(ApiKey.DESCRIBE_LOG_DIRS, 4, 5)
def log_directories(peer: Peer, version: int) -> None:
    """The size of partitions; unknown ones are omitted."""
    topic = peer.create_topic("sized", 2)
    peer.produce(topic, batch(b"x" * 100))

    def ask(label: str, topics: list[dict[str, Any]]) -> None:
        answer = peer.client.call(ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": topics})
        for row in answer["results"] if answer else ():
            for field in ("total_bytes", "usable_bytes"):  # of the disk, which others use too
                if field in row:
                    row[field] = row[field] > 0
        peer.note(label, ApiKey.DESCRIBE_LOG_DIRS, version, answer)

    ask("both", [{"topic": topic, "partitions": [0, 1]}])
    ask("one", [{"topic": topic, "partitions": [1]}])
    ask("unknown partition", [{"topic": topic, "partitions": [7]}])
    ask("unknown topic", [{"topic": peer.name("nowhere"), "partitions": [0]}])
    ask("none", [])


@scenario(ApiKey.UPDATE_FEATURES, 0, 1)
def updates_without_features(peer: Peer, version: int) -> None:
    """With ZooKeeper there are none, and each row gives the reason."""
    rows = [("nope", 1, 1), ("", 1, 1), ("a", 0, 1), ("b", 0, 2), ("c", -1, 3), ("d", 1, 9)]
    for name, level, kind in rows:
        update = {"feature": name, "max_version_level": level, "upgrade_type": kind}
        updates = [update | {"allow_downgrade": kind != 1}]
        request = {"timeout_ms": 10_000, "feature_updates": updates}
        answer = peer.client.call(ApiKey.UPDATE_FEATURES, version, request)
        texts = [row["error_message"] for row in answer["results"]] if answer else None
        peer.note(f"{name} {level}", ApiKey.UPDATE_FEATURES, version, answer)
        peer.note_values(f"{name} {level}, in words", {"said": texts})
    peer.call("none", ApiKey.UPDATE_FEATURES, version, {"feature_updates": []})


# ACLs without an authorizer


def acl_filter(**more: Any) -> dict[str, Any]:
    """Return a filter for everything, as DescribeAcls is and DeleteAcls has."""
    return {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
        **more,
    }


@scenario(ApiKey.DESCRIBE_ACLS, 0, 3)
def described_acls(peer: Peer, version: int) -> None:
    """All, those of a topic, and invalid filters."""
    named = {"resource_type_filter": 2, "resource_name_filter": "a", "pattern_type_filter": 3}
    peer.call("all", ApiKey.DESCRIBE_ACLS, version, acl_filter())
    peer.call("a topic's", ApiKey.DESCRIBE_ACLS, version, acl_filter(**named))
    for field in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type"):
        for value in (0, 99):
            request = acl_filter(**{field: value})
            peer.call(f"{field} {value}", ApiKey.DESCRIBE_ACLS, version, request)


@scenario(ApiKey.CREATE_ACLS, 0, 3)
def created_acls(peer: Peer, version: int) -> None:
    """None, one, two, and invalid ones."""
    good = {
        "resource_type": 2,
        "resource_name": "a",
        "resource_pattern_type": 3,
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    for label, creations in (
        ("none", []),
        ("one", [good]),
        ("two", [good, {**good, "resource_name": "b"}]),
        ("bad principal", [{**good, "principal": "a"}]),
        ("any pattern", [{**good, "resource_pattern_type": 1}]),
        ("unknown operation", [{**good, "operation": 0}]),
    ):
        peer.call(label, ApiKey.CREATE_ACLS, version, {"creations": creations})


@scenario(ApiKey.DELETE_ACLS, 0, 3)
def deleted_acls(peer: Peer, version: int) -> None:
    """None, one, two, and an invalid filter."""
    for label, filters in (
        ("none", []),
        ("one", [acl_filter()]),
        ("two", [acl_filter(), acl_filter(resource_type_filter=2)]),
        ("unknown operation", [acl_filter(operation=0)]),
    ):
        peer.call(label, ApiKey.DELETE_ACLS, version, {"filters": filters})
