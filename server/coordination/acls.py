"""The access control lists in the coordination store, in Apache Kafka's nodes, shared with Apache Kafka's brokers.

Each resource pattern has one node with its entries. A broker that changes a node also writes a notification, and every
broker then reads the node again.
Source: ZkAclStore, ZkAclChangeStore (ZkData.scala), AclAuthorizer of 3.9.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Any

from ..cause import Own
from ..security.acl import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from . import paths
from .change_queue import ChangeFollower
from .commit import commit
from .store import (
    BadVersion,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Op,
    SetData,
    Store,
)

if TYPE_CHECKING:
    from ..clock import Clock
    from ..security.acl_authorizer import AclAuthorizer
    from ..turns import Steps, Turns


logger = logging.getLogger(__name__)

#: The parents of the nodes of each kind of pattern. Source: ZkAclStore, where `prefixed` is also lower-case.
ROOTS = {
    PatternType.LITERAL: "/kafka-acl",
    PatternType.PREFIXED: "/kafka-acl-extended/prefixed",
}
#: The parents of the notifications of each kind.
CHANGES = {
    PatternType.LITERAL: "/kafka-acl-changes",
    PatternType.PREFIXED: "/kafka-acl-extended-changes",
}
CHANGE_PREFIX = "acl_changes_"
#: The owner of the work that changes set off on every broker.
CHANGES_OF_ACLS = Own("changes of ACLs")


def pascal(member: AclOperation | ResourceType | Permission) -> str:
    """The name as Apache Kafka writes it in nodes: `TransactionalId` for TRANSACTIONAL_ID."""
    return member.name.title().replace("_", "")


OPERATIONS = {pascal(each).lower(): each for each in AclOperation if each > AclOperation.ANY}
PERMISSIONS = {pascal(each).lower(): each for each in Permission if each > Permission.ANY}
RESOURCE_TYPES = {pascal(each): each for each in ResourceType if each > ResourceType.ANY}


def pattern_path(pattern: ResourcePattern) -> str:
    """The node with a pattern's entries."""
    return f"{ROOTS[pattern.pattern_type]}/{pascal(pattern.resource_type)}/{pattern.name}"


def encode_entries(entries: Iterable[AclEntry]) -> bytes:
    """Version 1. Source: AclEntry.toJsonCompatibleMap."""
    rows = [
        {
            "principal": entry.principal,
            "permissionType": pascal(entry.permission),
            "operation": pascal(entry.operation),
            "host": entry.host,
        }
        for entry in sorted(entries)
    ]
    return paths.dump({"version": 1, "acls": rows})


def decode_entries(data: bytes | None, path: str) -> frozenset[AclEntry]:
    """The entries of a pattern; none for a node without data. Errors: MalformedNode."""
    if not data:
        return frozenset()
    try:
        return frozenset(
            AclEntry(
                str(row["principal"]),
                str(row["host"]),
                OPERATIONS[row["operation"].replace("_", "").lower()],
                PERMISSIONS[row["permissionType"].lower()],
            )
            for row in paths.load(data, path)["acls"]
        )
    except paths.OTHER_FORM as error:
        raise paths.MalformedNode(path, f"not a list of ACLs ({paths.why(error)})") from error


