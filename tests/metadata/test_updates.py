"""Images after UpdateMetadata requests."""

from __future__ import annotations

from kwire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from server.metadata.image import TOPICS, MetadataImage, PartitionImage
from server.metadata.updates import LEADER_DURING_DELETE, updated

ID, OTHER_ID = b"1" * 16, b"2" * 16


def partition(number: int, leader: int = 1, epoch: int = 3) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=number,
        leader=leader,
        leader_epoch=epoch,
        isr=[1, 2],
        zk_version=7,
        replicas=[1, 2, 3],
        offline_replicas=[3],
    )


def request(*rows: UpdateMetadataPartitionState, topic_id: bytes = ID) -> UpdateMetadataRequest:
    topic = UpdateMetadataTopicState(topic_name="a", topic_id=topic_id, partition_states=list(rows))
    endpoint = UpdateMetadataEndpoint(port=9093, host="h", listener="IN", security_protocol=2)
    return UpdateMetadataRequest(
        controller_id=5,
        topic_states=[topic] if rows else [],
        live_brokers=[UpdateMetadataBroker(id=1, endpoints=[endpoint], rack="r")],
    )


def test_brokers_partitions_and_controller_are_taken_over() -> None:
    image = updated(MetadataImage(), request(partition(1), partition(0)))
    assert image.controller_id == 5
    (broker,) = image.brokers.values()
    assert (broker.id, broker.rack) == (1, "r")
    assert broker.endpoint("IN") == ("IN", "h", 9093, "SASL_PLAINTEXT")
    assert list(image.topics["a"].partitions) == [0, 1]
    found = image.partition("a", 1)
    assert found == PartitionImage(1, 1, 3, (1, 2, 3), (1, 2), 7, (3,))
    assert image.topics_by_id[ID].name == "a"


def test_partitions_that_are_not_named_stay() -> None:
    image = updated(MetadataImage(), request(partition(0), partition(1)))
    image = updated(image, request(partition(1, leader=2, epoch=4)))
    assert [each.leader for each in image.topics["a"].partitions.values()] == [1, 2]
    assert updated(image, request()).topics is image.topics


def test_topic_made_again_begins_without_the_partitions_of_the_one_before() -> None:
    image = updated(MetadataImage(), request(partition(0), partition(1)))
    image = updated(image, request(partition(0), topic_id=OTHER_ID))
    assert list(image.topics["a"].partitions) == [0]
    assert ID not in image.topics_by_id


def test_topic_goes_with_its_last_partition_and_its_config() -> None:
    image = updated(MetadataImage(), request(partition(0), partition(1)))
    image = image.with_config(TOPICS, "a", {"retention.ms": "5"})
    image = updated(image, request(partition(0, LEADER_DURING_DELETE)))
    assert list(image.topics["a"].partitions) == [1]
    image = updated(image, request(partition(1, LEADER_DURING_DELETE)))
    assert not image.topics and not image.topic_config("a")


def test_old_versions_name_partitions_by_topic_and_know_no_ids() -> None:
    rows = [partition(0), partition(1)]
    for row in rows:
        row.topic_name = "a"
    old = UpdateMetadataRequest(
        controller_id=5,
        ungrouped_partition_states=rows,
        live_brokers=[UpdateMetadataBroker(id=1, v0_host="h", v0_port=9)],
    )
    image = updated(MetadataImage(), old)
    assert list(image.topics["a"].partitions) == [0, 1]
    assert image.brokers[1].endpoints[0].port == 9
    known = updated(MetadataImage(), request(partition(0)))
    assert updated(known, old).topics["a"].topic_id == ID
