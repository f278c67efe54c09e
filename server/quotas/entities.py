"""The entities that quotas apply to, and the choice between several quotas of a client; pure.

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


#: Instead of a name: all users, clients or addresses without their own quota.
DEFAULT: Final = _Default.DEFAULT

#: A name, the default, or None for an entity without this part.
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

#: The names of the quotas of users and clients; the values of the first two are whole numbers.
CLIENT_QUOTAS = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
)
#: The names of the quotas of addresses; whole numbers.
IP_QUOTAS = (CONNECTION_CREATION_RATE,)


class Match(NamedTuple):
    """A client's quota, and the user and client id whose requests count together ("" for any)."""

    user: str
    client_id: str
    bound: float


def match(limits: Mapping[Entity, float], user: str, client_id: str) -> Match | None:
    """The most specific quota of a client; None if it has none.

    Shape: a quota of a user counts all clients of the user together, a quota of a client id counts all its users
    together, and a default quota counts each user or client id separately. An empty client id has only the quotas of
    its user.
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
