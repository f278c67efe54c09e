"""Who may read and change a znode, if `zookeeper.set.acl` is on.

A broker owns what it creates. Everyone may read it, except nodes with secrets, which hashes of passwords are, too.
Source: ZkData.defaultAcls and sensitivePath of 3.9; the lists are those that Apache Kafka 3.9.2 writes.
"""

from __future__ import annotations

from enum import Enum


class Access(Enum):
    """Who may do what with a znode."""

    OPEN = "everyone may do everything"
    READ = "its creator may do everything, everyone may read it"
    OWNER = "its creator may do everything, nobody else anything"


#: Kept for consumers of before 0.9, which created their own nodes there.
OPEN_PATHS = frozenset({"/consumers"})
SENSITIVE_PATHS = ("/config/users", "/config/brokers", "/delegation_token/tokens")


def access_of(path: str) -> Access:
    """Who may do what with a node. Shape: `path` is without the chroot."""
    if path in OPEN_PATHS:
        return Access.OPEN
    return Access.OWNER if path.startswith(SENSITIVE_PATHS) else Access.READ
