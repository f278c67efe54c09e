"""Settings in the form of DescribeConfigs: effective value, its source, and its synonyms.

Source: ConfigHelper of 3.9 (createBrokerConfigEntry, createTopicConfigEntry, configSynonyms).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from .broker_config import BrokerConfig, Properties
from .definitions import ConfigKey, ConfigSource, ConfigType, UpdateMode, to_text
from .tables import BROKER, BROKER_SYNONYMS, TOPIC, broker_synonyms, find_broker_key
from .topic_keys import SERVER_SYNONYMS


class Synonym(NamedTuple):
    """One source of a value; the first in a list is the one in effect."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One config of a broker or topic; `value` is None if sensitive or not set."""

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    sensitive: bool
    read_only: bool
    synonyms: list[Synonym]
    doc: str | None


def describe_broker(
    config: BrokerConfig, wanted: Container[str] | None = None
) -> Iterator[ConfigEntry]:
    """All settings in effect on this broker, including unknown keys (as sensitive)."""
    names = [name for name in config.effective if name not in BROKER or BROKER[name].internal]
    names += [name for name, key in BROKER.items() if not key.internal]
    for name in names:
        if wanted is None or name in wanted:
            yield _broker_entry(config, name, per_broker=True)


def describe_broker_default(
    config: BrokerConfig, wanted: Container[str] | None = None
) -> Iterator[ConfigEntry]:
    """The settings at run time for all brokers."""
    for name in config.dynamic_default:
        if wanted is None or name in wanted:
            yield _broker_entry(config, name, per_broker=False)


def describe_topic(
    config: BrokerConfig, overrides: Properties, wanted: Container[str] | None = None
) -> list[ConfigEntry]:
    """Every topic config of a topic with these overrides."""
    values = config.topic_config(overrides)
    entries = []
    for name, key in TOPIC.items():
        if wanted is not None and name not in wanted:
            continue
        value = to_text(values[name])
        synonyms: list[Synonym] = []
        if name in SERVER_SYNONYMS:
            server_name = SERVER_SYNONYMS[name][0][0]
            names = BROKER_SYNONYMS.get(server_name, (server_name,))
            synonyms = _synonyms(config, server_name, names, False)
        if name in overrides:
            synonyms.insert(0, Synonym(name, value, ConfigSource.TOPIC))
        source = _source(synonyms)
        entries.append(ConfigEntry(name, value, source, key.type, False, False, synonyms, key.doc))
    return entries


def _broker_entry(config: BrokerConfig, name: str, per_broker: bool) -> ConfigEntry:
    key = find_broker_key(name)
    # The value of an unknown key may be a secret.
    sensitive = key is None or key.sensitive
    synonyms = _synonyms(config, name, broker_synonyms(name), sensitive)
    if not per_broker:
        synonyms = [row for row in synonyms if row.source is ConfigSource.DYNAMIC_DEFAULT_BROKER]
    if sensitive or key is None:
        value = None
    elif not per_broker:
        value = config.dynamic_default[name]
    elif name in BROKER:
        value = to_text(config[name])
    else:
        value = config.effective[name]
    return ConfigEntry(
        name,
        value,
        _source(synonyms),
        key.type if key is not None else ConfigType.UNKNOWN,
        sensitive,
        not _is_listed_as_dynamic(name, key),
        synonyms,
        key.doc if key is not None else None,
    )


def _is_listed_as_dynamic(name: str, key: ConfigKey | None) -> bool:
    # Quotas and keys with a listener prefix can be changed, but Kafka reports them as read-only, because its list of
    # dynamic configs contains only plain names.
    return key is not None and name in BROKER and key.update is not UpdateMode.READ_ONLY


def _layers(config: BrokerConfig) -> tuple[tuple[Mapping[str, str], ConfigSource], ...]:
    return (
        (config.dynamic_broker, ConfigSource.DYNAMIC_BROKER),
        (config.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (config.static, ConfigSource.STATIC_BROKER),
    )


def where_set(config: BrokerConfig, name: str) -> list[Synonym]:
    """The set values of a broker's key, without its default."""
    return [
        Synonym(name, layer[name], source) for layer, source in _layers(config) if name in layer
    ]


def _synonyms(
    config: BrokerConfig, name: str, names: tuple[str, ...], sensitive: bool
) -> list[Synonym]:
    rows = []
    for layer, source in _layers(config):
        rows += [
            Synonym(synonym, None if sensitive else layer[synonym], source)
            for synonym in names
            if synonym in layer
        ]
    defaults = _default_texts()
    rows += [
        Synonym(synonym, None if sensitive else defaults[synonym], ConfigSource.DEFAULT)
        for synonym in names
        if synonym in defaults
    ]
    # Kafka drops the rows before the first one with the name itself: if the file sets only
    # log.retention.hours, log.retention.ms has no synonym and is reported as a default.
    for index, row in enumerate(rows):
        if row.name == name:
            return rows[index:]
    return []


@cache
def _default_texts() -> dict[str, str | None]:
    """The defaults of all broker keys that have one."""
    return {
        name: to_text(key.convert(key.default))
        for name, key in BROKER.items()
        if key.default is not None
    }


def _source(synonyms: list[Synonym]) -> ConfigSource:
    return synonyms[0].source if synonyms else ConfigSource.DEFAULT
