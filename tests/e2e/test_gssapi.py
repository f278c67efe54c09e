"""GSSAPI with stock clients, against a KDC of MIT Kerberos."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from ..support.broker_process import KwireBroker, free_port
from ..support.kafka import KAFKA_3, write_properties
from ..support.kafka_tools import ToolServer
from ..support.kdc import REALM, Kdc

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    made = Kdc(tmp_path_factory.mktemp("kdc"))
    try:
        made.wait_until_open()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def keytab(kdc: Kdc) -> str:
    """The keytab of alice, who has every permission."""
    return kdc.keytab(f"alice@{REALM}")


class Broker(KwireBroker):
    """A broker in the realm, whose clients call it localhost."""

    def __init__(self, directory: Path, kdc: Kdc) -> None:
        principal = f"kafka/localhost@{REALM}"
        super().__init__(
            directory,
            config={
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:alice",
                "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": "com.sun.security.auth"
                ".module.Krb5LoginModule required useKeyTab=true storeKey=true"
                f' keyTab="{kdc.keytab(principal)}" principal="{principal}";',
            },
        )
        self.host = "localhost"
        other = free_port()
        for name in ("listeners", "advertised.listeners"):
            self.config[name] = (
                f"SASL_PLAINTEXT://localhost:{self.port},PLAINTEXT://localhost:{other}"
            )
        self._kdc = kdc

    def _environment(self) -> dict[str, str]:
        return os.environ | self._kdc.environment


@pytest.fixture(scope="module")
def broker(kdc: Kdc, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KwireBroker]:
    with (made := Broker(tmp_path_factory.mktemp("broker"), kdc)):
        yield made


@pytest.mark.compat("kafka-python", "security: GSSAPI")
def test_kafka_python_logs_in(
    broker: KwireBroker, kdc: Kdc, keytab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in kdc.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", keytab)
    client = KafkaAdminClient(
        bootstrap_servers=broker.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_service_name="kafka",
    )
    try:
        assert isinstance(client.list_topics(), list)  # a login that fails raises
    finally:
        client.close()


@pytest.mark.compat("kcat", "security: GSSAPI")
def test_kcat_logs_in(broker: KwireBroker, kdc: Kdc, keytab: str, tmp_path: Path) -> None:
    kcat = shutil.which("kcat")
    if kcat is None or shutil.which("kinit") is None:
        pytest.skip("needs kcat and kinit (Debian: kafkacat, krb5-user)")
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal": f"alice@{REALM}",
        "sasl.kerberos.keytab": keytab,
    }
    command = [kcat, "-b", broker.bootstrap, "-L", "-m", "10"]
    for name, value in options.items():
        command += ["-X", f"{name}={value}"]
    environment = os.environ | kdc.environment | {"KRB5CCNAME": f"FILE:{tmp_path}/tickets"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    if "No provider for SASL mechanism GSSAPI" in done.stderr:
        pytest.skip("this kcat was built without GSSAPI")
    if "is missing a GSSAPI module" in done.stderr:
        pytest.skip("needs GSSAPI of Cyrus SASL (Debian: libsasl2-modules-gssapi-mit)")
    assert done.returncode == 0, done.stderr
    assert "broker 0 at localhost" in done.stdout or "1 brokers" in done.stdout


@pytest.mark.jvm
@pytest.mark.compat("java-tools 3.9.2", "security: GSSAPI")
def test_java_logs_in(
    broker: KwireBroker, kdc: Kdc, keytab: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = write_properties(
        tmp_path / "client.properties",
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required"
            f' useKeyTab=true storeKey=true keyTab="{keytab}" principal="alice@{REALM}";',
        },
    )
    krb5_conf = kdc.environment["KRB5_CONFIG"]
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={krb5_conf}")
    tools = ToolServer(KAFKA_3, tmp_path / "jvm.log")
    try:
        where = ("--bootstrap-server", broker.bootstrap, "--command-config", str(properties))
        made = tools.run("kafka-topics", *where, "--create", "--topic", "by-java")
        assert made.status == 0, made
    finally:
        tools.close()
