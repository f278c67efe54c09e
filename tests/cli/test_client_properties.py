"""Client properties of the commands."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from server.cli.client import arguments_of
from server.cli.property_files import read_properties
from server.client.properties import UsageError, client_arguments

LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "alice",
    "sasl.password": "secret",
}


def test_command_line_wins_over_files_and_idle_keys_of_files_are_told(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=a\nretries=3\ninterceptor.classes=a\nrequest.timeout.ms=5\n")
    properties, idle = read_properties([str(file)], [("client.id", "b")])
    assert properties == {"client.id": "b", "request.timeout.ms": "5"}
    assert idle == ["interceptor.classes", "retries"]
    assert client_arguments(properties) == {"client_id": "b", "request_timeout_ms": 5}


def test_login_is_read_from_a_jaas_text_as_from_user_and_password() -> None:
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="alice" password="secret";'
    )
    by_jaas = {
        key: value for key, value in LOGIN.items() if "name" not in key and "word" not in key
    }
    expected = client_arguments(LOGIN)
    assert client_arguments({**by_jaas, "sasl.jaas.config": jaas}) == expected
    assert expected["sasl_plain_password"] == "secret"


def test_pem_stores_of_java_clients_are_taken(tmp_path: Path) -> None:
    store = tmp_path / "ca.pem"
    store.write_text("-----BEGIN CERTIFICATE-----\n")
    assert client_arguments(
        {
            "security.protocol": "ssl",
            "ssl.truststore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.endpoint.identification.algorithm": "",
        }
    ) == {"security_protocol": "SSL", "ssl_cafile": str(store), "ssl_check_hostname": False}


def test_properties_that_options_have_words_for_are_taken() -> None:
    properties = {
        "acks": "-1",
        "auto.offset.reset": "smallest",
        "compression.codec": "lz4",
        "group.id": "g",
    }
    assert client_arguments(properties) == {
        "acks": "all",
        "auto_offset_reset": "earliest",
        "compression_type": "lz4",
        "group_id": "g",
    }


@pytest.mark.parametrize(
    ("option", "property_", "variable", "address"),
    [
        ("a:1", "b:2", "c:3", "a:1"),
        (None, "b:2", "c:3", "b:2"),
        (None, None, "c:3", "c:3"),
        (None, None, "", "localhost:9092"),
    ],
)
def test_address_of_an_option_wins_over_a_property_and_that_over_the_environment(
    monkeypatch: pytest.MonkeyPatch,
    option: str | None,
    property_: str | None,
    variable: str,
    address: str,
) -> None:
    monkeypatch.setenv("KWIRE_BOOTSTRAP", variable)
    pairs = [] if property_ is None else [("bootstrap.servers", property_)]
    options = Namespace(bootstrap=option, properties=pairs, command_config=[])
    arguments_of(options)
    assert options.bootstrap == address


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS is not one of PLAINTEXT, SSL"),
        ({**LOGIN, "sasl.mechanism": "MD5"}, "sasl.mechanism=MD5 is not one of GSSAPI, PLAIN"),
        ({**LOGIN, "security.protocol": "SSL"}, "has no login"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is missing"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "a"},
            "a login by PLAIN needs sasl.jaas.config, or sasl.username and sasl.password",
        ),
        ({"acks": "2"}, "acks=2 is not one of 0, 1, all"),
        ({"auto.offset.reset": "none"}, "auto.offset.reset=none: neither earliest nor latest"),
        (
            {"request.timeout.ms": "soon"},
            "request.timeout.ms: 'soon' is not a number from 0 to 2147483647",
        ),
        ({"sasl.jaas.config": "Plain required secret"}, "sasl.jaas.config: "),
        ({"ssl.truststore.location": "/nonexistent"}, "No such file"),
        ({"ssl.ca.location": "/nonexistent"}, "ssl.ca.location=/nonexistent: No such file"),
    ],
)
def test_property_that_cannot_be_meant_is_refused_by_name(
    properties: dict[str, str], said: str
) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        client_arguments(properties)
    assert "secret" not in str(refused.value)


def test_store_of_java_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed")
    with pytest.raises(UsageError, match=r"openssl pkcs12 -in .*trust\.jks -nokeys"):
        client_arguments({"ssl.truststore.location": str(store)})


def test_unknown_property_of_the_command_line_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"did you mean security\.protocol\?"):
        read_properties([], [("securty.protocol", "SSL")])


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nosuch: No such file or directory"):
        read_properties([str(tmp_path / "nosuch")], [])
