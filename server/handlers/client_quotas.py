"""DescribeClientQuotas (API key 48) and AlterClientQuotas (49).

Behavior: quotas of users, clients, clients of users, and addresses, as they are stored for Apache Kafka; a null name
is the default of all without a quota of their own. Describing answers with every entity that each given part of the
filter matches; a strict filter with no others than those that have exactly these parts. Altering keeps other configs
of the same node, such as SCRAM credentials. The entries of a request are changed one after the other, and one that is
refused does not affect the others; an entity that is named twice has one row.
Versions: 0-1, which differ in their encoding only.
An operation that removes something else than a quota has no effect; in Apache Kafka 3.9 it removes SCRAM credentials.
Omitted: host names in place of addresses (Apache Kafka resolves them). The value NaN is rejected. Names that no node can
have and unknown match types are answered with INVALID_REQUEST; Apache Kafka answers UNKNOWN_SERVER_ERROR.
Source: ZkAdminManager.describeClientQuotas, alterClientQuotas (3.9); KIP-546, KIP-612.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from math import isfinite, isnan
from typing import NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    OpData,
)
from kwire.messages.alter_client_quotas import EntityData as AlteredPart
from kwire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

from ..config.broker_config import Properties
from ..config.changes import ChangeRefused
from ..coordination.quota_entities import (
    CLIENTS,
    IPS,
    USERS,
    address_name,
    address_of,
    entity_of,
    node_of,
    quota_values,
)
from ..metadata.image import MetadataImage
from ..quotas.entities import (
    CLIENT_QUOTAS,
    CONSUMER_BYTE_RATE,
    DEFAULT,
    IP_QUOTAS,
    PRODUCER_BYTE_RATE,
    Entity,
    Part,
)
from ..security.acl import AclOperation
from ..turns import Steps, each_in_steps
from .authorization import cluster
from .context import Later, RequestContext
from .registry import handles

USER, CLIENT_ID, IP = "user", "client-id", "ip"
WORDS = {USER: "user", CLIENT_ID: "client", IP: "ip"}

#: How a part of a filter matches. Source: DescribeClientQuotasRequest.
EXACT, DEFAULT_ONLY, ANY = 0, 1, 2

#: Quotas that are whole numbers, with their type in Apache Kafka and their greatest value.
WHOLE = {
    PRODUCER_BYTE_RATE: ("LONG", 2**63 - 1),
    CONSUMER_BYTE_RATE: ("LONG", 2**63 - 1),
    IP_QUOTAS[0]: ("INT", 2**31 - 1),
}
#: How far a number may be from a whole one.
EPSILON = 1e-6

#: For a type that does not occur among the parts.
MIXED = "Invalid entity filter component combination, IP filter component should not be used with user or clientId filter component."


# DescribeClientQuotas


@handles(
    DescribeClientQuotasRequest,
    versions="0-1",
    authorize=cluster(AclOperation.DESCRIBE_CONFIGS),
)
def describe_client_quotas(
    ctx: RequestContext, request: DescribeClientQuotasRequest
) -> Generator[None, None, DescribeClientQuotasResponse]:
    """Answer with the quotas of the entities that a filter matches."""
    try:
        wanted = _filter(request.components)
    except ChangeRefused as refused:
        return DescribeClientQuotasResponse(
            error_code=refused.error, error_message=refused.message, entries=None
        )
    image, strict = ctx.services.metadata(), request.strict
    entries = []
    if IP not in wanted:
        for entity_type in (USERS, CLIENTS):
            for name in _names(image, entity_type):
                yield
                entity = entity_of(entity_type, name)
                if entity is None or not _matches(wanted, USER, entity.user, strict):
                    continue
                if _matches(wanted, CLIENT_ID, entity.client_id, strict):
                    entries += _entry(image, (entity_type, name), _parts(entity), CLIENT_QUOTAS)
    if USER not in wanted and CLIENT_ID not in wanted:
        for name in _names(image, IPS):
            yield
            address = address_name(name)
            if _matches(wanted, IP, address, strict):
                entries += _entry(image, (IPS, name), {IP: address}, IP_QUOTAS)
    return DescribeClientQuotasResponse(entries=entries)


def _names(image: MetadataImage, entity_type: str) -> list[str]:
    return list(image.configs.get(entity_type, {}))


def _filter(components: Sequence[ComponentData]) -> dict[str, ComponentData]:
    """The parts of a filter by type. Errors: ChangeRefused, with Apache Kafka's texts."""
    wanted: dict[str, ComponentData] = {}
    for component in components:
        kind = component.entity_type
        if component.match_type not in (EXACT, DEFAULT_ONLY, ANY):
            message = f"Unexpected match type: {component.match_type}"
            raise ChangeRefused(ErrorCode.INVALID_REQUEST, message)
        if component.match_type == EXACT and component.match is None:
            raise ChangeRefused(ErrorCode.INVALID_REQUEST, "An exact match needs a name")
        if kind in wanted:
            message = f"Duplicate {WORDS[kind]} filter component entity type"
            raise ChangeRefused(ErrorCode.INVALID_REQUEST, message)
        if not kind:
            message = "Unexpected empty filter component entity type"
            raise ChangeRefused(ErrorCode.INVALID_REQUEST, message)
        if kind not in WORDS:
            message = f"Custom entity type '{kind}' not supported"
            raise ChangeRefused(ErrorCode.UNSUPPORTED_VERSION, message)
        wanted[kind] = component
    if IP in wanted and len(wanted) > 1:
        raise ChangeRefused(ErrorCode.INVALID_REQUEST, MIXED)
    return wanted


