"""A broker in this process: its helpers, the isolation of brokers, and a clean stop."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from kwire.connection import ClientConnection
from kwire.errors import ErrorCode
from kwire.messages.describe_client_quotas import DescribeClientQuotasRequest
from kwire.testing import Broker, Cluster, KafkaError, ProcessBroker, SecureBroker
from kwire.testing.client.connections import Client
from kwire.testing.client.topics import leaders
from tests.support.cpu_time import cpu_time

from .clients import consumer, producer, read, send, set_quota


def test_start_and_stop_take_a_few_milliseconds_of_cpu() -> None:
    Broker().start().stop()  # imports
    with cpu_time() as taken:
        for _ in range(20):
            with taken.piece():
                Broker().start().stop()
    assert taken.median_s < 0.02


@pytest.mark.parametrize("kind", [Broker, Cluster, ProcessBroker, SecureBroker])
def test_unknown_setting_is_refused_with_the_nearest_one(kind: Any) -> None:
    threads = threading.active_count()
    with pytest.raises(
        ValueError, match=r"'num\.partitons' is not .*; did you mean 'num\.partitions'"
    ):
        kind(properties={"num.partitons": 3}).start()
    assert threading.active_count() == threads


@pytest.mark.parametrize("kind", [Broker, ProcessBroker])
@pytest.mark.parametrize("setting", ["broker.id", "node.id"])
def test_broker_has_the_id_that_it_is_given(kind: Any, setting: str) -> None:
    with kind({setting: 7}) as broker:
        metadata = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(
            timeout=10
        )
        assert list(metadata.brokers) == [7]


def test_whoever_waits_for_a_broker_that_stops_is_told() -> None:
    broker = Broker().start()
    broker.topic("orders")
    waiting, told = threading.Barrier(3), []

    def wait(condition: Callable[[], object]) -> None:
        waiting.wait()
        try:
            condition()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            told.append(error)

    conditions = (
        lambda: broker.consume("orders", 1, timeout=30),
        lambda: broker.wait_for(lambda: False, timeout=30),
    )
    threads = [threading.Thread(target=wait, args=(each,)) for each in conditions]
    for each in threads:
        each.start()
    waiting.wait()
    began = time.monotonic()
    broker.stop()
    for each in threads:
        each.join()
    assert time.monotonic() - began < 25
    assert len(told) == 2
    assert all(isinstance(each, OSError | RuntimeError) for each in told)


def test_forks_of_forks_hold_what_each_of_them_held() -> None:
    with Broker() as broker:
        broker.topic("orders")
        line = [broker]
        for number in range(4):
            line[-1].produce("orders", str(number))
            line.append(line[-1].fork())
        assert [len(each.consume("orders")) for each in line] == [1, 2, 3, 4, 4]
        line[2].stop()
        assert [each._thread is None for each in line] == [False, False, True, True, True]


def test_what_cannot_be_is_refused_in_words() -> None:
    with pytest.raises(RuntimeError, match="this broker is not running"):
        _ = Broker().clock
    with Broker() as broker:
        topic = broker.topic("orders", partitions=2)
        for refused in (
            lambda: topic.consume(partition=7),
            lambda: topic.produce("x", partition=7),
            lambda: topic.end_offset(7),
        ):
            with pytest.raises(ValueError, match="topic 'orders' has no partition 7; it has 2"):
                refused()
        with pytest.raises(TypeError, match="keys and values are bytes, strings or None, not 5"):
            topic.produce(5)  # type: ignore[arg-type]


def test_unknown_state_of_a_group_is_refused_with_the_nearest_one() -> None:
    with Broker() as broker, pytest.raises(ValueError, match="'Stabel'; did you mean 'Stable'"):
        broker.wait_for_group("g", state="Stabel")


def test_stock_client_produces_and_consumes() -> None:
    with Broker() as broker:
        topic = broker.topic("orders", partitions=3)
        client = producer(broker.bootstrap_servers)
        for value in (b"1", b"2", b"3"):
            send(client, topic, value)
        with consumer(broker.bootstrap_servers, "g") as reader:
            reader.subscribe([topic])
            assert sorted(filter(None, read(reader, 3))) == [b"1", b"2", b"3"]
            reader.commit(asynchronous=False)
            assert sum(broker.committed("g", topic, each) or 0 for each in range(3)) == 3


def test_brokers_share_nothing() -> None:
    with Broker() as one, Broker() as other:
        topic = one.topic("orders")
        topic.produce("1")
        assert other.topic("orders").consume() == []
        one.clock.advance("1d")
        assert one.clock.now_ms() - other.clock.now_ms() > 86_000_000
        with one.fault("Produce", error="MESSAGE_TOO_LARGE", delay="0s") as fault:
            send(producer(other.bootstrap_servers), "orders")
            assert fault.matched == 0
            fault.matched = 1  # no warning
        with consumer(one.bootstrap_servers, "g") as reader:
            reader.subscribe([topic])
            assert read(reader, 1) == [b"1"]
            assert one.group("g").state == "Stable"
            assert other.group("g").state == "Dead"


def test_producers_quotas_and_recordings_of_brokers_are_their_own() -> None:
    with Broker() as one, Broker() as other:
        set_quota(one, "shop", 1000.0)
        assert quotas(one) == 1
        assert quotas(other) == 0
        settings = {"transactional_id": "checkout", "client_id": "shop"}
        for broker in (one, other):
            broker.topic("orders")
        with one.record() as recorder:
            first = producer(one.bootstrap_servers, **settings)
            first.init_transactions(10)
            first.begin_transaction()
            second = producer(other.bootstrap_servers, **settings)
            second.init_transactions(10)
            second.begin_transaction()
            send(second, "orders")
            second.commit_transaction(10)
            assert recorder.requests("Produce") == recorder.requests("EndTxn") == []
        send(first, "orders")
        first.commit_transaction(10)  # the producer with the same id elsewhere has not fenced it
        assert [len(each.consume("orders")) for each in (one, other)] == [1, 1]


def quotas(broker: Broker) -> int:
    request = DescribeClientQuotasRequest(components=[], strict=False)
    return len(broker.client.ask(request, 1).entries)


def test_topic_has_its_settings() -> None:
    with Broker() as broker:
        made = broker.topic("t", partitions=2, configs={"retention.ms": 5, "preallocate": True})
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        assert len(admin.list_topics(timeout=10).topics[made].partitions) == 2
        with pytest.raises(KafkaError, match=r"cannot create topic 't': TOPIC_ALREADY_EXISTS"):
            broker.topic("t")
        with pytest.raises(
            KafkaError, match=r"INVALID_CONFIG .*retention\.mz; did you mean 'retention\.ms'"
        ):
            broker.topic(configs={"retention.mz": 5})


def test_helpers_produce_and_consume_all_of_a_record() -> None:
    with Broker() as broker:
        topic = broker.topic(partitions=3)
        sent = topic.produce("a", b"b", None, key="k", headers={"h": "1"}, timestamp=17)
        assert topic.consume() == sent
        assert [record.value for record in sent] == [b"a", b"b", None]
        assert {record.partition for record in sent} == {sent[0].partition}
        assert (sent[0].key, sent[0].headers, sent[0].timestamp) == (b"k", (("h", b"1"),), 17)
        assert topic.end_offset(sent[0].partition) == 3
        assert [
            record.offset for record in topic.consume(partition=sent[0].partition, offset=1)
        ] == [1, 2]
        with pytest.raises(ValueError, match="has no partition 3"):
            topic.produce("x", partition=3)


def test_consume_waits_for_what_another_sends() -> None:
    with Broker() as broker:
        topic = broker.topic()
        later = threading.Timer(0.05, topic.produce, ["late"])
        later.start()
        assert [record.value for record in topic.consume(1)] == [b"late"]
        later.join()
        with pytest.raises(TimeoutError, match="1 of 2 records"):
            topic.consume(2, timeout="50ms")


def test_aborted_records_are_not_read_committed() -> None:
    with Broker() as broker:
        topic = broker.topic()
        client = producer(broker.bootstrap_servers, transactional_id="t")
        client.init_transactions(10)
        for value, end in ((b"1", client.commit_transaction), (b"2", client.abort_transaction)):
            client.begin_transaction()
            client.produce(topic, value)
            client.flush(10)
            end(10)
        topic.produce("3")
        assert [record.value for record in topic.consume(read_committed=True)] == [b"1", b"3"]
        assert [record.value for record in topic.consume()] == [b"1", b"2", b"3"]


def test_wait_for_says_what_it_waited_for() -> None:
    with Broker() as broker:
        assert broker.wait_for(lambda: 5) == 5
        with pytest.raises(TimeoutError, match="money: still 0 after 30ms"):
            broker.wait_for(lambda: 0, timeout="30ms", message="money")
        with pytest.raises(
            TimeoutError, match="'g' is not Stable with 2 members after 30ms: Group"
        ):
            broker.wait_for_group("g", members=2, timeout="30ms")
        with pytest.raises(TimeoutError, match=r"still 0 after 0\.01s"):
            broker.wait_for(lambda: 0, timeout=0.01)


def test_wait_for_without_a_function_is_refused() -> None:
    with (
        Broker() as broker,
        pytest.raises(TypeError, match=r"needs a function to call, .* not True"),
    ):
        broker.wait_for(True)  # type: ignore[arg-type]


def test_misspelt_topic_is_refused_with_the_nearest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "patiently", lambda client, look: look())  # no wait of ten seconds
    with Broker() as broker:
        broker.topic("orders")
        with pytest.raises(
            KafkaError, match=r"no topic 'order'; did you mean 'orders'.*UNKNOWN_TOPIC"
        ):
            broker.produce("order", "one pizza")


def test_second_broker_on_a_directory_is_refused(tmp_path: Path) -> None:
    with Broker(directory=tmp_path), pytest.raises(ValueError, match=r"in use by .*another broker"):
        Broker(directory=tmp_path).start()


def test_nothing_is_left_of_a_broker() -> None:
    before = set(threading.enumerate())
    broker = Broker().start()
    folder = broker._folders[1]
    assert folder.is_relative_to(tempfile.gettempdir())
    broker.topic().produce("1")
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    broker.stop()
    broker.stop()
    assert not folder.exists()
    assert set(threading.enumerate()) <= before  # those of other tests may end in the meantime
    if descriptors:
        assert len(os.listdir("/proc/self/fd")) < descriptors


def test_data_in_a_directory_of_its_own_stay(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker:
        broker.topic("kept").produce("1")
    assert (tmp_path / "kept-0" / "00000000000000000000.log").stat().st_size > 0


def test_settings_are_kafkas_and_bad_ones_are_named() -> None:
    with Broker({"num.partitions": 4, "auto.create.topics.enable": True}) as broker:
        send(producer(broker.bootstrap_servers), "made")
        assert len(leaders(broker.client, "made")) == 4
    with pytest.raises(ValueError, match=r"the broker cannot start: .*num\.partitions"):
        Broker({"num.partitions": "many"}).start()


def test_helpers_ask_again_while_a_new_leader_does_not_know_the_end() -> None:
    answers = [ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.NONE]

    def look() -> str:
        if code := answers.pop(0):
            raise KafkaError("offsets", code)
        return "known"

    assert Client("127.0.0.1:1").patiently(look) == "known"


def test_helper_that_was_interrupted_does_not_take_its_answer_for_that_of_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt  # as the handler of a signal may: pytest-timeout's is one

    with Broker() as kafka:
        topic = kafka.topic()
        with monkeypatch.context() as patch:
            patch.setattr(ClientConnection, "next_response", interrupt)
            with pytest.raises(KeyboardInterrupt):
                topic.consume(1)
        topic.produce("1")
        assert [record.value for record in topic.consume(1)] == [b"1"]
