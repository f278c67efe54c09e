"""Decides on the permissions of a principal, by access control lists.

Source: kafka.security.authorizer.AclAuthorizer of 3.9; StandardAuthorizer of 4.x makes the same decisions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from .acl import (
    IMPLIED_BY,
    WILDCARD_HOST,
    WILDCARD_PRINCIPAL,
    WILDCARD_RESOURCE,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from .identity import names_of_host

if TYPE_CHECKING:
    from ..turns import Steps
    from .identity import Client

#: The number of cached decisions; beyond it the cache is cleared, so that invented names cannot fill the memory.
#: Decisions about longer names, which are rare in a request, are not cached.
MAX_REMEMBERED = 10_000
MAX_NAME = 256

Entries = frozenset[AclEntry]
NO_ENTRIES: Entries = frozenset()


class AclAuthorizer:
    """The ACLs of the cluster, and the decisions based on them.

    Shape: `super_users` are principals with every permission. `set_entries` is called for every change in the
    coordination store.
    """

    def __init__(
        self, super_users: Collection[str] = (), *, allow_if_no_acl_is_found: bool = False
    ) -> None:
        #: The number of changes of the ACLs so far.
        self.changes = 0
        self._super_users = frozenset(super_users)
        self._allow_if_none = allow_if_no_acl_is_found
        self._entries: dict[ResourcePattern, Entries] = {}
        #: For each type, the number of prefixes of each length, and the lengths in order.
        self._prefixes: dict[ResourceType, dict[int, int]] = {}
        self._prefix_lengths: dict[ResourceType, tuple[int, ...]] = {}
        self._decided: dict[tuple[str, str, AclOperation, ResourceType, str], bool] = {}
        self._decided_any: dict[tuple[str, str, AclOperation, ResourceType], bool] = {}

    # -- the ACLs

    def set_entries(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> None:
        """Replace the entries of one pattern; without entries, it is removed."""
        made = frozenset(entries)
        before = self._entries.get(pattern, NO_ENTRIES)
        if made == before:
            return  # a change of this broker's own, of which it is notified
        if made:
            self._entries[pattern] = made
        else:
            del self._entries[pattern]
        if bool(made) != bool(before):
            self._count(pattern, 1 if made else -1)
        self._changed()

    def replace_all(self, entries: Mapping[ResourcePattern, Iterable[AclEntry]]) -> None:
        """Replace all ACLs by these."""
        self._entries = {pattern: made for pattern, e in entries.items() if (made := frozenset(e))}
        self._prefixes, self._prefix_lengths = {}, {}
        for pattern in self._entries:
            self._count(pattern, 1)
        self._changed()

    def _count(self, pattern: ResourcePattern, change: int) -> None:
        """Keep the lengths of prefixes; a change of one pattern costs no more if there are many."""
        if pattern.pattern_type is not PatternType.PREFIXED:
            return
        kind, length = pattern.resource_type, len(pattern.name)
        numbers = self._prefixes.setdefault(kind, {})
        left = numbers.get(length, 0) + change
        if left:
            numbers[length] = left
        else:
            del numbers[length]
        if not left or length not in self._prefix_lengths.get(kind, ()):
            self._prefix_lengths[kind] = tuple(sorted(numbers))

    def _changed(self) -> None:
        self._decided.clear()
        self._decided_any.clear()
        self.changes += 1

    @property
    def allows_super_users_only(self) -> bool:
        """Whether only super users have permissions, because there are no ACLs."""
        return not self._entries and not self._allow_if_none

    def patterns(self) -> list[ResourcePattern]:
        """The patterns that have entries."""
        return list(self._entries)

    def matching(self, acl_filter: AclFilter) -> Steps[list[AclBinding]]:
        """The bindings that a filter includes, in steps, as of the first step."""
        found: list[AclBinding] = []
        for pattern, entries in list(self._entries.items()):
            yield
            if acl_filter.matches_pattern(pattern):
                found += [
                    AclBinding(pattern, entry)
                    for entry in entries
                    if acl_filter.matches_entry(entry)
                ]
        return found

    # -- decisions

    def allows(
        self, client: Client, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether the client's principal may perform the operation on the resource with this name."""
        key = (client.principal, client.client_host, operation, resource_type, name)
        decided = self._decided.get(key)
        if decided is None:
            decided = self._decide(*key)
            if len(name) <= MAX_NAME:
                if len(self._decided) >= MAX_REMEMBERED:
                    self._decided.clear()
                self._decided[key] = decided
        return decided

    def _decide(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        if principal in self._super_users:
            return True
        hosts = (*names_of_host(host), WILDCARD_HOST)
        found = False
        allowed = False
        for entries in self._applying(resource_type, name):
            for entry in entries:
                found = True
                if entry.principal not in (principal, WILDCARD_PRINCIPAL):
                    continue
                if entry.host not in hosts:
                    continue
                fits = entry.operation in (operation, AclOperation.ALL)
                if entry.permission is Permission.DENY:
                    if fits:
                        return False
                elif fits or entry.operation in IMPLIED_BY.get(operation, ()):
                    allowed = True
        return allowed if found else self._allow_if_none

    def _applying(self, resource_type: ResourceType, name: str) -> Iterator[Entries]:
        """The entries of each pattern that applies to a resource."""
        known = self._entries
        for literal in (name, WILDCARD_RESOURCE) if name != WILDCARD_RESOURCE else (name,):
            if entries := known.get(ResourcePattern(resource_type, literal)):
                yield entries
        for length in self._prefix_lengths.get(resource_type, ()):
            if length > len(name):
                break
            prefix = ResourcePattern(resource_type, name[:length], PatternType.PREFIXED)
            if entries := known.get(prefix):
                yield entries

    def allows_any(
        self, client: Client, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether the client's principal may perform the operation on at least one resource of the type.

        Shape: cached, because this examines all ACLs of the type.
        Source: AclAuthorizer.authorizeByResourceType.
        """
        key = (client.principal, client.client_host, operation, resource_type)
        decided = self._decided_any.get(key)
        if decided is None:
            if len(self._decided_any) >= MAX_REMEMBERED:
                self._decided_any.clear()
            decided = self._decided_any[key] = self._decide_any(*key)
        return decided

    def _decide_any(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        if principal in self._super_users:
            return True
        hosts = (*names_of_host(host), WILDCARD_HOST)
        named: dict[tuple[Permission, PatternType], set[str]] = {}
        for pattern, entries in self._entries.items():
            if pattern.resource_type is not resource_type:
                continue
            for entry in entries:
                if (
                    entry.principal in (principal, WILDCARD_PRINCIPAL)
                    and entry.host in hosts
                    and entry.operation in (operation, AclOperation.ALL)
                ):
                    kind = (entry.permission, pattern.pattern_type)
                    named.setdefault(kind, set()).add(pattern.name)
        denied = named.get((Permission.DENY, PatternType.LITERAL), set())
        if WILDCARD_RESOURCE in denied:
            return False
        if self._allow_if_none:
            return True
        denied_prefixes = tuple(named.get((Permission.DENY, PatternType.PREFIXED), ()))
        if any(
            not prefix.startswith(denied_prefixes)
            for prefix in named.get((Permission.ALLOW, PatternType.PREFIXED), ())
        ):
            return True
        return any(
            name == WILDCARD_RESOURCE
            or (name not in denied and not name.startswith(denied_prefixes))
            for name in named.get((Permission.ALLOW, PatternType.LITERAL), ())
        )
