"""Errors of each kind of API, as stock clients see them: confluent-kafka, whose calls name the API's error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from kwire.testing import Broker
from kwire.testing.client.topics import delete, leaders, names

from .clients import consumer, dotted, polling, producer, send

WAIT_S = 10


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.topic("orders", partitions=2)
        yield running


@pytest.fixture(scope="module")
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})


def asked(futures: Any) -> Any:
    """The results of an admin's call, by key. Errors: KafkaException of the first that failed."""
    if hasattr(futures, "result"):
        return futures.result(WAIT_S)
    return {key: future.result(WAIT_S) for key, future in futures.items()}


SETTING = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)

# The admin client's calls, for each API that answers them.
CALLS: dict[str, Callable[[AdminClient], Any]] = {
    "CreateTopics": lambda admin: admin.create_topics([NewTopic("new", 1, 1)]),
    "DeleteTopics": lambda admin: admin.delete_topics(["orders"]),
    "CreatePartitions": lambda admin: admin.create_partitions([NewPartitions("orders", 3)]),
    "DescribeConfigs": lambda admin: admin.describe_configs([ConfigResource("topic", "orders")]),
    "IncrementalAlterConfigs": lambda admin: admin.incremental_alter_configs(
        [ConfigResource("topic", "orders", incremental_configs=[SETTING])]
    ),
    "ListOffsets": lambda admin: admin.list_offsets(
        {TopicPartition("orders", 1): OffsetSpec.latest()}
    ),
    "DeleteRecords": lambda admin: admin.delete_records([TopicPartition("orders", 1, 0)]),
    "DescribeGroups": lambda admin: admin.describe_consumer_groups(["kitchen"]),
    "DeleteGroups": lambda admin: admin.delete_consumer_groups(["kitchen"]),
    "OffsetFetch": lambda admin: admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions("kitchen")]
    ),
    "OffsetCommit": lambda admin: admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions("kitchen", [TopicPartition("orders", 1, 0)])]
    ),
}
#: The error of each. It is one after which the client does not ask again.
ERRORS = {
    "CreateTopics": "POLICY_VIOLATION",
    "DeleteTopics": "TOPIC_DELETION_DISABLED",
    "CreatePartitions": "INVALID_PARTITIONS",
    "DeleteGroups": "NON_EMPTY_GROUP",
    "OffsetCommit": "OFFSET_METADATA_TOO_LARGE",
}
#: Additional fields of the rule, so that the rows of the request are also checked.
ROWS: dict[str, dict[str, Any]] = {
    "DeleteTopics": {"topic": "orders"},
    "CreatePartitions": {"topic": "orders"},
    "CreateTopics": {"topic": "new"},
    "ListOffsets": {"topic": "orders", "partition": 1},
    "DeleteRecords": {"topic": "orders", "partition": 1},
    "OffsetCommit": {"topic": "orders", "partition": 1},
    "DescribeGroups": {"group": "kitchen"},
    "DeleteGroups": {"group": "kitchen"},
    "OffsetFetch": {"group": "kitchen"},
}


def first_error(value: Any) -> KafkaError | None:
    """The error in the rows of an answer, for calls that do not fail as a whole."""
    rows = value.values() if isinstance(value, dict) else [value]
    for row in rows:
        for each in getattr(row, "topic_partitions", None) or [row]:
            if (error := getattr(each, "error", None)) is not None:
                assert isinstance(error, KafkaError)
                return error
    return None


@pytest.mark.parametrize("api", CALLS)
def test_error_of_an_api_reaches_the_admin_client(
    broker: Broker, admin: AdminClient, api: str
) -> None:
    error = ERRORS.get(api, "CLUSTER_AUTHORIZATION_FAILED")
    with broker.fault(api, error=error, **ROWS.get(api, {})) as rule:
        try:
            found = first_error(asked(CALLS[api](admin)))
        except KafkaException as refused:
            found = refused.args[0]
    assert rule.hits >= 1
    assert found is not None and found.name() in (error, "TOPIC_EXCEPTION"), found
    assert sorted(names(broker.client)) == ["orders"]
    assert len(leaders(broker.client, "orders")) == 2


