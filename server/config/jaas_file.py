"""A JAAS file, which Apache Kafka's brokers read with -Djava.security.auth.login.config.

Its login modules become settings, as if they were in server.properties:

    KafkaServer             listener.name.<listener>.<mechanism>.sasl.jaas.config of every listener with logins
    <listener>.KafkaServer  the same, of one listener
    Client                  kwire.zookeeper.sasl.jaas.config

Existing settings take precedence. Source: JaasContext.load, JaasUtils; ZooKeeperSaslClient.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ..security.sasl.mechanisms import MECHANISMS
from .definitions import ConfigError
from .endpoints import parse_protocol_map
from .tables import BROKER, LISTENER_PREFIX

if TYPE_CHECKING:
    from ..security.jaas import LoginModule

FILE = "kwire.jaas.file"
ZOOKEEPER_LOGIN = "kwire.zookeeper.sasl.jaas.config"
PROPERTY = "-Djava.security.auth.login.config="


def named_file(properties: Mapping[str, str], environment: Mapping[str, str]) -> str | None:
    """The JAAS file that the settings name, or else KAFKA_OPTS; None if there is none."""
    if FILE in properties:
        return properties[FILE].strip() or None
    options = environment.get("KAFKA_OPTS")
    if not options:
        return None
    import shlex

    try:
        words = shlex.split(options)
    except ValueError:
        return None
    found = [word[len(PROPERTY) :] for word in words if word.startswith(PROPERTY)]
    return found[-1] or None if found else None


def settings_of(text: str, path: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The settings from a JAAS file for a broker with these properties. Errors: ConfigError."""
    from ..security.jaas import JaasError, parse_jaas_file  # compiles its patterns

    try:
        sections = parse_jaas_file(text)
    except JaasError as error:
        raise ConfigError(f"{path}: {error}", FILE, path, str(error)) from None
    made: dict[str, str] = {}
    for listener, mechanism in _logins(properties):
        name = f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
        modules = sections.get(f"{listener.lower()}.KafkaServer", sections.get("KafkaServer", ()))
        module = _of_mechanism(modules, mechanism)
        if module is not None and name not in properties:
            made[name] = module.to_text()
    client = sections.get("Client", ())
    if client and ZOOKEEPER_LOGIN not in properties:
        made[ZOOKEEPER_LOGIN] = client[0].to_text()
    return made


def _logins(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The listeners with logins, each combined with each of its mechanisms."""

    def setting(key: str) -> str:
        return properties.get(key, BROKER[key].default) or ""

    protocols = parse_protocol_map(setting("listener.security.protocol.map"))
    for address in setting("listeners").split(","):
        listener = address.strip().partition("://")[0].upper()
        if protocols.get(listener, "").startswith("SASL_"):
            key = "sasl.enabled.mechanisms"
            enabled = properties.get(f"{LISTENER_PREFIX}{listener.lower()}.{key}", setting(key))
            for mechanism in enabled.split(","):
                yield listener, mechanism.strip()


def _of_mechanism(modules: tuple[LoginModule, ...], mechanism: str) -> LoginModule | None:
    kind = MECHANISMS.get(mechanism)
    if kind is None:
        return None
    return next((module for module in modules if module.class_name == kind.class_name), None)
