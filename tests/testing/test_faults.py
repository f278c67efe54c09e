"""Faults: the effect of each on a stock client, the requests that rules match, and refusals."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from kwire.testing import Broker, Recorder, UnusedFault

from .clients import consumer, polling, producer, read, send


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def failure(broker: Broker, topic: str, **settings: Any) -> KafkaError:
    """The error that a producer without retries gets."""
    with pytest.raises(KafkaException) as failed:
        send(producer(broker.bootstrap_servers, retries=0, **settings), topic)
    error: KafkaError = failed.value.args[0]
    return error


# -- what is answered


def test_error_of_a_request_reaches_the_client_and_nothing_is_applied(broker: Broker) -> None:
    topic = broker.topic()
    with broker.fault("Produce", error="MESSAGE_TOO_LARGE") as fault:
        assert failure(broker, topic).code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert fault.hits == 1
    assert topic.consume() == []


def test_error_after_apply_reaches_the_client_and_the_record_is_there(broker: Broker) -> None:
    topic = broker.topic()
    with broker.fault("Produce", error="MESSAGE_TOO_LARGE", after_apply=True):
        assert failure(broker, topic).code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert [record.value for record in topic.consume()] == [b"v"]


def test_retriable_error_of_the_second_request_is_retried_by_the_client(broker: Broker) -> None:
    topic = broker.topic()
    client = producer(broker.bootstrap_servers)
    with broker.fault("Produce", nth=2, error="NOT_LEADER_OR_FOLLOWER", after_apply=True) as fault:
        for value in (b"1", b"2", b"3"):
            send(client, topic, value)
    # Without idempotence, the retry of an applied request is a duplicate.
    assert [record.value for record in topic.consume()] == [b"1", b"2", b"2", b"3"]
    assert (fault.matched, fault.hits) == (4, 1)


def test_idempotent_producer_survives_the_same_without_a_duplicate(broker: Broker) -> None:
    topic = broker.topic()
    client = producer(broker.bootstrap_servers, enable_idempotence=True)
    with broker.fault("Produce", nth=2, error="NOT_ENOUGH_REPLICAS_AFTER_APPEND", after_apply=True):
        for value in (b"1", b"2", b"3"):
            send(client, topic, value)
    assert [record.value for record in topic.consume()] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("after_apply", [False, True])
def test_error_of_one_partition_leaves_the_others(broker: Broker, after_apply: bool) -> None:
    topic = broker.topic(partitions=2)
    client = producer(broker.bootstrap_servers, retries=0, linger_ms=20)
    outcomes: dict[int, Any] = {}
    with broker.fault(
        "Produce", topic=topic, partition=1, error="MESSAGE_TOO_LARGE", after_apply=after_apply
    ):
        for partition in (0, 1):
            client.produce(
                topic,
                b"v",
                partition=partition,
                on_delivery=lambda error, message: outcomes.update({message.partition(): error}),
            )
        client.flush(10)
    assert outcomes[0] is None
    assert outcomes[1].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert len(topic.consume(partition=0)) == 1
    assert len(topic.consume(partition=1)) == after_apply


def test_error_of_a_fetch_in_a_session_reaches_the_consumer(broker: Broker) -> None:
    topic = broker.topic()
    topic.produce("1")
    with consumer(broker.bootstrap_servers, "g") as client:
        client.subscribe([topic])
        assert read(client, 1) == [b"1"]
        with broker.fault("Fetch", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=2) as fault:
            broker.wait_for(lambda: fault.hits == 2)
        topic.produce("2")
        assert read(client, 1) == [b"2"]


def test_error_of_a_group_leaves_other_groups(broker: Broker) -> None:
    topic = broker.topic()
    topic.produce("1")
    with (
        broker.fault("JoinGroup", group="broken", error="GROUP_AUTHORIZATION_FAILED"),
        consumer(broker.bootstrap_servers, "broken") as broken,
        consumer(broker.bootstrap_servers, "sound") as sound,
    ):
        broken.subscribe([topic])
        sound.subscribe([topic])
        assert read(sound, 1) == [b"1"]
        errors = []
        broker.wait_for(
            lambda: (
                (message := broken.poll(0.05)) is not None
                and errors.append(message.error()) is None
            )
        )
    assert errors[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_closed_connection_before_and_after_apply(broker: Broker) -> None:
    topic = broker.topic()
    client = producer(broker.bootstrap_servers)
    with broker.fault("Produce", close=True, nth=1):
        send(client, topic, b"1")
    with broker.fault("Produce", close=True, after_apply=True, nth=1):
        send(client, topic, b"2")
    assert [record.value for record in topic.consume()] == [b"1", b"2", b"2"]


@pytest.mark.parametrize("how", [{"reset": True}, {"cut": 6}, {"cut": 0}])
def test_connection_that_breaks_is_made_again(broker: Broker, how: dict[str, Any]) -> None:
    topic = broker.topic()
    client = producer(broker.bootstrap_servers)
    with broker.fault("Produce", nth=1, **how) as fault:
        send(client, topic, b"1")
    assert fault.matched >= 2
    assert {record.value for record in topic.consume()} == {b"1"}


def test_reset_after_apply_leaves_what_was_sent(broker: Broker) -> None:
    topic = broker.topic()
    with broker.fault("Produce", reset=True, after_apply=True, times=1):
        send(producer(broker.bootstrap_servers, enable_idempotence=True), topic, b"1")
    assert [record.value for record in topic.consume()] == [b"1"]


def test_consumer_reads_again_what_came_in_an_answer_that_was_cut(broker: Broker) -> None:
    topic = broker.topic()
    topic.produce(*("x" * 100 for _ in range(50)))
    with (
        broker.fault("Fetch", topic=topic, cut=1000, times=2) as fault,
        consumer(broker.bootstrap_servers, "g") as client,
    ):
        client.subscribe([topic])
        assert read(client, 50) == [b"x" * 100] * 50
    assert fault.hits == 2


def test_throttled_fetch_makes_the_consumer_pause(broker: Broker) -> None:
    told: list[Any] = []
    topic = broker.topic()
    with (
        broker.fault("Fetch", throttle="30ms", times=1),
        consumer(broker.bootstrap_servers, "g", throttle_cb=told.append) as client,
    ):
        client.subscribe([topic])
        broker.wait_for(polling(client, lambda: told))
    assert told[0].throttle_time == 0.03


def test_missing_answer_ends_with_the_clients_own_timeout(broker: Broker) -> None:
    topic = broker.topic()
    with broker.fault("Produce", no_answer=True, after_apply=True):
        error = failure(broker, topic, socket_timeout_ms=300, message_timeout_ms=400)
    assert error.code() in (KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT)
    assert len(topic.consume()) == 1


def test_delay_counts_in_the_brokers_time(broker: Broker) -> None:
    topic = broker.topic()
    client = producer(broker.bootstrap_servers)
    delivered: list[Any] = []
    with broker.clock.freeze(), broker.fault("Produce", delay="1h") as fault:
        client.produce(topic, b"v", on_delivery=lambda error, message: delivered.append(error))
        broker.wait_for(lambda: client.poll(0) or fault.hits)
        assert topic.consume() == [] and not delivered
        broker.clock.advance("1h")
        client.flush(10)
    assert delivered == [None]


def test_throttle_time_is_told_to_the_client(broker: Broker) -> None:
    told: list[Any] = []
    topic = broker.topic()
    client = producer(broker.bootstrap_servers, throttle_cb=told.append)
    with broker.fault("Produce", throttle="250ms", times=1):
        send(client, topic)
        client.poll(0)
    assert [event.throttle_time for event in told] == [0.25]


def test_stale_metadata_hides_what_is_new(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    with broker.fault(stale_metadata=True):
        topic = broker.topic("new")
        assert topic not in admin.list_topics(timeout=10).topics
    assert topic in admin.list_topics(timeout=10).topics


def test_clock_jumps_in_the_middle_of_a_request(broker: Broker) -> None:
    topic = broker.topic(configs={"message.timestamp.type": "LogAppendTime"})
    client = producer(broker.bootstrap_servers)
    send(client, topic)
    with broker.fault("Produce", clock_jump="1h"):
        send(client, topic)
    first, second = topic.consume()
    assert 3_600_000 <= second.timestamp - first.timestamp < 3_660_000


# -- the disk


def test_full_disk_is_a_storage_error_to_the_client(broker: Broker) -> None:
    topic = broker.topic()
    with broker.disk_fault("write", path=f"{topic}-0/*.log", error="ENOSPC") as fault:
        assert failure(broker, topic).code() == KafkaError.KAFKA_STORAGE_ERROR
    assert fault.hits >= 1
    assert any("No space left on device" in line for line in broker.log)


def test_slow_fsync_delays_the_answer_of_what_waits_for_it_only(broker: Broker) -> None:
    slow = broker.topic(configs={"flush.messages": 1})
    fast = broker.topic()
    client = producer(broker.bootstrap_servers)
    send(client, fast)
    with broker.disk_fault("fsync", path=f"{slow}-0/*", delay="300ms") as fault:
        began = time.monotonic()
        delivered: list[Any] = []
        client.produce(slow, b"v", on_delivery=lambda error, message: delivered.append(error))
        client.poll(0)
        send(producer(broker.bootstrap_servers), fast)
        fast_s = time.monotonic() - began
        client.flush(10)
        assert delivered == [None]
        assert time.monotonic() - began >= 0.3
    assert fault.hits >= 1
    assert fast_s < time.monotonic() - began


def test_disk_that_cannot_be_flushed_or_written_slowly(broker: Broker) -> None:
    topic = broker.topic(configs={"flush.messages": 1})
    client = producer(broker.bootstrap_servers, retries=0)
    with broker.disk_fault("write", path=f"{topic}-0/*.log", delay="50ms", times=1) as slow:
        began = time.monotonic()
        send(client, topic)
        assert time.monotonic() - began >= 0.05
    assert slow.hits == 1
    with (
        broker.disk_fault("fsync", path=f"{topic}-0/*", error="EIO"),
        pytest.raises(KafkaException, match="KAFKA_STORAGE_ERROR"),
    ):
        send(client, topic)


def test_disk_that_cannot_be_read_is_an_error_of_the_fetch(broker: Broker) -> None:
    topic = broker.topic()
    topic.produce("1")
    with (
        broker.disk_fault("read", path=f"{topic}-0/*.log", error="EIO") as fault,
        broker.record() as recorder,
        consumer(broker.bootstrap_servers, "g") as client,
    ):
        client.subscribe([topic])
        broker.wait_for(polling(client, lambda: fault.hits))
        broker.wait_for(polling(client, lambda: errors_of_fetches(recorder)))
    assert errors_of_fetches(recorder)[0] == KafkaError.KAFKA_STORAGE_ERROR


def errors_of_fetches(recorder: Recorder) -> list[int]:
    return [
        row["errorCode"]
        for each in recorder.requests("Fetch")
        for topic in (each.response or {}).get("responses", ())
        for row in topic["partitions"]
        if row["errorCode"]
    ]


# -- which requests


def test_rule_for_one_connection_leaves_other_connections(broker: Broker) -> None:
    topic = broker.topic()
    one, other = (producer(broker.bootstrap_servers, retries=0) for _ in range(2))
    with broker.record() as recorder:
        send(one, topic)
    [sent] = recorder.requests("Produce")
    with broker.fault("Produce", connection=sent.connection, error="INVALID_RECORD"):
        send(other, topic)
        with pytest.raises(KafkaException, match="INVALID_RECORD"):
            send(one, topic)


def test_rules_match_by_client_version_connection_and_transactional_id(broker: Broker) -> None:
    topic = broker.topic()
    rules = [
        broker.fault("Produce", client_id="other", delay="0s"),
        broker.fault("Produce", version=range(100, 200), delay="0s"),
        broker.fault("Produce", connection=1000, delay="0s"),
        broker.fault("InitProducerId", transactional_id="other", delay="0s"),
        broker.fault("Produce", client_id="mine", version=range(3, 20), delay="0s"),
    ]
    send(producer(broker.bootstrap_servers, client_id="mine"), topic)
    assert [rule.hits for rule in rules] == [0, 0, 0, 0, 1]
    with pytest.warns(UnusedFault) as warned:
        for rule in rules:
            rule.remove()
    assert len(warned) == 4


def test_probability_with_a_seed_is_repeated() -> None:
    def hits() -> list[int]:
        with (
            Broker() as broker,
            broker.fault("Produce", delay="0s", probability=0.5, seed=7) as fault,
        ):
            topic = broker.topic()
            client = producer(broker.bootstrap_servers)
            counts = []
            for _ in range(20):
                send(client, topic)
                counts.append(fault.hits)
            return counts

    first = hits()
    assert first == hits()
    assert 0 < first[-1] < 20


def test_rule_begins_after_a_time_and_ends_by_itself(broker: Broker) -> None:
    topic = broker.topic()
    client = producer(broker.bootstrap_servers)
    fault = broker.fault("Produce", delay="0s", after="1h", times=1)
    send(client, topic)
    assert fault.matched == 0
    broker.clock.advance("1h")
    send(client, topic)
    send(client, topic)
    assert (fault.hits, fault.ended) == (1, True)


def test_helpers_are_not_touched_by_rules(broker: Broker) -> None:
    fault = broker.fault(error="UNKNOWN_SERVER_ERROR")
    topic = broker.topic()
    topic.produce("1")
    assert len(topic.consume()) == 1
    with pytest.warns(UnusedFault, match=r"fault\(error='UNKNOWN_SERVER_ERROR'\) matched nothing"):
        fault.remove()


def test_rule_that_matched_nothing_warns_when_the_broker_stops() -> None:
    broker = Broker().start()
    broker.fault("Fetch", close=True)
    with pytest.warns(UnusedFault, match="close=True"):
        broker.stop()


# -- what is refused


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"api": "Prodce", "close": True}, "unknown API 'Prodce'; did you mean 'Produce'?"),
        ({"api": "offsetcomit", "close": True}, "did you mean 'OffsetCommit'?"),
        ({"error": "NOT_LEADER"}, "unknown error 'NOT_LEADER'; did you mean '"),
        ({"error": 9999}, "unknown error 9999"),
        ({"api": 0, "close": True}, "api is a string, not 0"),
        ({"api": "Fetch", "eror": "X"}, "unknown argument 'eror'; did you mean 'error'?"),
        ({"close": True, "nth": "1"}, "nth is a whole number, or several such as range(3)"),
        ({"close": 1}, "close is True or False, not 1"),
        ({"close": True, "times": "1"}, "times is a whole number, not '1'"),
        ({"close": True, "after": "-1s"}, "after cannot be negative"),
        ({"cut": -1}, "cut is a number of bytes, not -1"),
        ({"delay": "2 secs"}, "not a duration: '2 secs'; did you mean 'sec'?"),
        ({"api": "Fetch"}, "a fault needs something to do"),
        ({"error": 1, "close": True}, "error and close exclude each other"),
        ({"delay": "2 fortnights"}, "not a duration: '2 fortnights'"),
        ({"delay": "-2s"}, "delay cannot be negative"),
        ({"close": True, "partition": 1}, "partition needs a topic"),
        ({"close": True, "nth": 0}, "nth counts from 1"),
        ({"close": True, "times": 0}, "times is at least 1"),
        ({"close": True, "probability": 1.5}, "probability is above 0 and at most 1"),
        ({"api": "Fetch", "stale_metadata": True}, "stale_metadata is for the API Metadata"),
        ({"close": True, "nth": {0, 1}}, "nth counts from 1, so it cannot be 0"),
        ({"error": "NONE"}, "NONE stands for success"),
        ({"clock_jump": "11000d"}, "clock_jump is at most ten years"),
        ({"slowdown": 0.5}, "slowdown is at least 1"),
        ({"slowdown": 1e300}, "slowdown is at least 1 and at most 87600, not 1e+300"),
        ({"slowdown": float("nan")}, "slowdown is at least 1 and at most 87600, not nan"),
        ({"delay": 1e18}, "delay is at most ten years, not 1e+18"),
        ({"delay": "٢s"}, "not a duration: '٢s'"),
        ({"close": True, "after": "600w"}, "after is at most ten years, not 600w"),
        ({"throttle": "25d"}, "throttle is at most 2147483647 ms, not 25d"),
    ],
)
def test_impossible_rule_is_refused(broker: Broker, rule: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError)) as refused:
        broker.fault(**rule)
    assert message in str(refused.value)
    assert broker.faults == ()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            {"operation": "wrte", "error": "EIO"},
            "unknown file operation 'wrte'; did you mean 'write'?",
        ),
        ({"operation": "write", "error": "ENOSPACE"}, "did you mean 'ENOSPC'?"),
        ({"operation": "write"}, "a disk fault needs something to do"),
        ({"operation": "write", "delay": -1}, "delay cannot be negative"),
        ({"operation": "write", "delay": 1e18}, "delay is at most ten years, not 1e+18"),
        ({"operation": "write", "eror": "EIO"}, "unknown argument 'eror'; did you mean 'error'?"),
    ],
)
def test_impossible_disk_rule_is_refused(
    broker: Broker, rule: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, TypeError)) as refused:
        broker.disk_fault(**rule)
    assert message in str(refused.value)
