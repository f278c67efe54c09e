"""Each scenario, in each version, on both brokers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kwire.api import ApiKey

from ...support.broker_process import BrokerProcess, KwireBroker
from ...support.kafka import KAFKA_3, Kafka39Broker, kafka_broker
from . import admin, data, groups, transactions
from .allowed import is_allowed
from .comparison import compare, play
from .peer import NODE_ID, Answer, Peer
from .scenario import SCENARIOS, Scenario

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

assert admin and data and groups and transactions  # importing them fills the table

CONFIG = {
    "log.retention.ms": "-1",  # records of the scenarios are old
    "broker.id": str(NODE_ID),
    "num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """Give Apache Kafka 3.9.2 and kwire, both with ZooKeeper, so that both serve the versions of 3.9."""
    root = tmp_path_factory.mktemp("differential")
    kafka = kafka_broker(KAFKA_3, root / "kafka", config=CONFIG)
    assert isinstance(kafka, Kafka39Broker)
    with kafka:
        if os.environ.get("KWIRE_E2E_BROKER", "kwire") != "kwire":  # shows that scenarios repeat
            other: BrokerProcess = kafka_broker(KAFKA_3, root / "second", config=CONFIG)
        else:
            arguments = ("--zookeeper", f"{kafka.zookeeper.address}/kwire")
            other = KwireBroker(root / "kwire", config=CONFIG, arguments=arguments)
        with other:
            for broker in (kafka, other):
                peer = Peer(broker, "first")
                groups.find(peer, "first")  # makes the internal topic
                peer.until(
                    lambda answer: answer["error_code"] == 0,
                    ApiKey.INIT_PRODUCER_ID,
                    0,
                    {"transactional_id": None, "transaction_timeout_ms": 0},
                )
                peer.close()
            yield kafka, other


def cases() -> Iterator[Any]:
    """Yield each scenario with each of its versions."""
    for entry in SCENARIOS:
        for version in range(entry.first, entry.last + 1):
            yield pytest.param(entry, version, id=f"{entry.name}-v{version}")


@pytest.mark.parametrize(("entry", "version"), list(cases()))
def test_answers_equal_those_of_apache_kafka(
    request: pytest.FixtureRequest,
    brokers: tuple[BrokerProcess, BrokerProcess],
    entry: Scenario,
    version: int,
) -> None:
    """Field by field, after ids, times and addresses became symbols."""
    peers = play(request, brokers, entry, version)
    differences = [
        text
        for text in compare(f"{entry.name}-v{version}", peers[0].answers, peers[1].answers)
        if not is_allowed(text)
    ]
    shown = "\n".join(differences[:40])
    assert not differences, f"{len(differences)} differences (Apache Kafka | kwire):\n{shown}"


def test_comparison_finds_a_field_that_differs(tmp_path: Path) -> None:
    """The comparison itself can fail."""
    one = [Answer("a", {"x": [{"y": 1}], "z": None})]
    other = [Answer("a", {"x": [{"y": 2}], "z": None})]
    assert compare("w", one, other) == ["w/a: .x[0].y: 1 | 2"]
    assert compare("w", one, one) == []
