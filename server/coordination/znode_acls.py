"""The access to znodes if `zookeeper.set.acl` is on.

A broker owns the nodes that it creates. Everyone may read them, except nodes with secrets, which include password
hashes.
Source: ZkData.defaultAcls and sensitivePath of 3.9; the lists are those that Apache Kafka 3.9.2 writes.
"""

from __future__ import annotations

from enum import Enum


class Access(Enum):
    """The kinds of access to a znode."""

    OPEN = "everyone may do everything"
    READ = "its creator may do everything, everyone may read it"
    OWNER = "its creator may do everything, nobody else anything"


#: For consumers from before 0.9, which created their own nodes there.
OPEN_PATHS = frozenset({"/consumers"})
SENSITIVE_PATHS = ("/config/users", "/config/brokers", "/delegation_token/tokens")


def access_of(path: str) -> Access:
    """The kind of access to a node. Shape: `path` is without the chroot."""
    if path in OPEN_PATHS:
        return Access.OPEN
    return Access.OWNER if path.startswith(SENSITIVE_PATHS) else Access.READ
