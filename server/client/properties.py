"""Client properties under the names of Apache Kafka's clients, converted to arguments.

librdkafka's names for a user, a password and PEM files are also accepted.
Source: SaslConfigs, SslConfigs, CommonClientConfigs; librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..arguments import fault_of, shown
from ..security.sasl.mechanisms import MECHANISMS as ALL_MECHANISMS

#: The mechanisms with which a command can log in using properties alone.
MECHANISMS = tuple(name for name, kind in ALL_MECHANISMS.items() if kind.in_commands)
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
#: Property -> argument, for values that are passed on unchanged.
AS_THEY_ARE = {
    "bootstrap.servers": "bootstrap_servers",
    "metadata.broker.list": "bootstrap_servers",
    "client.id": "client_id",
    "client.rack": "client_rack",
    "group.id": "group_id",
    "group.instance.id": "group_instance_id",
    "isolation.level": "isolation_level",
    "compression.type": "compression_type",
    "compression.codec": "compression_type",
    "transactional.id": "transactional_id",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "ssl.key.password": "ssl_password",
}
#: The same for whole numbers.
NUMBERS = {
    name: name.replace(".", "_")
    for name in (
        "auto.commit.interval.ms",
        "batch.size",
        "connections.max.idle.ms",
        "delivery.timeout.ms",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "heartbeat.interval.ms",
        "linger.ms",
        "max.block.ms",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "max.request.size",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retry.backoff.ms",
        "session.timeout.ms",
    )
}
#: Those of them that may be larger than 31 bits. Source: ProducerConfig, ConsumerConfig.
LONG_NUMBERS = frozenset(
    (
        "connections.max.idle.ms",
        "linger.ms",
        "max.block.ms",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.ms",
    )
)


class UsageError(Exception):
    """Invalid usage; the command ends with exit code 2. The message contains no secret."""


def client_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """The values of the properties, by argument. Errors: UsageError, which names the property."""
    result: dict[str, Any] = {}
    for key, value in properties.items():
        if refused := fault_of(value):
            raise UsageError(f"{key}: the value {refused}")
        if key in AS_THEY_ARE:
            result[AS_THEY_ARE[key]] = value
        elif key in NUMBERS:
            result[NUMBERS[key]] = whole(key, value)
        else:
            READERS[key](key, value, result)
    protocol = result.get("security_protocol", "PLAINTEXT")
    if protocol.startswith("SASL_"):
        check_login(result)
    elif "sasl_mechanism" in result or "sasl_plain_username" in result:
        raise UsageError(
            f"security.protocol={protocol} has no login; with a user it is SASL_SSL or SASL_PLAINTEXT"
        )
    return result


def whole(key: str, value: str) -> int:
    """A number, 0 or more. Errors: UsageError."""
    most = 2**63 - 1 if key in LONG_NUMBERS else 2**31 - 1
    if not re.fullmatch("[0-9]{1,19}", value) or int(value) > most:
        raise UsageError(f"{key}: {shown(value)} is not a number from 0 to {most}")
    return int(value)


def read_protocol(key: str, value: str, result: dict[str, Any]) -> None:
    if value.upper() not in PROTOCOLS:
        raise UsageError(f"{key}={value} is not one of {', '.join(PROTOCOLS)}")
    result["security_protocol"] = value.upper()


def read_mechanism(key: str, value: str, result: dict[str, Any]) -> None:
    if value not in MECHANISMS:
        raise UsageError(f"{key}={value} is not one of {', '.join(MECHANISMS)}")
    result["sasl_mechanism"] = value


def read_jaas(key: str, value: str, result: dict[str, Any]) -> None:
    from ..security.jaas import JaasError, parse_jaas_config

    try:
        module = parse_jaas_config(value)
        if module.class_name in ("PlainLoginModule", "ScramLoginModule"):
            if module.get("tokenauth") == "true":
                raise UsageError(f"{key}: a login by delegation token is not supported here")
            result["sasl_plain_username"] = module.require("username")
            result["sasl_plain_password"] = module.require("password")
        elif module.class_name == "Krb5LoginModule":
            service = module.get("serviceName")
            if service:
                result.setdefault("sasl_kerberos_service_name", service)
        else:
            raise UsageError(
                f"{key}: {module.class_name} is not one of PlainLoginModule, ScramLoginModule, Krb5LoginModule"
            )
    except JaasError as error:
        raise UsageError(f"{key}: {error}") from None


def read_pem(argument: str) -> Callable[[str, str, dict[str, Any]], None]:
    """A reader of a store's location, which has to be a PEM file."""

    def read(key: str, value: str, result: dict[str, Any]) -> None:
        try:
            beginning = Path(value).read_bytes()[:65536]
        except OSError as error:
            raise UsageError(f"{key}={value}: {error.strerror}") from None
        if b"-----BEGIN " not in beginning:
            what = "-nokeys" if argument == "ssl_cafile" else "-nodes"
            raise UsageError(
                f"{key}={value}: not a PEM file, which kwire's commands need. To convert a PKCS12 store:"
                f" openssl pkcs12 -in {value} {what} -out FILE.pem"
                " (a JKS store first: keytool -importkeystore -deststoretype PKCS12)"
            )
        result[argument] = value

    return read


