"""Changes of a resource's stored configs: the rules of AlterConfigs and IncrementalAlterConfigs.

Source: ConfigAdminManager and ZkAdminManager of 3.9; codes and messages are those of a 3.9.2 broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from enum import IntEnum
from typing import NamedTuple

from kwire.errors import ErrorCode

from . import group_keys
from .broker_config import BrokerConfig, Properties
from .definitions import ConfigError, ConfigKey, ConfigType, UnknownConfigError
from .requirements import TopicConflict
from .tables import TOPIC

#: Dynamic in Apache Kafka; kwire opens its sockets once.
NEED_RESTART = frozenset({"listeners", "advertised.listeners", "listener.security.protocol.map"})


#: The number of keys that are checked in one step.
KEYS_IN_STEP = 256


class ConfigResourceType(IntEnum):
    """The type of a resource. Source: ConfigResource.Type."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class AlterOperation(IntEnum):
    """An operation of IncrementalAlterConfigs on one key. Source: AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class KeyChange(NamedTuple):
    """One key's change; `operation` may be an unknown number."""

    name: str
    operation: int
    value: str | None


class ChangeRefused(Exception):
    """A resource's change is refused with this error code and message."""

    def __init__(self, error: ErrorCode, message: str | None) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


def check_changes(changes: Iterable[KeyChange]) -> Generator[None, None, None]:
    """Refuse duplicate keys and missing values, in steps. Errors: ChangeRefused."""
    names: set[str] = set()
    absent: list[str] = []
    for number, change in enumerate(changes, 1):
        if number % KEYS_IN_STEP == 0:
            yield
        if change.name in names:
            raise ChangeRefused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
        names.add(change.name)
        if change.value is None and change.operation != AlterOperation.DELETE:
            absent.append(change.name)
    if absent:
        message = f"Null value not supported for : {', '.join(absent)}"
        raise ChangeRefused(ErrorCode.INVALID_REQUEST, message)


def check_operation(change: KeyChange) -> None:
    """Refuse an unknown operation. Errors: ChangeRefused."""
    if not 0 <= change.operation <= 3:
        message = f"Unknown operations type {change.operation}"
        raise ChangeRefused(ErrorCode.INVALID_REQUEST, message)


def replaced(changes: Iterable[KeyChange]) -> Generator[None, None, dict[str, str]]:
    """The configs after AlterConfigs, which replaces all of them; in steps."""
    after: dict[str, str] = {}
    for number, change in enumerate(changes, 1):
        if number % KEYS_IN_STEP == 0:
            yield
        if change.value is not None:
            after[change.name] = change.value
    return after


class ChangesByOperation(NamedTuple):
    """Changes of distinct keys by operation; `others` have an unknown operation or change a list."""

    values: dict[str, str]
    deleted: set[str]
    others: list[KeyChange]


def by_operation(changes: Iterable[KeyChange]) -> Generator[None, None, ChangesByOperation]:
    """Sort changes of distinct keys, in steps."""
    wanted = ChangesByOperation({}, set(), [])
    set_, delete = int(AlterOperation.SET), int(AlterOperation.DELETE)
    for number, change in enumerate(changes, 1):
        if number % KEYS_IN_STEP == 0:
            yield
        if change.operation == set_:
            wanted.values[change.name] = change.value if change.value is not None else ""
        elif change.operation == delete:
            wanted.deleted.add(change.name)
        else:
            wanted.others.append(change)
    return wanted


def changed(
    current: Properties, wanted: ChangesByOperation, find_key: Callable[[str], ConfigKey | None]
) -> dict[str, str]:
    """The configs after IncrementalAlterConfigs.

    Errors: ChangeRefused for an unknown operation, and for append or subtract on a key that is not a list,
    whichever comes first.
    """
    after = {name: value for name, value in current.items() if name not in wanted.deleted}
    after.update(wanted.values)
    for change in wanted.others:
        check_operation(change)
        name, operation, value = change
        verb = "append" if operation == AlterOperation.APPEND else "subtract"
        key = find_key(name)
        if key is None:
            raise ChangeRefused(ErrorCode.INVALID_CONFIG, f"Unknown config name: {name}")
        if key.type is not ConfigType.LIST:
            message = f"Config value {verb} is not allowed for config key: {name}"
            raise ChangeRefused(ErrorCode.INVALID_CONFIG, message)
        words = [word for word in after.get(name, key.default or "").split(",") if word]
        given = (value or "").split(",")
        if operation == AlterOperation.APPEND:
            there = set(words)
            words += [word for word in given if word not in there]
        else:
            words = subtracted(words, given)
        after[name] = ",".join(words)
    return after


