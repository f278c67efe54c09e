"""Whom a quota is for, and which of several quotas a client has; pure.

Source: ClientQuotaManager.DefaultQuotaCallback (3.9); KIP-55, KIP-546.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple


class _Default(Enum):
    DEFAULT = "<default>"

    def __repr__(self) -> str:
        return self.value


#: In place of a name: all users, clients or addresses without a quota of their own.
DEFAULT: Final = _Default.DEFAULT

#: A name, the default, or None for an entity that has no such part.
Part = str | _Default | None


class Entity(NamedTuple):
    """Users, clients, or clients of users."""

    user: Part
    client_id: Part


PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

#: What the quotas of users and clients are called; the numbers of the first two are whole.
CLIENT_QUOTAS = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
)
#: What the quotas of addresses are called; whole numbers.
IP_QUOTAS = (CONNECTION_CREATION_RATE,)


class Match(NamedTuple):
    """A client's quota, and the user and client id whose requests count together ("" for any)."""

    user: str
    client_id: str
    bound: float


def match(limits: Mapping[Entity, float], user: str, client_id: str) -> Match | None:
    """The most specific quota of a client; None if it has none.

    Shape: a quota of a user counts all clients of the user together, one of a client id all users of it, and a
    default counts each user or client id by itself. An empty client id has only the quotas of its user.
    """
    for entity in (
        Entity(user, client_id),
        Entity(user, DEFAULT),
        Entity(user, None),
        Entity(DEFAULT, client_id),
        Entity(DEFAULT, DEFAULT),
        Entity(DEFAULT, None),
        Entity(None, client_id),
        Entity(None, DEFAULT),
    ):
        if entity.client_id is not None and not client_id:
            continue
        bound = limits.get(entity)
        if bound is not None:
            return Match(
                "" if entity.user is None else user,
                "" if entity.client_id is None else client_id,
                bound,
            )
    return None
