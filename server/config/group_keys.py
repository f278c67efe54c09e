"""Configs of groups: resources of type GROUP. A group inherits unset configs from its broker's keys.

Pure. Names, defaults, ranges and messages are those of Apache Kafka 4.3.0: GroupConfig, GroupConfigManager,
ConfigHelper.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import NamedTuple

from .broker_config import BrokerConfig, Properties
from .definitions import (
    ConfigError,
    ConfigKey,
    ConfigSource,
    ConfigType,
    Matching,
    UnknownConfigError,
    Value,
    ValueRule,
    at_least,
    one_of,
    to_text,
)
from .describe import ConfigEntry, Synonym, where_set
from .tables import BROKER

INT, STRING, BOOLEAN = ConfigType.INT, ConfigType.STRING, ConfigType.BOOLEAN

#: A duration in Java's format, without signs; at least one part, and at least one after "T".
DURATION = (
    r"(?i:P(?=[0-9T])(?:[0-9]{1,10}D)?"
    r"(?:T(?=[0-9])(?:[0-9]{1,10}H)?(?:[0-9]{1,10}M)?(?:[0-9]{1,10}(?:[.,][0-9]{0,9})?S)?)?)"
)
OFFSET_RESET = Matching(
    "[latest, earliest, by_duration:PnDTnHnMn.nS]",
    rf"latest|earliest|by_duration:{DURATION}",
    "Invalid value `{value}` for configuration {name}. The value must be either 'earliest', 'latest'"
    " or of the format 'by_duration:<PnDTnHnMn.nS>'.",
)


class Bounds(NamedTuple):
    """The broker's keys that limit a group's config, and their defaults; None for no limit."""

    lowest: tuple[str, int] | None
    highest: tuple[str, int] | None


class GroupKey(NamedTuple):
    """A config of groups. Shape: `inherits` is the broker's key that applies to a group without its own value."""

    key: ConfigKey
    inherits: str | None
    bounds: Bounds


def _key(
    name: str,
    default: int,
    least: int,
    lowest: int | None,
    highest: int | None,
    doc: str,
    highest_name: str | None = None,
    idle: bool = True,
) -> GroupKey:
    """A whole number within limits that the broker sets."""
    kind, rest = name.split(".", 1)
    return GroupKey(
        ConfigKey(name, INT, str(default), "MEDIUM", valid=at_least(least), doc=doc, idle=idle),
        f"group.{name}",
        Bounds(
            None if lowest is None else (f"group.{kind}.min.{rest}", lowest),
            None if highest is None else (highest_name or f"group.{kind}.max.{rest}", highest),
        ),
    )


def _own(name: str, type: ConfigType, default: str, valid: ValueRule | None, doc: str) -> GroupKey:
    """A config that only groups have."""
    key = ConfigKey(name, type, default, "MEDIUM", valid=valid, doc=doc)
    return GroupKey(key, None, Bounds(None, None))


#: In the order of Apache Kafka's range checks. An idle key is stored and shown, but has no effect.
GROUP: dict[str, GroupKey] = {
    each.key.name: each
    for each in (
        _key("consumer.heartbeat.interval.ms", 5000, 1, 5000, 15000,
             "Time between two heartbeats of a member of a consumer group.", idle=False),
        _key("consumer.session.timeout.ms", 45000, 1, 45000, 60000,
             "How long a member of a consumer group may be silent before it counts as failed.", idle=False),
        _key("consumer.assignment.interval.ms", 1000, 0, 0, 15000,
             "Minimum time between two assignments of a consumer group.", idle=False),
        _key("share.heartbeat.interval.ms", 5000, 1, 5000, 15000,
             "Time between two heartbeats of a member of a share group.", idle=False),
        _key("share.session.timeout.ms", 45000, 1, 45000, 60000,
             "How long a member of a share group may be silent before it counts as failed.", idle=False),
        _key("share.record.lock.duration.ms", 30000, 1000, 15000, 60000,
             "How long a record delivered to a share group stays locked.", idle=False),
        _key("share.delivery.count.limit", 5, 2, 2, 10,
             "Maximum number of times that a record is delivered to a share group.", idle=False),
        _key("share.partition.max.record.locks", 2000, 100, 100, 4000,
             "Maximum number of records of a partition that a share group may have locked.", idle=False),
        _key("share.assignment.interval.ms", 1000, 0, 0, 15000,
             "Minimum time between two assignments of a share group.", idle=False),
        _key("streams.heartbeat.interval.ms", 5000, 1, 5000, 15000,
             "Time between two heartbeats of a member of a streams group."),
        _key("streams.session.timeout.ms", 45000, 1, 45000, 60000,
             "How long a member of a streams group may be silent before it counts as failed."),
        _key("streams.num.standby.replicas", 0, 0, None, 2,
             "Number of standby replicas for each task of a streams group.",
             highest_name="group.streams.max.standby.replicas"),
        _key("streams.assignment.interval.ms", 1000, 0, 0, 15000,
             "Minimum time between two assignments of a streams group."),
        _key("streams.initial.rebalance.delay.ms", 3000, 0, None, None,
             "How long a new streams group waits for more members before its first rebalance."),
        _own("share.auto.offset.reset", STRING, "latest", OFFSET_RESET,
             "Where a share group starts to read a partition."),
        _own("share.isolation.level", STRING, "read_uncommitted",
             one_of("read_committed", "read_uncommitted"),
             "Whether a share group reads records of open and aborted transactions."),
        _own("share.renew.acknowledge.enable", BOOLEAN, "true", None,
             "Whether members of a share group may renew their locks."),
    )
}  # fmt: skip
#: Kinds of groups whose session must last longer than the interval between heartbeats.
WITH_SESSIONS = ("consumer", "share", "streams")


