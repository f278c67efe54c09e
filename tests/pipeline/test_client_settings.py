"""The settings of Apache Kafka's client inside Spark for settings with librdkafka's names."""

from __future__ import annotations

from pathlib import Path

import pytest

from kwire.pipeline.client_settings import for_java
from kwire.pipeline.problems import Problem


def test_login_becomes_a_login_module_with_quotes_escaped() -> None:
    given = [
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanisms", "SCRAM-SHA-512"),
        ("sasl.username", "alice"),
        ("sasl.password", 'a"b\\c'),
    ]
    assert for_java(given) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="alice" password="a\\"b\\\\c";',
    }


def test_plain_has_a_module_of_its_own() -> None:
    given = [("sasl.mechanism", "PLAIN"), ("sasl.username", "a"), ("sasl.password", "b")]
    assert ".plain.PlainLoginModule " in for_java(given)["sasl.jaas.config"]


def test_pem_files_are_passed_on_by_content(tmp_path: Path) -> None:
    for name in ("ca", "certificate", "key"):
        (tmp_path / name).write_text(f"PEM of {name}")
    given = [
        (f"ssl.{name}.location", str(tmp_path / name)) for name in ("ca", "certificate", "key")
    ]
    assert for_java(given) == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "PEM of ca",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": "PEM of key",
        "ssl.keystore.certificate.chain": "PEM of certificate",
    }


def test_other_settings_are_passed_on_as_they_are() -> None:
    assert for_java([("fetch.max.bytes", "5")]) == {"fetch.max.bytes": "5"}


def test_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(Problem, match=r"ssl\.ca\.location=/nowhere: No such file"):
        for_java([("ssl.ca.location", "/nowhere")])
