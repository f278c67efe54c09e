"""The tables by name, and values derived from them."""

from __future__ import annotations

from collections.abc import Iterable

from .broker_keys import BROKER_KEYS, NEWER_KEYS
from .definitions import ConfigKey, ConfigType, UpdateMode, at_least
from .inert_keys import INERT_BROKER_KEYS, NEWER_NAMES
from .security_keys import SECURITY_KEYS
from .topic_keys import TOPIC_KEYS

BROKER: dict[str, ConfigKey] = {
    key.name: key for key in (*BROKER_KEYS, *NEWER_KEYS, *SECURITY_KEYS, *INERT_BROKER_KEYS)
}
TOPIC: dict[str, ConfigKey] = {key.name: key for key in TOPIC_KEYS}

#: Replication quotas exist only as dynamic broker configs. Source: DynamicConfig.Broker.
QUOTA: dict[str, ConfigKey] = {
    name: ConfigKey(
        name,
        ConfigType.LONG,
        str(2**63 - 1),
        "MEDIUM",
        UpdateMode.CLUSTER_WIDE,
        valid=at_least(0),
        doc=doc,
    )
    for name, doc in (
        (
            "follower.replication.throttled.rate",
            "Maximum rate in bytes per second at which this broker fetches throttled replicas (follower.replication.throttled.replicas).",
        ),
        (
            "leader.replication.throttled.rate",
            "Maximum rate in bytes per second at which this broker sends throttled replicas (leader.replication.throttled.replicas).",
        ),
        (
            "replica.alter.log.dirs.io.max.bytes.per.second",
            "Maximum rate in bytes per second at which replicas are copied to other log directories.",
        ),
    )
}

LISTENER_PREFIX = "listener.name."

#: The names of one setting in several units, in order of precedence. Source: brokerConfigSynonyms.
BROKER_SYNONYMS: dict[str, tuple[str, ...]] = {
    name: family
    for family in (
        ("log.roll.ms", "log.roll.hours"),
        ("log.roll.jitter.ms", "log.roll.jitter.hours"),
        ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    )
    for name in family
}
BROKER_SYNONYMS["log.flush.interval.ms"] = (
    "log.flush.interval.ms",
    "log.flush.scheduler.interval.ms",
)

#: Keys that a default for all brokers must not set, in addition to those that are per-broker in the tables.
CLUSTER_LISTENER_KEYS = ("max.connections", "max.connection.creation.rate", "num.network.threads")


def listener_base(name: str) -> str | None:
    """The plain key that `listener.name.<listener>.<key>` sets; None for other names."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    return name[len(LISTENER_PREFIX) :].partition(".")[2] or None


def broker_synonyms(name: str, with_listener: bool = True) -> tuple[str, ...]:
    """Every broker key that can set the value of `name`, including itself."""
    family = BROKER_SYNONYMS.get(name)
    if family is not None:
        return family
    if with_listener and (base := listener_base(name)) is not None:
        return (name, base)
    return (name,)


def find_broker_key(name: str) -> ConfigKey | None:
    """The row of a broker key; a listener's own key (`listener.name.<listener>.<key>`) has the row of the plain one."""
    key = BROKER.get(name) or QUOTA.get(name)
    if key is None and (base := listener_base(name)) is not None:
        # The name of a mechanism may precede the key: listener.name.x.scram-sha-256.sasl.jaas.config
        key = BROKER.get(base) or BROKER.get(base.partition(".")[2])
    return key


def is_password(name: str) -> bool:
    """Whether a broker key is a password, also for one listener or mechanism: never show its value."""
    key = find_broker_key(name)
    return key is not None and key.sensitive


def is_newer_name(name: str) -> bool:
    """Whether Apache Kafka after 3.9 knows the key."""
    return name in NEWER_NAMES


#: Longer names are like no key; comparing them would take long.
MAX_COMPARED = 200


def nearest(name: str, known: Iterable[str] = BROKER) -> str | None:
    """The known key, of a broker or as given, that is most similar to `name`; None if none is similar."""
    from difflib import get_close_matches

    if len(name) > MAX_COMPARED:
        return None
    matches = get_close_matches(name, known, n=1, cutoff=0.7)
    return matches[0] if matches else None
