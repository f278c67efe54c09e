"""Configs of groups, compared with the table of Apache Kafka 4.3.0 and its answers to the same requests."""

from __future__ import annotations

import pytest

from server.config.broker_config import BrokerConfig
from server.config.definitions import ConfigError, ConfigSource
from server.config.group_keys import GROUP, check, describe, effective, without_effect
from tests.golden.recorded import read_json

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def test_keys_are_those_of_4_3_0() -> None:
    rows = {row["name"]: row for row in read_json("configs.json")["4.3.0"]["group"]}
    ours = {
        name: {
            "name": name,
            "type": each.key.type.name,
            "default": each.key.default,
            "importance": each.key.importance,
            "valid": each.key.valid.text if each.key.valid else None,
        }
        for name, each in GROUP.items()
    }
    assert ours == rows


def test_brokers_keys_and_their_defaults_are_those_of_4_3_0() -> None:
    rows = {row["name"]: row.get("default") for row in read_json("configs.json")["4.3.0"]["broker"]}
    for each in GROUP.values():
        named = [(each.inherits, each.key.default)] if each.inherits else []
        named += [(bound[0], str(bound[1])) for bound in each.bounds if bound is not None]
        assert named == [(name, rows[name]) for name, _ in named]


@pytest.mark.parametrize(
    ("proposed", "message"),
    [
        ({"nope": "1"}, "Unknown group config name: nope"),
        (
            {SESSION: "1"},
            f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            {SESSION: "70000"},
            f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms",
        ),
        ({SESSION: "x"}, f"Invalid value x for configuration {SESSION}: Not a number of type INT"),
        ({SESSION: ""}, f"Invalid value  for configuration {SESSION}: Not a number of type INT"),
        ({SESSION: "0"}, f"Invalid value 0 for configuration {SESSION}: Value must be at least 1"),
        (
            {SESSION: "1", HEARTBEAT: "1"},
            f"{HEARTBEAT} must be greater than or equal to group.consumer.min.heartbeat.interval.ms",
        ),
        (
            {"streams.num.standby.replicas": "3"},
            "streams.num.standby.replicas must be less than or equal to"
            " group.streams.max.standby.replicas",
        ),
        (
            {"share.isolation.level": "READ_COMMITTED"},
            "Invalid value READ_COMMITTED for configuration share.isolation.level:"
            " String must be one of: read_committed, read_uncommitted",
        ),
        (
            {"share.auto.offset.reset": "by_duration:-PT1H"},
            "Invalid value by_duration:-PT1H for configuration share.auto.offset.reset:"
            " Invalid value `by_duration:-PT1H` for configuration share.auto.offset.reset."
            " The value must be either 'earliest', 'latest' or of the format"
            " 'by_duration:<PnDTnHnMn.nS>'.",
        ),
    ],
)
def test_what_kafka_refuses_is_refused_in_its_words(proposed: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(BrokerConfig(), proposed)
    assert caught.value.wire_message == message


@pytest.mark.parametrize(
    "proposed",
    [
        {},
        {SESSION: "60000", HEARTBEAT: "15000"},
        {"consumer.assignment.interval.ms": "0"},
        {"share.auto.offset.reset": "by_duration:PT1H"},
        {"share.auto.offset.reset": "by_duration:P1DT2H3M4.5S"},
    ],
)
def test_what_kafka_takes_is_taken(proposed: dict[str, str]) -> None:
    check(BrokerConfig(), proposed)


@pytest.mark.parametrize(
    "text", ["by_duration:", "by_duration:P", "by_duration:PT", "by_duration:1h"]
)
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="Invalid value"):
        check(BrokerConfig(), {"share.auto.offset.reset": text})


def test_session_must_last_longer_than_the_time_between_heartbeats() -> None:
    lowest = BrokerConfig({"group.consumer.min.session.timeout.ms": "1000"})
    check(lowest, {SESSION: "5001"})
    with pytest.raises(ConfigError, match=f"{SESSION} must be greater than {HEARTBEAT}"):
        check(lowest, {SESSION: "5000"})


def test_group_inherits_its_brokers_values_and_stays_within_its_ranges() -> None:
    config = BrokerConfig({"group.consumer.session.timeout.ms": "50000"})
    assert effective(config, {})[SESSION] == 50000
    assert effective(config, {SESSION: "46000"})[SESSION] == 46000
    assert effective(config, {SESSION: "1000"})[SESSION] == 45000
    assert effective(config, {SESSION: "99000"})[SESSION] == 60000
    assert effective(config, {SESSION: "x"})[SESSION] == 50000
    assert effective(config, {})["share.partition.max.record.locks"] == 2000


def test_values_are_described_with_where_they_come_from() -> None:
    config = BrokerConfig({"group.consumer.session.timeout.ms": "50000"})
    names = {SESSION, HEARTBEAT, "share.isolation.level"}
    found = {entry.name: entry for entry in describe(config, {SESSION: "46000"}, names)}
    broker = f"group.{SESSION}"
    assert found.keys() == names
    assert (found[SESSION].value, found[SESSION].source) == ("46000", ConfigSource.GROUP)
    assert found[SESSION].synonyms == [
        (SESSION, "46000", ConfigSource.GROUP),
        (broker, "50000", ConfigSource.STATIC_BROKER),
        (broker, "45000", ConfigSource.DEFAULT),
    ]
    assert found[HEARTBEAT].synonyms == [(f"group.{HEARTBEAT}", "5000", ConfigSource.DEFAULT)]
    level = found["share.isolation.level"]
    assert level.synonyms == [(level.name, "read_uncommitted", ConfigSource.DEFAULT)]


def test_configs_of_groups_that_kwire_lacks_have_no_effect() -> None:
    assert without_effect({"streams.num.standby.replicas": "1"}) == ["streams.num.standby.replicas"]
