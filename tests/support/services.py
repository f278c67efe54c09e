"""The broker's rooms for tests of handlers, which need only a few of them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, NoReturn

from server.handlers.authorization import AllowAll
from server.handlers.context import Services


class Missing:
    """A room that a test did not give; whoever uses it fails by its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> NoReturn:
        raise AttributeError(f"this test gives no {self._name} (asked for .{attribute})")

    def __call__(self, *args: Any) -> NoReturn:
        raise AttributeError(f"this test gives no {self._name}")


def services_of(**rooms: Any) -> Services:
    """Build `Services` of the rooms that a test gives; the others fail when they are used.

    Everything is allowed where a test gives no authorizer.
    """
    missing = {each.name: Missing(each.name) for each in fields(Services)}
    return Services(**{**missing, "authorizer": AllowAll(), **rooms})


def with_rooms(services: Services, **rooms: Any) -> Services:
    """The same services with some rooms replaced, by stand-ins of any type."""
    return replace(services, **rooms)
