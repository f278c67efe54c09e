"""The broker's loggers and their levels, which clients can read and change while it runs.

A change lasts until the broker ends. A logger is known by the name that its lines in the log have: the module's, without
the package, or that of a folder of modules (`log`, `handlers`), whose level applies to its modules unless they have one.
Source: Log4jController, LogLevelConfig, ConfigAdminManager (Apache Kafka); KIP-412.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

ROOT = "root"
#: Apache Kafka's names of the levels. Python has no TRACE, and nothing in kwire logs at that level.
LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": 5,
    "WARN": logging.WARNING,
}
#: Loggers that have Apache Kafka's names.
AUTHORIZER, REQUESTS = "kafka.authorizer.logger", "kafka.request.logger"
#: Libraries that log.
LIBRARIES = ("asyncio", "kazoo", "py.warnings")
PACKAGES = ("kwire.server.", "server.")
#: The prefix of the loggers of this package: tests may have imported it under both of its names.
OWN = __name__.removesuffix("loggers")


class NoSuchLogger(LookupError):
    """No logger has this name."""


def name_of(logger_name: str) -> str:
    """A logger's name without the package (`server` in a checkout, `kwire.server` installed)."""
    for prefix in PACKAGES:
        if logger_name.startswith(prefix):
            return logger_name[len(prefix) :]
    return logger_name


def request_log_is_on() -> bool:
    """Whether each request is logged."""
    return logging.getLogger(REQUESTS).isEnabledFor(logging.DEBUG)


class BrokerLoggers:
    """The loggers of this process. Shape: `changed` is called after a change."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self.changed = changed

    def levels(self) -> Mapping[str, str]:
        """The level in effect of each logger, by its name."""
        return {name: _word(each.getEffectiveLevel()) for name, each in _loggers().items()}

    def exists(self, name: str) -> bool:
        """Whether there is a logger with this name."""
        return name in _loggers()

    def set_level(self, name: str, level: str) -> None:
        """Set the level of a logger to one of LEVELS. Errors: NoSuchLogger."""
        self._set(name, LEVELS[level])

    def remove_level(self, name: str) -> None:
        """Let a logger have the level of the one above it again. Errors: NoSuchLogger."""
        self._set(name, logging.NOTSET)

    def _set(self, name: str, level: int) -> None:
        found = _loggers().get(name)
        if found is None:
            raise NoSuchLogger(name)
        found.setLevel(level)
        self.changed()


def _loggers() -> dict[str, logging.Logger]:
    """The loggers by their names: those of modules that have been loaded, of their folders, and of libraries."""
    found = {ROOT: logging.getLogger()}
    for name in (AUTHORIZER, REQUESTS):
        found[name] = logging.getLogger(name)
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(OWN) or name in LIBRARIES:
            found[name_of(name)] = logging.getLogger(name)
    return found


def _word(level: int) -> str:
    """Apache Kafka's name of a level; of another number, that of the next higher one."""
    ordered = sorted(LEVELS.items(), key=lambda item: item[1])
    return next((word for word, number in ordered if level <= number), "FATAL")
