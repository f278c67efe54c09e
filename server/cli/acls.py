"""`kwire acls`: list, add and remove access control lists. The options are those of kafka-acls.sh.

Source: kafka.admin.AclCommand (3.9), for the operations granted by --producer and --consumer.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any, TypeVar

from kwire.messages.create_acls import AclCreation, CreateAclsRequest
from kwire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kwire.messages.describe_acls import DescribeAclsRequest

from ..client.brokers import Brokers
from ..client.properties import UsageError
from ..security.acl import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS_OF_4,
    WILDCARD_HOST,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from ..security.identity import NotAPrincipal, parse_principal
from .brokers import check, with_brokers
from .client import CommandError, add_bootstrap
from .output import add_output, show_rows

#: The options that name resources.
RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user_principal": ResourceType.USER,
}
OPERATIONS = [each for each in AclOperation if each > AclOperation.ANY]


def add_arguments(parser: ArgumentParser) -> None:
    """The verbs of `kwire acls` and their options."""
    add_bootstrap(parser)
    add_output(parser)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verb = verbs.add_parser("list", help="list all ACLs, or those of some resources")
    _add_resources(
        verb,
        "any (default), match (all ACLs that apply to the resource), literal or prefixed",
        "any",
    )
    _add_principal(
        verb, "--principal", "only ACLs of this principal, such as User:alice; repeatable"
    )
    verb = verbs.add_parser("add", help="add ACLs")
    _add_resources(verb, "literal (default) or prefixed", "literal")
    _add_entries(verb, "(default: all operations)")
    verb = verbs.add_parser("remove", help="remove the ACLs that match; give at least one resource")
    _add_resources(verb, "literal (default), prefixed, match or any", "literal")
    _add_entries(verb, "(default: any operation)")
    verb.add_argument("--force", action="store_true", help="remove without asking")


def _add_resources(parser: ArgumentParser, types: str, default: str) -> None:
    for name, kind in RESOURCES.items():
        what = kind.name.lower().replace("_", " ")
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            metavar="NAME",
            action="append",
            default=[],
            help=f"a {what}; '*' means all of them; repeatable",
        )
    parser.add_argument("--cluster", action="store_true", help="the cluster itself")
    parser.add_argument(
        "--resource-pattern-type",
        choices=("any", "match", "literal", "prefixed"),
        default=default,
        metavar="TYPE",
        help=types,
    )


def _add_principal(parser: ArgumentParser, option: str, said: str) -> None:
    parser.add_argument(option, metavar="TYPE:NAME", action="append", default=[], help=said)


def _add_entries(parser: ArgumentParser, operations: str) -> None:
    for word in ("allow", "deny"):
        _add_principal(
            parser, f"--{word}-principal", f"a user to {word}, such as User:alice; repeatable"
        )
        parser.add_argument(
            f"--{word}-host",
            metavar="ADDRESS",
            action="append",
            default=[],
            help=f"an address from which to {word} (default: all); repeatable",
        )
    parser.add_argument(
        "--operation",
        metavar="NAME",
        action="append",
        default=[],
        help=f"Read, Write, Describe, ... {operations}; repeatable",
    )
    parser.add_argument(
        "--producer",
        action="store_true",
        help="the operations that a producer needs on --topic, --transactional-id",
    )
    parser.add_argument(
        "--consumer",
        action="store_true",
        help="the operations that a consumer needs on --topic and --group",
    )
    parser.add_argument(
        "--idempotent",
        action="store_true",
        help="with --producer: also allow idempotence for clients older than Kafka 2.8",
    )


def run(options: Namespace) -> int:
    """Run the verb."""
    verb = {"list": list_acls, "add": add_acls, "remove": remove_acls}[options.verb]
    return with_brokers(verb, options)


# The meaning of the options


def word_of(member: IntEnum) -> str:
    """A name in the form of Apache Kafka's tools: ClusterAction, TransactionalId, Literal."""
    return member.name.title().replace("_", "")


MemberT = TypeVar("MemberT", bound=IntEnum)


def member_of(members: Iterable[MemberT], text: str, option: str) -> MemberT:
    """The member with this name. Errors: UsageError, which lists the valid names."""
    known = {word_of(member).lower(): member for member in members}
    member = known.get(text.replace("_", "").lower())
    if member is None:
        words = ", ".join(word_of(each) for each in known.values())
        raise UsageError(f"{option} {text} is not one of {words}")
    return member


def patterns(options: Namespace) -> list[tuple[ResourceType, str]]:
    """The resources that the options name."""
    named = [
        (kind, name) for option, kind in RESOURCES.items() for name in getattr(options, option)
    ]
    if options.cluster:
        named.append((ResourceType.CLUSTER, CLUSTER_NAME))
    return named


