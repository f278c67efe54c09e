"""`kwire topics`: list, describe, create, change and delete topics."""

from __future__ import annotations

import base64
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from typing import Any

from kwire.errors import ErrorCode
from kwire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kwire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kwire.messages.delete_topics import DeleteTopicsRequest
from kwire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kwire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from ..client.asking import ends_of
from ..client.brokers import Brokers
from ..client.errors import Unavailable
from ..client.properties import UsageError
from ..client.requests import EARLIEST, LATEST, TOPIC_CONFIG, metadata_of
from ..explain.words import counted
from .brokers import refusals, with_brokers
from .client import INT16, INT32, CommandError, add_bootstrap, count_from, key_value
from .output import add_output, show_rows, wants_json

#: How long a broker may take for a change, for its answer, and until all brokers know a new topic. Unit: s.
CHANGE_S = 30
ANSWER_S = CHANGE_S + 5.0
READY_S = 10.0
RETRY_S = 0.1
#: The last version of DeleteTopics in which topics are only identified by name.
NAMES_ONLY = 5
#: Brokers' default, server.properties and default, in DescribeConfigs. Source: DescribeConfigsResponse.ConfigSource.
UNCHANGED = (3, 4, 5)
SET, DELETE = 0, 1


def add_arguments(parser: ArgumentParser) -> None:
    """The verbs of `kwire topics` and their options."""
    add_bootstrap(parser)
    add_output(parser)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verb = verbs.add_parser("list", help="names of all topics")
    verb.add_argument("--all", action="store_true", help="also show internal topics")
    verb = verbs.add_parser("describe", help="partitions, replicas and configs")
    verb.add_argument(
        "topics", metavar="TOPIC", nargs="*", help="(default: all except internal ones)"
    )
    verb.add_argument(
        "--under-replicated",
        "--under-replicated-partitions",
        action="store_true",
        help="show only partitions whose replicas are not all in sync, including those of internal topics",
    )
    verb = verbs.add_parser("create", help="create topics")
    verb.add_argument("topics", metavar="TOPIC", nargs="+")
    verb.add_argument(
        "-p",
        "--partitions",
        type=count_from(-1, INT32),
        default=-1,
        help="(default: the broker's num.partitions)",
    )
    verb.add_argument(
        "-r",
        "--replicas",
        "--replication-factor",
        type=count_from(-1, INT16),
        default=-1,
        help="(default: the broker's default.replication.factor)",
    )
    _add_configs(verb)
    verb.add_argument(
        "--if-not-exists", action="store_true", help="ignore topics that already exist"
    )
    verb = verbs.add_parser("alter", help="change configs, or add partitions")
    verb.add_argument("topics", metavar="TOPIC", nargs="+")
    verb.add_argument(
        "-p", "--partitions", type=count_from(0, INT32), help="new total number of partitions"
    )
    _add_configs(verb)
    verb.add_argument(
        "--reset",
        "--delete-config",
        metavar="KEY",
        action="append",
        default=[],
        help="reset to the broker's default; repeatable",
    )
    _add_if_exists(verb)
    verb = verbs.add_parser("delete", help="delete topics and their records")
    verb.add_argument("topics", metavar="TOPIC", nargs="+")
    _add_if_exists(verb)


def _add_if_exists(parser: ArgumentParser) -> None:
    parser.add_argument("--if-exists", action="store_true", help="ignore topics that do not exist")


def _add_configs(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-c",
        "--config",
        dest="configs",
        metavar="KEY=VALUE",
        type=key_value,
        action="append",
        default=[],
        help="topic config; repeatable",
    )


def run(options: Namespace) -> int:
    """Run the verb."""
    verb = {
        "list": list_topics,
        "describe": describe_topics,
        "create": create_topics,
        "alter": alter_topics,
        "delete": delete_topics,
    }[options.verb]
    return with_brokers(verb, options)


def list_topics(brokers: Brokers, options: Namespace) -> int:
    """Print names, one per line."""
    topics = [topic for topic in described(brokers) if options.all or not topic.is_internal]
    if wants_json(options):
        head = ["topic", "id", "partitions", "replicas", "internal"]
        show_rows(options, head, [summary(topic) for topic in topics])
    else:
        for topic in topics:
            print(topic.name)
    return 0


