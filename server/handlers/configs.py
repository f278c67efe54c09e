"""DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44).

Behavior: topics, brokers, loggers (`broker_loggers.py`) and, where kwire acts as 4.3, groups and subscriptions to
clients' metrics. A topic's configs are read from the coordination store, so a change is seen at once; a broker answers for itself and for the default of all brokers. A change is stored and
announced to every broker; it takes effect without a restart, on the answering broker before it
answers. Refusing one resource never affects another, except that an unknown resource type fails a
whole DescribeConfigs.
Versions: DescribeConfigs v0 has is_default, always false, as in Apache Kafka; v1 sources and
synonyms, v3 types and documentation.
Omitted: config policies; with ZooKeeper, as in Apache Kafka 3.9, groups (32).
Source: ConfigHelper, ConfigAdminManager, ZkAdminManager (3.9); KIP-133, KIP-226, KIP-339.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from kwire.errors import ErrorCode
from kwire.messages import alter_configs as alter
from kwire.messages import incremental_alter_configs as incremental
from kwire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

from ..config.broker_config import Properties
from ..config.changes import (
    AlterOperation,
    ChangeRefused,
    ChangesByOperation,
    ConfigResourceType,
    KeyChange,
    by_operation,
    changed,
    changed_without_lists,
    check_broker,
    check_changes,
    check_group,
    check_operation,
    check_topic,
    find_topic_key,
    own_broker_id,
    replaced,
    stored_broker,
)
from ..config.describe import ConfigEntry, describe_broker, describe_broker_default, describe_topic
from ..config.group_keys import describe as describe_group
from ..config.tables import find_broker_key
from ..controller.topics import invalid_topic_name
from ..coordination.paths import entity_node
from ..metadata.image import BROKERS, CLIENT_METRICS, DEFAULT_ENTITY, GROUPS, TOPICS
from ..security import acl
from ..security.acl import AclOperation
from ..telemetry import subscriptions
from ..turns import Steps, each_in_steps
from .authorization import DENIED
from .broker_loggers import change_loggers, check_loggers, describe_loggers, own_node_id
from .ceilings import CEILING_3_9
from .context import Later, RequestContext
from .registry import handles
from .repeats import without_many_repeats

CONFIGURED_TYPES = frozenset(
    {
        ConfigResourceType.TOPIC,
        ConfigResourceType.BROKER,
        ConfigResourceType.BROKER_LOGGER,
        ConfigResourceType.CLIENT_METRICS,
    }
)
CONFIGURED_TYPES_OF_4 = CONFIGURED_TYPES | {ConfigResourceType.GROUP}
MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the"
    " message was sent to an incompatible broker. See the broker logs for more details."
)
#: An ending that no path in ZooKeeper has. IncrementalAlterConfigs reads a topic's configs there before it looks up the
#: topic, so such a name is an invalid config in Apache Kafka.
NO_NODE_NAME = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
#: Apache Kafka's message for a client that may not read or alter configs.
DENIAL_TEXTS = {
    acl.ResourceType.TOPIC: "Topic authorization failed.",
    acl.ResourceType.CLUSTER: "Cluster authorization failed.",
    acl.ResourceType.GROUP: "Group authorization failed.",
}
NO_NAME = "Client metrics subscription name must not be empty"
NO_GROUP_NAME = "Group name must not be empty"


#: The number of topics whose configs are read from the store at a time.
TOPICS_READ_AT_ONCE = 100


# DescribeConfigs


@handles(DescribeConfigsRequest, versions="0-4", authorize=None)
def describe_configs(
    ctx: RequestContext, request: DescribeConfigsRequest
) -> Generator[None, None, DescribeConfigsResponse | Later[DescribeConfigsResponse]]:
    """Return configs with their values and sources."""
    described = CONFIGURED_TYPES_OF_4 if _is_of_4(ctx) else CONFIGURED_TYPES
    if any(resource.resource_type not in described for resource in request.resources):
        results = []
        for resource in request.resources:
            yield
            results.append(_described(resource, ErrorCode.INVALID_REQUEST, MALFORMED))
        return DescribeConfigsResponse(results=results)
    request.resources = list((yield from without_many_repeats(request.resources, _asked)))
    topics = yield from _known_topics(ctx, request.resources)
    if not topics:
        return (yield from _describe(ctx, request, {}))

    async def stored() -> dict[str, Properties]:
        overrides: dict[str, Properties] = {}
        for first in range(0, len(topics), TOPICS_READ_AT_ONCE):
            some = topics[first : first + TOPICS_READ_AT_ONCE]
            found = await ctx.services.cluster.configs([(TOPICS, topic) for topic in some])
            overrides.update((topic, found.get((TOPICS, topic), {})) for topic in some)
            await ctx.services.turns.pause(ctx.connection)
        return overrides

    return ctx.later(stored(), lambda overrides: _describe(ctx, request, overrides))


def _asked(row: DescribeConfigsResource) -> tuple[int, str, tuple[str, ...] | None]:
    keys = row.configuration_keys
    return row.resource_type, row.resource_name, None if keys is None else tuple(keys)


def _known_topics(
    ctx: RequestContext, resources: Iterable[DescribeConfigsResource]
) -> Generator[None, None, list[str]]:
    image = ctx.services.metadata()
    names: dict[str, None] = {}
    for resource in resources:
        yield
        name = resource.resource_name
        if resource.resource_type == ConfigResourceType.TOPIC and image.topic(name) is not None:
            names[name] = None
    return list(names)


def _describe(
    ctx: RequestContext, request: DescribeConfigsRequest, overrides: Mapping[str, Properties]
) -> Generator[None, None, DescribeConfigsResponse]:
    results = []
    for resource in request.resources:
        yield
        try:
            _check_allowed(ctx, AclOperation.DESCRIBE_CONFIGS, resource)
            entries = _entries(ctx, resource, overrides)
        except ChangeRefused as refused:
            results.append(_described(resource, refused.error, refused.message))
        else:
            rows = [_row(ctx, request, entry) for entry in entries]
            results.append(_described(resource, ErrorCode.NONE, None, rows))
    return DescribeConfigsResponse(results=results)


def _check_allowed(
    ctx: RequestContext,
    operation: AclOperation,
    resource: DescribeConfigsResource | AlteredResource,
) -> None:
    """Whether the client may do this to the configs of a resource. Errors: ChangeRefused."""
    if resource.resource_type == ConfigResourceType.TOPIC:
        kind, name = acl.ResourceType.TOPIC, resource.resource_name
    elif resource.resource_type == ConfigResourceType.GROUP and _is_of_4(ctx):
        kind, name = acl.ResourceType.GROUP, resource.resource_name
    else:
        kind, name = acl.ResourceType.CLUSTER, acl.CLUSTER_NAME
    if not ctx.allows(operation, kind, name):
        raise ChangeRefused(DENIED[kind], DENIAL_TEXTS[kind])


def _entries(
    ctx: RequestContext, resource: DescribeConfigsResource, overrides: Mapping[str, Properties]
) -> Iterable[ConfigEntry]:
    config, node_id, name = ctx.services.config, ctx.services.node_id, resource.resource_name
    keys = resource.configuration_keys
    # An empty list selects all keys, as null does: clients of old versions send it.
    wanted = frozenset(keys) if keys else None
    match resource.resource_type:
        case ConfigResourceType.TOPIC:
            problem = invalid_topic_name(name)
            if problem is not None:
                raise ChangeRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
            if name not in overrides:
                raise ChangeRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
            return describe_topic(config, overrides[name], wanted)
        case ConfigResourceType.BROKER:
            if not name:
                return describe_broker_default(config, wanted)
            own_broker_id(name, node_id, "Broker id", f"{node_id} or empty string, but")
            return describe_broker(config, wanted)
        case ConfigResourceType.BROKER_LOGGER:
            if not name:
                raise ChangeRefused(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
            own_broker_id(name, node_id, "Broker id", f"{node_id} but")
            return describe_loggers(ctx.services.loggers, wanted)
        case ConfigResourceType.GROUP:
            if not name:
                raise ChangeRefused(ErrorCode.INVALID_REQUEST, NO_GROUP_NAME)
            stored = ctx.services.metadata().config(GROUPS, entity_node(name))
            return describe_group(config, stored, wanted)
        case _ if not _is_of_4(ctx):
            message = "Config type client-metrics is only supported on KRaft clusters"
            raise ChangeRefused(ErrorCode.INVALID_REQUEST, message)
        case _:
            if not name:
                raise ChangeRefused(ErrorCode.INVALID_REQUEST, NO_NAME)
            stored = ctx.services.metadata().config(CLIENT_METRICS, entity_node(name))
            return subscriptions.describe(stored, wanted)


def _is_of_4(ctx: RequestContext) -> bool:
    """Whether groups and subscriptions to clients' metrics have configs: not in clusters of 3.9 with ZooKeeper."""
    return ctx.services.ceiling != CEILING_3_9.name