def grants(options: Namespace) -> dict[tuple[ResourceType, str], list[AclOperation]]:
    """The operations on each resource. Errors: UsageError for invalid combinations."""
    named = patterns(options)
    if options.producer or options.consumer:
        return role(options, named)
    if options.idempotent:
        raise UsageError("--idempotent needs --producer")
    if not named:
        raise UsageError(
            "no resource is named: --topic, --group, --transactional-id, --cluster,"
            " --delegation-token or --user-principal"
        )
    operations = [member_of(OPERATIONS, text, "--operation") for text in options.operation]
    for kind, _ in named:
        for operation in operations:
            supported = SUPPORTED_OPERATIONS_OF_4[kind]
            if operation is not AclOperation.ALL and operation not in supported:
                words = ", ".join(word_of(each) for each in (AclOperation.ALL, *supported))
                raise UsageError(
                    f"--operation {word_of(operation)}: a {word_of(kind)} has only {words}"
                )
    return dict.fromkeys(named, operations)


def role(
    options: Namespace, named: list[tuple[ResourceType, str]]
) -> dict[tuple[ResourceType, str], list[AclOperation]]:
    """The operations granted by --producer and --consumer. Errors: UsageError."""
    if options.operation:
        raise UsageError("--operation: --producer and --consumer already choose the operations")
    if not options.topic:
        raise UsageError("--producer and --consumer need --topic")
    if options.consumer and not options.group:
        raise UsageError("--consumer needs --group; '*' means every group")
    wanted: dict[ResourceType, list[AclOperation]] = {ResourceType.TOPIC: []}
    if options.producer:
        wanted[ResourceType.TOPIC] += [
            AclOperation.WRITE,
            AclOperation.DESCRIBE,
            AclOperation.CREATE,
        ]
        wanted[ResourceType.TRANSACTIONAL_ID] = [AclOperation.WRITE, AclOperation.DESCRIBE]
    if options.consumer:
        wanted[ResourceType.TOPIC] += [AclOperation.READ, AclOperation.DESCRIBE]
        wanted[ResourceType.GROUP] = [AclOperation.READ]
    for kind, name in named:
        if kind not in wanted:
            raise UsageError(f"{word_of(kind)} {name}: --producer and --consumer do not use it")
    result = {each: list(dict.fromkeys(wanted[each[0]])) for each in named}
    if options.idempotent and options.producer:
        result[ResourceType.CLUSTER, CLUSTER_NAME] = [AclOperation.IDEMPOTENT_WRITE]
    return result


def principals(options: Namespace) -> Iterator[tuple[str, str, Permission]]:
    """Each principal with its host and permission. Errors: UsageError."""
    for word, permission in (("allow", Permission.ALLOW), ("deny", Permission.DENY)):
        users, hosts = getattr(options, f"{word}_principal"), getattr(options, f"{word}_host")
        if hosts and not users:
            raise UsageError(f"--{word}-host needs --{word}-principal")
        for user, host in itertools.product(users, hosts or [WILDCARD_HOST]):
            yield checked(user), host, permission


def checked(principal: str) -> str:
    """A principal. Errors: UsageError."""
    try:
        return ":".join(parse_principal(principal))
    except NotAPrincipal:
        raise UsageError(f"{principal}: not a principal, such as User:{principal}") from None


def bindings(options: Namespace) -> list[AclBinding]:
    """The ACLs to add. Errors: UsageError."""
    kind_of_name = member_of(PatternType, options.resource_pattern_type, "--resource-pattern-type")
    if kind_of_name < PatternType.LITERAL:
        raise UsageError("--resource-pattern-type: literal or prefixed for an ACL that is added")
    who = list(principals(options))
    if not who:
        raise UsageError(
            "no principal is given: --allow-principal or --deny-principal, such as User:alice"
        )
    return [
        AclBinding(
            pattern_of(kind, name, kind_of_name), AclEntry(user, host, operation, permission)
        )
        for (kind, name), operations in grants(options).items()
        for user, host, permission in who
        for operation in operations or [AclOperation.ALL]
    ]


def pattern_of(kind: ResourceType, name: str, kind_of_name: PatternType) -> ResourcePattern:
    """A pattern; a pattern for the cluster is always literal."""
    if kind is ResourceType.CLUSTER:
        kind_of_name = PatternType.LITERAL
    return ResourcePattern(kind, name, kind_of_name)


