"""The tables of config keys against Apache Kafka's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from server.config.broker_keys import AUTHORIZER_KEYS, NEWER_KEYS
from server.config.definitions import ConfigKey, UpdateMode
from server.config.group_keys import GROUP
from server.config.tables import BROKER, QUOTA, TOPIC, is_newer_name
from server.config.topic_keys import SERVER_SYNONYMS
from tests.golden.recorded import read_json

UPDATE = {
    "read-only": UpdateMode.READ_ONLY,
    "per-broker": UpdateMode.PER_BROKER,
    "cluster-wide": UpdateMode.CLUSTER_WIDE,
}
#: Ranges that are checked by a pattern or a superset instead of the list Kafka prints.
WORDED_OTHERWISE = re.compile(r"\[0\.8\.0, .*|accepts of .*")


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    found: dict[str, Any] = read_json("configs.json")
    return found


def columns(key: ConfigKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "type": key.type.name,
        "default": key.default,
        "importance": key.importance,
        "internal": key.internal,
        "valid": key.valid.text if key.valid else None,
    }


def expected_columns(row: dict[str, Any], key: ConfigKey) -> dict[str, Any]:
    expected = {name: row.get(name) for name in columns(key)}
    expected["internal"] = row.get("internal", False)
    if row["valid"] is not None and WORDED_OTHERWISE.fullmatch(row["valid"]):
        assert key.valid is not None
        expected["valid"] = key.valid.text
    return expected


#: Share groups are those of 4.3, and so are the values that these keys may have.
AS_WIDE_AS_4_3 = ("group.share.max.size", "group.share.record.lock.duration.ms")


def is_ours(name: str) -> bool:
    """Whether the tables of Apache Kafka 3.9 lack the key."""
    newer = {key.name for key in NEWER_KEYS}
    return name.startswith("kwire.") or name in AUTHORIZER_KEYS or name in newer


def test_broker_keys_are_those_of_3_9_2(reference: dict[str, Any]) -> None:
    rows = {row["name"]: row for row in reference["3.9.2"]["broker"]}
    ours = {name: key for name, key in BROKER.items() if not is_ours(name)}
    assert sorted(ours) == sorted(rows)
    wider = {row["name"]: row["valid"] for row in reference["4.3.0"]["broker"]}
    for name, key in ours.items():
        expected = expected_columns(rows[name], key)
        if name in AS_WIDE_AS_4_3:
            assert expected["valid"] != wider[name]
            expected["valid"] = wider[name]
        assert columns(key) == expected
        assert key.update is UPDATE[rows[name]["update"]]


def test_newer_keys_are_those_of_4_3(reference: dict[str, Any]) -> None:
    rows = {row["name"]: row for row in reference["4.3.0"]["broker"]}
    for key in NEWER_KEYS:
        assert columns(key) == expected_columns(rows[key.name], key)
        assert key.update is UPDATE[rows[key.name]["update"]]


def test_dynamic_keys_are_those_of_3_9_2(reference: dict[str, Any]) -> None:
    dynamic = [name for name, key in BROKER.items() if key.update is not UpdateMode.READ_ONLY]
    ours = sorted(name for name in dynamic if not is_ours(name))
    assert ours == sorted(reference["3.9.2"]["dynamicBrokerNames"])


def test_topic_keys_and_their_synonyms_are_those_of_3_9_2(reference: dict[str, Any]) -> None:
    rows = {row["name"]: row for row in reference["3.9.2"]["topic"]}
    assert sorted(TOPIC) == sorted(rows)
    for name, key in TOPIC.items():
        assert columns(key) == expected_columns(rows[name], key)
        synonyms = [(s["name"], s.get("multiplier", 1)) for s in rows[name]["serverSynonyms"]]
        assert list(SERVER_SYNONYMS.get(name, ())) == synonyms


def test_keys_of_4_3_are_recognised(reference: dict[str, Any]) -> None:
    unknown = [
        row["name"]
        for row in reference["4.3.0"]["broker"]
        if row["name"] not in BROKER and not is_newer_name(row["name"])
    ]
    assert unknown == []


def test_quota_keys_are_those_of_3_9_2(reference: dict[str, Any]) -> None:
    assert sorted(QUOTA) == sorted(row["name"] for row in reference["3.9.2"]["brokerDynamicQuota"])


@pytest.mark.parametrize("key", [*BROKER.values(), *TOPIC.values()], ids=lambda key: key.name)
def test_default_is_a_value_its_key_allows(key: ConfigKey) -> None:
    assert (key.parse(key.default) is None) == (key.default is None)


def test_every_synonym_is_a_broker_key() -> None:
    assert {name for rows in SERVER_SYNONYMS.values() for name, _ in rows} <= set(BROKER)


#: Read in requirements.py (log.dir, bounds of group.consumer.*), named in a rule about changing them (threads), carried
#: into LogConfig for the transactions to come, or with a single allowed value (group.share.assignors).
ELSEWHERE = (
    "group.consumer.max.heartbeat.interval.ms",
    "group.consumer.max.session.timeout.ms",
    "group.consumer.min.heartbeat.interval.ms",
    "group.consumer.min.session.timeout.ms",
    "group.share.assignors",
    "log.dir",
    "log.dirs",
    "log.cleaner.threads",
    "num.recovery.threads.per.data.dir",
    "transaction.max.timeout.ms",
)

#: Read through config/group_keys.py, as inherited values of a group and as limits of its own.
OF_GROUPS = {
    name
    for key, inherits, bounds in GROUP.values()
    if key.used
    for name in (inherits, *(bound[0] for bound in bounds if bound is not None))
}


def sources() -> str:
    """Everything in server/ that may read a config, without the tables themselves."""
    server = Path(__file__).parents[2] / "server"
    tables = (
        "broker_keys.py",
        "inert_keys.py",
        "requirements.py",
        "security_keys.py",
        "tables.py",
        "topic_keys.py",
    )
    files = (path for path in server.rglob("*.py") if path.name not in tables)
    return "\n".join(path.read_text() for path in files)


def is_read_by_a_log(name: str, text: str) -> bool:
    """Whether a field of LogConfig (or a property on it) is used for the topic config `name`."""
    properties = {"cleanup.policy": "is_deleting", "message.timestamp.type": "log_append_time"}
    return f".{properties.get(name, name.replace('.', '_'))}" in text


def test_a_key_has_an_effect_exactly_if_something_reads_it() -> None:
    """Otherwise the notice at start and the docs would be wrong."""
    text = sources()
    topic = {name: is_read_by_a_log(name, text) for name in TOPIC}
    for name in (
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.downconversion.enable",
        "min.insync.replicas",
        "unclean.leader.election.enable",
    ):
        topic[name] = f'"{name}"' in text
    # The older name of the two bounds next to it.
    topic["message.timestamp.difference.max.ms"] = topic["message.timestamp.before.max.ms"]
    assert {n: key.used for n, key in TOPIC.items() if key.doc} == {
        n: topic[n] for n, key in TOPIC.items() if key.doc
    }
    through_topics = {
        server_name: used
        for name, used in topic.items()
        for server_name, _ in SERVER_SYNONYMS.get(name, ())
    }
    for name, key in BROKER.items():
        if key.doc:
            expected = through_topics.get(name, False) or f'"{name}"' in text
            if name not in ELSEWHERE and name not in OF_GROUPS:
                assert (name, key.used) == (name, expected)
