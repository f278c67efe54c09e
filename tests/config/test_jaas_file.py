"""A JAAS file as settings."""

from __future__ import annotations

import pytest

from server.config import ConfigError
from server.config.jaas_file import named_file, settings_of
from server.security.jaas import parse_jaas_config

FILE = """
KafkaServer {
    org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="p\\"q" user_a="p\\"q";
    org.apache.kafka.common.security.scram.ScramLoginModule required username="broker" password="s";
};
internal.KafkaServer {
    org.apache.kafka.common.security.scram.ScramLoginModule required username="inner" password="s";
};
Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="z"; };
"""
PROPERTIES = {
    "listeners": "INTERNAL://:1,SASL_SSL://:2,PLAINTEXT://:3",
    "listener.security.protocol.map": "INTERNAL:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512, PLAIN",
    "listener.name.internal.sasl.enabled.mechanisms": "SCRAM-SHA-256",
}


def test_modules_become_settings_of_listeners_with_logins_and_of_zookeeper():
    made = settings_of(FILE, "jaas.conf", PROPERTIES)
    assert {name: dict(parse_jaas_config(text).options) for name, text in made.items()} == {
        "listener.name.internal.scram-sha-256.sasl.jaas.config": {"username": "inner", "password": "s"},
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": {"username": "broker", "password": "s"},
        "listener.name.sasl_ssl.plain.sasl.jaas.config": {
            "username": "a",
            "password": 'p"q',
            "user_a": 'p"q',
        },
        "kwire.zookeeper.sasl.jaas.config": {"username": "kafka", "password": "z"},
    }  # fmt: skip


def test_setting_that_is_there_counts_before_the_file():
    own = {
        "listener.name.sasl_ssl.plain.sasl.jaas.config": "x",
        "kwire.zookeeper.sasl.jaas.config": "y",
    }
    made = settings_of(FILE, "jaas.conf", {**PROPERTIES, **own})
    assert not own.keys() & made.keys()


def test_wrong_file_is_refused_with_its_name_and_line():
    with pytest.raises(ConfigError, match=r"jaas\.conf: line 2: section A is not closed"):
        settings_of("A {\n", "jaas.conf", PROPERTIES)


@pytest.mark.parametrize(
    ("properties", "options", "expected"),
    [
        ({}, None, None),
        ({}, "-Xmx1g -Djava.security.auth.login.config=/etc/kafka/jaas.conf", "/etc/kafka/jaas.conf"),
        ({}, "'-Djava.security.auth.login.config=/a b'", "/a b"),
        ({}, "-Djava.security.auth.login.config=", None),
        ({}, "'-Djava.security", None),
        ({"kwire.jaas.file": "/mine"}, "-Djava.security.auth.login.config=/other", "/mine"),
        ({"kwire.jaas.file": ""}, "-Djava.security.auth.login.config=/other", None),
    ],
)  # fmt: skip
def test_file_is_named_by_a_setting_or_by_kafka_opts(properties, options, expected):
    environment = {} if options is None else {"KAFKA_OPTS": options}
    assert named_file(properties, environment) == expected
