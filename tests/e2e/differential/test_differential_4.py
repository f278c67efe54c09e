"""Transactions in both protocols and the newest versions of other APIs, beside Apache Kafka 4.3.0.

The broker of 4.3.0 is one KRaft node; kwire has its embedded store, with which it serves what 4.3.0
serves. An intended difference is listed in ALLOWED.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from kwire.api import ApiKey

from ...support.broker_process import BrokerProcess, KwireBroker
from ...support.kafka import KAFKA_4, kafka_broker
from . import admin, data, groups, newer, transactions
from .allowed import Allowed
from .comparison import compare, play
from .peer import NODE_ID, Peer
from .scenario import SCENARIOS_OF_4, Scenario

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

assert admin and data and groups and newer and transactions  # importing them fills the table

CONFIG = {
    "group.consumer.session.timeout.ms": "46000",  # so that groups inherit it
    "num.partitions": "2",
    "log.retention.ms": "-1",  # records of the scenarios are old
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
ALLOWED = (
    Allowed(
        r"^metadata/.*-v1[23]/by null: ",
        "A topic with neither name nor id is refused in its row; Apache Kafka fails inside.",
    ),
    Allowed(
        r"^list_offsets/.*/twice: ",
        "A partition that is named twice is refused in both rows, as by 3.9; 4.3 answers it once.",
    ),
    Allowed(
        r"error_message: None \| 'TEXT'",
        "kwire says what was wrong where Apache Kafka gives the code alone.",
    ),
    Allowed(
        r"^(init_producer_id/transactional_producers|end_txn/takes_too_long)-.*/described: .*start_time_ms: -1 \| 'NOW'",
        "After InitProducerId the start of the last transaction is shown until the next, as by 3.9.",
    ),
)


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """Give Apache Kafka 4.3.0 and kwire, both without ZooKeeper."""
    root = tmp_path_factory.mktemp("differential")
    # On a busy machine, heartbeats are late: its controller fences it, and transactions are refused for a while.
    patient = {"broker.session.timeout.ms": "30000", "node.id": str(NODE_ID)}
    kafka = kafka_broker(KAFKA_4, root / "kafka", config=CONFIG | patient)
    kwire = KwireBroker(root / "kwire", config={**CONFIG, "broker.id": str(NODE_ID)})
    with kafka, kwire:
        for broker in (kafka, kwire):
            peer = Peer(broker, "first")
            groups.find(peer, "first")  # makes the internal topic
            peer.until(
                lambda answer: answer["error_code"] == 0,
                ApiKey.INIT_PRODUCER_ID,
                0,
                {"transactional_id": None, "transaction_timeout_ms": 0},
            )
            peer.close()
        yield kafka, kwire


def cases() -> Iterator[Any]:
    """Yield each scenario with each of its versions."""
    for entry in SCENARIOS_OF_4:
        for version in range(entry.first, entry.last + 1):
            marks = [pytest.mark.timeout(600)] if entry.name.endswith("last_epoch") else []
            yield pytest.param(entry, version, id=f"{entry.name}-v{version}", marks=marks)


@pytest.mark.parametrize(("entry", "version"), list(cases()))
def test_answers_equal_those_of_apache_kafka_4(
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
        if not any(re.search(one.pattern, text) for one in ALLOWED)
    ]
    shown = "\n".join(differences[:40])
    assert not differences, f"{len(differences)} differences (Apache Kafka | kwire):\n{shown}"


def test_features_are_finalized_as_by_apache_kafka_4(
    brokers: tuple[BrokerProcess, BrokerProcess],
) -> None:
    """They make clients use the second transaction protocol and show that there are consumer groups."""
    ours = ["group.version", "transaction.version"]
    request = {"client_software_name": "test", "client_software_version": "1"}
    found = []
    for broker in brokers:
        peer = Peer(broker, "features")
        answer = peer.ask(ApiKey.API_VERSIONS, 4, request)
        peer.close()
        supported = {row["name"]: row for row in answer["supported_features"]}
        finalized = {row["name"]: row for row in answer["finalized_features"]}
        assert answer["finalized_features_epoch"] >= 0
        found.append([(supported[name], finalized[name]) for name in ours])
    assert found[0] == found[1]
    assert list(supported) == list(finalized) == ours