def check(config: BrokerConfig, proposed: Properties) -> None:
    """Refuse invalid configs of a group. Errors: ConfigError."""
    for name in proposed:
        if name not in GROUP:
            raise UnknownConfigError(f"Unknown group config name: {name}")
    values = {name: GROUP[name].key.parse(text) for name, text in proposed.items()}
    for name, (_, _, (lowest, highest)) in GROUP.items():
        value = values.get(name)
        if not isinstance(value, int):
            continue
        if lowest is not None and value < broker_value(config, *lowest):
            raise ConfigError(f"{name} must be greater than or equal to {lowest[0]}")
        if highest is not None and value > broker_value(config, *highest):
            raise ConfigError(f"{name} must be less than or equal to {highest[0]}")
    for kind in WITH_SESSIONS:
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if not {session, heartbeat}.isdisjoint(values):
            longest, between = (
                values.get(name, inherited(config, GROUP[name])) for name in (session, heartbeat)
            )
            assert isinstance(longest, int) and isinstance(between, int)
            if longest <= between:
                raise ConfigError(f"{session} must be greater than {heartbeat}")


def without_effect(stored: Properties) -> list[str]:
    """The names of a group's configs that have no effect in kwire."""
    return [name for name in stored if name not in GROUP or not GROUP[name].key.used]


def effective(config: BrokerConfig, stored: Properties) -> dict[str, Value]:
    """The values of a group with these configs, within the broker's current limits.

    Source: GroupConfig.evaluate. Stored values may be older than the broker's limits.
    """
    values: dict[str, Value] = {}
    for name, group_key in GROUP.items():
        value = inherited(config, group_key)
        if name in stored:
            try:
                value = group_key.key.parse(stored[name])
            except ConfigError:
                pass  # in a store that another program has changed
        lowest, highest = group_key.bounds
        if isinstance(value, int) and name in stored:
            if lowest is not None:
                value = max(value, broker_value(config, *lowest))
            if highest is not None:
                value = min(value, broker_value(config, *highest))
        values[name] = value
    return values


def inherited(config: BrokerConfig, group_key: GroupKey) -> Value:
    """The value of a group that does not set its own."""
    key = group_key.key
    default = key.convert(key.default)
    if group_key.inherits is None or not isinstance(default, int):
        return default
    return broker_value(config, group_key.inherits, default)


def broker_value(config: BrokerConfig, name: str, default: int) -> int:
    """A broker's key for groups if it is set, or else the default of 4.3, which may differ from the older one in the
    table.
    """
    value = config[name] if name in config.effective and name in BROKER else None
    return value if isinstance(value, int) else default


def describe(
    config: BrokerConfig, stored: Mapping[str, str], wanted: Container[str] | None = None
) -> Iterator[ConfigEntry]:
    """Every config of a group, or the requested ones."""
    for name, group_key in GROUP.items():
        if wanted is not None and name not in wanted:
            continue
        key, inherits, _ = group_key
        value = to_text(inherited(config, group_key))
        synonyms: list[Synonym] = []
        if name in stored:
            value = stored[name]
            synonyms.append(Synonym(name, value, ConfigSource.GROUP))
        if inherits is not None:
            synonyms += where_set(config, inherits)
        synonyms.append(Synonym(inherits or name, key.default, ConfigSource.DEFAULT))
        yield ConfigEntry(
            name, value, synonyms[0].source, key.type, False, False, synonyms, key.doc
        )
