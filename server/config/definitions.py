"""The definition of a configuration key: its type, allowed values, and when it may change.

Error messages are Apache Kafka's (ConfigDef), because clients show them and tools match them.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TypeAlias

from ..integers import parse_double, parse_integer

Value: TypeAlias = bool | int | float | str | list[str] | None


class ConfigType(IntEnum):
    """Type of a key; the number is DescribeConfigs' ConfigType."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """The origin of a value; the number is DescribeConfigs' ConfigSource."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class UpdateMode(IntEnum):
    """Whether a broker key can change without a restart, and for whom."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2


class ConfigError(ValueError):
    """A value that its key does not allow.

    Shape: `str` is Apache Kafka's message; `explain` names key, value and range for a terminal.
    """

    def __init__(
        self,
        message: str,
        key: str | None = None,
        value: str | None = None,
        reason: str | None = None,
        allowed: str | None = None,
    ) -> None:
        super().__init__(message)
        self.key = key
        self.value = value
        self.reason = reason
        self.allowed = allowed

    @property
    def wire_message(self) -> str:
        """The message for a Kafka client."""
        return str(self)

    def explain(self) -> str:
        """The message for a terminal: `key=value: reason; allowed: range`."""
        if self.key is None:
            return str(self)
        equals = " " if self.key.startswith("--") else "="
        name = self.key if self.value is None else f"{self.key}{equals}{self.value}"
        said = f"{name}: {self.reason or self}"
        return f"{said}; allowed: {self.allowed}" if self.allowed else said


class UnmetRequirement(ConfigError):
    """Values that are allowed individually but not together, or that an extra rule forbids."""

    @property
    def wire_message(self) -> str:
        """The message, preceded by the two words of Scala's `require`."""
        return f"requirement failed: {self}"


class UnknownConfigError(ConfigError):
    """A key that does not exist for this resource."""


INTEGER_BITS = {ConfigType.INT: 32, ConfigType.SHORT: 16, ConfigType.LONG: 64}


class ValueRule:
    """A rule on a typed value. `text` is ConfigDef's text for the allowed values."""

    __slots__ = ("text",)

    #: Whether a list is checked word by word, so that a refusal names the invalid word.
    by_word = False

    def __init__(self, text: str) -> None:
        self.text = text

    def refusal(self, name: str, value: Value) -> str | None:
        """The reason why `value` is not allowed; None if it is."""
        raise AssertionError(f"{type(self).__name__} does not implement a check")


class Between(ValueRule):
    """Numbers from `low` to `high`, inclusive; None means no upper limit."""

    __slots__ = ("high", "low")

    def __init__(self, low: float, high: float | None) -> None:
        super().__init__(f"[{low},...]" if high is None else f"[{low},...,{high}]")
        self.low = low
        self.high = high

    def refusal(self, name: str, value: Value) -> str | None:
        if not isinstance(value, int | float):
            return "Value must be non-null"
        if value < self.low:
            return f"Value must be at least {self.low}"
        if self.high is not None and value > self.high:
            return f"Value must be no more than {self.high}"
        return None


class OneOf(ValueRule):
    """One of some words; a list may contain only those words."""

    __slots__ = ("fold", "words")

    by_word = True

    def __init__(self, words: tuple[str, ...], fold: bool = False) -> None:
        super().__init__(f"{'(case insensitive) ' if fold else ''}[{', '.join(words)}]")
        self.words = words
        self.fold = fold

    def refusal(self, name: str, value: Value) -> str | None:
        if isinstance(value, str) and (value.upper() if self.fold else value) in self.words:
            return None
        how = " (case insensitive)" if self.fold else ""
        return f"String must be one of{how}: {', '.join(self.words)}"


class Matching(ValueRule):
    """Strings, or each string of a list, of a given form."""

    __slots__ = ("pattern", "reason")

    def __init__(self, text: str, pattern: str, reason: str) -> None:
        super().__init__(text)
        self.pattern = pattern
        self.reason = reason

    def refusal(self, name: str, value: Value) -> str | None:
        words = value if isinstance(value, list) else [str(value)]
        if all(re.fullmatch(self.pattern, word) for word in words):
            return None
        return self.reason.format(name=name, value=value)


class Present(ValueRule):
    """Any value except null; `empty` says whether an empty string or list is allowed."""

    __slots__ = ("empty", "reason")

    def __init__(self, text: str, reason: str, empty: bool = False) -> None:
        super().__init__(text)
        self.reason = reason
        self.empty = empty

    def refusal(self, name: str, value: Value) -> str | None:
        if value is None or (not self.empty and value in ("", [])):
            return self.reason
        return None


class NumberIn(ValueRule):
    """A number in a range, or one with a special meaning."""

    __slots__ = ("allowed", "reason")

    def __init__(self, text: str, allowed: frozenset[int], reason: str) -> None:
        super().__init__(text)
        self.allowed = allowed
        self.reason = reason

    def refusal(self, name: str, value: Value) -> str | None:
        return None if value in self.allowed else self.reason


def at_least(low: float) -> Between:
    """Numbers from `low` on."""
    return Between(low, None)