def test_error_of_one_topics_metadata_leaves_the_others(broker: Broker, admin: AdminClient) -> None:
    other = broker.topic()
    try:
        with broker.fault("Metadata", topic="orders", error="TOPIC_AUTHORIZATION_FAILED"):
            topics = admin.list_topics(timeout=WAIT_S).topics
            with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
                admin.list_topics("orders", timeout=WAIT_S)
        assert topics[other].error is None
    finally:
        delete(broker.client, [other])


def test_consumer_is_told_that_its_offset_was_not_committed(broker: Broker) -> None:
    with consumer(broker.bootstrap_servers, "alone") as client:
        rows = [TopicPartition("orders", 0, 5), TopicPartition("orders", 1, 5)]
        with (
            broker.fault(
                "OffsetCommit",
                group="alone",
                topic="orders",
                partition=1,
                error="OFFSET_METADATA_TOO_LARGE",
            ),
            pytest.raises(KafkaException, match="OFFSET_METADATA_TOO_LARGE"),
        ):
            client.commit(offsets=rows, asynchronous=False)
    assert broker.committed("alone", "orders", 0) == 5
    assert broker.committed("alone", "orders", 1) is None


def test_member_is_told_to_join_again_by_its_heartbeat(broker: Broker) -> None:
    revoked: list[Any] = []
    with consumer(broker.bootstrap_servers, "rebalanced") as client:
        client.subscribe(["orders"], on_revoke=lambda _, partitions: revoked.append(partitions))
        broker.wait_for(polling(client, lambda: client.assignment()))
        with broker.fault(
            "Heartbeat", group="rebalanced", error="REBALANCE_IN_PROGRESS", times=1
        ) as rule:
            broker.wait_for(polling(client, lambda: revoked))
            broker.wait_for(polling(client, lambda: client.assignment()))
    assert rule.hits == 1


def test_error_of_sync_group_makes_the_member_join_again(broker: Broker) -> None:
    with (
        broker.fault("SyncGroup", group="synced", error="REBALANCE_IN_PROGRESS", times=1) as rule,
        broker.record() as recorder,
        consumer(broker.bootstrap_servers, "synced") as client,
    ):
        client.subscribe(["orders"])
        broker.wait_for(polling(client, lambda: client.assignment()))
    assert rule.hits == 1
    recorder.assert_order("SyncGroup", "JoinGroup", "SyncGroup")


def commit(client: Any, broker: Broker, is_sent: bool = True) -> None:
    """A transaction with a record and with an offset."""
    client.begin_transaction()
    if is_sent:
        send(client, "orders")
    client.send_offsets_to_transaction([TopicPartition("orders", 0, 1)], member(broker), WAIT_S)
    client.commit_transaction(WAIT_S)


def member(broker: Broker) -> Any:
    client = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "sent"})
    try:
        return client.consumer_group_metadata()
    finally:
        client.close()


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("InitProducerId", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        ("AddPartitionsToTxn", "TOPIC_AUTHORIZATION_FAILED"),
        ("AddOffsetsToTxn", "INVALID_PRODUCER_EPOCH"),
        ("TxnOffsetCommit", "INVALID_COMMIT_OFFSET_SIZE"),
        ("EndTxn", "INVALID_TXN_STATE"),
    ],
)
def test_error_of_one_transactional_id_fails_its_transaction_and_no_other(
    broker: Broker, api: str, error: str
) -> None:
    with broker.fault(api, transactional_id=f"broken-{api}", error=error) as rule:
        other = producer(broker.bootstrap_servers, transactional_id=f"sound-{api}")
        other.init_transactions(WAIT_S)
        commit(other, broker)
        assert rule.matched == 0
        broken = producer(broker.bootstrap_servers, transactional_id=f"broken-{api}")
        with pytest.raises(KafkaException):
            broken.init_transactions(WAIT_S)
            commit(broken, broker, is_sent=api == "AddPartitionsToTxn")
    assert rule.hits >= 1


def test_client_goes_back_to_older_versions_when_api_versions_is_refused(broker: Broker) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    with broker.fault("ApiVersions", version=range(3, 99), error="UNSUPPORTED_VERSION") as rule:
        client = AdminClient(settings | dotted({"client_id": "old"}))
        assert "orders" in client.list_topics(timeout=WAIT_S).topics
    assert rule.hits >= 1
