"""Retention, a transaction timeout and the end of a session look the same to clients as with Apache Kafka 3.9.2.

A week of retention, a transaction timeout of 15 minutes: on kwire the clock is advanced, and each of them takes less
than a second. Kafka has the same with its settings scaled down to seconds.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from kwire.testing import Broker

from ..support.cpu_time import cpu_time
from ..support.kafka import Kafka39Broker
from .clients import producer, send

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS
PATIENCE_S = 60.0
SCALED = {
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "300",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
}
#: A consumer that reports its events. SIGSTOP makes it miss its heartbeats.
MEMBER = """
import sys
from confluent_kafka import Consumer
client = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "kitchen", "session.timeout.ms": int(sys.argv[2]),
    "heartbeat.interval.ms": 200, "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0})
say = lambda word: print(word, flush=True)
client.subscribe(["orders"], on_assign=lambda *_: say("assigned"), on_revoke=lambda *_: say("revoked"), on_lost=lambda *_: say("lost"))
while True:
    message = client.poll(0.2)
    if message is not None and message.error() is None:
        client.commit(message, asynchronous=False)
        say(message.value().decode())
"""


class Side:
    """A broker, and how time passes on it: by the clock's verb, or by waiting. Unit: ms."""

    def __init__(
        self,
        bootstrap: str,
        advance: Callable[[str], None],
        *,
        transaction_ms: int,
        session_ms: int,
    ) -> None:
        self.bootstrap = bootstrap
        self.advance = advance
        self.transaction_ms = transaction_ms
        self.session_ms = session_ms
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def create(self, topic: str, **config: Any) -> None:
        made = NewTopic(
            topic, 1, 1, config={key.replace("_", "."): str(value) for key, value in config.items()}
        )
        self.admin.create_topics([made])[topic].result(30)

    def left(self, topic: str, isolation: str = "read_uncommitted") -> list[bytes | None]:
        """The values that a consumer finds."""
        client = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
            }
        )
        try:
            client.assign([TopicPartition(topic, 0, 0)])
            found: list[bytes | None] = []
            while (message := client.poll(PATIENCE_S)) is not None and message.error() is None:
                found.append(message.value())
            return found
        finally:
            client.close()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with Kafka39Broker(tmp_path_factory.mktemp("kafka"), config=SCALED) as broker:
        yield Side(broker.bootstrap, lambda _: None, transaction_ms=3000, session_ms=3000)


@pytest.fixture
def kwire() -> Iterator[Side]:
    with Broker(api="3.9") as broker:

        def advance(duration: str) -> None:
            with cpu_time() as taken:
                broker.clock.advance(duration)
            assert taken.seconds < 1

        yield Side(broker.bootstrap_servers, advance, transaction_ms=900_000, session_ms=45_000)


def until(look: Callable[[], Any]) -> Any:
    """The first result that is not None."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := look()) is None:
        assert time.monotonic() < deadline, look
        time.sleep(0.1)
    return found


def test_week_of_retention(kwire: Side, kafka: Side) -> None:
    now_ms = int(time.time() * 1000)
    for side in (kwire, kafka):
        side.create("news", segment_bytes=200, retention_ms=WEEK_MS)
        client = producer(side.bootstrap)
        for day in range(7, 0, -1):
            client.produce(
                "news", f"{day}".encode() * 60, timestamp=now_ms - day * DAY_MS + 3_600_000
            )
            client.flush(10)
        assert len(side.left("news")) == 7
    seen = []
    for _ in range(7):
        kwire.advance("1d")
        seen.append(kwire.left("news"))
    assert [len(each) for each in seen] == [6, 5, 4, 3, 2, 1, 0]
    for day, expected in enumerate(seen, start=1):
        # To Kafka, records are a day older when it keeps them a day less.
        setting = ConfigEntry(
            "retention.ms", str(WEEK_MS - day * DAY_MS), incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource("topic", "news", incremental_configs=[setting])
        kafka.admin.incremental_alter_configs([resource])[resource].result(30)
        assert until(partial(left_to, kafka, len(expected))) == expected


def left_to(side: Side, count: int) -> list[bytes | None] | None:
    """The records, if there are no more than this many."""
    left = side.left("news")
    return left if len(left) <= count else None


def test_timeout_of_a_transaction(kwire: Side, kafka: Side) -> None:
    def outcome(side: Side) -> list[Any]:
        side.create("halves")
        client = producer(
            side.bootstrap, transactional_id="checkout", transaction_timeout_ms=side.transaction_ms
        )
        client.init_transactions(30)
        client.begin_transaction()
        send(client, "halves", b"half an order")
        send(producer(side.bootstrap), "halves", b"a whole order")
        before = side.left("halves", "read_committed")
        side.advance("16min")
        after = until(lambda: side.left("halves", "read_committed") or None)
        with pytest.raises(KafkaException) as refused:
            client.commit_transaction(30)
        error = refused.value.args[0]
        return [
            before,
            after,
            side.left("halves"),
            error.name(),
            error.fatal(),
            error.txn_requires_abort(),
        ]

    expected = outcome(kafka)
    assert expected[:2] == [[], [b"a whole order"]]
    assert outcome(kwire) == expected


def test_session_that_ends(kwire: Side, kafka: Side) -> None:
    def outcome(side: Side) -> list[Any]:
        side.create("orders")
        send(producer(side.bootstrap), "orders", b"one pizza")
        command = [sys.executable, "-c", MEMBER, side.bootstrap, str(side.session_ms)]
        member = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert member.stdout is not None
            said = [member.stdout.readline().strip() for _ in range(2)]
            states = [state(side)]
            member.send_signal(signal.SIGSTOP)
            side.advance("46s")
            states.append(until(lambda: found if (found := state(side))[1] == 0 else None))
            member.send_signal(signal.SIGCONT)
            said += [member.stdout.readline().strip() for _ in range(2)]
            send(producer(side.bootstrap), "orders", b"two pizzas")
            said.append(member.stdout.readline().strip())
            states.append(state(side))
        finally:
            member.kill()
            member.communicate()
        return [said, states]

    expected = outcome(kafka)
    assert expected[0] == ["assigned", "one pizza", "lost", "assigned", "two pizzas"]
    assert outcome(kwire) == expected


def state(side: Side) -> tuple[str, int]:
    """The state of the group, and how many members it has."""
    found = side.admin.describe_consumer_groups(["kitchen"])["kitchen"].result(30)
    return found.state.name, len(found.members)
