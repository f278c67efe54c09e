"""`kwire explain` on kwire and on Apache Kafka 3.9.2: each live, and then from the files of the stopped broker."""

from __future__ import annotations

import io
import json
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from server.__main__ import main

from ..support.broker_process import SINGLE_BROKER_CONFIG, BrokerProcess, KwireBroker
from ..support.kafka import Kafka39Broker
from ..support.polling import wait_until

pytestmark = [pytest.mark.e2e]

PATIENCE_S = 60.0
QUICK = {
    **SINGLE_BROKER_CONFIG,
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "300",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.segment.delete.delay.ms": "60000",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "100",
}
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "cut": {},
    "aged": {"retention.ms": "100", "segment.ms": "100"},
    "transactions": {},
    "pinned": {},
    "compacted": COMPACTED,
    "read": {},
}
#: Topic and offset -> cause, live and from files.
RECORDS = {
    ("plain", 0): "visible",
    ("plain", 1): "tombstone",
    ("plain", 9): "never_written",
    ("cut", 1): "deleted_by_delete_records",
    ("cut", 3): "visible",
    ("aged", 0): "deleted_by_retention",
    ("transactions", 0): "aborted",
    ("transactions", 1): "control_record",
    ("transactions", 2): "visible",
    ("pinned", 0): "open_transaction",
    ("pinned", 1): "above_last_stable_offset",
}


def explained(*words: str) -> list[dict[str, Any]]:
    """The output of the command, as JSON."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        main(["explain", "--output", "json", *words])
    return [json.loads(line) for line in printed.getvalue().splitlines()]


def bring_about(bootstrap: str) -> tuple[Producer, Consumer]:
    """Make each situation; returns the clients whose transaction and group stay open."""
    config = {"bootstrap.servers": bootstrap}
    admin = AdminClient(config)
    topics = [NewTopic(name, 1, 1, config=configs) for name, configs in TOPICS.items()]
    for future in admin.create_topics(topics).values():
        future.result()
    producer = Producer(config)
    producer.produce("plain", "a", "k")
    producer.produce("plain", None, "k")
    producer.produce("aged", "a")
    for number in range(5):
        producer.produce("cut", str(number))
        producer.produce("read", str(number))
    # Segments are rolled by the records' own time: six in the first, which is cleaned once, regardless of the load.
    now_ms = int(time.time() * 1000)
    for number in range(6):
        producer.produce("compacted", str(number), f"k{number % 2}", timestamp=now_ms - 1000)
        producer.flush()
    producer.produce("compacted", "last", "other", timestamp=now_ms)
    producer.flush()
    for future in admin.delete_records([TopicPartition("cut", 0, 3)]).values():
        future.result()
    transactional = Producer(
        {**config, "transactional.id": "billing", "transaction.timeout.ms": 300_000}
    )
    transactional.init_transactions(30)
    for end in (transactional.abort_transaction, transactional.commit_transaction):
        transactional.begin_transaction()
        transactional.produce("transactions", "a")
        transactional.flush()
        end()
    transactional.begin_transaction()
    transactional.produce("pinned", "a")
    transactional.flush()
    producer.produce("pinned", "b")
    producer.flush()
    consumer = Consumer(
        {
            **config,
            "group.id": "readers",
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["read"])
    for _ in range(2):
        message = consumer.poll(30)
        assert message is not None and message.error() is None
        consumer.commit(message, asynchronous=False)
    return transactional, consumer


def check(*options: str) -> None:
    """Each cause, requested with these options."""
    found = {
        (topic, offset): explained(*options, topic, "0", str(offset))[0]["cause"]
        for topic, offset in RECORDS
    }
    assert found == RECORDS
    (answer,) = explained(*options, "pinned", "0", "1")
    assert answer["transaction"]["transactional_id"] == "billing"
    assert answer["transaction"]["timeout_ms"] == 300_000
    (answer,) = explained(*options, "transactions", "0", "0")
    assert answer["marker"]["offset"] == 1
    (answer,) = explained(*options, "compacted", "0", "1", "--key", "k1")
    assert (answer["cause"], answer["later_offset"]) == ("compacted_away", 5)
    group, row = explained(*options, "--group", "readers")
    assert (group["cause"], group["generation"]) == ("group_stable", 1)
    assert group["members"][0]["client_id"] == "reader"
    assert (row["cause"], row["committed_offset"], row["lag"]) == ("lag_behind", 2, 3)
    assert row["committed_ms"] > 1_700_000_000_000
    (transaction,) = explained(*options, "--transactional-id", "billing")
    assert transaction["cause"] == "transaction_ongoing"
    assert transaction["holds_back"][0]["records"] == 2


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(KwireBroker, id="kwire"),
        pytest.param(Kafka39Broker, id="kafka-3.9.2", marks=[pytest.mark.jvm, pytest.mark.slow]),
    ],
)
def test_each_cause_is_told_live_and_from_files(
    kind: type[KwireBroker] | type[Kafka39Broker], tmp_path: Path
) -> None:
    broker: BrokerProcess = kind(tmp_path / "broker", config=QUICK)
    with broker:
        clients = bring_about(broker.bootstrap)
        wait_until(lambda: is_cleaned(broker))
        check("--bootstrap", broker.bootstrap)
    del clients
    check("--log-dir", str(broker.log_dir))
    # The compacted file still contains the key of a record.
    (answer,) = explained("--log-dir", str(broker.log_dir), "compacted", "0", "1")
    assert (answer["cause"], answer["later_offset"]) == ("compacted_away", 5)


def is_cleaned(broker: BrokerProcess) -> bool:
    """Whether compaction and retention have done their work."""
    options = ("--bootstrap", broker.bootstrap)
    causes = [
        explained(*options, topic, "0", offset)[0]["cause"]
        for topic, offset in (("compacted", "1"), ("aged", "0"))
    ]
    return causes == ["compacted_or_expired", "deleted_by_retention"]
