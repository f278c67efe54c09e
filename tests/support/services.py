"""The services of a broker for tests of handlers, which need only a few of them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, NoReturn

from server.handlers.authorization import AllowAll
from server.handlers.context import Services
from server.loggers import BrokerLoggers
from server.metadata.departed import DepartedBrokers
from server.quotas.clients import ClientQuotas
from server.turns import Turns


class Missing:
    """A service that the test did not provide; using it raises an error with its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> NoReturn:
        raise AttributeError(f"this test gives no {self._name} (asked for .{attribute})")

    def __call__(self, *args: Any) -> NoReturn:
        raise AttributeError(f"this test gives no {self._name}")


def services_of(**rooms: Any) -> Services:
    """Build `Services` from those that a test provides; the others fail when they are used.

    Everything is allowed, and there are no ACLs, if the test provides no authorizer. There are no quotas.
    """
    missing = {each.name: Missing(each.name) for each in fields(Services)}
    plain = {
        "authorizer": AllowAll(),
        "acls": None,
        "denials": None,
        "departed": DepartedBrokers(0, lambda: 0),
        "telemetry": None,
        "group_support": None,
        "loggers": BrokerLoggers(),
        "quotas": ClientQuotas(),
        "turns": Turns(lambda: 0),
    }
    return Services(**{**missing, **plain, **rooms})


def with_rooms(services: Services, **rooms: Any) -> Services:
    """The same services, with some of them replaced by stand-ins of any type."""
    return replace(services, **rooms)
