"""Settings of Kafka clients, named as librdkafka names them, as Apache Kafka's client inside Spark and kwire's want them.

Jobs use all of these clients. Names that both have are passed on as they are.
Source: librdkafka's CONFIGURATION.md; SaslConfigs, SslConfigs.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kwire.server.client.properties import KNOWN, UsageError, client_arguments

from .problems import WrongCall

_MODULES = {"PLAIN": "plain.PlainLoginModule"}
_SCRAM = "scram.ScramLoginModule"


def for_java(properties: Iterable[tuple[str, str]]) -> dict[str, str]:
    """What Apache Kafka's client needs. Errors: WrongCall for a PEM file that cannot be read.

    The contents of PEM files are passed on, since executors on other machines do not have the files.
    """
    given = dict(properties)
    user, password = given.pop("sasl.username", None), given.pop("sasl.password", None)
    mechanism = given.pop("sasl.mechanisms", given.pop("sasl.mechanism", None))
    authority, key, certificate = (
        _text(name, given.pop(name, None))
        for name in ("ssl.ca.location", "ssl.key.location", "ssl.certificate.location")
    )
    if mechanism is not None:
        given["sasl.mechanism"] = mechanism
    if user is not None and password is not None and mechanism is not None:
        module = f"org.apache.kafka.common.security.{_MODULES.get(mechanism, _SCRAM)}"
        given["sasl.jaas.config"] = (
            f"{module} required username={_quoted(user)} password={_quoted(password)};"
        )
    if authority is not None:
        given |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
    if key is not None and certificate is not None:
        given |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": key,
            "ssl.keystore.certificate.chain": certificate,
        }
    return given


#: What a connection's security depends on; a setting of these that is not known here must not be passed over.
_SECURITY = ("security.", "sasl.", "ssl.", "enable.ssl", "enable.sasl", "oauth", "https.")
_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")


class Secret(dict[str, Any]):
    """Settings that are not shown, also when what has them is."""

    def __repr__(self) -> str:
        return "<settings>"


def for_kwire(properties: Iterable[tuple[str, str]]) -> Secret | None:
    """What kwire's own client needs; None if it cannot connect as these settings say, such as with OAuth.

    Settings that do not concern connections have no effect on it. The contents of PEM files are passed on, as in
    `for_java`.
    """
    given = {
        name: value
        for name, value in properties
        if name.startswith(_SECURITY) or name == "client.id"
    }
    if not given.keys() <= KNOWN or "ssl.crl.location" in given:
        return None
    try:
        found = client_arguments(given)
        contents = {name: Path(found[name]).read_text() for name in _FILES if name in found}
    except (UsageError, OSError, UnicodeDecodeError):
        return None
    return Secret({**found, "ssl_contents": contents})


def concern_connections(properties: Iterable[tuple[str, str]]) -> bool:
    """Whether settings have no other effect than on how brokers are reached."""
    return all(name.startswith(_SECURITY) for name, _ in properties)


def _text(name: str, path: str | None) -> str | None:
    try:
        return None if path is None else Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "not a PEM file"
        raise WrongCall(f"--client-property {name}={path}: {said}") from error


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