def _matches(wanted: Mapping[str, ComponentData], kind: str, part: Part, strict: bool) -> bool:
    component = wanted.get(kind)
    if component is None:
        return part is None or not strict
    if component.match_type == EXACT:
        return part == component.match
    return part is DEFAULT if component.match_type == DEFAULT_ONLY else part is not None


def _parts(entity: Entity) -> dict[str, Part]:
    named = {USER: entity.user, CLIENT_ID: entity.client_id}
    return {kind: part for kind, part in named.items() if part is not None}


def _entry(
    image: MetadataImage, node: tuple[str, str], parts: Mapping[str, Part], keys: Sequence[str]
) -> list[EntryData]:
    """The quotas of one entity; nothing if its node has none."""
    values = quota_values(node, image.config(*node), keys)
    if not values:
        return []
    return [
        EntryData(
            entity=[
                EntityData(entity_type=kind, entity_name=None if part is DEFAULT else str(part))
                for kind, part in parts.items()
            ],
            values=[ValueData(key=key, value=value) for key, value in values.items()],
        )
    ]


# AlterClientQuotas


class QuotaTarget(NamedTuple):
    """The config node of an entity, and the quotas that it may have."""

    entity_type: str
    name: str
    keys: Sequence[str]


#: The parts of an entity, by which an answer names it.
Named = tuple[tuple[str, str | None], ...]
Outcome = tuple[ErrorCode, str | None]


@handles(
    AlterClientQuotasRequest,
    versions="0-1",
    authorize=cluster(AclOperation.ALTER_CONFIGS),
)
def alter_client_quotas(
    ctx: RequestContext, request: AlterClientQuotasRequest
) -> Later[AlterClientQuotasResponse]:
    """Set and remove quotas; with validate_only say whether they could be."""
    return ctx.later(_alter(ctx, request), _alter_response)


def _alter_response(outcomes: Mapping[Named, Outcome]) -> Steps[AlterClientQuotasResponse]:
    rows = []
    for named, (error, message) in outcomes.items():
        yield
        entity = yield from each_in_steps(
            lambda part: AlteredPart(entity_type=part[0], entity_name=part[1]), named
        )
        rows.append(
            AlterClientQuotasResponseEntryData(
                error_code=error, error_message=message, entity=entity
            )
        )
    return AlterClientQuotasResponse(entries=rows)


async def _alter(ctx: RequestContext, request: AlterClientQuotasRequest) -> dict[Named, Outcome]:
    outcomes: dict[Named, Outcome] = {}
    for entry in request.entries:
        await ctx.services.turns.pause(ctx.connection)
        parts: dict[str, str | None] = {}
        for part in entry.entity:
            await ctx.services.turns.pause(ctx.connection)
            parts[part.entity_type] = part.entity_name
        try:
            await _alter_entity(ctx, entry, parts, validate_only=request.validate_only)
        except ChangeRefused as refused:
            outcome = refused.error, refused.message
        else:
            outcome = ErrorCode.NONE, None
        outcomes[tuple(parts.items())] = outcome
    return outcomes


async def _alter_entity(
    ctx: RequestContext,
    entry: AlterClientQuotasRequestEntryData,
    parts: Mapping[str, str | None],
    *,
    validate_only: bool,
) -> None:
    target = _target(parts)
    values: dict[str, str | None] = {}
    for op in entry.ops:
        await ctx.services.turns.pause(ctx.connection)
        values[op.key] = None if op.remove else _value(op, target.keys)

    def change(stored: Properties) -> Properties:
        # Only quotas: to remove the credentials of a user, which are there too, takes another permission.
        gone = values.keys() & set(target.keys)
        after = {key: value for key, value in stored.items() if key not in gone}
        return after | {key: value for key, value in values.items() if value is not None}

    if not validate_only:
        await ctx.services.controller.alter_config(target.entity_type, target.name, change)


def _target(parts: Mapping[str, str | None]) -> QuotaTarget:
    """Where the quotas of an entity are stored. Errors: ChangeRefused, with Apache Kafka's texts."""
    if not parts:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in parts.items():
        if kind not in WORDS:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        if name in (".", ".."):
            raise _invalid(f"The {kind} {name} cannot be the name of a node")
    if IP not in parts:
        return QuotaTarget(
            *node_of(Entity(_part(parts, USER), _part(parts, CLIENT_ID))), CLIENT_QUOTAS
        )
    if len(parts) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity should not be used with user/client ID entity."
        )
    name = parts[IP]
    address = DEFAULT if name is None else address_of(name)
    if address is None:
        raise _invalid(f"{name} is not a valid IP or resolvable host.")
    return QuotaTarget(IPS, DEFAULT.value if address is DEFAULT else str(address), IP_QUOTAS)


def _part(parts: Mapping[str, str | None], kind: str) -> Part:
    if kind not in parts:
        return None
    name = parts[kind]
    return DEFAULT if name is None else name


def _value(op: OpData, keys: Sequence[str]) -> str:
    """The value to store. Errors: ChangeRefused if the quota is unknown, or the number is not of its type."""
    key, value = op.key, op.value
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}")
    if isnan(value):
        raise _invalid(f"Configuration {key} must be a number")
    if key not in WHOLE:
        return repr(value) if isfinite(value) else "-Infinity" if value < 0 else "Infinity"
    kind, most = WHOLE[key]
    whole = int(max(-most - 1, min(value + EPSILON, most)))
    if abs(whole - value) > EPSILON:
        raise _invalid(f"Configuration {key} must be a {kind} value")
    return str(whole)


def _invalid(message: str) -> ChangeRefused:
    return ChangeRefused(ErrorCode.INVALID_REQUEST, message)
