"""Access control lists of nodes, as in ZooKeeper; pure.

A node has a list of entries. Each grants permissions to an id of a scheme: `world:anyone`, `digest:user:hash`,
`ip:10.0.0.0/8`. None instead of a list means the open list, which nearly every node has. `zookeeper_server/access.py`
implements the schemes.
"""

from __future__ import annotations

import json
from typing import NamedTuple, TypeAlias

from ..json_text import parse_json

READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16
ALL = 31


class AclId(NamedTuple):
    """An id within a scheme. Source: ZooKeeper's Id."""

    scheme: str
    id: str


class ZnodeAclEntry(NamedTuple):
    """The permissions of an id: `perms` is a sum of READ, WRITE, CREATE, DELETE and ADMIN."""

    perms: int
    id: AclId


Acl: TypeAlias = tuple[ZnodeAclEntry, ...]

ANYONE = AclId("world", "anyone")
OPEN: Acl = (ZnodeAclEntry(ALL, ANYONE),)


def encode_acl(acl: Acl | None) -> str | None:
    """The stored form of the list: JSON rows of perms, scheme and id."""
    if acl is None:
        return None
    return json.dumps([[entry.perms, entry.id.scheme, entry.id.id] for entry in acl])


def decode_acl(text: str | None) -> Acl | None:
    """The list from its stored form. Errors: ValueError, TypeError, RecursionError."""
    if text is None:
        return None
    rows = parse_json(text)
    if not isinstance(rows, list):
        raise TypeError("not a list")
    return tuple(ZnodeAclEntry(perms, AclId(scheme, id_)) for perms, scheme, id_ in rows)
