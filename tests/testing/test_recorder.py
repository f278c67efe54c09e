"""The recorder: requests and answers of clients, as JSON, without secrets, and at no cost while it is off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kwire.connection import ServerConnection
from kwire.server.net.session import Session
from kwire.testing import Broker, Cluster, Recorder, SecureBroker
from kwire.testing.exchange import Exchange
from kwire.testing.json_form import HIDDEN
from kwire.testing.recorder import differences

from .clients import consumer, producer, read, send


@pytest.fixture(scope="module")
def recorded() -> Iterator[Recorder]:
    """A producer and a consumer group, from beginning to end."""
    with Broker() as broker:
        with broker.record() as recorder:
            topic = broker.topic("orders", partitions=2)
            send(producer(broker.bootstrap_servers, client_id="shop"), topic, b"12345")
            with consumer(broker.bootstrap_servers, "kitchen", client_id="cook") as reader:
                reader.subscribe([topic])
                read(reader, 1)
                reader.commit(asynchronous=False)
        yield recorder


def test_request_and_reply_have_kafkas_names(recorded: Recorder) -> None:
    [join, *_] = recorded.requests("JoinGroup", group="kitchen")
    assert join.request["groupId"] == "kitchen"
    assert join.request["protocols"][0]["name"] == "range"
    assert join.response is not None and join.response["memberId"]
    [commit, *_] = recorded.requests("OffsetCommit", group="kitchen")
    [topic] = commit.request["topics"]
    assert topic["partitions"][0]["committedOffset"] == 1
    assert commit.response is not None
    assert commit.response["topics"][0]["partitions"][0]["errorCode"] == 0


def test_exchange_says_when_who_and_how_much(recorded: Recorder) -> None:
    [produced] = recorded.requests("Produce")
    assert (produced.client_id, produced.principal) == ("shop", "User:ANONYMOUS")
    assert produced.connection == recorded.requests(client_id="shop")[-1].connection
    assert produced.replied_ms is not None and produced.replied_ms >= produced.at_ms
    [row] = produced.request["topicData"][0]["partitionData"]
    assert produced.request_bytes > row["recordsSizeInBytes"] > 5
    assert produced.response_bytes


def test_records_that_are_sent_from_files_are_counted(recorded: Recorder) -> None:
    sizes = [
        row["recordsSizeInBytes"]
        for fetch in recorded.requests("Fetch", client_id="cook")
        if fetch.response is not None
        for topic in fetch.response["responses"]
        for row in topic["partitions"]
    ]
    [produced] = recorded.requests("Produce")
    assert produced.request["topicData"][0]["partitionData"][0]["recordsSizeInBytes"] in sizes


def test_requests_are_found_by_what_they_name(recorded: Recorder) -> None:
    assert {each.api for each in recorded.requests(group="kitchen")} >= {
        "FindCoordinator",
        "JoinGroup",
        "SyncGroup",
        "OffsetCommit",
        "LeaveGroup",
    }
    assert recorded.requests("OffsetCommit", group="other") == []
    assert recorded.requests("Produce", topic="orders") == recorded.requests("Produce")
    assert recorded.requests("Produce", topic="others") == []
    assert len(recorded.requests("Fetch", topic="orders", partition=1)) >= 1
    assert recorded.requests("Fetch", partition=7) == []
    with pytest.raises(ValueError, match="'OffsetComit'; did you mean 'OffsetCommit'"):
        recorded.requests("OffsetComit")


def test_helpers_are_left_out(recorded: Recorder) -> None:
    assert recorded.requests("CreateTopics") == []
    assert {each.client_id for each in recorded.requests()} == {"shop", "cook"}


def test_order_is_asserted_and_others_may_come_between(recorded: Recorder) -> None:
    found = recorded.assert_order(
        "JoinGroup",
        "SyncGroup",
        (
            "OffsetCommit",
            {"groupId": "kitchen", "topics": [{"partitions": [{"committedOffset": 1}]}]},
        ),
        "LeaveGroup",
    )
    assert [each.api for each in found] == ["JoinGroup", "SyncGroup", "OffsetCommit", "LeaveGroup"]


def test_missing_request_is_explained(recorded: Recorder) -> None:
    with pytest.raises(AssertionError) as raised:
        recorded.assert_order("JoinGroup", ("OffsetCommit", {"groupId": "chef"}), "LeaveGroup")
    said = str(raised.value)
    assert '> OffsetCommit {"groupId": "chef"}    has not come after #' in said
    assert "groupId: 'kitchen', not 'chef'" in said
    with pytest.raises(AssertionError, match="arrived too early"):
        recorded.assert_order("LeaveGroup", "SyncGroup")


def test_differences_name_the_field() -> None:
    actual = {"a": [{"b": 1}, {"b": 2, "c": 3}], "d": "x"}
    assert differences({"a": [{"b": 2}]}, actual) == []
    assert differences({"a": [{"b": 2, "c": 4}]}, actual) == ["a[0].c: 3, not 4"]
    assert differences({"a": [{"b": 1}]}, {"a": []}) == ["a[0]: the list is empty"]
    assert differences({"e": 1}, actual) == ["e: there is no such field; there are a, d"]
    assert differences({"groupID": 1}, {"groupId": "g", "memberId": ""}) == [
        "groupID: there is no such field; did you mean 'groupId'?"
    ]


def test_saved_recording_is_one_json_object_a_line(recorded: Recorder, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorded.save(path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["api"] for row in rows] == [each.api for each in recorded.exchanges]
    [produced] = [row for row in rows if row["api"] == "Produce"]
    assert produced == recorded.requests("Produce")[0].to_json()
    assert not [row for row in rows if "undecodable" in row["request"]]
    assert not [row for row in rows if "undecodable" in (row["response"] or {})]


def test_secrets_are_hidden(tmp_path: Path) -> None:
    with SecureBroker() as broker:
        user = broker.user("admin", password="open-sesame")
        broker.allow(user, "All", cluster=True)
        with broker.record() as recorder:
            admin = AdminClient(broker.client_config("admin", mechanism="PLAIN"))
            info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
            change = UserScramCredentialUpsertion("bob", info, b"bobs-password", b"salt")
            admin.alter_user_scram_credentials([change])["bob"].result(10)
            name = "listener.name.ssl.ssl.key.password"
            entry = ConfigEntry(name, "sesame-two", incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
            admin.incremental_alter_configs([resource])[resource].result(10)
    logins = recorder.requests("SaslAuthenticate")
    assert logins and all(each.request == {"authBytes": HIDDEN} for each in logins)
    [altered] = recorder.requests("AlterUserScramCredentials")
    assert altered.request["upsertions"][0]["saltedPassword"] == HIDDEN
    assert altered.principal == "User:admin"
    [configs] = recorder.requests("IncrementalAlterConfigs")
    [setting] = configs.request["resources"][0]["configs"]
    assert setting == {"name": name, "configOperation": 0, "value": HIDDEN}
    recorder.save(tmp_path / "run.jsonl")
    text = (tmp_path / "run.jsonl").read_text()
    assert "sesame" not in text and "bobs-password" not in text


def test_request_without_a_reply_has_none() -> None:
    with Broker() as broker, broker.record() as recorder:
        topic = broker.topic("t")
        with broker.fault("Produce", times=1, close=True):
            send(producer(broker.bootstrap_servers), topic)
        first, second = recorder.requests("Produce")
        assert (first.response, first.replied_ms) == (None, None)
        assert second.response is not None
        send(producer(broker.bootstrap_servers, acks=0), topic)
        broker.wait_for(lambda: len(recorder.requests("Produce")) == 3)
        assert recorder.requests("Produce")[2].response is None


def test_recorders_are_independent_and_leave_nothing_behind() -> None:
    with Broker() as broker:
        topic = broker.topic("t")
        client = producer(broker.bootstrap_servers)
        send(client, topic)
        with broker.record() as outer:
            send(client, topic)
            with broker.record() as inner:
                send(client, topic)
            send(client, topic)
        send(client, topic)
        assert (len(outer.requests("Produce")), len(inner.requests("Produce"))) == (3, 1)
        node = broker._nodes[1]
        assert node.broker is not None and node.broker.serving is not None
        [listener] = node.broker.serving.listeners
        assert listener._make_session is Session
        assert {type(each._connection) for each in listener.sessions} == {ServerConnection}


def test_cluster_is_recorded_on_all_brokers() -> None:
    with Cluster(2) as cluster, cluster.record() as recorder:
        topic = cluster.topic("t", partitions=2)
        client = producer(cluster.bootstrap_servers)
        for partition in range(2):
            client.produce(topic, b"x", partition=partition)
        client.flush(10)
        assert len(recorder.requests("Produce", topic="t")) == 2
        assert all(isinstance(each, Exchange) for each in recorder.exchanges)
        assert not recorder.requests("UpdateMetadata")
