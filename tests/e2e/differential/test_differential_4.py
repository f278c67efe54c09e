"""Transactions in both protocols and the newest versions of other APIs, compared with Apache Kafka 4.3.0.

The broker of 4.3.0 is one KRaft node; kwire has its embedded store, with which it serves the same versions as 4.3.0.
Requests that are compared with 3.9.2 in all versions are compared here in the newest. ALLOWED lists intended
differences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from docs.generate import ABSENCES, FEATURE_ABSENCES, api_name
from kwire.api import ApiKey
from server.handlers.ceilings import CEILING_4_3

from ...support.broker_process import BrokerProcess, KwireBroker
from ...support.kafka import KAFKA_4, kafka_broker
from . import admin, data, groups, newer, transactions
from .allowed import Allowed, is_allowed
from .comparison import compare, play
from .peer import NODE_ID, Answer, Peer
from .scenario import SCENARIOS, SCENARIOS_OF_4, Scenario

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

assert admin and data and groups and newer and transactions  # importing them fills the table

CONFIG = {
    "group.consumer.session.timeout.ms": "46000",  # so that groups inherit it
    "num.partitions": "2",
    "log.message.timestamp.after.max.ms": str(2**63 - 1),  # the default of 3.9, which is kwire's
    "log.retention.ms": "-1",  # records of the scenarios are old
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
#: Configs of topics that 4.x does not have.
REMOVED = {
    "message.downconversion.enable",
    "message.format.version",
    "message.timestamp.difference.max.ms",
}
#: Scenarios for 3.9 that 4.3 has no like of: it answers before a change of configs can be read, deletes topics by
#: other rules (docs/omissions.md), and has features.
LEFT_OUT = ("alter_configs/", "incremental_alter_configs/", "delete_topics/", "update_features/")
TOPICS_AS_3_9 = (
    "Topics are created and moved with the checks, codes and words of 3.9, whose controller"
    " is another one than KRaft's."
)
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
        r"^create_topics/.*/(same name twice|assignment twice the same|validated): ",
        TOPICS_AS_3_9,
    ),
    Allowed(r"^alter_partition_reassignments/.*: .error_message: None \| ''", TOPICS_AS_3_9),
    Allowed(
        r"^create_topics/.*/config segment.bytes=14: ",
        "The least segment.bytes is 14, as in 3.9; in 4.3 it is 1 MiB.",
    ),
    Allowed(
        r"^(create_topics|describe_configs)/.*configs\[\d+\]\.(config_source: 3 \| 5"
        r"|synonyms: .*'min.insync.replicas'|synonyms\[1\]\.value: '3600000' \| )",
        "4.3 sets min.insync.replicas for the cluster itself, because of eligible leader replicas, and"
        " has another default for message.timestamp.after.max.ms.",
    ),
    Allowed(
        r"^describe_topic_partitions/.*/invalid: ",
        "A name that no topic can have is INVALID_TOPIC_EXCEPTION; Apache Kafka fails inside.",
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
    """Yield each scenario for 4.3 with each of its versions, and each one for 3.9 with the newest."""
    versions = [(entry, entry.first, entry.last) for entry in SCENARIOS_OF_4]
    entered = {
        (entry.name, version) for entry, low, high in versions for version in range(low, high + 1)
    }
    for entry in SCENARIOS:
        low, high = CEILING_4_3.ranges.get(ApiKey[entry.name.split("/")[0].upper()], (1, 0))
        if entry.name.startswith(LEFT_OUT):
            continue
        if low <= entry.last <= high and (entry.name, entry.last) not in entered:
            versions.append((entry, entry.last, entry.last))
    for entry, first, last in versions:
        for version in range(first, last + 1):
            marks = [pytest.mark.timeout(600)] if entry.name.endswith("last_epoch") else []
            yield pytest.param(entry, version, id=f"{entry.name}-v{version}", marks=marks)


def comparable(peer: Peer) -> list[Answer]:
    """Return the answers of a broker without the configs that only 3.9 has."""
    return [Answer(label, without_removed(content)) for label, content in peer.answers]


def without_removed(value: Any) -> Any:
    """Return a value without these entries in each list of configs."""
    if isinstance(value, dict):
        return {key: without_removed(one) for key, one in value.items()}
    if isinstance(value, list):
        return [without_removed(one) for one in value if not _is_removed(one)]
    return value


def _is_removed(row: Any) -> bool:
    return isinstance(row, dict) and "config_source" in row and row.get("name") in REMOVED


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
        for text in compare(f"{entry.name}-v{version}", *map(comparable, peers))
        if not is_allowed(text) and not any(re.search(one.pattern, text) for one in ALLOWED)
    ]
    shown = "\n".join(differences[:40])
    assert not differences, f"{len(differences)} differences (Apache Kafka | kwire):\n{shown}"


def test_apis_and_features_are_those_of_apache_kafka_4_or_argued(
    brokers: tuple[BrokerProcess, BrokerProcess],
) -> None:
    """In the answers to ApiVersions. docs/apis.md lists missing APIs; a range may begin earlier."""
    request = {"client_software_name": "test", "client_software_version": "1"}
    answers = []
    for broker in brokers:
        peer = Peer(broker, "versions")
        answers.append(peer.ask(ApiKey.API_VERSIONS, 4, request))
        peer.close()
        assert answers[-1]["finalized_features_epoch"] >= 0
    theirs, ours = ({row["api_key"]: row for row in answer["api_keys"]} for answer in answers)
    absent = {name for absence in ABSENCES for name in absence.apis.split()}
    assert ours.keys() <= theirs.keys()
    assert theirs.keys() - ours.keys() == {key for key in theirs if api_name(key) in absent}
    for key, row in ours.items():
        assert row["max_version"] == theirs[key]["max_version"], api_name(key)
        assert row["min_version"] <= theirs[key]["min_version"], api_name(key)
    for features in ("supported_features", "finalized_features"):
        theirs, ours = ({row["name"]: row for row in answer[features]} for answer in answers)
        assert ours == {name: row for name, row in theirs.items() if name not in FEATURE_ABSENCES}
