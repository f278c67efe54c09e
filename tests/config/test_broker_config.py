"""The broker's settings: parsing, layers, changes at run time, topics."""

from __future__ import annotations

import logging

import pytest

from server import native
from server.config import BrokerConfig, ConfigError, UnknownConfigError
from server.log.log_config import LogConfig
from server.metadata.endpoint import Endpoint
from tests.support.cpu_time import cpu_time


def refusal(static: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(static)
    return caught.value.explain()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("log.segment.bytes", "13", "Value must be at least 14; allowed: INT [14,...]"),
        ("log.segment.bytes", "1GB", "Not a number of type INT; allowed: INT [14,...]"),
        ("log.segment.bytes", "3000000000", "Not a number of type INT; allowed: INT [14,...]"),
        ("compression.lz4.level", "18", "Value must be no more than 17; allowed: INT [1,...,17]"),
        ("log.preallocate", "yes", "Expected value to be either true or false; allowed: BOOLEAN"),
        ("log.cleanup.policy", "keep", "String must be one of: compact, delete; allowed: LIST [compact, delete]"),
        ("offsets.topic.replication.factor", "0", "Value must be at least 1; allowed: SHORT [1,...]"),
        ("log.cleaner.io.buffer.load.factor", "much", "Not a number of type DOUBLE; allowed: DOUBLE"),
        ("listener.name.x.ssl.client.auth", "maybe", "String must be one of: required, requested, none"),
        ("log.retention.ms", "0", "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
        ("listeners", "9092", "9092 is not a listener; allowed: NAME://host:port,..."),
        ("listeners", "PLAINTEXT://:99999", "99999 is not a port"),
        ("listeners", "PLAINTEXT://:1,PLAINTEXT://:2", "must have a different name"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092", "nonroutable meta-address"),
        ("queued.max.request.bytes", "1000", "must be larger or equal to socket.request.max.bytes"),
        ("max.connections.per.ip.overrides", "host", "host is not host:count"),
        ("log.dirs", " , ", "At least one log directory"),
    ],
)  # fmt: skip
def test_wrong_value_is_refused_with_key_value_and_range(
    name: str, value: str, expected: str
) -> None:
    said = refusal({name: value})
    assert expected in said
    assert value.strip() in said


def test_password_is_not_shown_in_a_refusal() -> None:
    config = BrokerConfig({"ssl.key.password": "topsecret"})
    assert "topsecret" not in "".join(config.notices())


def test_values_are_typed_and_trimmed() -> None:
    config = BrokerConfig(
        {"num.partitions": " 6 ", "log.cleanup.policy": "compact , delete", "log.dirs": "/a, /b"}
    )
    assert config["num.partitions"] == 6
    assert config["log.cleanup.policy"] == ["compact", "delete"]
    assert config.log_dirs == ["/a", "/b"]
    assert config.get_bool("auto.create.topics.enable") is True
    assert config.get_float("log.cleaner.min.cleanable.ratio") == 0.5
    with pytest.raises(TypeError, match="log\\.retention\\.ms is None"):
        config.get_int("log.retention.ms")
    with pytest.raises(KeyError):
        config["no.such.key"]


def test_node_id_and_broker_id_are_one() -> None:
    assert BrokerConfig({"node.id": "7"}).node_id == 7
    assert BrokerConfig({"broker.id": "7"})["node.id"] == 7
    assert "same value" in refusal({"broker.id": "1", "node.id": "2"})


def test_listeners_of_a_kraft_controller_are_left_out() -> None:
    config = BrokerConfig(
        {
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "process.roles": "broker,controller",
            "node.id": "1",
        }
    )
    assert config.listeners == (Endpoint("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert config.advertised_listeners == (Endpoint("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),)


def test_listener_names_of_ones_own_need_a_protocol() -> None:
    text = {
        "listeners": "INSIDE://[::1]:9092,OUTSIDE://10.0.0.1:9093",
        "inter.broker.listener.name": "INSIDE",
    }
    assert "No security protocol defined for listener INSIDE" in refusal(text)
    config = BrokerConfig(
        text | {"listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT"}
    )
    assert [str(endpoint) for endpoint in config.listeners] == [
        "INSIDE://[::1]:9092",
        "OUTSIDE://10.0.0.1:9093",
    ]
    assert config.inter_broker_listener.listener == "INSIDE"


def test_notices_name_idle_keys_once_and_each_unknown_with_its_nearest() -> None:
    config = BrokerConfig(
        {"num.network.threads": "3", "num.io.threads": "8", "log.retention.hour": "1", "zzz": "1"}
    )
    assert config.notices() == [
        "Accepted without effect in kwire: num.io.threads, num.network.threads",
        "log.retention.hour is not a config of Apache Kafka or kwire; the nearest known one is log.retention.hours",
        "zzz is not a config of Apache Kafka or kwire",
    ]


def test_settings_of_an_authorizer_without_one_are_named() -> None:
    assert BrokerConfig({"super.users": "User:a"}).notices() == [
        "super.users has no effect without authorizer.class.name"
    ]


AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
OPEN = {"allow.everyone.if.no.acl.found": "true"}


def test_authorizer_alone_needs_no_notice() -> None:
    assert BrokerConfig(AUTHORIZER).notices() == []
    assert BrokerConfig({**AUTHORIZER, **OPEN}).notices() == []


def test_super_users_whom_no_client_can_be_are_named() -> None:
    (said,) = BrokerConfig({**AUTHORIZER, **OPEN, "super.users": "User:a"}).notices()
    assert said == (
        "super.users has no effect on clients: no client logs in, so all of them are User:ANONYMOUS"
    )


def test_super_user_who_is_everyone_is_named() -> None:
    (said,) = BrokerConfig({**AUTHORIZER, "super.users": "User:a;User:ANONYMOUS"}).notices()
    assert said == (
        "super.users names User:ANONYMOUS, the principal of every client: it may do everything,"
        " regardless of ACLs"
    )


@pytest.mark.parametrize(
    "listener",
    [
        {
            "listeners": "PLAINTEXT://:9091,SASL_PLAINTEXT://:9092",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        },
        {
            "listeners": "SSL://:9092",
            "security.inter.broker.protocol": "SSL",
            "ssl.client.auth": "required",
        },
        {
            "listeners": "PLAINTEXT://:9091,SSL://:9092",
            "listener.name.ssl.ssl.client.auth": "requested",
        },
    ],
)
def test_super_users_are_fine_where_clients_log_in(listener: dict[str, str]) -> None:
    settings = {**AUTHORIZER, **listener, "super.users": "User:a"}
    assert BrokerConfig(settings).notices() == []
    (said,) = BrokerConfig({**settings, "super.users": "User:ANONYMOUS"}).notices()
    assert "the principal of every client that does not log in" in said


def test_super_users_have_no_effect_where_clients_show_no_certificate() -> None:
    settings = {**AUTHORIZER, "listeners": "PLAINTEXT://:9091,SSL://:9092", "super.users": "User:a"}
    assert "no client logs in" in BrokerConfig(settings).notices()[0]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"authorizer.class.name": "com.example.Mine"},
            "authorizer.class.name=com.example.Mine: kwire has no such class; allowed: "
            "kafka.security.authorizer.AclAuthorizer, "
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ),
        (
            {"super.users": "User:a;alice"},
            "super.users=User:a;alice: expected a string in format principalType:principalName but "
            "got alice; allowed: User:name;User:name",
        ),
    ],
)
def test_authorizer_that_cannot_be_built_is_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(settings)
    assert refused.value.explain() == said


