"""Access control lists: which operations principals may or may not perform, on which resources.

The numbers of the enumerations are the codes on the wire. A binding (a pattern of resources and one entry) is what
CreateAcls adds; DescribeAcls and DeleteAcls match bindings with a filter.
Source: org.apache.kafka.common.acl and org.apache.kafka.common.resource; KIP-11, KIP-290.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class AclOperation(IntEnum):
    """An operation on a resource; ANY is for filters only, and ALL in an entry matches every other."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class ResourceType(IntEnum):
    """The type of a resource; ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of a pattern is compared; ANY and MATCH are for filters only."""

    UNKNOWN = 0
    ANY = 1
    #: Every pattern that applies to the resource with the filter's name.
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Whether an entry allows or denies; ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


#: As the name of a literal pattern: every resource of the type.
WILDCARD_RESOURCE = "*"
#: As the principal of an entry: every principal.
WILDCARD_PRINCIPAL = "User:*"
#: As the host of an entry: every host.
WILDCARD_HOST = "*"
#: The only resource of type CLUSTER.
CLUSTER_NAME = "kafka-cluster"

#: Operations implied by another one. Source: AclEntry, AclAuthorizer.aclsAllowAccess.
IMPLIED_BY: dict[AclOperation, tuple[AclOperation, ...]] = {
    AclOperation.DESCRIBE: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    ),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}

#: The valid operations on a resource. Source: AclEntry.supportedOperations.
SUPPORTED_OPERATIONS: dict[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
    ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    ResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
#: Since Apache Kafka 4, groups have configs.
SUPPORTED_OPERATIONS_OF_4: dict[ResourceType, tuple[AclOperation, ...]] = {
    **SUPPORTED_OPERATIONS,
    ResourceType.GROUP: (
        *SUPPORTED_OPERATIONS[ResourceType.GROUP],
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
}


class ResourcePattern(NamedTuple):
    """The resources of one type that a name covers: that one, all (`*`), or those whose names begin with it."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


class AclEntry(NamedTuple):
    """A principal, its host, and what it may or may not do. Shape: `principal` is `Type:name`; `host` is an address or
    `*`.
    """

    principal: str
    host: str
    operation: AclOperation
    permission: Permission


class AclBinding(NamedTuple):
    """One entry, and the resources to which it applies."""

    pattern: ResourcePattern
    entry: AclEntry


class AclFilter(NamedTuple):
    """Matches bindings; None and ANY match everything. Source: ResourcePatternFilter, AccessControlEntryFilter."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """Whether the filter's resources include the pattern."""
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        kind = self.pattern_type
        if kind not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if kind is not PatternType.MATCH:
            return self.name == pattern.name
        if pattern.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD_RESOURCE)

    def matches_entry(self, entry: AclEntry) -> bool:
        """Whether the filter includes the entry."""
        return (
            (self.principal is None or self.principal == entry.principal)
            and (self.host is None or self.host == entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    def matches(self, binding: AclBinding) -> bool:
        """Whether the filter includes the binding."""
        return self.matches_pattern(binding.pattern) and self.matches_entry(binding.entry)


class InvalidAcl(ValueError):
    """A binding that cannot be created; the text is for the client."""


def check_new(binding: AclBinding) -> None:
    """Check whether a binding may be created. Errors: InvalidAcl. Source: AclApis, AclAuthorizer.validateAclBinding."""
    pattern, entry = binding
    if pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        raise InvalidAcl(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not pattern.name:
        raise InvalidAcl("Invalid empty resource name")
    if "/" in pattern.name:  # the name is one element of a path in the coordination store
        raise InvalidAcl("ACL binding contains invalid resource name.")
    if (
        pattern.resource_type <= ResourceType.ANY
        or pattern.pattern_type < PatternType.LITERAL
        or entry.operation <= AclOperation.ANY
        or entry.permission <= Permission.ANY
    ):
        raise InvalidAcl("ACL binding contains unknown elements")
    if (
        ":" not in entry.principal
    ):  # it would never apply, and Apache Kafka's brokers could not read it
        raise InvalidAcl(f"expected a principal in the form User:name, but got {entry.principal!r}")