def described(brokers: Brokers, names: Iterable[str] = ()) -> list[Any]:
    """Metadata's rows of these topics, or of all, sorted by name. Errors: Unavailable."""
    request = metadata_of(names)
    if not request.topics:
        request = metadata_of(None)
    response = brokers.ask(request)
    brokers.take_nodes(response)
    return sorted(response.topics, key=lambda topic: str(topic.name))


def summary(topic: Any) -> list[object]:
    """A topic's name, id, partitions, replication factor, and whether it is internal."""
    return [
        topic.name,
        as_kafka_writes_it(topic.topic_id),
        len(topic.partitions),
        max((len(row.replica_nodes) for row in topic.partitions), default=0),
        topic.is_internal,
    ]


def describe_topics(brokers: Brokers, options: Namespace) -> int:
    """Print each topic's partitions and the configs that differ from the defaults."""
    found = described(brokers, dict.fromkeys(options.topics))
    code = refusals(found)
    topics = [
        topic
        for topic in found
        if not topic.error_code
        and (options.topics or options.under_replicated or not topic.is_internal)
    ]
    if options.under_replicated:
        # One answer is enough, because brokers may be dying.
        for topic in topics:
            partitions = [row for row in in_order(topic) if is_under_replicated(row)]
            if partitions:
                rows = [placement(row) for row in partitions]
                show_topic(options, topic, {}, ["partition", "leader", "replicas", "in sync"], rows)
        return code
    changed = changed_configs(brokers, topics)
    first, end = offsets(brokers, topics, EARLIEST), offsets(brokers, topics, LATEST)
    for topic in topics:
        rows = []
        for row in in_order(topic):
            tp = (topic.name, row.partition_index)
            rows.append([*placement(row), first.get(tp), end.get(tp)])
        head = ["partition", "leader", "replicas", "in sync", "first", "end"]
        show_topic(options, topic, changed.get(topic.name, {}), head, rows)
    return code


def in_order(topic: Any) -> list[Any]:
    """The partitions of a topic in Metadata, by number."""
    return sorted(topic.partitions, key=lambda row: int(row.partition_index))


def placement(partition: Any) -> list[object]:
    """Number, leader, replicas and replicas in sync of a partition."""
    return [
        partition.partition_index,
        partition.leader_id,
        partition.replica_nodes,
        partition.isr_nodes,
    ]


def show_topic(
    options: Namespace,
    topic: Any,
    configs: dict[str, str],
    head: list[str],
    rows: list[list[object]],
) -> None:
    """Print a topic with rows of its partitions."""
    name, number = topic.name, as_kafka_writes_it(topic.topic_id)
    if wants_json(options):
        columns = ["topic", "id", *head, "configs"]
        show_rows(options, columns, [[name, number, *row, configs] for row in rows])
        return
    changed = " ".join(f"{key}={value}" for key, value in configs.items())
    title = (
        f"{name}  {counted(len(topic.partitions), 'partition')}  id {number}  {changed}".rstrip()
    )
    show_rows(options, head, rows, title)


def changed_configs(brokers: Brokers, topics: Iterable[Any]) -> dict[str, dict[str, str]]:
    """By topic, the configs that differ from the defaults; topics whose configs may not be seen are omitted."""
    resources = [
        DescribeConfigsResource(
            resource_type=TOPIC_CONFIG, resource_name=topic.name, configuration_keys=None
        )
        for topic in topics
    ]
    if not resources:
        return {}
    response = brokers.ask(DescribeConfigsRequest(resources=resources))
    return {
        row.resource_name: {
            config.name: config.value
            for config in sorted(row.configs, key=lambda config: str(config.name))
            if config.config_source not in UNCHANGED
        }
        for row in response.results
    }


