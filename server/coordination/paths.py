"""Apache Kafka's znode paths and their JSON: readers accept every version, writers use the newest.

Readers ignore unknown keys. Source: zk/ZkData.scala of 3.9; each class names its znode.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kwire.types import uuid_from_str, uuid_to_str

from ..integers import parse_integer
from ..json_text import parse_json
from ..metadata.endpoint import Endpoint
from ..metadata.image import BrokerRegistration

CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
FEATURE = "/feature"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "config_change_"
DELETE_TOPICS = "/admin/delete_topics"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"

#: Created at every broker start if missing, with null data. Source: ZkData.PersistentZkPaths.
PERSISTENT_PATHS = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    "/isr_change_notification",
    PRODUCER_ID_BLOCK,
    "/log_dir_event_notification",
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)
#: Queues of notifications, which have no meaning in another store.
NOTIFICATION_PATHS = (
    CONFIG_CHANGES,
    "/isr_change_notification",
    "/log_dir_event_notification",
    "/kafka-acl-changes",
    "/kafka-acl-extended-changes",
    "/delegation_token/token_changes",
)

PRODUCER_ID_BLOCK_SIZE = 1000


def broker_path(broker_id: int) -> str:
    """The ephemeral node of a live broker."""
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    """The node with a topic's assignment."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """The parent of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    """The parent of a partition's state."""
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    """The node with a partition's leader and in-sync replicas."""
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def config_path(entity_type: str, name: str) -> str:
    """The node with the dynamic config of an entity; the names of users and clients are sanitized."""
    return f"{CONFIG}/{entity_type}/{name}"


def delete_topic_path(topic: str) -> str:
    """The node that requests a topic's deletion."""
    return f"{DELETE_TOPICS}/{topic}"


def sanitize(name: str) -> str:
    """Encode a user name or client id for a path. Source: Sanitizer.sanitize (Java URLEncoder)."""
    from urllib.parse import quote

    return quote(name, safe="").replace("~", "%7E")


def desanitize(name: str) -> str:
    """The original of a sanitized name."""
    from urllib.parse import unquote

    return unquote(name)


def entity_node(name: str) -> str:
    """The name of the node with the configs of a group or of a subscription to client metrics."""
    if name in (".", ".."):  # not valid as names of nodes
        return name.replace(".", "%2E")
    return sanitize(name)


def dump(document: Mapping[str, Any]) -> bytes:
    """JSON in Kafka's form: UTF-8, no blanks."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def load(data: bytes | None, path: str) -> dict[str, Any]:
    """The JSON object in a node. Errors: MalformedNode."""
    try:
        document = parse_json(data or b"")
    except (ValueError, RecursionError) as error:
        raise MalformedNode(path, why(error)) from error
    if not isinstance(document, dict):
        raise MalformedNode(path, "not a JSON object")
    return document


class MalformedNode(Exception):
    """The content of a node is not in Kafka's format."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path


#: What reading a document in another form than Kafka's raises.
OTHER_FORM = (AttributeError, LookupError, OverflowError, TypeError, ValueError)


def why(error: Exception) -> str:
    """What is wrong with a document, in words."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return f"it has no {error.args[0]}" if isinstance(error, KeyError) else str(error)[:200]


def integer(value: object, bits: int = 32) -> int:
    """A number in a node, which may be a string there. Errors: ValueError."""
    found = parse_integer(str(value), bits) if type(value) in (int, str) else None
    if found is None:
        raise ValueError(f"not an integer: {str(value)[:40]}")
    return found


def integers(value: object) -> tuple[int, ...]:
    """A list of numbers in a node. Errors: ValueError."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"not a list of integers: {str(value)[:40]}")
    return tuple(integer(each) for each in value)


# /cluster/id


