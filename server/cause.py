"""Whose work it is: the client whose request set it off, or the broker itself.

The owner of work is a connection (anything with a `client_host`), also of what its request sets off: a group's
assignment, the states of a share group, markers of a transaction. While such work runs, `cause()` is its owner. Tasks and
callbacks inherit it, as context variables are; `server.turns` and the coordinators' runtime carry it further, to work in
turns, writes, timers and effects. What the broker has to do in any case has an `Own` owner.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Own(NamedTuple):
    """The owner of work that the broker itself must do, whoever caused it.

    Shape: `name` says which part of the broker; `client` is the address of the client that it concerns, if any, and
    `connection` the id of its connection, so that the timers of one client's groups do not delay those of others.
    """

    name: str
    client: str | None = None
    connection: str | None = None


class Address(NamedTuple):
    """The owner of work for a client, whichever of its connections it came from, or after that has ended."""

    client_host: str


#: Set by `RequestDispatcher` and by `Turns`; see `cause`.
CAUSE: ContextVar[object] = ContextVar("cause", default=None)


def cause() -> object:
    """The owner of what runs at the moment: the connection whose request set it off; None for the broker itself."""
    return CAUSE.get()


@contextmanager
def caused_by(owner: object) -> Iterator[None]:
    """Let what begins within belong to this owner: `cause()` of an earlier time, or None for the broker itself."""
    before = CAUSE.set(owner)
    try:
        yield
    finally:
        CAUSE.reset(before)


def account_of(owner: object) -> object:
    """The client for which bounded resources are counted (server/shares.py); None for the broker itself."""
    account = getattr(owner, "account", None)
    return client_of(owner) if account is None else account


def client_of(owner: object) -> object:
    """The client that an owner counts as: the address of a connection, None for the broker itself.

    Shape: owners of other kinds, such as the console, are each a client of their own.
    """
    if owner is None or type(owner) is Own:
        return None
    return getattr(owner, "client_host", owner)