def encode_change(pattern: ResourcePattern) -> bytes:
    """A notification: plain text for a literal pattern, JSON of version 1 for others."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()
    return paths.dump(
        {
            "version": 1,
            "resourceType": pattern.resource_type.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
    )


def decode_change(data: bytes | None, path: str) -> ResourcePattern:
    """The pattern that a notification names. Errors: MalformedNode."""
    try:
        if path.startswith(CHANGES[PatternType.LITERAL] + "/"):
            kind, _, name = (data or b"").decode().partition(":")
            return ResourcePattern(ResourceType[kind.upper()], name)
        row: dict[str, Any] = paths.load(data, path)
        return ResourcePattern(
            ResourceType[row["resourceType"].upper()],
            str(row["name"]),
            PatternType[row["patternType"].upper()],
        )
    except paths.OTHER_FORM as error:
        raise paths.MalformedNode(path, f"not a change of ACLs ({paths.why(error)})") from error


async def _with(new: Set[AclEntry], entries: frozenset[AclEntry]) -> Iterable[AclEntry]:
    return entries | new


class AclStore(ChangeFollower):
    """Keeps an authorizer's ACLs equal to those in the store, and changes them there.

    A broker does not start if a node cannot be read: guessing its content could grant access.
    """

    what = "ACLs"

    def __init__(self, store: Store, authorizer: AclAuthorizer, clock: Clock, turns: Turns) -> None:
        super().__init__(store, clock, CHANGES.values())
        self._authorizer = authorizer
        self._turns = turns

    # -- reading

    def parents(self) -> list[str]:
        """See ChangeFollower."""
        return [f"{root}/{name}" for root in ROOTS.values() for name in RESOURCE_TYPES]

    async def read_all(self) -> None:
        """See ChangeFollower."""
        found: dict[ResourcePattern, frozenset[AclEntry]] = {}
        for kind, root in ROOTS.items():
            for name, resource_type in RESOURCE_TYPES.items():
                patterns = [
                    ResourcePattern(resource_type, child, kind)
                    for child in await self.store.children(f"{root}/{name}")
                ]
                found.update(await self._read(patterns))
        self._authorizer.replace_all(found)
        if self._authorizer.allows_super_users_only:
            logger.warning(
                "There are no ACLs: clients, and the other brokers of a cluster, may do nothing unless super.users"
                " names them. If it names nobody who can connect, start once with"
                " allow.everyone.if.no.acl.found=true to add the first ACLs"
            )

    async def read_changed(self, notifications: Sequence[tuple[str, bytes | None]]) -> None:
        """See ChangeFollower."""
        patterns = dict.fromkeys(decode_change(data, path) for path, data in notifications)
        for pattern, entries in (await self._read(list(patterns))).items():
            await self._turns.pause(CHANGES_OF_ACLS)
            self._authorizer.set_entries(pattern, entries)

    async def _read(
        self, patterns: Sequence[ResourcePattern]
    ) -> dict[ResourcePattern, frozenset[AclEntry]]:
        where = [pattern_path(pattern) for pattern in patterns]
        nodes = await self.store.get_many(where)
        return {
            pattern: frozenset() if node is None else decode_entries(node[0], path)
            for pattern, path, node in zip(patterns, where, nodes, strict=True)
        }

    # -- changing

    def matching(self, acl_filter: AclFilter) -> Steps[list[AclBinding]]:
        """The ACLs that a filter matches, as this broker knows them, in steps."""
        return self._authorizer.matching(acl_filter)

    async def create(self, bindings: Iterable[AclBinding]) -> None:
        """Add bindings that have been checked; existing ones stay unchanged."""
        added: dict[ResourcePattern, set[AclEntry]] = {}
        for pattern, entry in bindings:
            await self._turns.pause()
            added.setdefault(pattern, set()).add(entry)
        async with self.lock:
            for pattern, new in added.items():
                await self._update(pattern, partial(_with, new))

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[AclBinding]]:
        """Delete the bindings that match; returns, for each filter, the bindings that it matched first."""
        deleted: list[list[AclBinding]] = [[] for _ in filters]
        async with self.lock:
            for pattern in self._authorizer.patterns():
                applying = []
                for number, each in enumerate(filters):
                    await self._turns.pause()
                    if each.matches_pattern(pattern):
                        applying.append(number)
                if applying:
                    for entry, number in (await self._delete(pattern, filters, applying)).items():
                        deleted[number].append(AclBinding(pattern, entry))
        return deleted

    async def _delete(
        self, pattern: ResourcePattern, filters: Sequence[AclFilter], applying: Sequence[int]
    ) -> dict[AclEntry, int]:
        """Delete the entries of a pattern that `applying` filters match; returns the first matching filter of each."""
        gone: dict[AclEntry, int] = {}

        async def remaining(entries: frozenset[AclEntry]) -> Iterable[AclEntry]:
            gone.clear()
            for entry in entries:
                for number in applying:
                    await self._turns.pause()
                    if filters[number].matches_entry(entry):
                        gone[entry] = number
                        break
            return entries - gone.keys()

        await self._update(pattern, remaining)
        return gone

    async def _update(
        self,
        pattern: ResourcePattern,
        change: Callable[[frozenset[AclEntry]], Awaitable[Iterable[AclEntry]]],
    ) -> None:
        """Replace a pattern's entries and notify every broker; `change` runs again if another writer was faster."""
        path = pattern_path(pattern)
        notification = f"{CHANGES[pattern.pattern_type]}/{CHANGE_PREFIX}"
        notify = Create(notification, encode_change(pattern), sequential=True)
        while True:
            node = (await self.store.get_many([path]))[0]
            before = frozenset() if node is None else decode_entries(node[0], path)
            after = frozenset(await change(before))
            if after == before:
                self._authorizer.set_entries(pattern, after)
                return
            op: Op
            if node is None:
                op = Create(path, encode_entries(after))
            elif after:
                op = SetData(path, encode_entries(after), node[1].version)
            else:
                op = Delete(path, node[1].version)
            try:
                await commit(self.store, [op, notify])
            except (BadVersion, NodeExists, NoNode) as error:
                if error.path != path:
                    raise
                continue
            self._authorizer.set_entries(pattern, after)
            return
