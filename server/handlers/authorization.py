"""Authorization: what handlers declare they need, and whom the broker asks.

A handler declares the check of a whole request in `@handles(..., authorize=...)`, and the
dispatcher makes it before it calls the handler. Single topics, groups or transactional ids of a
request are filtered in the handler, with `ctx.allows`.
Source: KafkaApis and AuthHelper of 3.9.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from kwire.errors import ErrorCode

from ..security.acl import CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from ..net.connection_info import ConnectionInfo

__all__ = [
    "CLUSTER_NAME",
    "DENIED",
    "AclOperation",
    "AllowAll",
    "Authorizer",
    "Check",
    "ResourceType",
    "any_of",
    "any_resource",
    "cluster",
    "depending",
    "each_of",
    "group",
    "transactional_id",
]


#: The error for a client that lacks the permission for its request.
DENIED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


class Authorizer(Protocol):
    """Decides which operations the principal of a connection may perform.

    Shape: `changes` is another number after each change of the ACLs.
    """

    changes: int

    def allows(
        self,
        connection: ConnectionInfo,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """Whether the connection's principal may do this to the resource of that name."""
        ...

    def allows_any(
        self, connection: ConnectionInfo, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether the principal may do this to at least one resource of the type."""
        ...


class AllowAll:
    """For a broker without `authorizer.class.name`: every operation is allowed."""

    changes = 0

    def allows(
        self,
        connection: ConnectionInfo,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        return True

    def allows_any(
        self, connection: ConnectionInfo, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        return True


class Asking(Protocol):
    """The part of a request's context that checks need."""

    version: int

    def allows(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        log_denied: bool = True,
    ) -> bool: ...

    def allows_any(self, operation: AclOperation, resource_type: ResourceType) -> bool: ...


#: Whether a request may be handled: NONE, or the error for the whole response.
Check = Callable[[Any, Any], ErrorCode]


def _named(operation: AclOperation, resource_type: ResourceType, attribute: str) -> Check:
    name = attrgetter(attribute)

    def check(ctx: Asking, request: object) -> ErrorCode:
        if ctx.allows(operation, resource_type, name(request)):
            return ErrorCode.NONE
        return DENIED[resource_type]

    return check


def cluster(*operations: AclOperation, log_denied: bool = True) -> Check:
    """The request needs at least one of these operations on the cluster. Shape: only the last denial is logged."""

    def check(ctx: Asking, request: object) -> ErrorCode:
        for operation in operations:
            logs = log_denied and operation is operations[-1]
            if ctx.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, log_denied=logs):
                return ErrorCode.NONE
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    return check


def group(operation: AclOperation, attribute: str = "group_id") -> Check:
    """The request needs this operation on the group it names."""
    return _named(operation, ResourceType.GROUP, attribute)


def transactional_id(operation: AclOperation, attribute: str = "transactional_id") -> Check:
    """The request needs this operation on the transactional id it names."""
    return _named(operation, ResourceType.TRANSACTIONAL_ID, attribute)


def any_resource(operation: AclOperation, resource_type: ResourceType) -> Check:
    """The request needs this operation on at least one resource of the type."""

    def check(ctx: Asking, request: object) -> ErrorCode:
        if ctx.allows_any(operation, resource_type):
            return ErrorCode.NONE
        return DENIED[resource_type]

    return check


def any_of(first: Check, *others: Check) -> Check:
    """The request needs one of these permissions; the first one determines the error."""

    def check(ctx: Asking, request: object) -> ErrorCode:
        error = first(ctx, request)
        if error and any(not each(ctx, request) for each in others):
            return ErrorCode.NONE
        return error

    return check


def each_of(*checks: Check) -> Check:
    """The request needs all of these; the first that fails gives the error."""

    def check(ctx: Asking, request: object) -> ErrorCode:
        for each in checks:
            error = each(ctx, request)
            if error is not ErrorCode.NONE:
                return error
        return ErrorCode.NONE

    return check


def depending(choose: Callable[[Any, Any], Check]) -> Check:
    """The request needs the check that `choose(ctx, request)` returns."""
    return lambda ctx, request: choose(ctx, request)(ctx, request)