def _described(
    resource: DescribeConfigsResource,
    error: ErrorCode,
    message: str | None = None,
    configs: list[DescribeConfigsResourceResult] | None = None,
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error,
        # Kafka sends an empty message where there is nothing to say.
        error_message=message or "",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs or [],
    )


def _row(
    ctx: RequestContext, request: DescribeConfigsRequest, entry: ConfigEntry
) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=name, value=value, source=source)
            for name, value, source in synonyms
        ],
        config_type=entry.type,
        documentation=entry.doc if request.include_documentation else None,
    )


# AlterConfigs and IncrementalAlterConfigs


class AlteredResource(Protocol):
    """A resource of either request."""

    resource_type: int
    resource_name: str


R = TypeVar("R")
Outcome = tuple[ErrorCode, str | None]
NOTHING_WRONG: Outcome = (ErrorCode.NONE, None)


@handles(alter.AlterConfigsRequest, versions="0-2", authorize=None)
def alter_configs(
    ctx: RequestContext, request: alter.AlterConfigsRequest
) -> Steps[Later[alter.AlterConfigsResponse]]:
    """Replace all stored configs of resources."""
    changes = []
    for resource in request.resources:
        yield
        changes.append(
            (
                yield from each_in_steps(
                    lambda config: KeyChange(config.name, AlterOperation.SET, config.value),
                    resource.configs,
                )
            )
        )
    return ctx.later(
        _alter(ctx, request.resources, changes, False, request.validate_only),
        lambda outcomes: _response(
            alter.AlterConfigsResponse,
            alter.AlterConfigsResourceResponse,
            request.resources,
            outcomes,
        ),
    )