def offsets(brokers: Brokers, topics: Iterable[Any], at: int) -> dict[tuple[str, int], int]:
    """The start or end offsets of partitions that have a leader. Errors: Unavailable."""
    led: dict[int, list[tuple[str, int]]] = {}
    for topic in topics:
        for row in topic.partitions:
            if row.leader_id >= 0:
                led.setdefault(row.leader_id, []).append((topic.name, row.partition_index))
    found: dict[tuple[str, int], int] = {}
    for leader, tps in led.items():
        found |= brokers.run(ends_of(leader, tps, at=at))
    return found


def is_under_replicated(partition: Any) -> bool:
    """Whether a partition in Metadata has replicas that are not in sync."""
    return len(partition.isr_nodes) < len(partition.replica_nodes)


def create_topics(brokers: Brokers, options: Namespace) -> int:
    """Create topics; they are ready for use when this returns."""
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in options.configs]
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=options.partitions,
                replication_factor=options.replicas,
                assignments=[],
                configs=configs,
            )
            for name in dict.fromkeys(options.topics)
        ],
        timeout_ms=CHANGE_S * 1000,
    )
    answer = brokers.ask_controller(request, timeout_s=ANSWER_S).topics
    await_leaders(brokers, [row.name for row in answer if not row.error_code])
    passed_over = ErrorCode.TOPIC_ALREADY_EXISTS if options.if_not_exists else None
    return refusals(row for row in answer if row.error_code != passed_over)


def await_leaders(brokers: Brokers, names: list[str]) -> None:
    """Wait until new topics are ready for use. Errors: CommandError."""
    give_up = time.monotonic() + READY_S
    while names:
        try:
            ready = {topic.name for topic in described(brokers, names) if is_ready(topic)}
        except Unavailable:
            ready = set()
        names = [name for name in names if name not in ready]
        if names and time.monotonic() > give_up:
            raise CommandError(f"{', '.join(names)}: created, but still without a leader")
        if names:
            time.sleep(RETRY_S)


def is_ready(topic: Any) -> bool:
    """Whether a topic in Metadata is ready for use."""
    partitions = topic.partitions
    return bool(partitions) and all(row.leader_id >= 0 and not row.error_code for row in partitions)


def alter_topics(brokers: Brokers, options: Namespace) -> int:
    """Change configs, then add partitions."""
    changes = [(key, SET, value) for key, value in options.configs]
    changes += [(key, DELETE, None) for key in options.reset]
    if not changes and options.partitions is None:
        raise UsageError("nothing to change: give -p, -c or --reset")
    names = list(dict.fromkeys(options.topics))
    if options.if_exists:
        there = {topic.name for topic in described(brokers)}
        names = [name for name in names if name in there]
        if not names:
            return 0
    code = 0
    if changes:
        code = alter_configs(brokers, names, changes)
    if options.partitions is not None:
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name=name, count=options.partitions, assignments=None)
                for name in names
            ],
            timeout_ms=CHANGE_S * 1000,
            validate_only=False,
        )
        answer = brokers.ask_controller(request, timeout_s=ANSWER_S)
        code = max(code, refusals(answer.results))
    return code


def alter_configs(
    brokers: Brokers, names: list[str], changes: list[tuple[str, int, str | None]]
) -> int:
    """Change configs of topics; returns the exit code. Shape of a change: key, operation, value."""
    configs = {
        key: AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    }
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=TOPIC_CONFIG, resource_name=name, configs=list(configs.values())
            )
            for name in names
        ],
        validate_only=False,
    )
    return refusals(brokers.ask(request).responses, "resource_name")


def delete_topics(brokers: Brokers, options: Namespace) -> int:
    """Delete topics."""
    names = list(dict.fromkeys(options.topics))
    request = DeleteTopicsRequest(topics=[], topic_names=names, timeout_ms=CHANGE_S * 1000)
    answer = brokers.ask_controller(request, NAMES_ONLY, timeout_s=ANSWER_S).responses
    passed_over = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if options.if_exists else None
    return refusals(row for row in answer if row.error_code != passed_over)


def as_kafka_writes_it(topic_id: bytes) -> str:
    """A topic id in the form of Kafka's tools and partition.metadata; a dash if there is none."""
    if not any(topic_id):
        return "-"
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