def test_dynamic_value_hides_synonyms_below_and_gives_them_back() -> None:
    config = BrokerConfig({"log.retention.hours": "1", "log.retention.minutes": "30"})
    assert config.topic_default("retention.ms") == 1_800_000
    config.set_dynamic(default={"log.retention.ms": "5000"})
    assert config.topic_default("retention.ms") == 5000
    config.set_dynamic(broker={"log.retention.ms": "6000"})
    assert config.topic_default("retention.ms") == 6000
    config.set_dynamic(broker={}, default={})
    assert config.topic_default("retention.ms") == 1_800_000


def test_subscribers_hear_only_of_values_that_changed() -> None:
    config = BrokerConfig({})
    heard: list[frozenset[str]] = []
    unsubscribe = config.subscribe(heard.append)
    config.set_dynamic(broker={"message.max.bytes": "5000", "log.segment.bytes": "1073741824"})
    config.set_dynamic(broker={"message.max.bytes": "5000"})
    unsubscribe()
    config.set_dynamic(broker={})
    assert heard == [frozenset({"message.max.bytes"})]
    assert config["message.max.bytes"] == 1_048_588


def test_wrong_stored_values_are_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    config = BrokerConfig({})
    with caplog.at_level(logging.ERROR):
        config.set_dynamic(
            broker={"message.max.bytes": "many", "num.partitions": "5", "log.roll.ms": "77"}
        )
    assert config.dynamic_broker == {"log.roll.ms": "77"}
    assert len(caplog.records) == 2


