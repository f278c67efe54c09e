"""The metadata of a KRaft cluster as nodes: of a directory that Apache Kafka 4.3.0 wrote, and of single records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kwire.messages.internal.broker_metadata import RegisterBrokerRecord
from kwire.messages.internal.cluster_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kwire.messages.internal.cluster_metadata_frames import decode_frame
from kwire.messages.internal.security_metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    EntityData,
    UserScramCredentialRecord,
)
from server.coordination import paths, tokens
from server.coordination.kraft_image import KraftImage
from server.coordination.kraft_nodes import Converted, nodes_of
from server.log.file_layer import FileLayer
from server.log.metadata_log import MetadataLog

RECORDED = Path(__file__).with_name("kraft_4_3_0")
TOPIC_ID = bytes(range(16))


def image_of(*records: Any) -> KraftImage:
    image = KraftImage()
    for record in records:
        image.apply(record)
    return image


def converted(*records: Any) -> Converted:
    return nodes_of(image_of(*records), "a-cluster", 7)


def config(nodes: dict[str, bytes | None], entity: str) -> dict[str, str]:
    path = f"/config/{entity}"
    return paths.decode_config(nodes[path], path)


def partition(**state: Any) -> list[Any]:
    given = {"replicas": [1], "isr": [1], "leader": 1, "leader_epoch": 0, "partition_epoch": 0}
    return [
        TopicRecord(name="t", topic_id=TOPIC_ID),
        PartitionRecord(partition_id=0, topic_id=TOPIC_ID, **(given | state)),
    ]


def stored_state(*records: Any) -> paths.LeaderAndIsr:
    nodes = converted(*records).nodes
    return paths.decode_state("t", 0, nodes[paths.state_path("t", 0)], 0)


# -- a whole directory


@pytest.fixture(scope="module")
def recorded() -> Converted:
    log = MetadataLog(FileLayer(), str(RECORDED))
    image = KraftImage()
    for record in log.records():
        image.apply(decode_frame(record.value)[0])
    assert log.snapshot is not None
    assert (log.snapshot.end_offset, log.end_offset) == (37, 52)
    return nodes_of(image, "MkU3OEVBNTcwNTJENDM2Qg", log.epoch)


def test_recorded_topics_have_their_ids_and_configs(recorded: Converted) -> None:
    topics = {
        path.removeprefix("/brokers/topics/")
        for path in recorded.nodes
        if path.startswith("/brokers/topics/") and path.count("/") == 3
    }
    assert topics == {"plain", "compacted", "late"}
    late = paths.decode_topic("late", recorded.nodes["/brokers/topics/late"])
    assert json.loads(recorded.nodes["/brokers/topics/late"] or b"")["topic_id"] == (
        "wqLdIhMUS0KNxKXb5ipSHw"
    )
    assert late.partitions == {0: paths.ReplicaAssignment((0,))}
    assert config(recorded.nodes, "topics/compacted") == {"cleanup.policy": "compact"}
    assert "/config/topics/gone" not in recorded.nodes


def test_recorded_partitions_may_be_led_again_by_the_replica_that_was_stopped_last(
    recorded: Converted,
) -> None:
    data = recorded.nodes[paths.state_path("plain", 1)]
    assert paths.decode_state("plain", 1, data, 0) == paths.LeaderAndIsr(-1, 1, (0,), 1, False, 0)
    assert any("4 partitions have eligible leader replicas" in note for note in recorded.notes)


def test_recorded_users_quotas_and_configs_of_brokers_are_kept(recorded: Converted) -> None:
    nodes = recorded.nodes
    alice = config(nodes, "users/alice")
    assert alice.keys() == {"SCRAM-SHA-256", "SCRAM-SHA-512", "producer_byte_rate"}
    assert alice["SCRAM-SHA-256"].startswith("salt=c2FsdA==,stored_key=ZgOBnT3e4m6ug0Ra")
    assert alice["producer_byte_rate"] == "1000000"
    assert config(nodes, "users/bob%20smith").keys() == {"SCRAM-SHA-512"}
    assert config(nodes, "users/alice/clients/app") == {"request_percentage": "12.5"}
    assert config(nodes, "users/<default>") == {"consumer_byte_rate": "5000000000"}
    assert config(nodes, "clients/a%2Fb") == {"controller_mutation_rate": "3"}
    assert config(nodes, "ips/127.0.0.1") == {"connection_creation_rate": "1000"}
    assert config(nodes, "brokers/0") == {"max.connections": "9999"}
    assert config(nodes, "brokers/<default>") == {
        "min.insync.replicas": "1",
        "log.cleaner.threads": "2",
    }


def test_recorded_acls_are_kept(recorded: Converted) -> None:
    entries = json.loads(recorded.nodes["/kafka-acl/Topic/codecs"] or b"")["acls"]
    assert [(row["principal"], row["permissionType"], row["operation"]) for row in entries] == [
        ("User:alice", "Allow", "Read"),
        ("User:bob", "Deny", "Write"),
    ]
    assert "/kafka-acl-extended/prefixed/Topic/made" in recorded.nodes


def test_what_is_left_out_is_named_once_for_each_kind(recorded: Converted) -> None:
    kinds = [line.split(":")[0] for line in recorded.left_out]
    assert kinds == [
        "finalized features, as kwire has its own",
        "registrations of brokers, which register themselves",
        "controllers of the quorum",
    ]
    assert "transaction.version=2" in recorded.left_out[0]


# -- single records


def test_change_of_a_leader_raises_its_epoch_and_other_changes_do_not() -> None:
    isr = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[1, 2])
    leader = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2)
    state = stored_state(*partition(replicas=[1, 2]), isr, leader, isr)
    assert (state.leader, state.leader_epoch, state.isr) == (2, 1, (1, 2))


def test_last_leader_may_lead_if_nothing_else_is_known() -> None:
    gone = PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC_ID, isr=[], leader=-1, last_known_elr=[1]
    )
    assert stored_state(*partition(), gone).isr == (1,)
    assert stored_state(*partition(), gone, ClearElrRecord(topic_name="t")).isr == ()
    assert stored_state(*partition(), gone, ClearElrRecord(topic_name="other")).isr == (1,)
    assert "no replica that is in sync" in "".join(
        converted(*partition(), gone, ClearElrRecord(topic_name="")).notes
    )


def test_topic_that_is_created_again_has_no_config_of_the_deleted_one() -> None:
    nodes = converted(
        *partition(),
        ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"),
        RemoveTopicRecord(topic_id=TOPIC_ID),
        *partition(),
    ).nodes
    assert "/config/topics/t" not in nodes
    assert "/brokers/topics/t" in nodes


def test_records_of_a_transaction_count_when_it_has_ended() -> None:
    begin, topic = BeginTransactionRecord(name=None), TopicRecord(name="t", topic_id=TOPIC_ID)
    assert not image_of(begin, topic).topics
    assert image_of(begin, topic, EndTransactionRecord()).topics == {TOPIC_ID: "t"}
    assert not image_of(begin, topic, AbortTransactionRecord(reason=None)).topics


def test_next_block_of_producer_ids_follows_the_last() -> None:
    nodes = converted(ProducerIdsRecord(broker_id=1, next_producer_id=3000)).nodes
    block = paths.decode_producer_id_block(nodes[paths.PRODUCER_ID_BLOCK])
    assert block == paths.ProducerIdBlock(2000, 2999)


def test_what_kwire_has_no_place_for_is_left_out_and_named() -> None:
    found = converted(
        *partition(),
        ConfigRecord(resource_type=2, resource_name="t", name="new.in.5", value="1"),
        ConfigRecord(resource_type=4, resource_name="", name="ssl.key.password", value="secret"),
        ConfigRecord(resource_type=99, resource_name="x", name="y", value="1"),
        ConfigRecord(
            resource_type=2, resource_name="t", name="remote.storage.enable", value="true"
        ),
        UserScramCredentialRecord(
            name="eve", mechanism=9, salt=b"", stored_key=b"", server_key=b"", iterations=1
        ),
        ClientQuotaRecord(
            entity=[EntityData(entity_type="tenant", entity_name="a")],
            key="k",
            value=1.0,
            remove=False,
        ),
        AccessControlEntryRecord(
            id=TOPIC_ID,
            resource_type=2,
            resource_name="t",
            pattern_type=3,
            principal="User:eve",
            host="*",
            operation=77,
            permission_type=2,
        ),
    )
    said = "\n".join(found.left_out)
    for name in ("new.in.5 of t", "ssl.key.password", "x (resource type 99)", "eve (mechanism 9)"):
        assert name in said
    assert "tenant=a" in said
    assert "User:eve: operation 77 on t" in said
    assert "tiered storage), of topics: t" in said
    assert not any(b"secret" in (data or b"") for data in found.nodes.values())


def test_directories_that_have_to_come_along_are_noted() -> None:
    one, two = (
        RegisterBrokerRecord(broker_id=each, broker_epoch=1, log_dirs=[TOPIC_ID] * each)
        for each in (1, 2)
    )
    assert converted(one).notes == []
    (note,) = converted(one, two).notes
    assert note.startswith("broker 2 has 2 log directories: serve copies of all of them (log.dirs)")


def test_long_lists_are_cut() -> None:
    records = [
        ConfigRecord(resource_type=2, resource_name=f"t{n}", name="new", value="1")
        for n in range(20)
    ]
    assert converted(*records).left_out[0].endswith(", and 12 more")


def test_delegation_tokens_are_kept() -> None:
    record = DelegationTokenRecord(
        owner="User:alice",
        requester="User:bob",
        renewers=["User:eve"],
        issue_timestamp=1,
        max_timestamp=3,
        expiration_timestamp=2,
        token_id="id",
    )
    found = converted(record)
    path = tokens.token_path("id")
    info = tokens.decode_token(found.nodes[path], path)
    assert (info.owner, info.requester, info.renewers) == ("User:alice", "User:bob", ("User:eve",))
    assert (info.issue_ms, info.expiry_ms, info.max_ms) == (1, 2, 3)
    assert "delegation.token.secret.key" in found.notes[0]