def between(low: float, high: float) -> Between:
    """Numbers from `low` to `high`, inclusive."""
    return Between(low, high)


def one_of(*words: str) -> OneOf:
    """Exactly these words."""
    return OneOf(words)


def ignore_case(*words: str) -> OneOf:
    """These words, in any case."""
    return OneOf(words, fold=True)


NOT_NULL = Present("non-null string", "Value must be non-null", empty=True)
NON_EMPTY = Present("non-empty string", "String must be non-empty")
# An empty default is allowed, because ConfigDef checks only values that are set.
NON_EMPTY_LIST = Present("non-empty list", "Cannot be empty", empty=True)
GZIP_LEVEL = NumberIn(
    "[1,...,9] or -1",
    frozenset([-1, *range(1, 10)]),
    "Value must be between 1 and 9 or equal to -1",
)
POOL_SIZE = Between(-1, 2**31 - 1)
THROTTLED_REPLICAS = Matching(
    "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    r"\*|[0-9]{1,10}:[0-9]{1,10}",
    "{name} must be the literal '*' or a list of replicas in the following format: "
    "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
)
VERSION = Matching(
    "[0.8.0, ..., 4.0-IV1]",
    r"(0\.[0-9]{1,4}|[0-9]{1,4})\.[0-9]{1,4}(\.[0-9]{1,4}){0,4}(-IV[0-9])?",
    "Version {value} is not a valid version",
)


class ConfigKey:
    """One row of the tables: a key.

    `default` is text, as in a properties file. `doc` is the text that DescribeConfigs returns. A key without `doc`, or
    a key marked `idle`, is accepted and shown but has no effect in kwire.
    """

    __slots__ = (
        "default",
        "doc",
        "idle",
        "importance",
        "internal",
        "name",
        "type",
        "update",
        "valid",
    )

    def __init__(
        self,
        name: str,
        type: ConfigType,
        default: str | None,
        importance: str,
        update: UpdateMode = UpdateMode.READ_ONLY,
        valid: ValueRule | None = None,
        internal: bool = False,
        doc: str | None = None,
        idle: bool = False,
    ) -> None:
        self.name = name
        self.type = type
        self.default = default
        self.importance = importance
        self.update = update
        self.valid = valid
        self.internal = internal
        self.doc = doc
        self.idle = idle

    @property
    def used(self) -> bool:
        """Whether the key has an effect in kwire."""
        return self.doc is not None and not self.idle

    @property
    def sensitive(self) -> bool:
        """Whether its value is never shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def allowed(self) -> str:
        """Type and range in words, for messages."""
        return f"{self.type.name} {self.valid.text}" if self.valid else self.type.name

    def parse(self, text: str | None) -> Value:
        """Convert text to the typed value and check it. Errors: ConfigError. Source: ConfigDef.parseType."""
        value = self.convert(text)
        if self.valid is not None and not (value is None and self.default is None):
            words = value if self.valid.by_word and isinstance(value, list) else [value]
            for word in words:
                reason = self.valid.refusal(self.name, word)
                if reason is not None:
                    raise self._error(java_text(word), reason)
        return value

    def convert(self, text: str | None) -> Value:
        """Convert text to the typed value without a range check."""
        if text is None:
            return None
        trimmed = text.strip()
        match self.type:
            case ConfigType.BOOLEAN:
                folded = trimmed.lower()
                if folded not in ("true", "false"):
                    raise self._error(text, "Expected value to be either true or false")
                return folded == "true"
            case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
                return self._integer(trimmed)
            case ConfigType.DOUBLE:
                number = parse_double(trimmed)
                if number is None:
                    raise self._error(text, "Not a number of type DOUBLE")
                return number
            case ConfigType.LIST:
                # Java splits at the expression \s*,\s*, for which a value of many blanks takes very long.
                return [word.strip() for word in trimmed.split(",")] if trimmed else []
            case ConfigType.PASSWORD:
                return text
            case _:
                return trimmed

    def _integer(self, text: str) -> int:
        value = parse_integer(text, INTEGER_BITS[self.type])
        if value is None:
            raise self._error(text, f"Not a number of type {self.type.name}")
        return value

    def _error(self, value: str, reason: str) -> ConfigError:
        shown = "[hidden]" if self.sensitive else value
        message = f"Invalid value {shown} for configuration {self.name}: {reason}"
        return ConfigError(message, self.name, shown, reason, self.allowed)


def to_text(value: Value) -> str | None:
    """A value in the form of DescribeConfigs. Source: ConfigDef.convertToString."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(value)
    if isinstance(value, float):
        return java_double(value)
    return str(value)


def java_text(value: Value) -> str:
    """A value in the form of Java's string concatenation."""
    if isinstance(value, list):
        return f"[{', '.join(value)}]"
    return str(to_text(value))


def java_double(value: float) -> str:
    """A double in the form of Java's Double.toString: plain from 1e-3 up to 1e7, else d.dddE±n."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal

    digits = Decimal(repr(value)).normalize()
    mantissa = digits.scaleb(-digits.adjusted())
    return f"{mantissa:f}{'' if '.' in f'{mantissa:f}' else '.0'}E{digits.adjusted()}"