def read_file(argument: str) -> Callable[[str, str, dict[str, Any]], None]:
    """A reader of a file's path; checks that the file is readable, because later errors do not name it."""

    def read(key: str, value: str, result: dict[str, Any]) -> None:
        if not value:
            return
        try:
            Path(value).read_bytes()
        except OSError as error:
            raise UsageError(f"{key}={value}: {error.strerror}") from None
        result[argument] = value

    return read


def read_host_name_check(key: str, value: str, result: dict[str, Any]) -> None:
    result["ssl_check_hostname"] = value not in ("", "none")


def read_acks(key: str, value: str, result: dict[str, Any]) -> None:
    acks = "all" if value == "-1" else value
    if acks not in ("0", "1", "all"):
        raise UsageError(f"{key}={value} is not one of 0, 1, all")
    result["acks"] = acks


def read_reset(key: str, value: str, result: dict[str, Any]) -> None:
    words = {"earliest": "earliest", "smallest": "earliest", "beginning": "earliest"}
    words |= {"latest": "latest", "largest": "latest", "end": "latest"}
    if value not in words:
        raise UsageError(f"{key}={value}: neither earliest nor latest")
    result["auto_offset_reset"] = words[value]


def read_nothing(key: str, value: str, result: dict[str, Any]) -> None:
    """A property whose value is detected automatically here, such as the type of a store."""


READERS: dict[str, Callable[[str, str, dict[str, Any]], None]] = {
    "acks": read_acks,
    "request.required.acks": read_acks,
    "auto.offset.reset": read_reset,
    "security.protocol": read_protocol,
    "sasl.mechanism": read_mechanism,
    "sasl.mechanisms": read_mechanism,
    "sasl.jaas.config": read_jaas,
    "ssl.ca.location": read_file("ssl_cafile"),
    "ssl.certificate.location": read_file("ssl_certfile"),
    "ssl.key.location": read_file("ssl_keyfile"),
    "ssl.crl.location": read_file("ssl_crlfile"),
    "ssl.truststore.location": read_pem("ssl_cafile"),
    "ssl.keystore.location": read_pem("ssl_certfile"),
    "ssl.endpoint.identification.algorithm": read_host_name_check,
    "ssl.truststore.type": read_nothing,
    "ssl.keystore.type": read_nothing,
}
KNOWN = frozenset((*AS_THEY_ARE, *NUMBERS, *READERS))


def check_login(arguments: Mapping[str, Any]) -> None:
    """Errors: UsageError if a value is missing for a login."""
    mechanism = arguments.get("sasl_mechanism")
    if mechanism is None:
        raise UsageError(f"sasl.mechanism is missing: one of {', '.join(MECHANISMS)}")
    if ALL_MECHANISMS[mechanism].login is None and not {
        "sasl_plain_username",
        "sasl_plain_password",
    } <= set(arguments):
        raise UsageError(
            f"a login by {mechanism} needs sasl.jaas.config, or sasl.username and sasl.password"
        )
