"""`kwire configs`: describe and change the configs of topics, brokers, groups and client metrics."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from kwire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kwire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from ..client.brokers import Brokers
from ..client.properties import UsageError
from .brokers import check, with_brokers
from .client import CommandError, add_bootstrap, key_value
from .output import add_output, show_rows, wants_json

#: Types of resources. Source: ConfigResource.Type.
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
#: Operations of IncrementalAlterConfigs. Source: AlterConfigOp.OpType.
SET, DELETE, APPEND, SUBTRACT = range(4)
#: Option -> resource type and the noun in its help.
KINDS = {
    "topic": (TOPIC, "a topic"),
    "broker": (BROKER, "a broker, by its id"),
    "broker_logger": (BROKER_LOGGER, "the log levels of a broker, by its id"),
    "client_metrics": (CLIENT_METRICS, "a subscription of client metrics (KIP-714)"),
    "group": (GROUP, "a group"),
}
#: Words of Apache Kafka's --entity-type -> option.
ENTITY_TYPES = {
    "topics": "topic",
    "brokers": "broker",
    "broker-loggers": "broker_logger",
    "client-metrics": "client_metrics",
    "groups": "group",
}
ELSEWHERE = {
    "users": "kwire users and kwire quotas",
    "clients": "kwire quotas",
    "ips": "kwire quotas",
}
#: The origin of a value. Source: DescribeConfigsResponse.ConfigSource.
SOURCES = {
    1: "topic",
    2: "broker",
    3: "brokers' default",
    4: "server.properties",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}
DEFAULTS = ("default", "server.properties")
#: The origin of a value that a delete removes, by the resource.
OWN_SOURCES = {
    TOPIC: "topic",
    BROKER: "broker",
    BROKER_LOGGER: "broker logger",
    CLIENT_METRICS: "client metrics",
    GROUP: "group",
}


def add_arguments(parser: ArgumentParser) -> None:
    """The verbs of `kwire configs` and their options."""
    add_bootstrap(parser)
    add_output(parser)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verb = verbs.add_parser(
        "describe", help="show the configs that are set, or with --all every config"
    )
    _add_entity(verb)
    verb.add_argument("-a", "--all", action="store_true", help="also show defaults")
    verb.add_argument(
        "keys", metavar="KEY", nargs="*", help="show only these configs, including defaults"
    )
    verb = verbs.add_parser("alter", help="set configs")
    _add_entity(verb)
    verb.add_argument("pairs", metavar="KEY=VALUE", type=key_value, nargs="*")
    verb.add_argument(
        "--append",
        metavar="KEY=VALUE",
        type=key_value,
        action="append",
        default=[],
        help="add to a list; repeatable",
    )
    verb.add_argument(
        "--subtract",
        metavar="KEY=VALUE",
        type=key_value,
        action="append",
        default=[],
        help="take from a list; repeatable",
    )
    verb.add_argument(
        "--add-config", metavar="K=V,K=[V,V]", help="set several configs, as in kafka-configs.sh"
    )
    verb.add_argument(
        "--delete-config", metavar="K,K", help="reset several configs, as in kafka-configs.sh"
    )
    _add_dry_run(verb)
    verb = verbs.add_parser("delete", help="remove configs, so that their defaults apply")
    _add_entity(verb)
    verb.add_argument("keys", metavar="KEY", nargs="+")
    _add_dry_run(verb)


def _add_dry_run(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run", action="store_true", help="let the broker check the change without making it"
    )


def _add_entity(parser: ArgumentParser) -> None:
    entity = parser.add_mutually_exclusive_group()
    for option, (_, help_text) in KINDS.items():
        entity.add_argument(f"--{option.replace('_', '-')}", metavar="NAME", help=help_text)
    entity.add_argument(
        "--broker-default", action="store_true", help="the defaults for all brokers of the cluster"
    )
    parser.add_argument("--entity-type", metavar="TYPE", help=", ".join(ENTITY_TYPES))
    parser.add_argument(
        "--entity-name", metavar="NAME", help="name of the entity; with --entity-type"
    )
    parser.add_argument(
        "--entity-default",
        action="store_true",
        help="with --entity-type brokers: the same as --broker-default",
    )


def run(options: Namespace) -> int:
    """Run the verb."""
    verb = {"describe": describe, "alter": alter, "delete": delete}[options.verb]
    return with_brokers(verb, options)


def entity(options: Namespace) -> tuple[int, str]:
    """Type and name of the resource; the name of all brokers is empty. Errors: UsageError."""
    if options.entity_type is not None:
        kind = options.entity_type.lower()
        if kind in ELSEWHERE:
            raise UsageError(f"--entity-type {kind}: see {ELSEWHERE[kind]}")
        if kind not in ENTITY_TYPES:
            raise UsageError(f"--entity-type {kind} is not one of {', '.join(ENTITY_TYPES)}")
        if options.entity_default and kind == "brokers":
            return BROKER, ""
        if options.entity_name is None:
            raise UsageError(f"--entity-type {kind}: --entity-name is missing")
        return KINDS[ENTITY_TYPES[kind]][0], options.entity_name
    if options.broker_default:
        return BROKER, ""
    for option, (number, _) in KINDS.items():
        name = getattr(options, option)
        if name is not None:
            return number, name
    raise UsageError("give a resource: --topic, --broker, --broker-default, --group, ...")


def broker_for(resource: tuple[int, str]) -> int | None:
    """The broker that must handle a resource; None for any broker. Errors: UsageError."""
    kind, name = resource
    if kind not in (BROKER, BROKER_LOGGER) or not name:
        return None
    if not (name.isascii() and name.isdigit()):
        raise UsageError(f"broker {name!r} is not a number")
    return int(name)


def text_of(resource: tuple[int, str]) -> str:
    """A resource in words."""
    kind, name = resource
    if kind == BROKER and not name:
        return "all brokers"
    word = next(option for option, (number, _) in KINDS.items() if number == kind)
    return f"{word.replace('_', ' ')} {name}"


def check_row(row: Any, resource: tuple[int, str]) -> None:
    """Errors: CommandError for an error of a row, with an explanation if a broker does not support such resources."""
    kind, message = resource[0], row.error_message
    unknown = (
        f"Unknown resource type {kind}",
        "This most likely occurs because of a request being",
    )
    if kind in (GROUP, CLIENT_METRICS) and str(message).startswith(unknown):
        things = "groups" if kind == GROUP else "client metrics"
        message = (
            f"brokers with ZooKeeper have no configs of {things}; brokers with the embedded store have them,"
            " and so has Apache Kafka 4"
        )
    check(row.error_code, message, text_of(resource))


def described(brokers: Brokers, resource: tuple[int, str], keys: Sequence[str]) -> Any:
    """A row of DescribeConfigs; with all configs if no keys are given. Errors: UsageError, Unavailable."""
    kind, name = resource
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
            )
        ]
    )
    return brokers.ask(request, broker_for(resource)).results[0]


def describe(brokers: Brokers, options: Namespace) -> int:
    """Print configs."""
    resource = entity(options)
    row = described(brokers, resource, options.keys)
    check_row(row, resource)
    rows = []
    for each in sorted(row.configs, key=lambda config: str(config.name)):
        source = SOURCES.get(each.config_source, "unknown")
        if options.all or options.keys or source not in DEFAULTS:
            value = "(hidden)" if each.is_sensitive and not wants_json(options) else each.value
            rows.append([each.name, value, source, each.read_only])
    missing = set(options.keys) - {each.name for each in row.configs}
    if missing:
        raise CommandError(f"{text_of(resource)}: no config {', '.join(sorted(missing))}")
    if rows or wants_json(options):
        show_rows(options, ["config", "value", "source", "read only"], rows)
    else:
        print(f"kwire: {text_of(resource)}: only defaults; --all shows them", file=sys.stderr)
    return 0


def added(text: str | None) -> list[tuple[str, str]]:
    """Parse `K=V,K=[V,V]`. Errors: UsageError."""
    pairs = []
    left = text or ""
    while left:
        key, equals, rest = left.partition("=")
        if not equals or not key:
            raise UsageError(f"--add-config: {left!r} is not KEY=VALUE")
        if rest.startswith("["):
            value, bracket, left = rest[1:].partition("]")
            if not bracket or (left and not left.startswith(",")):
                raise UsageError(f"--add-config: {rest!r}: the bracket is not closed")
            left = left[1:]
        else:
            value, _, left = rest.partition(",")
        pairs.append((key.strip(), value))
    return pairs


def alter(brokers: Brokers, options: Namespace) -> int:
    """Set, append and subtract."""
    changes = [(key, SET, value) for key, value in options.pairs + added(options.add_config)]
    changes += [(key, APPEND, value) for key, value in options.append]
    changes += [(key, SUBTRACT, value) for key, value in options.subtract]
    removed = (options.delete_config or "").split(",")
    return change(brokers, options, [*changes, *((key, DELETE, None) for key in removed if key)])


def delete(brokers: Brokers, options: Namespace) -> int:
    """Reset configs."""
    return change(brokers, options, [(key, DELETE, None) for key in options.keys])


def check_set(brokers: Brokers, resource: tuple[int, str], keys: Sequence[str]) -> None:
    """Errors: CommandError if one of the configs is not set there, as in kafka-configs.sh; UsageError, Unavailable."""
    kind, name = resource
    own = "brokers' default" if kind == BROKER and not name else OWN_SOURCES.get(kind)
    if not keys or own is None:
        return
    row = described(brokers, resource, keys)
    if row.error_code:  # the change reports it too, unless configs may be changed but not described
        return
    there = {each.name for each in row.configs if SOURCES.get(each.config_source) == own}
    idle = [key for key in keys if key not in there]
    if idle:
        raise CommandError(f"{text_of(resource)}: these are not set: {', '.join(idle)}")


def change(brokers: Brokers, options: Namespace, changes: list[tuple[str, int, Any]]) -> int:
    """Send changes. Errors: UsageError, CommandError, Unavailable."""
    resource = entity(options)
    if not changes:
        raise UsageError("nothing to change: give KEY=VALUE")
    check_set(brokers, resource, [key for key, operation, _ in changes if operation == DELETE])
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=resource[0],
                resource_name=resource[1],
                configs=[
                    AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ],
            )
        ],
        validate_only=options.dry_run,
    )
    check_row(brokers.ask(request, broker_for(resource)).responses[0], resource)
    return 0