def changed_without_lists(stored: Properties, changes: Iterable[KeyChange]) -> dict[str, str]:
    """The configs of a subscription or group after IncrementalAlterConfigs.

    Errors: ChangeRefused; as in Apache Kafka, nothing can be appended to any of them.
    """
    after = dict(stored)
    for change in changes:
        check_operation(change)
        if change.operation == AlterOperation.DELETE:
            after.pop(change.name, None)
        elif change.operation == AlterOperation.SET:
            after[change.name] = change.value or ""
        else:
            verb = AlterOperation(change.operation).name
            message = f"Can't {verb} to key {change.name} because its type is not LIST."
            raise ChangeRefused(ErrorCode.INVALID_CONFIG, message)
    return after


def check_group(config: BrokerConfig, proposed: Properties) -> None:
    """Refuse invalid configs of a group. Errors: ChangeRefused."""
    try:
        group_keys.check(config, proposed)
    except ConfigError as error:
        raise ChangeRefused(ErrorCode.INVALID_CONFIG, error.wire_message) from None


def subtracted(words: Iterable[str], given: Iterable[str]) -> list[str]:
    """The words without the given ones; each given word removes its first occurrence."""
    removed = Counter(given)
    left = []
    for word in words:
        if removed[word]:
            removed[word] -= 1
        else:
            left.append(word)
    return left


def find_topic_key(name: str) -> ConfigKey | None:
    """The definition of a topic config."""
    return TOPIC.get(name)


def check_topic(config: BrokerConfig, topic: str, proposed: Properties) -> None:
    """Refuse invalid overrides of a topic. Errors: ChangeRefused."""
    try:
        config.check_topic(proposed)
    except (UnknownConfigError, TopicConflict) as error:
        raise ChangeRefused(ErrorCode.INVALID_CONFIG, str(error)) from None
    except ConfigError as error:
        resource = f"ConfigResource(type=TOPIC, name='{topic}')"
        message = f"Invalid config value for resource {resource}: {error.wire_message}"
        raise ChangeRefused(ErrorCode.INVALID_CONFIG, message) from None


def check_broker(config: BrokerConfig, proposed: Properties, *, per_broker: bool) -> None:
    """Refuse invalid dynamic configs of a broker, or of all. Errors: ChangeRefused."""
    try:
        config.check_dynamic(proposed, per_broker=per_broker)
    except ConfigError as error:
        raise ChangeRefused(ErrorCode.INVALID_REQUEST, error.wire_message) from None
    fixed = sorted(NEED_RESTART.intersection(proposed))
    if fixed:
        message = f"kwire reads {', '.join(fixed)} only at start, from its file or command line"
        raise ChangeRefused(ErrorCode.INVALID_REQUEST, message)


def stored_broker(
    config: BrokerConfig, name: str, after: Properties, before: Properties
) -> Properties:
    """The stored form of a broker's dynamic configs, with encoded passwords. Errors: ChangeRefused.

    Unlike in Apache Kafka, a change that is only validated is also refused if there is no secret.
    """
    try:
        return config.to_stored(after, before)
    except ConfigError as error:
        resource = f"ConfigResource(type=BROKER, name='{name}')"
        message = f"Invalid config value for resource {resource}: {error}"
        raise ChangeRefused(ErrorCode.INVALID_CONFIG, message) from None


def own_broker_id(name: str, node_id: int, what: str, expected: str) -> None:
    """Refuse a broker resource that is not this broker. Errors: ChangeRefused."""
    try:
        number = int(name)
    except ValueError:
        message = f"{what} must be an integer, but it is: {name}"
        raise ChangeRefused(ErrorCode.INVALID_REQUEST, message) from None
    if number != node_id:
        message = f"Unexpected broker id, expected {expected} received {name}"
        raise ChangeRefused(ErrorCode.INVALID_REQUEST, message)
