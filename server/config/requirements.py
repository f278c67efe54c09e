"""Rules that involve several broker keys, or go beyond a range. Source: KafkaConfig.validateValues."""

from __future__ import annotations

from collections.abc import Mapping

from ..integers import parse_integer
from ..security.identity import NotAPrincipal, parse_super_users
from .definitions import ConfigError, UnmetRequirement, Value, to_text

INT_MAX = 2**31 - 1
#: The supported values of `authorizer.class.name`; both make the same decisions.
AUTHORIZERS = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)

#: The assignors of consumer groups, which are also accepted by the names of their classes in Apache Kafka.
ASSIGNORS = ("uniform", "range")
ASSIGNOR_CLASSES = ("UniformAssignor", "RangeAssignor")

#: Apache Kafka's classes that build principals in the same way as kwire; other classes would build different ones.
PRINCIPAL_BUILDERS = (
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
)


def check_broker_values(values: Mapping[str, Value]) -> None:
    """Refuse broker settings that contradict each other. Errors: UnmetRequirement, ConfigError."""

    def require(holds: bool, key: str, message: str) -> None:
        if not holds:
            raise UnmetRequirement(message, key, to_text(values[key]))

    def number(key: str) -> float | None:
        value = values[key]
        return value if isinstance(value, int | float) else None

    def at_least(key: str, low: float, message: str) -> None:
        value = number(key)
        require(value is None or value >= low, key, message)

    at_least("log.roll.ms", 1, "log.roll.ms must be greater than or equal to 1")
    at_least("log.roll.jitter.ms", 0, "log.roll.jitter.ms must be greater than or equal to 0")
    for key in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        value = number(key)
        require(
            value is None or value >= 1 or value == -1,
            key,
            f"{key} must be unlimited (-1) or, greater than or equal to 1",
        )
    broker_id, reserved = number("broker.id"), number("reserved.broker.max.id")
    generates = values["zookeeper.connect"] and values["broker.id.generation.enable"]
    require(
        broker_id is None
        or (broker_id >= -1 and (not generates or reserved is None or broker_id <= reserved)),
        "broker.id",
        "broker.id must be greater than or equal to -1 and not greater than reserved.broker.max.id",
    )
    require(
        bool(log_dirs(values)),
        "log.dirs",
        "At least one log directory must be defined via log.dirs or log.dir.",
    )
    for what in ("heartbeat.interval.ms", "session.timeout.ms"):
        name = f"group.consumer.{what}"
        lowest, highest = f"group.consumer.min.{what}", f"group.consumer.max.{what}"
        require(
            (number(lowest) or 0) <= (number(name) or 0),
            name,
            f"{name} must be greater than or equal to {lowest}",
        )
        require(
            (number(name) or 0) <= (number(highest) or 0),
            name,
            f"{name} must be less than or equal to {highest}",
        )
    assignors = values["group.consumer.assignors"]
    for assignor in assignors if isinstance(assignors, list) else ():
        require(
            assignor in ASSIGNORS or assignor.rpartition(".")[2] in ASSIGNOR_CLASSES,
            "group.consumer.assignors",
            f"{assignor} is neither uniform nor range",
        )
    require(bool(assignors), "group.consumer.assignors", "group.consumer.assignors names none")
    queued, largest = number("queued.max.request.bytes"), number("socket.request.max.bytes")
    require(
        queued is None or queued <= 0 or largest is None or queued >= largest,
        "queued.max.request.bytes",
        "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
    )
    if number("max.connections.per.ip") == 0:
        require(
            bool(values["max.connections.per.ip.overrides"]),
            "max.connections.per.ip",
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
        )
    shortest, longest = (
        number("group.min.session.timeout.ms"),
        number("group.max.session.timeout.ms"),
    )
    require(
        shortest is None or longest is None or shortest <= longest,
        "group.min.session.timeout.ms",
        "group.min.session.timeout.ms must be less than or equal to group.max.session.timeout.ms",
    )
    for key in ("fetch.max.bytes", "replica.fetch.wait.max.ms"):
        at_least(key, 0, f"{key} must be greater than or equal to 0")
    codec = number("offsets.topic.compression.codec")
    require(
        codec is None or codec in (0, 1, 2, 3, 4),
        "offsets.topic.compression.codec",
        "offsets.topic.compression.codec must be 0 (none), 1 (gzip), 2 (snappy), 3 (lz4) or 4 (zstd)",
    )
    authorizer = values["authorizer.class.name"]
    if authorizer and authorizer not in AUTHORIZERS:
        raise ConfigError(
            f"Invalid value {authorizer} for configuration authorizer.class.name: kwire has no such class",
            "authorizer.class.name",
            str(authorizer),
            "kwire has no such class",
            ", ".join(AUTHORIZERS),
        )
    callback = values["client.quota.callback.class"]
    if callback:
        raise ConfigError(
            f"Invalid value {callback} for configuration client.quota.callback.class: kwire cannot run Java classes",
            "client.quota.callback.class",
            str(callback),
            "kwire cannot run Java classes; its quotas are those of the default callback",
            "no value",
        )
    builder = str(values["principal.builder.class"] or "")
    if builder and builder not in PRINCIPAL_BUILDERS:
        reason = "kwire cannot run Java classes"
        raise ConfigError(
            f"Invalid value {builder} for configuration principal.builder.class: {reason}",
            "principal.builder.class",
            builder,
            reason,
            f"{PRINCIPAL_BUILDERS[0]}; ssl.principal.mapping.rules and sasl.kerberos.principal.to.local.rules"
            " make other names",
        )
    super_users = str(values["super.users"] or "")
    try:
        parse_super_users(super_users)
    except NotAPrincipal as error:
        raise ConfigError(
            f"Invalid value {super_users} for configuration super.users: {error}",
            "super.users",
            super_users,
            str(error),
            "User:name;User:name",
        ) from None
    connection_overrides(str(values["max.connections.per.ip.overrides"] or ""))


def check_topic_values(values: Mapping[str, Value]) -> None:
    """Refuse topic settings that contradict each other. Source: LogConfig.validateValues."""
    low, high = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if isinstance(low, int) and isinstance(high, int) and low > high:
        raise TopicConflict(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
        )
    if values["remote.storage.enable"]:
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )


class TopicConflict(ConfigError):
    """Topic configs that contradict each other; Kafka reports it without naming the resource."""


def log_dirs(values: Mapping[str, Value]) -> list[str]:
    """The data directories: log.dirs, or log.dir if it is not set."""
    # An empty value is not the same as no value: it results from an unset variable in a script.
    text = values["log.dir"] if values["log.dirs"] is None else values["log.dirs"]
    return [part.strip() for part in str(text or "").split(",") if part.strip()]


def metadata_dir(values: Mapping[str, Value]) -> str:
    """The directory of the embedded store: metadata.log.dir, or the first of the data directories."""
    return str(values["metadata.log.dir"] or "").strip() or log_dirs(values)[0]


def connection_overrides(text: str) -> dict[str, int]:
    """max.connections.per.ip.overrides as address -> count."""
    key = "max.connections.per.ip.overrides"
    result: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, _, count = part.rpartition(":")
        number = parse_integer(count)
        if not host or number is None or number < 0:
            message = f"Invalid value {text} for configuration {key}: {part} is not host:count"
            raise ConfigError(message, key, text, f"{part} is not host:count", "host:count,...")
        result[host.strip("[]")] = min(number, INT_MAX)
    return result