def encode_cluster_id(cluster_id: str) -> bytes:
    """The version is a string here, as in Kafka."""
    return dump({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes | None) -> str:
    """The cluster's id. Errors: MalformedNode."""
    cluster_id = load(data, CLUSTER_ID).get("id")
    if not isinstance(cluster_id, str):
        raise MalformedNode(CLUSTER_ID, "no id")
    return cluster_id


# /brokers/ids/N

#: kwire's own field; Apache Kafka reads only the fields that it knows (BrokerIdZNode.decode).
CONSOLE = "kwire_console"


def encode_broker(broker: BrokerRegistration, timestamp_ms: int, jmx_port: int = -1) -> bytes:
    """Version 5; `host` and `port` are the first plaintext endpoint's, or null and -1."""
    plain = next((e for e in broker.endpoints if e.security_protocol == "PLAINTEXT"), None)
    document: dict[str, Any] = {
        "version": 5,
        "host": plain.host if plain else None,
        "port": plain.port if plain else -1,
        "endpoints": [format_endpoint(endpoint) for endpoint in broker.endpoints],
        "listener_security_protocol_map": {
            endpoint.listener: endpoint.security_protocol for endpoint in broker.endpoints
        },
        "jmx_port": jmx_port,
        "timestamp": str(timestamp_ms),
        "features": {
            name: {"min_version": low, "max_version": high}
            for name, (low, high) in broker.features.items()
        },
    }
    if broker.rack is not None:
        document["rack"] = broker.rack
    if broker.console:
        document[CONSOLE] = broker.console
    return dump(document)


def decode_broker(broker_id: int, data: bytes | None, epoch: int) -> BrokerRegistration:
    """A registration of version 1 to 5; `epoch` is the node's czxid. Errors: MalformedNode."""
    path = broker_path(broker_id)
    document = load(data, path)
    protocols = document.get("listener_security_protocol_map") or {}
    try:
        endpoints = tuple(parse_endpoint(text, protocols) for text in document.get("endpoints", ()))
        if not endpoints and document.get("host"):
            endpoints = (Endpoint("PLAINTEXT", document["host"], integer(document["port"])),)
        features = {
            name: (integer(levels["min_version"]), integer(levels["max_version"]))
            for name, levels in (document.get("features") or {}).items()
        }
    except OTHER_FORM as error:
        raise MalformedNode(path, why(error)) from error
    console = str(document.get(CONSOLE, ""))
    return BrokerRegistration(broker_id, endpoints, document.get("rack"), epoch, features, console)


def format_endpoint(endpoint: Endpoint) -> str:
    """`LISTENER://host:port`, IPv6 in brackets."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


def parse_endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    """The reverse; a listener without an entry in the map has the name of its protocol."""
    listener, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    return Endpoint(
        listener,
        host.removeprefix("[").removesuffix("]"),
        integer(port),
        protocols.get(listener, listener),
    )


# /brokers/topics/T


class ReplicaAssignment(NamedTuple):
    """A partition's replicas in order of preference, and those that a reassignment adds and removes."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class TopicAssignment(NamedTuple):
    """A topic's id (None before 2.8) and its partitions; `version` is the node's."""

    topic_id: bytes | None
    partitions: Mapping[int, ReplicaAssignment]
    version: int = -1


class NewTopic(NamedTuple):
    """A topic to be created: id, replicas of each partition, and config overrides."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, ReplicaAssignment]
    configs: Mapping[str, str]


def encode_topic(assignment: TopicAssignment) -> bytes:
    """Version 3, with the topic id."""
    document: dict[str, Any] = {
        "version": 3,
        "partitions": {str(n): list(p.replicas) for n, p in assignment.partitions.items()},
        "adding_replicas": {
            str(n): list(p.adding) for n, p in assignment.partitions.items() if p.adding
        },
        "removing_replicas": {
            str(n): list(p.removing) for n, p in assignment.partitions.items() if p.removing
        },
    }
    if assignment.topic_id is not None:
        document["topic_id"] = uuid_to_str(assignment.topic_id)
    return dump(document)


def decode_topic(topic: str, data: bytes | None, version: int = -1) -> TopicAssignment:
    """An assignment of version 1 to 3. Errors: MalformedNode."""
    path = topic_path(topic)
    document = load(data, path)
    try:
        adding = document.get("adding_replicas", {})
        removing = document.get("removing_replicas", {})
        topic_id = document.get("topic_id")
        partitions = {
            integer(number): ReplicaAssignment(
                integers(replicas),
                integers(adding.get(number, ())),
                integers(removing.get(number, ())),
            )
            for number, replicas in document["partitions"].items()
        }
        return TopicAssignment(
            None if topic_id is None else uuid_from_str(topic_id),
            dict(sorted(partitions.items())),
            version,
        )
    except OTHER_FORM as error:
        raise MalformedNode(path, why(error)) from error


# /brokers/topics/T/partitions/P/state


class LeaderAndIsr(NamedTuple):
    """A partition's state; `partition_epoch` is the version of its node, -1 without a node."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    recovering: bool = False
    partition_epoch: int = -1


def encode_state(state: LeaderAndIsr) -> bytes:
    """Version 1; the recovery state is omitted if it is "recovered"."""
    document: dict[str, Any] = {
        "version": 1,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
        "controller_epoch": state.controller_epoch,
    }
    if state.recovering:
        document["leader_recovery_state"] = 1
    return dump(document)


def decode_state(topic: str, partition: int, data: bytes | None, version: int) -> LeaderAndIsr:
    """A partition's state. Errors: MalformedNode."""
    path = state_path(topic, partition)
    document = load(data, path)
    try:
        return LeaderAndIsr(
            integer(document["leader"]),
            integer(document["leader_epoch"]),
            integers(document["isr"]),
            integer(document["controller_epoch"]),
            document.get("leader_recovery_state", 0) == 1,
            version,
        )
    except OTHER_FORM as error:
        raise MalformedNode(path, why(error)) from error


# /controller and /controller_epoch


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    """Version 2."""
    return dump(
        {
            "version": 2,
            "brokerid": broker_id,
            "timestamp": str(timestamp_ms),
            "kraftControllerEpoch": -1,
        }
    )


def decode_controller(data: bytes | None) -> int:
    """The broker id of the controller. Errors: MalformedNode."""
    document = load(data, CONTROLLER)
    try:
        return integer(document["brokerid"])
    except OTHER_FORM as error:
        raise MalformedNode(CONTROLLER, why(error)) from error


def decode_controller_epoch(data: bytes | None) -> int:
    """The number of the latest controller; plain digits, not JSON. Errors: MalformedNode."""
    try:
        return integer((data or b"").decode())
    except ValueError as error:
        raise MalformedNode(CONTROLLER_EPOCH, why(error)) from error


# /feature


class FinalizedFeatures(NamedTuple):
    """Feature levels that apply to the whole cluster; `epoch` is the version of the node."""

    enabled: bool
    levels: Mapping[str, int]
    epoch: int = -1


def encode_features(features: FinalizedFeatures) -> bytes:
    """Version 2."""
    return dump(
        {
            "version": 2,
            "status": int(features.enabled),
            "features": {
                name: {"max_version_level": level} for name, level in features.levels.items()
            },
        }
    )


def decode_features(data: bytes | None, epoch: int) -> FinalizedFeatures:
    """Features of version 1 or 2. Errors: MalformedNode."""
    document = load(data, FEATURE)
    try:
        levels = {
            name: integer(entry["max_version_level"])
            for name, entry in document.get("features", {}).items()
        }
        return FinalizedFeatures(document["status"] == 1, levels, epoch)
    except OTHER_FORM as error:
        raise MalformedNode(FEATURE, why(error)) from error


# /latest_producer_id_block


class ProducerIdBlock(NamedTuple):
    """Producer ids that one broker may assign, both ends inclusive."""

    first: int
    last: int


def encode_producer_id_block(block: ProducerIdBlock, broker_id: int) -> bytes:
    """The bounds are strings."""
    return dump(
        {
            "version": 1,
            "broker": broker_id,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
    )


def decode_producer_id_block(data: bytes | None) -> ProducerIdBlock | None:
    """The last assigned block; None if there is none. Errors: MalformedNode."""
    if not data:
        return None
    document = load(data, PRODUCER_ID_BLOCK)
    try:
        return ProducerIdBlock(
            integer(document["block_start"], 64), integer(document["block_end"], 64)
        )
    except OTHER_FORM as error:
        raise MalformedNode(PRODUCER_ID_BLOCK, why(error)) from error


# /config/<type>/<name> and /config/changes/config_change_N


def encode_config(config: Mapping[str, str]) -> bytes:
    """All values are strings."""
    return dump({"version": 1, "config": dict(config)})


def decode_config(data: bytes | None, path: str) -> dict[str, str]:
    """The config of an entity; empty for a node without data. Errors: MalformedNode."""
    if not data:
        return {}
    config = load(data, path).get("config")
    if not isinstance(config, dict):
        raise MalformedNode(path, "no config")
    return {str(key): str(value) for key, value in config.items()}


def encode_config_change(entity_type: str, name: str) -> bytes:
    """Version 2."""
    return dump({"version": 2, "entity_path": f"{entity_type}/{name}"})


def decode_config_change(data: bytes | None) -> tuple[str, str]:
    """The (entity type, entity name) that changed, of version 1 or 2. Errors: MalformedNode."""
    document = load(data, CONFIG_CHANGES)
    path = document.get("entity_path")
    if path is None:
        path = f"{document.get('entity_type', '')}/{document.get('entity_name', '')}"
    entity_type, slash, name = str(path).partition("/")
    if not (entity_type and slash and name):
        raise MalformedNode(CONFIG_CHANGES, f"no entity in {document}")
    return entity_type, name


def sequence_of(name: str) -> int:
    """The number at the end of a sequential node's name. Errors: ValueError."""
    return int(name[-10:])


def with_parents(paths: Iterable[str]) -> list[str]:
    """All these paths and their ancestors, parents first, each once."""
    every: dict[str, None] = {}
    for path in paths:
        parts = path.split("/")[1:]
        for length in range(1, len(parts) + 1):
            every["/" + "/".join(parts[:length])] = None
    return list(every)
