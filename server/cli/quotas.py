"""`kwire quotas`: list and change the quotas of users, clients and addresses (KIP-546)."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Any, NamedTuple

from .client import (
    CommandError,
    add_bootstrap,
    admin_client,
    administering,
    ask,
    error_text,
    key_value,
)
from .client_properties import UsageError
from .output import add_output, show_rows

#: Option -> type of entity in the protocol, in the order in which Apache Kafka names them.
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
#: What stands for a default where names are printed.
DEFAULT = "<default>"
#: How a part of an entity is matched. Source: DescribeClientQuotasRequest.json.
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
    verb = verbs.add_parser("list", help="quotas, all of them or those of an entity")
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
            help=f"the quotas of each {kind} that has none of its own",
        )


def quota(text: str) -> tuple[str, float]:
    """Parse `KEY=NUMBER`. Errors: ArgumentTypeError."""
    key, value = key_value(text)
    if key not in UNITS:
        raise ArgumentTypeError(f"{key!r} is none of {', '.join(UNITS)}")
    try:
        return key, float(value)
    except ValueError:
        raise ArgumentTypeError(f"{text!r}: {value!r} is not a number") from None


def run(options: Namespace) -> int:
    """Run the verb."""
    verb = {"list": list_quotas, "set": set_quotas, "remove": remove_quotas}[options.verb]
    return administering(verb, options)


def entity(options: Namespace) -> list[Part]:
    """The parts of the entity that is named. Errors: UsageError for a combination that does not exist."""
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
        raise UsageError("nobody is named: --user, --client-id, --ip, or --user-default and so on")
    known = IP_QUOTAS if parts[0].kind == "ip" else CLIENT_QUOTAS
    for key in keys:
        if key not in known:
            raise UsageError(f"{key}: {text_of(parts)} can have {', '.join(known)}")
    return parts


def text_of(parts: list[Part]) -> str:
    """An entity in words."""
    return ", ".join(f"{part.kind} {DEFAULT if part.name is None else part.name}" for part in parts)


def list_quotas(options: Namespace) -> int:
    """Print quotas, by entity."""
    from kafka.protocol.admin import DescribeClientQuotasRequest

    parts = entity(options)
    component = DescribeClientQuotasRequest.ComponentData
    request = DescribeClientQuotasRequest(
        components=[
            component(
                entity_type=part.kind,
                match_type=OF_DEFAULT if part.name is None else EXACT,
                match=part.name,
            )
            for part in parts
        ],
        strict=False,
    )
    with admin_client(options) as admin:
        response = ask(admin, request)
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
    """A number without a useless fraction."""
    return str(int(value)) if value.is_integer() else str(value)


def set_quotas(options: Namespace) -> int:
    """Set quotas."""
    parts = changed_entity(options, [key for key, _ in options.quotas])
    return alter(options, parts, options.quotas, remove=False)


def remove_quotas(options: Namespace) -> int:
    """Remove quotas."""
    parts = changed_entity(options, options.keys)
    return alter(options, parts, [(key, 0.0) for key in options.keys], remove=True)


def alter(
    options: Namespace, parts: list[Part], quotas: list[tuple[str, float]], *, remove: bool
) -> int:
    """Change one entity. Errors: CommandError."""
    from kafka.protocol.admin import AlterClientQuotasRequest

    entry = AlterClientQuotasRequest.EntryData
    request = AlterClientQuotasRequest(
        entries=[
            entry(
                entity=[
                    entry.EntityData(entity_type=part.kind, entity_name=part.name) for part in parts
                ],
                ops=[entry.OpData(key=key, value=value, remove=remove) for key, value in quotas],
            )
        ],
        validate_only=False,
    )
    with admin_client(options) as admin:
        response = ask(admin, request)
    for row in response.entries:
        if row.error_code:
            raise CommandError(f"{text_of(parts)}: {error_text(row)}")
    return 0