def filters(options: Namespace) -> list[AclFilter]:
    """The filters of the ACLs to list or remove. Errors: UsageError."""
    kind_of_name = member_of(PatternType, options.resource_pattern_type, "--resource-pattern-type")
    if options.verb == "list":
        users: list[str | None] = [checked(user) for user in options.principal]
        named: list[tuple[ResourceType, str | None]] = [*patterns(options)]
        return [
            AclFilter(kind, name, kind_of_name, user)
            for (kind, name), user in itertools.product(
                named or [(ResourceType.ANY, None)], users or [None]
            )
        ]
    who: list[tuple[str | None, str | None, Permission]] = [
        (user, host, permission) for user, host, permission in principals(options)
    ]
    return [
        AclFilter(kind, name, kind_of_name, user, host, operation, permission)
        for (kind, name), operations in grants(options).items()
        for user, host, permission in who or [(None, None, Permission.ANY)]
        for operation in operations or [AclOperation.ANY]
    ]


# Requests to the cluster


def list_acls(brokers: Brokers, options: Namespace) -> int:
    """Print ACLs, by resource."""
    show(options, [binding for each in filters(options) for binding in described(brokers, each)])
    return 0


def described(brokers: Brokers, wanted: AclFilter) -> list[AclBinding]:
    """The ACLs that match a filter. Errors: CommandError, Unavailable."""
    request = DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )
    response = brokers.ask(request, min_version=least_version(wanted.resource_type))
    check(response.error_code, response.error_message)
    return [
        binding_of(resource, resource.pattern_type, acl)
        for resource in response.resources
        for acl in resource.acls
    ]


def least_version(kind: ResourceType) -> int:
    """The first version that supports a type of resource."""
    return 3 if kind is ResourceType.USER else 1


def binding_of(resource: Any, pattern_type: int, acl: Any) -> AclBinding:
    """The ACL in a response."""
    return AclBinding(
        ResourcePattern(
            ResourceType(resource.resource_type), resource.resource_name, PatternType(pattern_type)
        ),
        AclEntry(
            acl.principal, acl.host, AclOperation(acl.operation), Permission(acl.permission_type)
        ),
    )


def show(options: Namespace, found: Iterable[AclBinding]) -> None:
    """Print a table of ACLs without duplicates."""
    rows = [
        [
            word_of(pattern.resource_type),
            pattern.name,
            word_of(pattern.pattern_type),
            entry.principal,
            entry.host,
            word_of(entry.operation),
            word_of(entry.permission),
        ]
        for pattern, entry in sorted(set(found))
    ]
    head = ["resource", "name", "pattern", "principal", "host", "operation", "permission"]
    if rows:
        show_rows(options, head, rows)
    else:
        print("kwire: no ACLs", file=sys.stderr)


def add_acls(brokers: Brokers, options: Namespace) -> int:
    """Add ACLs; when this returns, they are in effect on the broker that handled the request."""
    wanted = bindings(options)
    creations = [
        AclCreation(
            resource_type=pattern.resource_type,
            resource_name=pattern.name,
            resource_pattern_type=pattern.pattern_type,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for pattern, entry in wanted
    ]
    least = max(least_version(pattern.resource_type) for pattern, _ in wanted)
    response = brokers.ask(CreateAclsRequest(creations=creations), min_version=least)
    rows = zip(wanted, response.results, strict=True)
    return max([refused(row, binding.pattern.name) for binding, row in rows], default=0)


def refused(row: Any, about: str = "") -> int:
    """Report the error of a row; returns the exit code."""
    try:
        check(row.error_code, row.error_message, about)
    except CommandError as error:
        print(f"kwire: {error}", file=sys.stderr)
        return 1
    return 0


def agreed(options: Namespace, found: list[AclBinding]) -> bool:
    """Show the ACLs to be removed, and ask for confirmation. Errors: CommandError without a terminal."""
    with contextlib.redirect_stdout(sys.stderr):
        show(options, found)
        print("Remove these ACLs? (y/n) ", end="", flush=True)
    answer = sys.stdin.readline()
    if not answer:
        print(file=sys.stderr)  # behind the question
        raise CommandError(
            "there was no answer, so nothing was removed; --force removes without asking"
        )
    return answer.strip().lower() in ("y", "yes")


def remove_acls(brokers: Brokers, options: Namespace) -> int:
    """Remove ACLs, and print them; without --force, ask first, as kafka-acls.sh does."""
    wanted = filters(options)
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=each.resource_type,
                resource_name_filter=each.name,
                pattern_type_filter=each.pattern_type,
                principal_filter=each.principal,
                host_filter=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in wanted
        ]
    )
    if not options.force:
        found = [binding for each in wanted for binding in described(brokers, each)]
        if found and not agreed(options, found):
            print("kwire: nothing was removed", file=sys.stderr)
            return 0
    least = max(least_version(each.resource_type) for each in wanted)
    response = brokers.ask(request, min_version=least)
    removed: list[AclBinding] = []
    code = 0
    for result in response.filter_results:
        code = max(code, refused(result))
        for acl in result.matching_acls:
            if refused(acl, acl.resource_name):
                code = 1
            else:
                removed.append(binding_of(acl, acl.pattern_type, acl))
    show(options, removed)
    return code
