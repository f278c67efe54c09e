"""Subscriptions to client metrics: the configs of resources of type CLIENT_METRICS; pure.

Source: ClientMetricsConfigs, ControllerConfigurationValidator (4.3); KIP-714.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import NamedTuple

from kwire.errors import ErrorCode

from ..config.changes import ChangeRefused
from ..config.definitions import ConfigError, ConfigKey, ConfigSource, ConfigType
from ..config.describe import ConfigEntry, Synonym
from ..coordinator.common.pattern import InvalidPattern, Pattern

#: In `metrics`: all metrics.
EVERYTHING = "*"
DEFAULT_INTERVAL_MS = 5 * 60 * 1000
MIN_INTERVAL_MS = 100
MAX_INTERVAL_MS = 60 * 60 * 1000

KEYS: dict[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey(
            "interval.ms",
            ConfigType.INT,
            str(DEFAULT_INTERVAL_MS),
            "MEDIUM",
            doc="Metrics push interval in milliseconds",
        ),
        ConfigKey("match", ConfigType.LIST, "", "MEDIUM", doc="Client match criteria"),
        ConfigKey(
            "metrics", ConfigType.LIST, "", "MEDIUM", doc="Telemetry metric name prefix list"
        ),
    )
}


class ClientAttributes(NamedTuple):
    """The attributes of a client that a subscription can match. Shape: strings; their names are those in `match`."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


class Subscription:
    """One subscription. Shape: `match` has, for each attribute, an expression for its whole value."""

    __slots__ = ("interval_ms", "match", "metrics")

    def __init__(self, config: Mapping[str, str]) -> None:
        self.metrics = frozenset(words(config.get("metrics", "")))
        self.interval_ms = int(config.get("interval.ms", DEFAULT_INTERVAL_MS))
        self.match = {
            name: Pattern(text) for name, text in match_of(words(config.get("match", "")))
        }

    def matches(self, client: ClientAttributes) -> bool:
        """Whether the client should push metrics."""
        return all(pattern.matches(getattr(client, name)) for name, pattern in self.match.items())


def check(name: str, proposed: Mapping[str, str]) -> None:
    """Refuse invalid configs of a subscription.

    Errors: ChangeRefused, with Apache Kafka's codes and messages. Expressions are RE2's instead of Java's, so expressions
    with look-around or back-references are also refused.
    """
    if not name:
        raise ChangeRefused(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    for key in proposed:
        if key not in KEYS:
            message = f"Unknown client metrics configuration: {key}"
            raise ChangeRefused(ErrorCode.INVALID_REQUEST, message)
    interval = proposed.get("interval.ms")
    if interval is not None:
        try:
            value = KEYS["interval.ms"].parse(interval)
        except ConfigError as error:
            raise ChangeRefused(ErrorCode.INVALID_CONFIG, error.wire_message) from None
        if not isinstance(value, int) or not MIN_INTERVAL_MS <= value <= MAX_INTERVAL_MS:
            message = (
                f"Invalid value {value} for interval.ms,"
                " interval must be between 100 and 3600000 (1 hour)"
            )
            raise ChangeRefused(ErrorCode.INVALID_REQUEST, message)
    for name, text in match_of(words(proposed.get("match", ""))):
        try:
            Pattern(text)
        except InvalidPattern as error:
            message = f"Illegal client matching pattern: {name}={text}: {error}"
            raise ChangeRefused(ErrorCode.INVALID_CONFIG, message) from None


def match_of(patterns: list[str]) -> Iterator[tuple[str, str]]:
    """The attributes and expressions of `match`. Errors: ChangeRefused."""
    for pattern in patterns:
        name, *rest = pattern.split("=")
        if len(rest) != 1 or not rest[0] or name.strip() not in ClientAttributes._fields:
            message = f"Illegal client matching pattern: {pattern}"
            raise ChangeRefused(ErrorCode.INVALID_CONFIG, message)
        yield name.strip(), rest[0].strip()


def describe(
    stored: Mapping[str, str], wanted: Container[str] | None = None
) -> Iterator[ConfigEntry]:
    """Every config of a subscription, or the requested ones."""
    for name, key in KEYS.items():
        if wanted is not None and name not in wanted:
            continue
        value, source, synonyms = key.default, ConfigSource.DEFAULT, []
        if name in stored:
            value, source = stored[name], ConfigSource.CLIENT_METRICS
            synonyms = [Synonym(name, value, source)]
        yield ConfigEntry(name, value, source, key.type, False, False, synonyms, key.doc)


def words(text: str) -> list[str]:
    """The elements of a list in a config."""
    return [word.strip() for word in text.split(",") if word.strip()]
