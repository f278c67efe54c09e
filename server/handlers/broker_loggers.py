"""The levels of a broker's loggers as its configs: resources of type BROKER_LOGGER.

Codes and messages are those of Apache Kafka 3.9.2 and 4.3.0, which fail on an unknown operation (UNKNOWN_SERVER_ERROR).
Unlike there, a folder of modules is a logger too. Source: ConfigAdminManager.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode

from ..config.changes import AlterOperation, ChangeRefused, ConfigResourceType, KeyChange
from ..config.definitions import ConfigSource, ConfigType
from ..config.describe import ConfigEntry
from ..integers import parse_integer
from ..loggers import LEVELS, ROOT, BrokerLoggers

if TYPE_CHECKING:
    from ..turns import Steps


def describe_loggers(
    loggers: BrokerLoggers, wanted: Container[str] | None = None
) -> Iterator[ConfigEntry]:
    """The loggers and their levels in effect."""
    for name, level in sorted(loggers.levels().items()):
        if wanted is None or name in wanted:
            yield ConfigEntry(
                name,
                level,
                ConfigSource.DYNAMIC_BROKER_LOGGER,
                ConfigType.UNKNOWN,
                sensitive=False,
                read_only=False,
                synonyms=[],
                doc="",
            )


def own_node_id(name: str, node_id: int) -> None:
    """Refuse the loggers of another broker. Errors: ChangeRefused."""
    number = parse_integer(name, 32)
    if number is None:
        message = f"Node id must be an integer, but it is: {name}"
        raise ChangeRefused(ErrorCode.INVALID_REQUEST, message)
    if number != node_id:
        message = f"Unexpected node id. Expected {node_id}, but received {number}"
        raise ChangeRefused(ErrorCode.INVALID_REQUEST, message)


def check_loggers(loggers: BrokerLoggers, changes: Iterable[KeyChange]) -> Steps[None]:
    """Whether all changes are possible, in steps. Errors: ChangeRefused."""
    known = loggers.levels()
    for name, operation, value in changes:
        yield
        if operation in (AlterOperation.SET, AlterOperation.DELETE):
            if name not in known:
                raise ChangeRefused(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        else:
            word = (
                f"{AlterOperation(operation).name} operation"
                if operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT)
                else f"Unknown operation type {operation}"
            )
            message = (
                f"{word} is not allowed for the {ConfigResourceType.BROKER_LOGGER.name} resource"
            )
            raise ChangeRefused(ErrorCode.INVALID_REQUEST, message)
        if operation == AlterOperation.DELETE and name == ROOT:
            message = f"Removing the log level of the {ROOT} logger is not allowed"
            raise ChangeRefused(ErrorCode.INVALID_REQUEST, message)
        if operation == AlterOperation.SET and value not in LEVELS:
            message = (
                f"Cannot set the log level of {name} to {value} as it is not a supported log level. "
                f"Valid log levels are {', '.join(LEVELS)}"
            )
            raise ChangeRefused(ErrorCode.INVALID_CONFIG, message)


def change_loggers(loggers: BrokerLoggers, changes: Iterable[KeyChange]) -> Steps[None]:
    """Make changes that `check_loggers` has accepted, in steps."""
    for name, operation, value in changes:
        yield
        if operation == AlterOperation.DELETE:
            loggers.remove_level(name)
        else:
            assert value is not None
            loggers.set_level(name, value)
