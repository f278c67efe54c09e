"""Requests whose answers depend on permissions, and the parts of the answers that show it.

A case is sent once with every permission and once without each; the difference between the two answers is the effect of
the permission.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from kwire.api import ApiKey
from kwire.records.builder import BatchBuilder
from kwire.types import uuid_to_str
from server.handlers.authorization import AclOperation, ResourceType

#: The id of a member of share groups.
MEMBER = "AAAAAAAAAAAAAAAAAAAACQ"

#: A permission as (type of the resource, operation).
Permission = tuple[ResourceType, AclOperation]

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
CLUSTER, ID = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
READ, WRITE, CREATE, DELETE = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
)
ALTER, DESCRIBE = AclOperation.ALTER, AclOperation.DESCRIBE
CLUSTER_ACTION, IDEMPOTENT_WRITE = AclOperation.CLUSTER_ACTION, AclOperation.IDEMPOTENT_WRITE
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
TOKEN, USER = ResourceType.DELEGATION_TOKEN, ResourceType.USER
CREATE_TOKENS, DESCRIBE_TOKENS = AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS

SINGLE: tuple[Permission, ...] = (
    *((TOPIC, each) for each in (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE)),
    *((TOPIC, each) for each in (DESCRIBE_CONFIGS, ALTER_CONFIGS)),
    *((GROUP, each) for each in (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)),
    *((CLUSTER, each) for each in (CREATE, ALTER, DESCRIBE, CLUSTER_ACTION)),
    *((CLUSTER, each) for each in (DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE)),
    *((ID, each) for each in (WRITE, DESCRIBE)),
    (TOKEN, DESCRIBE),
    *((USER, each) for each in (CREATE_TOKENS, DESCRIBE_TOKENS)),
)
#: Two at once, for cases in which either of them is enough.
PAIRS: tuple[tuple[Permission, Permission], ...] = (
    ((TOPIC, CREATE), (CLUSTER, CREATE)),
    ((TOPIC, DESCRIBE), (TOPIC, DELETE)),
    ((TOPIC, DESCRIBE), (CLUSTER, CLUSTER_ACTION)),
    ((TOPIC, READ), (CLUSTER, CLUSTER_ACTION)),
    ((TOPIC, DELETE), (CLUSTER, DELETE)),
    ((TOPIC, WRITE), (CLUSTER, IDEMPOTENT_WRITE)),
    ((GROUP, DESCRIBE), (CLUSTER, DESCRIBE)),
    ((GROUP, READ), (TOPIC, READ)),
    ((GROUP, READ), (ID, WRITE)),
    ((CLUSTER, ALTER), (CLUSTER, CLUSTER_ACTION)),
    ((TOKEN, DESCRIBE), (USER, DESCRIBE_TOKENS)),
)
DENIALS: tuple[tuple[Permission, ...], ...] = (*((each,) for each in SINGLE), *PAIRS)


def name_of(denied: tuple[Permission, ...]) -> str:
    """Permissions as the data file names them: `TOPIC:READ+CLUSTER:CLUSTER_ACTION`."""
    return "+".join(f"{kind.name}:{operation.name}" for kind, operation in denied)


class Names(Protocol):
    """Resources that are there when a case is sent, and names that are not taken yet."""

    topic: str
    topic_id: bytes
    group: str
    transactional_id: str
    #: The id of the broker that gets the request.
    broker: str
    #: Of a token that belongs to bob.
    hmac: bytes

    def new_topic(self) -> tuple[str, bytes]:
        """A topic for one request only, and its id."""
        ...

    def unused(self) -> str:
        """A name that has not been used yet."""
        ...

    def new_consumer_group(self) -> str:
        """A group of the consumer protocol with a member that reads `topic`."""
        ...

    def share_group(self, left: bool = False) -> tuple[str, str, str, bytes]:
        """A share group with a member, and the empty topic that it reads: group, member, topic, topic id.

        Shape: another one, whose member has left, if `left` is set.
        """
        ...


@dataclass(frozen=True)
class Case:
    """One request in some versions; `values` makes its fields, and creates the objects that they need.

    Shape: it is sent only to brokers that also serve `needs`.
    """

    name: str
    api: ApiKey
    versions: tuple[int, ...]
    values: Callable[[Names], dict[str, Any]] = field(repr=False)
    needs: ApiKey | None = None


def one_record(**options: Any) -> bytes:
    """One record as a batch."""
    builder = BatchBuilder(2, 0, **options)
    builder.append(1_600_000_000_000, b"key", b"value")
    return bytes(builder.build())


def subscription(topic: str) -> bytes:
    name = topic.encode()
    return struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(">i", -1)


def produce(n: Names, transactional_id: str | None = None, **options: Any) -> dict[str, Any]:
    rows = [{"index": 0, "records": one_record(**options)}]
    return {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout_ms": 5000,
        "topic_data": [{"name": n.topic, "topic_id": n.topic_id, "partition_data": rows}],
    }


def fetch(n: Names, replica_id: int = -1) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    return {
        "replica_id": replica_id,
        "replica_state": {"replica_id": replica_id},
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1000,
        "session_epoch": -1,
        "topics": [{"topic": n.topic, "topic_id": n.topic_id, "partitions": [partition]}],
    }


def share_rows(n: Names, **fields: Any) -> dict[str, Any]:
    """A request about one share partition."""
    group, _, _, topic_id = n.share_group()
    partition = {"partition": 0, **fields}
    return {"group_id": group, "topics": [{"topic_id": topic_id, "partitions": [partition]}]}


def share_fetch(n: Names) -> dict[str, Any]:
    """A new share session."""
    group, member, _, topic_id = n.share_group()
    partitions = [{"partition_index": 0, "acknowledgement_batches": []}]
    return {
        "group_id": group,
        "member_id": member,
        "share_session_epoch": 0,
        "max_wait_ms": 100,  # for its share partition to be loaded
        "min_bytes": 0,
        "max_bytes": 1000,
        "max_records": 10,
        "batch_size": 10,
        "topics": [{"topic_id": topic_id, "partitions": partitions}],
        "forgotten_topics_data": [],
    }


def share_acknowledge(n: Names) -> dict[str, Any]:
    """Of a session that is not there."""
    group, _, _, topic_id = n.share_group()
    batches = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}]
    partitions = [{"partition_index": 0, "acknowledgement_batches": batches}]
    return {
        "group_id": group,
        "member_id": "AAAAAAAAAAAAAAAAAAAACg",
        "share_session_epoch": 1,
        "topics": [{"topic_id": topic_id, "partitions": partitions}],
    }


def configs(kind: int, name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    row = {"resource_type": kind, "resource_name": name, "configs": rows}
    return {"resources": [row], "validate_only": True}


def new_topic_row(n: Names) -> dict[str, Any]:
    return {
        "name": n.unused(),
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }


def producer(n: Names) -> dict[str, Any]:
    return {"transactional_id": n.transactional_id, "producer_id": 424242, "producer_epoch": 0}


def added(n: Names, verify_only: bool) -> dict[str, Any]:
    topics = [{"name": n.topic, "partitions": [0]}]
    return {
        "v3_and_below_transactional_id": n.transactional_id,
        "v3_and_below_producer_id": 424242,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": topics,
        "transactions": [{**producer(n), "verify_only": verify_only, "topics": topics}],
    }


def join(n: Names) -> dict[str, Any]:
    return {
        "group_id": n.unused(),
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription(n.topic)}],
    }


def heartbeat_to_join(n: Names, **options: Any) -> dict[str, Any]:
    """A member of the consumer protocol that joins a new group."""
    return {
        "group_id": n.unused(),
        "member_id": "a-member",
        "member_epoch": 0,
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": [n.topic],
        "topic_partitions": [],
        **options,
    }


NOBODYS_ACL = {
    "resource_type": 2,
    "resource_name": "nothing",
    "principal": "User:nobody",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
NOBODYS_FILTER = {
    "resource_type_filter": 2,
    "resource_name_filter": "nothing at all",
    "operation": 3,
    "permission_type": 3,
}
STALE = {"controller_id": 0, "controller_epoch": -1}
ALL = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
RETENTION = {"name": "retention.ms", "value": "1000", "config_operation": 0}
BROKER_RETENTION = {"name": "log.retention.ms", "value": "1000", "config_operation": 0}
SESSION_TIMEOUT = {
    "name": "consumer.session.timeout.ms",
    "value": "50000",
    "config_operation": 0,
}
TOPIC_TYPE, BROKER_TYPE, GROUP_TYPE = 2, 4, 32
HOUR_MS = 3_600_000
OF_CAROL = {"owner_principal_type": "User", "owner_principal_name": "carol"}


def plain_config(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "config_operation"}]


K = ApiKey
# fmt: off
CASES = (
    Case("Produce", K.PRODUCE, (3, 11, 13), produce),
    Case("Produce with a producer id", K.PRODUCE, (11,),
         lambda n: produce(n, producer_id=424242, producer_epoch=0, base_sequence=0)),
    Case("Produce in a transaction", K.PRODUCE, (11,),
         lambda n: produce(n, n.transactional_id, producer_id=424242, producer_epoch=0,
                           base_sequence=0, is_transactional=True)),
    Case("Fetch", K.FETCH, (4, 12, 17, 18), fetch),
    Case("Fetch of a follower", K.FETCH, (12, 17), lambda n: fetch(n, 9)),
    Case("ListOffsets", K.LIST_OFFSETS, (1, 7, 11), lambda n: {
        "replica_id": -1,
        "topics": [{"name": n.topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}),
    Case("OffsetForLeaderEpoch", K.OFFSET_FOR_LEADER_EPOCH, (3, 4), lambda n: {
        "replica_id": -1,
        "topics": [{"topic": n.topic, "partitions": [{"partition": 0, "leader_epoch": 0}]}]}),
    Case("Metadata", K.METADATA, (1, 9, 12, 13), lambda n: {
        "topics": [{"name": n.topic}], "allow_auto_topic_creation": False, **ALL}),
    Case("Metadata by topic id", K.METADATA, (12,), lambda n: {
        "topics": [{"topic_id": n.topic_id, "name": None}], "allow_auto_topic_creation": False}),
    Case("Metadata of all topics", K.METADATA, (1, 12), lambda n: {
        "topics": None, "allow_auto_topic_creation": False}),
    Case("Metadata of a topic that is not there", K.METADATA, (4, 12), lambda n: {
        "topics": [{"name": n.unused()}], "allow_auto_topic_creation": False}),
    Case("Metadata with automatic creation", K.METADATA, (4, 12), lambda n: {
        "topics": [{"name": n.unused()}], "allow_auto_topic_creation": True}),
    Case("LeaderAndIsr", K.LEADER_AND_ISR, (7,), lambda n: {
        **STALE, "topic_states": [], "live_leaders": []}),
    Case("StopReplica", K.STOP_REPLICA, (4,), lambda n: {**STALE, "topic_states": []}),
    Case("UpdateMetadata", K.UPDATE_METADATA, (8,), lambda n: {
        **STALE, "topic_states": [], "live_brokers": []}),
    Case("ControlledShutdown", K.CONTROLLED_SHUTDOWN, (3,), lambda n: {"broker_id": 9}),
    Case("AlterPartition", K.ALTER_PARTITION, (3,), lambda n: {"broker_id": 9, "topics": []}),
    Case("AllocateProducerIds", K.ALLOCATE_PRODUCER_IDS, (0,), lambda n: {"broker_id": 9}),
    Case("OffsetCommit", K.OFFSET_COMMIT, (7, 9, 10), lambda n: {
        "group_id": n.group, "generation_id_or_member_epoch": -1,
        "topics": [{"name": n.topic, "topic_id": n.topic_id, "partitions": [
            {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]}]}),
    Case("OffsetFetch", K.OFFSET_FETCH, (5, 9, 10), lambda n: {
        "group_id": n.group, "topics": [{"name": n.topic, "partition_indexes": [0]}],
        "groups": [{"group_id": n.group, "topics": [
            {"name": n.topic, "topic_id": n.topic_id, "partition_indexes": [0]}]}]}),
    Case("OffsetFetch of all topics", K.OFFSET_FETCH, (5, 9, 10), lambda n: {
        "group_id": n.group, "topics": None, "groups": [{"group_id": n.group, "topics": None}]}),
    Case("OffsetDelete", K.OFFSET_DELETE, (0,), lambda n: {
        "group_id": n.group, "topics": [{"name": n.new_topic()[0], "partitions": [
            {"partition_index": 0}]}]}),
    Case("FindCoordinator of a group", K.FIND_COORDINATOR, (1, 4), lambda n: {
        "key": n.group, "key_type": 0, "coordinator_keys": [n.group]}),
    Case("FindCoordinator of a transactional id", K.FIND_COORDINATOR, (1, 4), lambda n: {
        "key": n.transactional_id, "key_type": 1, "coordinator_keys": [n.transactional_id]}),
    Case("JoinGroup", K.JOIN_GROUP, (2, 9), join),
    Case("SyncGroup", K.SYNC_GROUP, (3, 5), lambda n: {
        "group_id": n.group, "generation_id": 1, "member_id": "nobody",
        "protocol_type": "consumer", "protocol_name": "range", "assignments": []}),
    Case("Heartbeat", K.HEARTBEAT, (1, 4), lambda n: {
        "group_id": n.group, "generation_id": 1, "member_id": "nobody"}),
    Case("LeaveGroup", K.LEAVE_GROUP, (2, 5), lambda n: {
        "group_id": n.group, "member_id": "nobody", "members": [{"member_id": "nobody"}]}),
    Case("DescribeGroups", K.DESCRIBE_GROUPS, (1, 5, 6), lambda n: {
        "groups": [n.group], "include_authorized_operations": True}),
    Case("ListGroups", K.LIST_GROUPS, (2, 5), lambda n: {}),
    Case("ConsumerGroupHeartbeat", K.CONSUMER_GROUP_HEARTBEAT, (0, 1), heartbeat_to_join),
    Case("ConsumerGroupHeartbeat with an expression", K.CONSUMER_GROUP_HEARTBEAT, (1,),
         lambda n: heartbeat_to_join(n, subscribed_topic_names=None, subscribed_topic_regex=".*")),
    Case("ConsumerGroupHeartbeat of a member that leaves", K.CONSUMER_GROUP_HEARTBEAT, (1,),
         lambda n: heartbeat_to_join(n, member_epoch=-1, subscribed_topic_names=None)),
    Case("ConsumerGroupDescribe", K.CONSUMER_GROUP_DESCRIBE, (0, 1), lambda n: {
        "group_ids": [n.new_consumer_group()], "include_authorized_operations": True}),
    Case("ConsumerGroupDescribe of one that is not there", K.CONSUMER_GROUP_DESCRIBE, (1,),
         lambda n: {"group_ids": [n.unused()], "include_authorized_operations": True}),
    Case("FindCoordinator of a share partition", K.FIND_COORDINATOR, (6,), lambda n: {
        "key_type": 2,
        "coordinator_keys": [f"{(found := n.share_group())[0]}:{uuid_to_str(found[3])}:0"]},
        needs=K.SHARE_GROUP_HEARTBEAT),
    Case("ShareGroupHeartbeat", K.SHARE_GROUP_HEARTBEAT, (1,), lambda n: {
        "group_id": n.unused(), "member_id": MEMBER, "member_epoch": 0, "rack_id": None,
        "subscribed_topic_names": [n.topic]}),
    Case("ShareGroupDescribe", K.SHARE_GROUP_DESCRIBE, (1,), lambda n: {
        "group_ids": [n.share_group()[0]], "include_authorized_operations": True}),
    Case("ShareGroupDescribe of one that is not there", K.SHARE_GROUP_DESCRIBE, (1,), lambda n: {
        "group_ids": [n.unused()], "include_authorized_operations": True}),
    Case("ShareFetch", K.SHARE_FETCH, (1, 2), share_fetch),
    Case("ShareAcknowledge", K.SHARE_ACKNOWLEDGE, (1, 2), share_acknowledge),
    Case("InitializeShareGroupState", K.INITIALIZE_SHARE_GROUP_STATE, (0,), lambda n: {
        **share_rows(n, state_epoch=0, start_offset=0), "group_id": "other"}),
    Case("ReadShareGroupState", K.READ_SHARE_GROUP_STATE, (0,),
         lambda n: share_rows(n, leader_epoch=0)),
    Case("WriteShareGroupState", K.WRITE_SHARE_GROUP_STATE, (0, 1), lambda n: share_rows(
        n, state_epoch=0, leader_epoch=0, start_offset=0, state_batches=[])),
    Case("DeleteShareGroupState", K.DELETE_SHARE_GROUP_STATE, (0,), lambda n: {
        **share_rows(n), "group_id": "other"}),
    Case("ReadShareGroupStateSummary", K.READ_SHARE_GROUP_STATE_SUMMARY, (0, 1),
         lambda n: share_rows(n, leader_epoch=0)),
    Case("DescribeShareGroupOffsets", K.DESCRIBE_SHARE_GROUP_OFFSETS, (0, 1), lambda n: {
        "groups": [{"group_id": (found := n.share_group())[0],
                    "topics": [{"topic_name": found[2], "partitions": [0]}]}]}),
    Case("DescribeShareGroupOffsets of all topics", K.DESCRIBE_SHARE_GROUP_OFFSETS, (1,), lambda n: {
        "groups": [{"group_id": n.share_group()[0], "topics": None}]}),
    Case("AlterShareGroupOffsets", K.ALTER_SHARE_GROUP_OFFSETS, (0,), lambda n: {
        "group_id": (found := n.share_group())[0],
        "topics": [{"topic_name": found[2],
                    "partitions": [{"partition_index": 0, "start_offset": 0}]}]}),
    Case("AlterShareGroupOffsets of a group without members", K.ALTER_SHARE_GROUP_OFFSETS, (0,),
         lambda n: {"group_id": (found := n.share_group(left=True))[0], "topics": [
             {"topic_name": found[2],
              "partitions": [{"partition_index": 0, "start_offset": 0}]}]}),
    Case("DeleteShareGroupOffsets", K.DELETE_SHARE_GROUP_OFFSETS, (0,), lambda n: {
        "group_id": (found := n.share_group())[0], "topics": [{"topic_name": found[2]}]}),
    Case("DeleteGroups", K.DELETE_GROUPS, (2,), lambda n: {"groups_names": [n.unused()]}),
    Case("CreateTopics", K.CREATE_TOPICS, (4, 7), lambda n: {
        "topics": [new_topic_row(n)], "timeout_ms": 5000}),
    Case("CreateTopics of one that is there", K.CREATE_TOPICS, (7,), lambda n: {
        "topics": [{**new_topic_row(n), "name": n.topic}], "timeout_ms": 5000}),
    Case("DeleteTopics", K.DELETE_TOPICS, (5, 6), lambda n: (name := n.new_topic()[0]) and {
        "topic_names": [name], "topics": [{"name": name}], "timeout_ms": 5000}),
    Case("DeleteTopics by id", K.DELETE_TOPICS, (6,), lambda n: {
        "topics": [{"name": None, "topic_id": n.new_topic()[1]}], "timeout_ms": 5000}),
    Case("DeleteTopics of one that is not there", K.DELETE_TOPICS, (6,), lambda n: {
        "topics": [{"name": n.unused()}], "timeout_ms": 5000}),
    Case("DeleteRecords", K.DELETE_RECORDS, (2,), lambda n: {
        "topics": [{"name": n.topic, "partitions": [{"partition_index": 0, "offset": 0}]}],
        "timeout_ms": 5000}),
    Case("CreatePartitions", K.CREATE_PARTITIONS, (3,), lambda n: {
        "topics": [{"name": n.topic, "count": 2, "assignments": None}], "timeout_ms": 5000,
        "validate_only": True}),
    Case("InitProducerId", K.INIT_PRODUCER_ID, (5,), lambda n: {
        "transactional_id": None, "transaction_timeout_ms": 1000}),
    Case("InitProducerId of a transactional id", K.INIT_PRODUCER_ID, (5,), lambda n: {
        "transactional_id": n.transactional_id, "transaction_timeout_ms": 1000}),
    Case("AddPartitionsToTxn", K.ADD_PARTITIONS_TO_TXN, (3,), lambda n: added(n, False)),
    Case("AddPartitionsToTxn of a broker", K.ADD_PARTITIONS_TO_TXN, (4, 5),
         lambda n: added(n, True)),
    Case("AddOffsetsToTxn", K.ADD_OFFSETS_TO_TXN, (3,), lambda n: {
        **producer(n), "group_id": n.group}),
    Case("TxnOffsetCommit", K.TXN_OFFSET_COMMIT, (3, 5), lambda n: {
        **producer(n), "group_id": n.group, "generation_id": -1, "member_id": "",
        "topics": [{"name": n.topic, "partitions": [
            {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]}]}),
    Case("EndTxn", K.END_TXN, (3, 5), lambda n: {**producer(n), "committed": True}),
    Case("WriteTxnMarkers", K.WRITE_TXN_MARKERS, (1, 2), lambda n: {"markers": [
        {"producer_id": 424242, "producer_epoch": 0, "transaction_result": False,
         "coordinator_epoch": 0, "topics": [{"name": n.unused(), "partition_indexes": [0]}]}]}),
    Case("DescribeAcls", K.DESCRIBE_ACLS, (3,), lambda n: NOBODYS_FILTER),
    Case("CreateAcls", K.CREATE_ACLS, (3,), lambda n: {"creations": [NOBODYS_ACL]}),
    Case("DeleteAcls", K.DELETE_ACLS, (3,), lambda n: {"filters": [NOBODYS_FILTER]}),
    Case("DescribeConfigs of a topic", K.DESCRIBE_CONFIGS, (4,), lambda n: {"resources": [
        {"resource_type": TOPIC_TYPE, "resource_name": n.topic, "configuration_keys": None}]}),
    Case("DescribeConfigs of a broker", K.DESCRIBE_CONFIGS, (4,), lambda n: {"resources": [
        {"resource_type": BROKER_TYPE, "resource_name": n.broker, "configuration_keys": []}]}),
    Case("AlterConfigs of a topic", K.ALTER_CONFIGS, (2,),
         lambda n: configs(TOPIC_TYPE, n.topic, plain_config(RETENTION))),
    Case("AlterConfigs of a broker", K.ALTER_CONFIGS, (2,),
         lambda n: configs(BROKER_TYPE, n.broker, plain_config(BROKER_RETENTION))),
    Case("IncrementalAlterConfigs of a topic", K.INCREMENTAL_ALTER_CONFIGS, (1,),
         lambda n: configs(TOPIC_TYPE, n.topic, [RETENTION])),
    Case("IncrementalAlterConfigs of a broker", K.INCREMENTAL_ALTER_CONFIGS, (1,),
         lambda n: configs(BROKER_TYPE, n.broker, [BROKER_RETENTION])),
    Case("DescribeConfigs of a group", K.DESCRIBE_CONFIGS, (4,), lambda n: {"resources": [
        {"resource_type": GROUP_TYPE, "resource_name": n.group, "configuration_keys": None}]}),
    Case("IncrementalAlterConfigs of a group", K.INCREMENTAL_ALTER_CONFIGS, (1,),
         lambda n: configs(GROUP_TYPE, n.group, [SESSION_TIMEOUT])),
    Case("AlterConfigs of a group", K.ALTER_CONFIGS, (2,),
         lambda n: configs(GROUP_TYPE, n.group, plain_config(SESSION_TIMEOUT))),
    Case("ListConfigResources", K.LIST_CONFIG_RESOURCES, (0, 1), lambda n: {
        "resource_types": []}),
    Case("AlterReplicaLogDirs", K.ALTER_REPLICA_LOG_DIRS, (2,), lambda n: {"dirs": [
        {"path": "/no/such/place", "topics": [{"name": n.topic, "partitions": [0]}]}]}),
    Case("DescribeLogDirs", K.DESCRIBE_LOG_DIRS, (2, 4), lambda n: {
        "topics": [{"topic": n.topic, "partitions": [0]}]}),
    Case("ElectLeaders", K.ELECT_LEADERS, (2,), lambda n: {
        "election_type": 0, "topic_partitions": [{"topic": n.topic, "partitions": [0]}],
        "timeout_ms": 5000}),
    Case("AlterPartitionReassignments", K.ALTER_PARTITION_REASSIGNMENTS, (0, 1), lambda n: {
        "topics": [{"name": n.topic, "partitions": [{"partition_index": 0, "replicas": None}]}]}),
    Case("ListPartitionReassignments", K.LIST_PARTITION_REASSIGNMENTS, (0,), lambda n: {
        "topics": None}),
    Case("DescribeClientQuotas", K.DESCRIBE_CLIENT_QUOTAS, (1,), lambda n: {
        "components": [], "strict": False}),
    Case("AlterClientQuotas", K.ALTER_CLIENT_QUOTAS, (1,), lambda n: {"entries": [
        {"entity": [{"entity_type": "user", "entity_name": "bob"}],
         "ops": [{"key": "consumer_byte_rate", "value": 1.0, "remove": False}]}],
        "validate_only": True}),
    Case("DescribeUserScramCredentials", K.DESCRIBE_USER_SCRAM_CREDENTIALS, (0,), lambda n: {
        "users": None}),
    Case("DescribeUserScramCredentials of a user", K.DESCRIBE_USER_SCRAM_CREDENTIALS, (0,),
         lambda n: {"users": [{"name": "nobody"}]}),
    Case("AlterUserScramCredentials", K.ALTER_USER_SCRAM_CREDENTIALS, (0,), lambda n: {
        "deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []}),
    Case("UpdateFeatures", K.UPDATE_FEATURES, (1,), lambda n: {
        "feature_updates": [
            {"feature": "metadata.version", "max_version_level": 1, "upgrade_type": 1}],
        "validate_only": True}),
    Case("DescribeCluster", K.DESCRIBE_CLUSTER, (1,), lambda n: {
        "include_cluster_authorized_operations": True, "endpoint_type": 1}),
    Case("DescribeProducers", K.DESCRIBE_PRODUCERS, (0,), lambda n: {
        "topics": [{"name": n.topic, "partition_indexes": [0]}]}),
    Case("DescribeTransactions", K.DESCRIBE_TRANSACTIONS, (0,), lambda n: {
        "transactional_ids": [n.transactional_id]}),
    Case("ListTransactions", K.LIST_TRANSACTIONS, (1, 2), lambda n: {
        "state_filters": [], "producer_id_filters": []}),
    Case("DescribeTopicPartitions", K.DESCRIBE_TOPIC_PARTITIONS, (0,), lambda n: {
        "topics": [{"name": n.topic}], "response_partition_limit": 10, "cursor": None}),
    Case("DescribeTopicPartitions of all topics", K.DESCRIBE_TOPIC_PARTITIONS, (0,), lambda n: {
        "topics": [], "response_partition_limit": 10, "cursor": None}),
    Case("CreateDelegationToken", K.CREATE_DELEGATION_TOKEN, (2, 3), lambda n: {
        "renewers": [], "max_lifetime_ms": HOUR_MS}),
    Case("CreateDelegationToken for another user", K.CREATE_DELEGATION_TOKEN, (3,), lambda n: {
        **OF_CAROL, "renewers": [], "max_lifetime_ms": HOUR_MS}),
    Case("RenewDelegationToken of another user", K.RENEW_DELEGATION_TOKEN, (2,), lambda n: {
        "hmac": n.hmac, "renew_period_ms": HOUR_MS}),
    Case("ExpireDelegationToken of another user", K.EXPIRE_DELEGATION_TOKEN, (2,), lambda n: {
        "hmac": n.hmac, "expiry_time_period_ms": -1}),
    Case("DescribeDelegationToken", K.DESCRIBE_DELEGATION_TOKEN, (2, 3), lambda n: {
        "owners": None}),
    Case("DescribeDelegationToken of another user", K.DESCRIBE_DELEGATION_TOKEN, (2, 3),
         lambda n: {"owners": [{"principal_type": "User", "principal_name": "bob"}]}),
)
# fmt: on


def outline(answer: Any, path: str = "") -> dict[str, Any]:
    """The parts of an answer that permissions can change: error codes, bits of operations, lists without rows.

    Shape: path -> error code or number, or "some" and "none" for a list; ids as "id" or "zero".
    """
    if answer is None:
        return {path or "answer": "none"}
    shown: dict[str, Any] = {}
    for name, value in answer.items():
        here = f"{path}.{name}".lstrip(".")
        if isinstance(value, list):
            shown[here] = "some" if value else "none"
            if value and isinstance(value[0], dict):
                shown |= outline(value[0], f"{here}[0]")
        elif isinstance(value, dict):
            shown |= outline(value, here)
        elif name.endswith("error_code") or "authorized_operations" in name:
            shown[here] = value
        elif name == "topic_id":
            shown[here] = "id" if any(value) else "zero"
        elif name in ("name", "topic") and path.endswith("[0]"):
            shown[here] = "null" if value is None else "text" if value else "empty"
        elif name == "num_partitions":
            shown[here] = value
    return shown


def effect(allowed: dict[str, Any], denied: dict[str, Any]) -> dict[str, Any]:
    """The changes of a denial: the new value of each path, and None for a missing row."""
    changed = {path: value for path, value in denied.items() if allowed.get(path) != value}
    gone = dict.fromkeys(allowed.keys() - denied.keys())
    # Below a list that is now empty, or next to an error, missing values are a consequence.
    return changed if changed else gone
