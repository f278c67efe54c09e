"""The metadata of a KRaft cluster as nodes of a coordination store; pure.

Metadata that a store cannot hold is listed, one line for each kind.
Source: ZkMigrationClient (3.9), which writes the same nodes while a cluster moves from ZooKeeper to KRaft.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite

from kwire.messages.internal.cluster_metadata import PartitionRecord

from ..config.group_keys import GROUP as GROUP_KEYS
from ..config.tables import find_broker_key, is_password
from ..config.topic_keys import TOPIC_KEYS
from ..quotas.entities import DEFAULT, Entity
from ..security.acl import (
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from ..security.delegation_tokens import TokenInfo
from ..security.sasl.scram import ScramCredential
from ..security.sasl.scram_numbers import TYPES
from . import acls, paths, quota_entities, tokens
from .kraft_image import BROKER, CLIENT_METRICS, GROUP, TOPIC, KraftImage, QuotaPart

#: SCRAM mechanisms by number.
MECHANISMS = {number: name for name, number in TYPES.items()}
#: The maximum number of names in a line.
SHOWN = 8

_TOPIC_KEYS = {key.name: key for key in TOPIC_KEYS}


@dataclass
class Converted:
    """Nodes by path, the metadata without nodes, and notes about differences in the rest."""

    nodes: dict[str, bytes | None] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def leave_out(self, what: str, names: Iterable[str]) -> None:
        """List items of one kind that have no nodes, if there are any."""
        listed = sorted(set(names))
        if listed:
            more = f", and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
            self.left_out.append(f"{what}: {', '.join(listed[:SHOWN])}{more}")


def nodes_of(image: KraftImage, cluster_id: str, epoch: int) -> Converted:
    """The nodes of an image, parents first. Shape: `epoch` is that of the last controller."""
    converted = Converted()
    nodes = converted.nodes
    for path in paths.with_parents([*paths.PERSISTENT_PATHS, paths.CLUSTER_ID]):
        nodes[path] = None
    nodes[paths.CLUSTER_ID] = paths.encode_cluster_id(cluster_id)
    nodes[paths.CONTROLLER_EPOCH] = b"%d" % epoch
    if image.next_producer_id:
        size = paths.PRODUCER_ID_BLOCK_SIZE
        block = paths.ProducerIdBlock(image.next_producer_id - size, image.next_producer_id - 1)
        nodes[paths.PRODUCER_ID_BLOCK] = paths.encode_producer_id_block(block, -1)
    _topics(image, epoch, converted)
    _directories(image, converted)
    _configs(image, converted)
    _acls(image, converted)
    _tokens(image, converted)
    converted.leave_out(
        "finalized features, as kwire has its own",
        (f"{name}={level}" for name, level in image.features.items()),
    )
    converted.leave_out(
        "registrations of brokers, which register themselves",
        (f"broker {number}" for number in image.brokers),
    )
    converted.leave_out(
        "controllers of the quorum", (f"controller {number}" for number in image.controllers)
    )
    converted.leave_out(
        "unknown records, written by a later release",
        (f"{name} ({count})" for name, count in image.others.items()),
    )
    return converted


# Topics


def _topics(image: KraftImage, epoch: int, converted: Converted) -> None:
    by_eligible = without = 0
    for topic_id, name in image.topics.items():
        states = dict(sorted(image.partitions[topic_id].items()))
        assignment = paths.TopicAssignment(
            topic_id,
            {
                number: paths.ReplicaAssignment(
                    tuple(state.replicas),
                    tuple(state.adding_replicas),
                    tuple(state.removing_replicas),
                )
                for number, state in states.items()
            },
        )
        converted.nodes[paths.topic_path(name)] = paths.encode_topic(assignment)
        if states:
            converted.nodes[paths.partitions_path(name)] = None
        for number, state in states.items():
            isr = in_sync(state)
            by_eligible += bool(isr) and not state.isr
            without += not isr
            leader_and_isr = paths.LeaderAndIsr(
                state.leader,
                state.leader_epoch,
                isr,
                epoch,
                recovering=state.leader_recovery_state == 1,
            )
            converted.nodes[paths.partition_path(name, number)] = None
            converted.nodes[paths.state_path(name, number)] = paths.encode_state(leader_and_isr)
    if by_eligible:
        converted.notes.append(
            f"{by_eligible} partitions have eligible leader replicas instead of in-sync ones (KIP-966);"
            " they are in sync from now on"
        )
    if without:
        converted.notes.append(
            f"{without} partitions have no replica that is in sync: they get a leader only by an unclean election"
        )


def _directories(image: KraftImage, converted: Converted) -> None:
    for number, record in sorted(image.brokers.items()):
        if len(record.log_dirs) > 1:
            converted.notes.append(
                f"broker {number} has {len(record.log_dirs)} log directories: serve copies of all of them"
                " (log.dirs), since partitions of a directory that is missing begin empty"
            )


def in_sync(state: PartitionRecord) -> tuple[int, ...]:
    """The replicas that may lead: in-sync replicas, else those with every committed record, else the last leader.

    Source: PartitionChangeBuilder.electAnyLeader; KIP-966.
    """
    return tuple(state.isr or state.eligible_leader_replicas or (state.last_known_elr or [])[:1])


# Settings


def _configs(image: KraftImage, converted: Converted) -> None:
    found: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    unknown: dict[str, list[str]] = {"topics": [], "brokers": []}
    passwords: list[str] = []
    others: list[str] = []
    tiered: list[str] = []
    for (kind, name), configs in image.configs.items():
        for key, value in configs.items():
            if kind == TOPIC:
                if key not in _TOPIC_KEYS:
                    unknown["topics"].append(f"{key} of {name}")
                    continue
                if key == "remote.storage.enable" and value == "true":
                    tiered.append(name)
                found["topics", name][key] = value
            elif kind == BROKER:
                whose = f"{key} of {f'broker {name}' if name else 'all brokers'}"
                if is_password(key):
                    passwords.append(whose)
                elif find_broker_key(key) is None:
                    unknown["brokers"].append(whose)
                else:
                    found["brokers", name or quota_entities.DEFAULT_NAME][key] = value
            elif kind == CLIENT_METRICS:
                found["client-metrics", paths.entity_node(name)][key] = value
            elif kind == GROUP and key in GROUP_KEYS:
                found["groups", paths.entity_node(name)][key] = value
            else:
                what = f"group {name}" if kind == GROUP else f"{name} (resource type {kind})"
                others.append(f"{key} of {what}")
    for kind_name, listed in unknown.items():
        converted.leave_out(f"configs of {kind_name} that kwire does not know", listed)
    converted.leave_out(
        "passwords in the configs of brokers, which kwire stores encoded only; set them again with kwire configs",
        passwords,
    )
    converted.leave_out("configs of groups and others", others)
    if tiered:
        converted.leave_out("records in remote storage (tiered storage), of topics", tiered)
    _credentials(image, found, converted)
    _quotas(image, found, converted)
    for (entity_type, name), configs in found.items():
        _put(converted.nodes, paths.config_path(entity_type, name), paths.encode_config(configs))


def _put(nodes: dict[str, bytes | None], path: str, data: bytes) -> None:
    for above in paths.with_parents([path])[:-1]:
        nodes.setdefault(above, None)
    nodes[path] = data


def _credentials(
    image: KraftImage, found: dict[tuple[str, str], dict[str, str]], converted: Converted
) -> None:
    unknown = []
    for (user, number), record in image.credentials.items():
        mechanism = MECHANISMS.get(number)
        if mechanism is None:
            unknown.append(f"{user} (mechanism {number})")
            continue
        credential = ScramCredential(
            bytes(record.salt),
            bytes(record.stored_key),
            bytes(record.server_key),
            record.iterations,
        )
        found[quota_entities.USERS, quota_entities.sanitized(user)][mechanism] = credential.text()
    converted.leave_out("SCRAM credentials with unknown mechanisms", unknown)


def _quotas(
    image: KraftImage, found: dict[tuple[str, str], dict[str, str]], converted: Converted
) -> None:
    unknown = []
    for entity, values in image.quotas.items():
        node = _quota_node(entity)
        if node is None:
            unknown.append("/".join(f"{kind}={name}" for kind, name in entity))
            continue
        found[node].update((key, _number(value)) for key, value in values.items())
    converted.leave_out("quotas of unknown kinds of entities", unknown)


def _quota_node(entity: tuple[QuotaPart, ...]) -> tuple[str, str] | None:
    parts = {kind: DEFAULT if name is None else name for kind, name in entity}
    if parts.keys() == {"ip"}:
        return quota_entities.IPS, str(
            DEFAULT.value if parts["ip"] is DEFAULT else quota_entities.sanitized(parts["ip"])
        )
    if not parts or parts.keys() - {"user", "client-id"}:
        return None
    return quota_entities.node_of(Entity(parts.get("user"), parts.get("client-id")))


def _number(value: float) -> str:
    """A quota in its stored form; rates of bytes are whole numbers."""
    return str(int(value)) if isfinite(value) and value == int(value) else repr(value)


# Security


def _acls(image: KraftImage, converted: Converted) -> None:
    patterns: dict[ResourcePattern, set[AclEntry]] = defaultdict(set)
    unknown = []
    for record in image.acls.values():
        try:
            kind = PatternType(record.pattern_type)
            if kind not in acls.ROOTS:
                raise ValueError(kind)
            pattern = ResourcePattern(
                ResourceType(record.resource_type), record.resource_name, kind
            )
            entry = AclEntry(
                record.principal,
                record.host,
                AclOperation(record.operation),
                Permission(record.permission_type),
            )
        except ValueError:
            unknown.append(
                f"{record.principal}: operation {record.operation} on {record.resource_name}"
                f" (resource type {record.resource_type})"
            )
            continue
        patterns[pattern].add(entry)
    for pattern, entries in patterns.items():
        _put(converted.nodes, acls.pattern_path(pattern), acls.encode_entries(entries))
    converted.leave_out("ACLs that kwire cannot express", unknown)
    if image.acls:
        converted.notes.append(
            "ACLs take effect only with an authorizer: set authorizer.class.name for kwire, too"
        )


def _tokens(image: KraftImage, converted: Converted) -> None:
    for record in image.tokens.values():
        info = TokenInfo(
            record.token_id,
            record.owner,
            record.requester,
            tuple(record.renewers),
            record.issue_timestamp,
            record.max_timestamp,
            record.expiration_timestamp,
        )
        _put(converted.nodes, tokens.token_path(info.token_id), tokens.encode_token(info))
    if image.tokens:
        converted.notes.append(
            f"{len(image.tokens)} delegation tokens are valid only with the same delegation.token.secret.key"
        )


def counted(image: KraftImage) -> Mapping[str, int]:
    """The number of items of each kind in an image."""
    return {
        "topics": len(image.topics),
        "partitions": sum(map(len, image.partitions.values())),
        "ACLs": len(image.acls),
        "SCRAM credentials": len(image.credentials),
        "entities with quotas": len(image.quotas),
        "delegation tokens": len(image.tokens),
    }
