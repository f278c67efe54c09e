"""The clock: timeouts that pass with it, for stock clients, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import kafka as kafka_python
import pytest
from confluent_kafka import KafkaException

from kwire.errors import ErrorCode
from kwire.testing import Broker, Exchange, SecureBroker
from kwire.testing.durations import to_ms
from kwire.testing.loop import ControlledLoop
from tests.support.cpu_time import cpu_time

from .clients import consumer, polling, producer, read, send, set_quota

DAY_MS = 86_400_000


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


# -- what passes with the time


def test_week_of_retention_passes_in_under_a_second_of_cpu(broker: Broker) -> None:
    topic = broker.topic(configs={"segment.bytes": 1000})
    now = broker.clock.now_ms()
    for day in range(7, 0, -1):
        topic.produce("x" * 600, timestamp=now - day * DAY_MS + 60_000)
    assert [record.offset for record in topic.consume()] == [0, 1, 2, 3, 4, 5, 6]
    kept = []
    with cpu_time() as taken:
        for _ in range(7):
            broker.clock.advance("1d")
            kept.append([record.offset for record in topic.consume()])
    assert taken.seconds < 1
    assert kept == [list(range(day, 7)) for day in range(1, 8)]


def test_deleted_segments_leave_the_disk_after_their_delay() -> None:
    with Broker({"log.retention.check.interval.ms": 60_000}) as broker:
        topic = broker.topic(configs={"segment.bytes": 1000, "retention.ms": 3_600_000})
        for _ in range(3):
            topic.produce("x" * 600)
        folder = broker._folders[1] / f"{topic}-0"
        with broker.clock.freeze():
            broker.clock.advance("61min")
            assert topic.start_offset() == 3
            broker.clock.advance("1min")
            assert not list(folder.glob("*.deleted"))


def test_session_timeout_removes_a_member(broker: Broker) -> None:
    topic = broker.topic()
    topic.produce("1")
    with consumer(broker.bootstrap_servers, "g", session_timeout_ms=45_000) as client:
        client.subscribe([topic])
        assert read(client, 1) == [b"1"]
        client.commit(asynchronous=False)  # a member that joins again begins where the group was
        broker.wait_for_group("g", members=1)
        with broker.clock.freeze(), broker.fault("Heartbeat", close=True) as fault:
            broker.wait_for(lambda: fault.hits)
            with cpu_time() as taken:
                broker.clock.advance("44s")
                assert len(broker.group("g").members) == 1
                broker.clock.advance("2s")
                assert broker.group("g").state == "Empty"
            assert taken.seconds < 1
        topic.produce("2")
        assert read(client, 1) == [b"2"]  # it has joined again


def test_members_are_kept_through_a_day(broker: Broker) -> None:
    topic = broker.topic()
    topic.produce("1")
    with consumer(broker.bootstrap_servers, "g") as client:
        client.subscribe([topic])
        assert read(client, 1) == [b"1"]
        members = broker.wait_for_group("g", members=1).members
        broker.clock.advance("1d", keep_members=True)
        assert broker.group("g").members == members
        topic.produce("2")
        assert read(client, 1) == [b"2"]


def test_transaction_timeout_of_15_minutes_aborts(broker: Broker) -> None:
    topic = broker.topic()
    client = producer(
        broker.bootstrap_servers, transactional_id="t", transaction_timeout_ms=900_000
    )
    client.init_transactions(10)
    client.begin_transaction()
    client.produce(topic, b"lost")
    client.flush(10)
    with cpu_time() as taken:
        broker.clock.advance("14min")
        topic.produce("behind it")
        assert topic.consume(read_committed=True) == []
        broker.clock.advance("2min")
        values = [record.value for record in topic.consume(1, read_committed=True)]
    assert values == [b"behind it"]
    assert taken.seconds < 1
    with pytest.raises(KafkaException):
        client.commit_transaction(10)


def test_offsets_expire_after_their_retention(broker: Broker) -> None:
    topic = broker.topic()
    topic.produce("1")
    with consumer(broker.bootstrap_servers, "g") as client:
        client.subscribe([topic])
        assert read(client, 1) == [b"1"]
        client.commit(asynchronous=False)
    broker.wait_for_group("g", state="Empty")
    broker.clock.advance("6d")
    assert broker.committed("g", topic) == 1
    broker.clock.advance("2d")
    assert broker.committed("g", topic) is None


def test_compaction_comes_after_its_lag(broker: Broker) -> None:
    topic = broker.topic(
        configs={
            "cleanup.policy": "compact",
            "segment.ms": 3_600_000,
            "min.cleanable.dirty.ratio": 0,
            "min.compaction.lag.ms": 7_200_000,
        }
    )
    topic.produce("1", "2", "3", key="k")
    broker.clock.advance("61min")
    topic.produce("4", key="k", timestamp=broker.clock.now_ms())
    assert [record.value for record in topic.consume()] == [b"1", b"2", b"3", b"4"]
    broker.clock.advance("70min")
    assert [record.value for record in topic.consume()] == [b"3", b"4"]


def test_frozen_time_stands_still_and_fetches_go_on(broker: Broker) -> None:
    topic = broker.topic()
    with broker.clock.freeze() as clock, consumer(broker.bootstrap_servers, "g") as client:
        assert clock.is_frozen
        before = clock.now_ms()
        client.subscribe([topic])
        topic.produce("1")
        assert read(client, 1) == [b"1"]
        assert client.poll(0.15) is None  # three waits of fetches end in real time
        assert clock.now_ms() == before
        clock.advance("10s")
        assert clock.now_ms() == before + 10_000
    assert not broker.clock.is_frozen


def test_fetch_waits_in_the_brokers_time_on_request(broker: Broker) -> None:
    topic = broker.topic()
    with (
        broker.record() as recorder,
        broker.clock.freeze(fetch_waits=True) as clock,
        consumer(broker.bootstrap_servers, "g", fetch_wait_max_ms=50_000) as client,
    ):
        client.subscribe([topic])
        broker.wait_for(polling(client, lambda: recorder.requests("Fetch")))
        clock.advance("49s")
        clock.advance("2s")
        [fetch, *_] = recorder.requests("Fetch")
        assert fetch.replied_ms == fetch.at_ms + 50_000
        topic.produce("1")
        assert read(client, 1) == [b"1"]  # a record ends the wait immediately


def test_member_that_does_not_join_in_time_loses_its_place(broker: Broker) -> None:
    topic = broker.topic(partitions=2)
    with (
        consumer(broker.bootstrap_servers, "g") as busy,
        consumer(broker.bootstrap_servers, "g") as other,
    ):
        # With a callback, it joins again only when it polls.
        busy.subscribe([topic], on_revoke=lambda client, partitions: None)
        broker.wait_for(polling(busy, lambda: busy.assignment()))
        other.subscribe([topic])
        broker.wait_for(polling(other, lambda: broker.group("g").state == "PreparingRebalance"))
        broker.clock.advance("299s", keep_members=True)
        assert broker.group("g").state == "PreparingRebalance"
        broker.clock.advance("2s", keep_members=True)  # max.poll.interval.ms is 5 minutes
        broker.wait_for(polling(other, lambda: len(other.assignment()) == 2))
        assert len(broker.group("g").members) == 1


def test_segment_is_rolled_after_its_time(broker: Broker) -> None:
    configs = {"segment.ms": 3_600_000, "message.timestamp.type": "LogAppendTime"}
    topic = broker.topic(configs=configs)
    client = producer(broker.bootstrap_servers)
    folder = broker._folders[1] / f"{topic}-0"
    counts = []
    for duration in ("0s", "59min", "2min"):
        broker.clock.advance(duration)
        send(client, topic)
        counts.append(len(list(folder.glob("*.log"))))
    assert counts == [1, 1, 2]


def test_transactional_id_expires_and_its_producer_is_told(broker: Broker) -> None:
    topic = broker.topic()
    client = producer(broker.bootstrap_servers, transactional_id="t")
    client.init_transactions(10)
    broker.clock.advance("6d")
    client.begin_transaction()
    send(client, topic, b"1")
    client.commit_transaction(10)
    broker.clock.advance("8d")
    with broker.record() as recorder:
        client.begin_transaction()
        with pytest.raises(KafkaException):
            send(client, topic, b"2")
    [refused] = recorder.requests("AddPartitionsToTxn")
    assert error_of(refused) == "INVALID_PRODUCER_ID_MAPPING"


def error_of(exchange: Exchange) -> str:
    [topic] = (exchange.response or {})["resultsByTopicV3AndBelow"]
    return ErrorCode(topic["resultsByPartition"][0]["partitionErrorCode"]).name


def test_producer_id_is_forgotten_after_a_day(broker: Broker) -> None:
    topic = broker.topic()
    send(producer(broker.bootstrap_servers, enable_idempotence=True), topic)
    admin = kafka_python.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        counts = []
        for duration in ("0s", "23h", "2h"):
            broker.clock.advance(duration)
            [described] = admin.describe_producers([kafka_python.TopicPartition(topic, 0)]).values()
            counts.append(len(described.active_producers))
    finally:
        admin.close()
    assert counts == [1, 1, 0]


def test_quota_is_measured_in_the_brokers_time(broker: Broker) -> None:
    topic = broker.topic()
    told: list[Any] = []
    set_quota(broker, "shop", 1000.0)
    client = producer(broker.bootstrap_servers, client_id="shop", throttle_cb=told.append)
    with broker.clock.freeze() as clock:
        send(client, topic, b"x" * 100_000)
        broker.wait_for(polling(client, lambda: told))
        assert told.pop().throttle_time > 10
        clock.advance("1h")
        send(client, topic, b"x")
        client.poll(0)
    assert [event.throttle_time for event in told] == [0]


def test_time_runs_on_from_where_it_was_advanced_to(broker: Broker) -> None:
    before = broker.clock.now_ms()
    broker.clock.advance("1h")
    after = broker.clock.now_ms()
    assert after >= before + 3_600_000
    broker.wait_for(lambda: broker.clock.now_ms() > after)


def test_jump_sets_the_wall_clock_and_ends_no_session(broker: Broker) -> None:
    topic = broker.topic(configs={"message.timestamp.type": "LogAppendTime"})
    topic.produce("1")
    with consumer(broker.bootstrap_servers, "g") as client:
        client.subscribe([topic])
        assert read(client, 1) == [b"1"]
        before = broker.wait_for_group("g", members=1)
        broker.clock.jump("-1h")
        topic.produce("2")
        assert read(client, 1) == [b"2"]
        assert broker.group("g") == before
    first, second = topic.consume()
    assert -3_600_000 <= second.timestamp - first.timestamp < -3_500_000


@pytest.mark.parametrize("kind", [Broker, SecureBroker])
def test_day_of_an_idle_broker_is_some_thousand_steps(kind: type[Broker]) -> None:
    """Checks that run every few seconds must not be steps; see CHECKS in loop.py."""
    with kind() as broker:
        broker.group("g")
        assert broker._thread is not None
        loop = broker._thread.loop

        async def day() -> int:
            loop.freeze()
            return await loop.advance(86_400, lambda: None)

        assert broker._thread.call(day) < 2_000


# -- what is refused


@pytest.mark.parametrize(
    ("duration", "message"),
    [
        ("-1s", "to set the wall clock back, use jump"),
        ("11 years", "not a duration: '11 years'; write a number and a unit"),
        ("46 secnds", "not a duration: '46 secnds'; did you mean 'seconds'"),
        (float("inf"), "not a duration: inf is not finite"),
        ("9" * 400 + "s", "is not finite"),
        ("4000d", "ten years is the most"),
        ("soon", "not a duration"),
    ],
)
def test_impossible_advance_is_refused(broker: Broker, duration: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        broker.clock.advance(duration)


@pytest.mark.parametrize("duration", ["-60000d", "3000000d"])
def test_jump_out_of_the_calendar_is_refused(broker: Broker, duration: str) -> None:
    with pytest.raises(ValueError, match="time is from 1970 to 9999"):
        broker.clock.jump(duration)


def test_clock_of_a_broker_that_does_not_run_says_so() -> None:
    broker = Broker().start()
    broker.stop()
    for verb in (broker.clock.freeze, lambda: broker.clock.advance("1s"), broker.topic):
        with pytest.raises(RuntimeError, match="this broker is not running"):
            verb()


@pytest.mark.parametrize(
    ("duration", "ms"),
    [
        ("250ms", 250),
        ("46s", 46_000),
        ("1.5 min", 90_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("1w", 604_800_000),
        ("-2s", -2000),
        (0.25, 250),
        (3, 3000),
        (timedelta(minutes=1), 60_000),
    ],
)
def test_durations_are_read(duration: Any, ms: int) -> None:
    assert to_ms(duration) == ms


# -- the loop


def test_timers_fire_in_order_and_each_at_its_own_time() -> None:
    loop = ControlledLoop()
    seen: list[tuple[str, float]] = []

    async def main() -> None:
        loop.freeze()
        start = loop.time()

        def note(name: str) -> None:
            seen.append((name, round(loop.time() - start, 3)))
            if name == "a":
                loop.call_later(5, note, "c")

        loop.call_later(20, note, "d")
        loop.call_later(10, note, "a")
        loop.call_later(12, note, "b")
        loop.call_later(31, note, "never")
        await loop.advance(30, lambda: None)

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    assert seen == [("a", 10), ("b", 12), ("c", 15), ("d", 20)]
