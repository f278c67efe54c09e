"""ACLs for alice as rows of requests: an ACL that allows everything, and denials."""

from __future__ import annotations

from server.handlers.authorization import ResourceType

RESOURCES = tuple(kind for kind in ResourceType if kind > ResourceType.ANY)
#: The number of ACLs that stay.
ALLOWING = len(RESOURCES)
ALLOW, DENY, ALL_OPERATIONS = 3, 2, 2
ALICES_ACLS = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": "User:alice",
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def acl(kind: ResourceType, operation: int, permission: int) -> dict[str, object]:
    return {
        "resource_type": int(kind),
        "resource_name": "kafka-cluster" if kind is ResourceType.CLUSTER else "*",
        "principal": "User:alice",
        "host": "*",
        "operation": operation,
        "permission_type": permission,
    }


def matching(row: dict[str, object]) -> dict[str, object]:
    renamed = {
        "resource_type": "resource_type_filter",
        "resource_name": "resource_name_filter",
        "principal": "principal_filter",
        "host": "host_filter",
    }
    return {renamed.get(name, name): value for name, value in row.items()}