def test_stored_values_that_contradict_each_other_change_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = BrokerConfig({})
    with caplog.at_level(logging.ERROR):
        assert config.set_dynamic(broker={"log.retention.ms": "0"}) == frozenset()
    assert config["log.retention.ms"] is None
    assert "could not be applied" in caplog.text


def test_topic_defaults_come_from_the_broker_in_their_unit() -> None:
    config = BrokerConfig(
        {"log.roll.hours": "2", "log.retention.hours": "-1", "log.roll.jitter.hours": "1"}
    )
    topic = config.topic_config({})
    assert topic["segment.ms"] == 7_200_000
    assert topic["retention.ms"] == -1
    assert topic["segment.jitter.ms"] == 3_600_000
    assert topic["flush.ms"] == 2**63 - 1


def test_log_config_takes_overrides_then_broker_values() -> None:
    config = BrokerConfig(
        {
            "log.segment.bytes": "2000000",
            "message.max.bytes": "77",
            "kwire.produce.validation": "deep",
        }
    )
    overrides = {"segment.bytes": "5000", "cleanup.policy": "compact,delete"}
    log = LogConfig.of(config, config.topic_config(overrides))
    assert (log.segment_bytes, log.max_message_bytes, log.validation) == (5000, 77, "deep")
    assert log.cleanup_policy == {"compact", "delete"}


@pytest.mark.usefixtures("both_forms")
def test_log_config_without_settings_is_kafkas_default() -> None:
    """As in Apache Kafka, records are read, if the native module does it."""
    config = BrokerConfig({})
    validation = "standard" if native.form() == "pure" else "deep"
    assert LogConfig.of(config, config.topic_config({})) == LogConfig(validation=validation)


def test_single_timestamp_bound_counts_where_the_newer_two_were_left_alone() -> None:
    config = BrokerConfig({})
    overrides = {"message.timestamp.difference.max.ms": "9", "message.timestamp.after.max.ms": "5"}
    log = LogConfig.of(config, config.topic_config(overrides))
    assert (log.message_timestamp_before_max_ms, log.message_timestamp_after_max_ms) == (9, 5)


def test_topic_overrides_are_checked_with_kafkas_words() -> None:
    config = BrokerConfig({})
    config.check_topic({"retention.ms": "-1", "leader.replication.throttled.replicas": "0:1,1:2"})
    with pytest.raises(UnknownConfigError, match=r"^Unknown topic config name: nonsense$"):
        config.check_topic({"nonsense": "1"})
    with pytest.raises(
        ConfigError,
        match=r"Invalid value -5 for configuration retention\.ms: Value must be at least -1",
    ):
        config.check_topic({"retention.ms": "-5"})
    with pytest.raises(ConfigError, match="conflict topic config setting"):
        config.check_topic({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})


def test_settings_of_tls_that_no_listener_reads_are_named() -> None:
    auth = {"ssl.client.auth": "required"}
    assert BrokerConfig(auth).notices() == [
        "No listener uses TLS, so these have no effect: ssl.client.auth"
    ]
    encrypted = {"listeners": "SSL://:9093", "security.inter.broker.protocol": "SSL"}
    assert BrokerConfig(auth | encrypted).notices() == []
    login = {
        "listeners": "SASL_SSL://:9093",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    said = BrokerConfig(auth | login).notices()
    assert [each for each in said if each.endswith("listener.name.sasl_ssl.ssl.client.auth")]


def test_thousands_of_unknown_keys_are_told_in_time_and_in_few_lines() -> None:
    names = [f"log.retention.hour{number}" for number in range(30_000)]
    with cpu_time() as taken, taken.piece():
        said = BrokerConfig(dict.fromkeys(names, "1") | {"x" * 1_000_000: "1"}).notices()
    assert taken.seconds < 2
    about = [line for line in said if "Apache Kafka or kwire" in line]
    assert about[0].endswith("the nearest known one is log.retention.hours")
    assert about[-1] == "29951 more keys are no configs of Apache Kafka or kwire"
    assert len(about) == 51