@handles(
    incremental.IncrementalAlterConfigsRequest,
    versions="0-1",
    authorize=None,
)
def incremental_alter_configs(
    ctx: RequestContext, request: incremental.IncrementalAlterConfigsRequest
) -> Steps[Later[incremental.IncrementalAlterConfigsResponse]]:
    """Change single stored configs of resources."""
    changes = []
    for resource in request.resources:
        yield
        changes.append(
            (
                yield from each_in_steps(
                    lambda config: KeyChange(config.name, config.config_operation, config.value),
                    resource.configs,
                )
            )
        )
    return ctx.later(
        _alter(ctx, request.resources, changes, True, request.validate_only),
        lambda outcomes: _response(
            incremental.IncrementalAlterConfigsResponse,
            incremental.AlterConfigsResourceResponse,
            request.resources,
            outcomes,
        ),
    )


def _response(
    response: Callable[..., R],
    row: Callable[..., object],
    resources: Sequence[AlteredResource],
    outcomes: Sequence[Outcome],
) -> Steps[R]:
    """The response to either request, with a row for each resource, in steps."""
    rows = []
    for resource, (error, message) in zip(resources, outcomes, strict=True):
        yield
        rows.append(
            row(
                error_code=error,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return response(responses=rows)


async def _alter(
    ctx: RequestContext,
    resources: Sequence[AlteredResource],
    changes: Sequence[list[KeyChange]],
    keep_others: bool,
    validate_only: bool,
) -> list[Outcome]:
    """Change each resource separately; `keep_others` is what makes it incremental."""
    turns = ctx.services.turns
    counts: Counter[tuple[int, str]] = Counter()
    for resource in resources:
        await turns.pause(ctx.connection)
        counts[resource.resource_type, resource.resource_name] += 1
    outcomes = []
    for resource, wanted in zip(resources, changes, strict=True):
        await turns.pause(ctx.connection)
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                message = "Each resource must appear at most once."
                raise ChangeRefused(ErrorCode.INVALID_REQUEST, message)
            _check_type(ctx, resource)
            _check_allowed(ctx, AclOperation.ALTER_CONFIGS, resource)
            for _ in check_changes(wanted):
                await turns.pause(ctx.connection)
            await _alter_resource(ctx, resource, wanted, keep_others, validate_only)
        except ChangeRefused as refused:
            outcomes.append((refused.error, refused.message))
        else:
            outcomes.append(NOTHING_WRONG)
    return outcomes


def _check_type(ctx: RequestContext, resource: AlteredResource) -> None:
    """Whether resources of this type have configs; checked before permissions.

    Errors: ChangeRefused.
    """
    number = resource.resource_type
    if number not in (CONFIGURED_TYPES_OF_4 if _is_of_4(ctx) else CONFIGURED_TYPES):
        raise ChangeRefused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {number}")


async def _alter_resource(
    ctx: RequestContext,
    resource: AlteredResource,
    wanted: list[KeyChange],
    keep_others: bool,
    validate_only: bool,
) -> None:
    config, name = ctx.services.config, resource.resource_name
    if resource.resource_type == ConfigResourceType.BROKER_LOGGER and keep_others:
        own_node_id(name, ctx.services.node_id)
        loggers = ctx.services.loggers
        await ctx.services.turns.run(check_loggers(loggers, wanted), ctx.connection)
        if not validate_only:
            await ctx.services.turns.run(change_loggers(loggers, wanted), ctx.connection)
        return
    entity = _entity(ctx, resource, keep_others)
    per_broker = bool(name)
    turns = ctx.services.turns
    whole: dict[str, str] = {}
    single = ChangesByOperation({}, set(), [])
    if keep_others:
        single = await turns.run(by_operation(wanted), ctx.connection)
    else:
        whole = await turns.run(replaced(wanted), ctx.connection)

    def change(stored: Properties) -> Properties:
        if entity[0] == TOPICS:
            after = changed(stored, single, find_topic_key) if keep_others else dict(whole)
            if ctx.services.metadata().topic(name) is None:
                message = f"The topic '{name}' does not exist."
                raise ChangeRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
            check_topic(config, name, after)
            return after
        if entity[0] == CLIENT_METRICS:
            after = changed_without_lists(stored, wanted) if keep_others else dict(whole)
            subscriptions.check(name, after)
            return after
        if entity[0] == GROUPS:
            after = changed_without_lists(stored, wanted) if keep_others else dict(whole)
            check_group(config, after)
            return after
        for each in single.others:
            check_operation(each)
        base = config.usable_dynamic(stored, per_broker=per_broker)
        after = changed(base, single, find_broker_key) if keep_others else dict(whole)
        check_broker(config, after, per_broker=per_broker)
        return stored_broker(config, name, after, stored)

    def apply(stored: Properties) -> Properties | Awaitable[Properties]:
        if entity[0] != BROKERS:
            return change(stored)
        # A listener's new settings name files that have to be read, and passwords take many rounds to be encoded.
        return ctx.services.executor.in_thread(change, stored)

    if validate_only:
        outcome = apply((await ctx.services.cluster.configs([entity])).get(entity, {}))
        if isinstance(outcome, Awaitable):
            await outcome
    else:
        # The broker has applied the change before it answers, so the next request sees it.
        await ctx.services.controller.alter_config(*entity, apply)


def _entity(
    ctx: RequestContext, resource: AlteredResource, is_incremental: bool
) -> tuple[str, str]:
    """Where the resource's configs are stored. Errors: ChangeRefused."""
    node_id, name = ctx.services.node_id, resource.resource_name
    match resource.resource_type:
        case ConfigResourceType.TOPIC:
            if not name:
                message = "Default topic resources are not allowed."
                raise ChangeRefused(ErrorCode.INVALID_REQUEST, message)
            if is_incremental and NO_NODE_NAME.search(name):
                raise ChangeRefused(ErrorCode.INVALID_CONFIG, f"Invalid path /config/topics/{name}")
            if not is_incremental and ctx.services.metadata().topic(name) is None:
                message = f"The topic '{name}' does not exist."
                raise ChangeRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
            return TOPICS, name
        case ConfigResourceType.BROKER:
            if name:
                own_broker_id(name, node_id, "Node id", f"{node_id}, but")
            return BROKERS, name or DEFAULT_ENTITY
        case ConfigResourceType.GROUP if _is_of_4(ctx):
            if not name:
                message = "Default group resources are not allowed."
                raise ChangeRefused(ErrorCode.INVALID_REQUEST, message)
            return GROUPS, entity_node(name)
        case ConfigResourceType.CLIENT_METRICS if _is_of_4(ctx):
            subscriptions.check(name, {})
            return CLIENT_METRICS, entity_node(name)
        case ConfigResourceType.CLIENT_METRICS:
            message = (
                "AlterConfigs is only supported for topics and brokers,"
                " but resource type is CLIENT_METRICS"
            )
            raise ChangeRefused(ErrorCode.INVALID_REQUEST, message)
        case number:
            message = f"Unknown resource type {number}"
            raise ChangeRefused(ErrorCode.INVALID_REQUEST, message)
