"""`kwire quotas`: list and change the quotas of users, clients and addresses (KIP-546)."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Any, NamedTuple

from kwire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from kwire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

from ..client.brokers import Brokers
from ..client.properties import UsageError
from .brokers import check, with_brokers
from .client import add_bootstrap, key_value
from .output import add_output, show_rows

#: Option -> type of entity in the protocol, in Apache Kafka's order.
KINDS = {"user": "user", "client_id": "client-id", "ip": "ip"}
#: Quotas of users and clients, and their units. Source: QuotaConfigs.
CLIENT_QUOTAS = {
    "producer_byte_rate": "bytes/s",
    "consumer_byte_rate": "bytes/s",
    "request_percentage": "% of the broker's time",
    "controller_mutation_rate": "partitions/s",
}
#: Quotas of addresses.
IP_QUOTAS = {"connection_creation_rate": "connections/s"}
UNITS = CLIENT_QUOTAS | IP_QUOTAS
#: The text for a default where names are printed.
DEFAULT = "<default>"
#: The ways to match a part of an entity. Source: DescribeClientQuotasRequest.json.
EXACT, OF_DEFAULT, ANY = 0, 1, 2


class Part(NamedTuple):
    """A part of an entity. Shape: `name` is None for the default."""

    kind: str
    name: str | None


def add_arguments(parser: ArgumentParser) -> None:
    """The verbs of `kwire quotas` and their options."""
    add_bootstrap(parser)
    add_output(parser)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verb = verbs.add_parser("list", help="list all quotas, or those of an entity")
    _add_entity(verb)
    verb = verbs.add_parser("set", help="set quotas of a user, a client id, both, or an address")
    _add_entity(verb)
    verb.add_argument(
        "quotas",
        metavar="KEY=NUMBER",
        type=quota,
        nargs="+",
        help=", ".join(f"{key} ({unit})" for key, unit in UNITS.items()).replace("%", "%%"),
    )
    verb = verbs.add_parser("remove", help="remove quotas of an entity")
    _add_entity(verb)
    verb.add_argument("keys", metavar="KEY", nargs="+", choices=tuple(UNITS))


def _add_entity(parser: ArgumentParser) -> None:
    for option, kind in KINDS.items():
        flag = option.replace("_", "-")
        one = parser.add_mutually_exclusive_group()
        one.add_argument(f"--{flag}", metavar="NAME", help=f"the quotas of this {kind}")
        one.add_argument(
            f"--{flag}-default",
            action="store_true",
            help=f"the default quotas, for each {kind} without its own",
        )


def quota(text: str) -> tuple[str, float]:
    """Parse `KEY=NUMBER`. Errors: ArgumentTypeError."""
    key, value = key_value(text)
    if key not in UNITS:
        raise ArgumentTypeError(f"{key!r} is not one of {', '.join(UNITS)}")
    try:
        return key, float(value)
    except ValueError:
        raise ArgumentTypeError(f"{text!r}: {value!r} is not a number") from None


def run(options: Namespace) -> int:
    """Run the verb."""
    verb = {"list": list_quotas, "set": set_quotas, "remove": remove_quotas}[options.verb]
    return with_brokers(verb, options)


def entity(options: Namespace) -> list[Part]:
    """The parts of the entity in the options. Errors: UsageError for a combination that does not exist."""
    parts = []
    for option, kind in KINDS.items():
        name = getattr(options, option)
        if name is not None or getattr(options, f"{option}_default"):
            parts.append(Part(kind, name))
    if len(parts) > 1 and any(part.kind == "ip" for part in parts):
        raise UsageError("--ip: an address cannot be combined with a user or a client id")
    return parts


def changed_entity(options: Namespace, keys: list[str]) -> list[Part]:
    """The entity to change. Errors: UsageError if there is none, or if it cannot have these quotas."""
    parts = entity(options)
    if not parts:
        raise UsageError(
            "no entity is given: --user, --client-id, --ip, or --user-default and so on"
        )
    known = IP_QUOTAS if parts[0].kind == "ip" else CLIENT_QUOTAS
    for key in keys:
        if key not in known:
            raise UsageError(f"{key}: {text_of(parts)} can have {', '.join(known)}")
    return parts


def text_of(parts: list[Part]) -> str:
    """An entity in words."""
    return ", ".join(f"{part.kind} {DEFAULT if part.name is None else part.name}" for part in parts)


def list_quotas(brokers: Brokers, options: Namespace) -> int:
    """Print quotas, by entity."""
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(
                entity_type=part.kind,
                match_type=OF_DEFAULT if part.name is None else EXACT,
                match=part.name,
            )
            for part in entity(options)
        ],
        strict=False,
    )
    response = brokers.ask(request)
    check(response.error_code, response.error_message)
    rows = [
        [text_of(parts_of(entry)), value.key, number(value.value), UNITS.get(value.key, "")]
        for entry in response.entries or ()
        for value in entry.values
    ]
    if rows:
        show_rows(options, ["entity", "quota", "value", "unit"], sorted(rows))
    else:
        print("kwire: no quotas", file=sys.stderr)
    return 0


def parts_of(entry: Any) -> list[Part]:
    """The entity of a row of a response, in the usual order."""
    found = {part.entity_type: Part(part.entity_type, part.entity_name) for part in entry.entity}
    return [found[kind] for kind in KINDS.values() if kind in found]


def number(value: float) -> str:
    """A number without a zero fraction."""
    return str(int(value)) if value.is_integer() else str(value)


def set_quotas(brokers: Brokers, options: Namespace) -> int:
    """Set quotas."""
    changes = [OpData(key=key, value=value, remove=False) for key, value in options.quotas]
    return alter(brokers, options, changes)


def remove_quotas(brokers: Brokers, options: Namespace) -> int:
    """Remove quotas."""
    return alter(
        brokers, options, [OpData(key=key, value=0.0, remove=True) for key in options.keys]
    )


def alter(brokers: Brokers, options: Namespace, changes: list[OpData]) -> int:
    """Change one entity. Errors: UsageError, CommandError, Unavailable."""
    parts = changed_entity(options, [change.key for change in changes])
    entry = AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type=part.kind, entity_name=part.name) for part in parts],
        ops=changes,
    )
    response = brokers.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False))
    for row in response.entries:
        check(row.error_code, row.error_message, text_of(parts))
    return 0
