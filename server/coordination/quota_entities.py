"""The nodes with an entity's quotas, below /config/users, /config/clients and /config/ips; pure.

Shape: names of users and clients are sanitized, `<default>` stands for all others. Addresses are unchanged.
Source: ZkAdminManager.parseAndSanitizeQuotaEntity, ConfigHandler (3.9).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from math import isnan, nan

from ..quotas.entities import DEFAULT, Entity, Part
from . import paths

logger = logging.getLogger(__name__)

USERS, CLIENTS, IPS = "users", "clients", "ips"
DEFAULT_NAME = DEFAULT.value


def node_of(entity: Entity) -> tuple[str, str]:
    """The entity type and name of the config node with an entity's quotas. Errors: ValueError without a part."""
    if entity.user is not None:
        name = sanitized(entity.user)
        if entity.client_id is not None:
            name += f"/{CLIENTS}/{sanitized(entity.client_id)}"
        return USERS, name
    if entity.client_id is None:
        raise ValueError("neither a user nor a client")
    return CLIENTS, sanitized(entity.client_id)


def entity_of(entity_type: str, name: str) -> Entity | None:
    """The entity whose quotas a config node of users or clients holds; None for the path of no entity."""
    if entity_type == CLIENTS:
        return None if "/" in name else Entity(None, desanitized(name))
    user, *rest = name.split("/")
    if not rest:
        return Entity(desanitized(user), None)
    if len(rest) != 2 or rest[0] != CLIENTS:
        return None
    return Entity(desanitized(user), desanitized(rest[1]))


def sanitized(part: Part) -> str:
    """A name in the form of paths."""
    return DEFAULT_NAME if part is None or part is DEFAULT else paths.sanitize(str(part))


def desanitized(name: str) -> Part:
    """The reverse."""
    return DEFAULT if name == DEFAULT_NAME else paths.desanitize(name)


def address_name(name: str) -> Part:
    """The address or host of an `ips` node."""
    return desanitized(name)


def address_of(name: str) -> Part:
    """The address in the form that connections use; None for a host name."""
    if name == DEFAULT_NAME:
        return DEFAULT
    from ipaddress import ip_address

    try:
        return str(ip_address(paths.desanitize(name)))
    except ValueError:
        return None


def quota_values(
    node: tuple[str, str], config: Mapping[str, str], keys: Iterable[str]
) -> dict[str, float]:
    """The quotas among the configs of an entity, whose node may also hold other values."""
    values = {}
    for key in keys:
        text = config.get(key)
        if text is not None:
            try:
                value = float(text)
            except ValueError:
                value = nan
            if isnan(value):
                where = paths.config_path(*node)
                logger.error("%s: %s is %r, which is not a number and is ignored", where, key, text)
            else:
                values[key] = value
    return values
