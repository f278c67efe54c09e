"""Recordings that are saved, replayed on another broker, and compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kwire.testing import Broker, Recorder, SecureBroker
from kwire.testing.compare import Difference, IdComparison, compare, recorded
from kwire.testing.recording import load
from kwire.testing.replay import play
from server.__main__ import main

from .clients import consumer, producer, read, send


def shop(broker: Broker) -> Recorder:
    """Record the clients of a shop: idempotent and transactional producers, and a group."""
    with broker.record() as recorder:
        client = producer(broker.bootstrap_servers, enable_idempotence=True)
        for number in range(3):
            send(client, "orders", b"%d" % number)
        transactional = producer(broker.bootstrap_servers, transactional_id="t")
        transactional.init_transactions(10)
        for end in (transactional.commit_transaction, transactional.abort_transaction):
            transactional.begin_transaction()
            transactional.produce("orders", b"paid")
            transactional.flush(10)
            end(10)
        with consumer(broker.bootstrap_servers, "g") as reader:
            reader.subscribe(["orders"])
            assert read(reader, 4) == [b"0", b"1", b"2", b"paid"]
            reader.commit(asynchronous=False)
    return recorder


def prepared() -> Broker:
    """A broker with the topic of the shop."""
    broker = Broker().start()
    broker.topic("orders", configs={"retention.ms": -1})
    return broker


def without_timing(differences: list[Difference]) -> list[Difference]:
    """Remove differences that depend on the time of a Fetch: the available records, and the session."""
    return [each for each in differences if each.exchange.api != "Fetch"]


def test_replay_on_a_broker_of_the_same_kind_has_no_differences(tmp_path: Path) -> None:
    with prepared() as broker, Broker() as other, Broker() as third:
        recorder = shop(broker)
        assert without_timing(recorder.replay(other.bootstrap_servers)) == []
        assert [record.value for record in other.consume("orders")] == [
            b"0",
            b"1",
            b"2",
            b"paid",
            b"paid",
        ]
        committed = [record.value for record in other.consume("orders", read_committed=True)]
        assert committed == [b"0", b"1", b"2", b"paid"]
        assert other.committed("g", "orders", 0) == broker.committed("g", "orders", 0)

        recorder.save(tmp_path / "run.jsonl", frames=True)
        recording = load(tmp_path / "run.jsonl")
        assert [each.name for each in recording.topics if not each.name.startswith("__")] == [
            "orders"
        ]
        assert [each.request for each in recording.exchanges] == [
            each.request for each in recorder.exchanges
        ]
        played = play(recording, third.bootstrap_servers)
        assert without_timing(compare(recorded(recording.exchanges), played)) == []


def test_offsets_of_a_partition_that_was_not_empty_are_relative() -> None:
    with prepared() as broker, prepared() as other:
        other.produce("orders", "before", "that")
        with broker.record() as recorder:
            for _ in range(2):
                send(producer(broker.bootstrap_servers), "orders", b"1")
            with consumer(broker.bootstrap_servers, "g") as reader:
                reader.subscribe(["orders"])
                read(reader, 2)
                reader.commit(asynchronous=False)
        assert without_timing(recorder.replay(other.bootstrap_servers)) == []
        assert (broker.committed("g", "orders"), other.committed("g", "orders")) == (2, 4)


def test_differences_name_the_request_the_field_and_both_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with prepared() as broker, prepared() as other:
        with broker.record() as recorder:
            send(producer(broker.bootstrap_servers), "orders", b"1")
        with other.fault("Produce", error="MESSAGE_TOO_LARGE") as fault:
            fault.matched = 1  # the replay has the same client id
            found = recorder.replay(other.bootstrap_servers)
        [produce] = [each for each in recorder.exchanges if each.api == "Produce"]
        number = recorder.exchanges.index(produce) + 1
        assert f"#{number} Produce v{produce.version}: " in str(found[0])
        [error] = [str(each) for each in found if each.path.endswith("errorCode")]
        assert error.endswith("errorCode: 0 | 10")
        path = tmp_path / "run.jsonl"
        recorder.save(path, frames=True)
        arguments = ["compare", "-", other.bootstrap_servers, str(path)]
        other.fault("Produce", error="MESSAGE_TOO_LARGE")
        assert main(arguments) == 1
        assert error in capsys.readouterr().out
        assert main([*arguments, "--summary"]) == 1
        assert "errorCode\n" in capsys.readouterr().out
        assert main(["compare", broker.bootstrap_servers, broker.bootstrap_servers, str(path)]) == 0


def test_requests_with_secrets_are_neither_saved_nor_sent(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with SecureBroker() as broker, Broker() as other:
        broker.topic("orders")
        broker.user("alice", password="pizza-funghi")
        broker.allow("User:alice", "Write", topic="orders")
        with broker.record() as recorder:
            client = producer(broker.bootstrap_servers, **broker.client_config("alice"))
            send(client, "orders", b"1")
        recorder.save(path, frames=True)
        logins = [each for each in recorder.exchanges if each.api == "SaslAuthenticate"]
        assert logins
        lines = [json.loads(line) for line in path.read_text().splitlines()[1:]]
        kept = {line["api"] for line in lines if "requestFrame" in line}
        assert "Produce" in kept
        assert "SaslAuthenticate" not in kept
        assert "pizza-funghi" not in path.read_text()
        sent = play(load(path), other.bootstrap_servers)
        assert {each.failure for each in sent if each.exchange.api == "SaslAuthenticate"} == {
            "not sent: it has secrets, which are not recorded"
        }
        assert [record.value for record in other.consume("orders")] == [b"1"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"request": {}}', "line 1: this recording was saved without frames.*frames=True"),
        ("{}", "line 1: this is not a recording of kwire.testing"),
        ("pizza", "line 1 is not of a recording: Expecting value"),
        (
            '{"kafkaRecording": 1, "topics": []}\n{"api": "Fetch"}',
            "line 2 is not of a recording: 'version'",
        ),
    ],
)
def test_file_that_is_no_recording_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(line)
    with pytest.raises(ValueError, match=said):
        load(path)
    assert main(["compare", "-", "127.0.0.1:1", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def rows(one: Any, other: Any) -> list[tuple[str, Any, Any]]:
    """The differences of two JSON values."""
    return list(IdComparison()._differ(one, other, "", "", ""))


def test_ids_are_paired_one_to_one() -> None:
    assert (
        rows([{"memberId": "a"}, {"memberId": "a"}], [{"memberId": "x"}, {"memberId": "x"}]) == []
    )
    assert rows([{"memberId": "a"}, {"memberId": "a"}], [{"memberId": "x"}, {"memberId": "y"}]) == [
        ("[1].memberId", "a", "y")
    ]
    assert rows([{"memberId": "a"}, {"memberId": "b"}], [{"memberId": "x"}, {"memberId": "x"}]) == [
        ("[1].memberId", "b", "x")
    ]
    assert rows({"isrNodes": [1, 2]}, {"isrNodes": [7, 8]}) == []


def test_rows_are_found_by_their_names_in_any_order() -> None:
    one = {"topics": [{"name": "a", "errorCode": 0}, {"name": "b", "errorCode": 3}]}
    other = {"topics": [{"name": "b", "errorCode": 3}, {"name": "a", "errorCode": 5}]}
    assert rows(one, other) == [("topics[a].errorCode", 0, 5)]
    assert rows(one, {"topics": [{"name": "a", "errorCode": 0}]}) == [
        ("topics[b]", {"name": "b", "errorCode": 3}, "(not there)")
    ]
