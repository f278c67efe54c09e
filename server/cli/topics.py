"""`kwire topics`: list, describe, create, change and delete topics."""

from __future__ import annotations

import base64
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from kwire.errors import ErrorCode

from .client import (
    CommandError,
    add_bootstrap,
    admin_client,
    administering,
    key_value,
    refusals,
)
from .output import add_output, show_rows, wants_json


def add_arguments(parser: ArgumentParser) -> None:
    """The verbs of `kwire topics` and their options."""
    add_bootstrap(parser)
    add_output(parser)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verb = verbs.add_parser("list", help="names of all topics")
    verb.add_argument("--all", action="store_true", help="internal topics too")
    verb = verbs.add_parser("describe", help="partitions, replicas and configs")
    verb.add_argument(
        "topics", metavar="TOPIC", nargs="*", help="(default: all except internal ones)"
    )
    verb.add_argument(
        "--under-replicated",
        "--under-replicated-partitions",
        action="store_true",
        help="only partitions whose replicas are not all in sync, internal topics too",
    )
    verb = verbs.add_parser("create", help="create topics")
    verb.add_argument("topics", metavar="TOPIC", nargs="+")
    verb.add_argument(
        "-p", "--partitions", type=int, default=-1, help="(default: the broker's num.partitions)"
    )
    verb.add_argument(
        "-r",
        "--replicas",
        "--replication-factor",
        type=int,
        default=-1,
        help="(default: the broker's default.replication.factor)",
    )
    _add_configs(verb)
    verb.add_argument(
        "--if-not-exists", action="store_true", help="leave topics alone that are there already"
    )
    verb = verbs.add_parser("alter", help="change configs or add partitions")
    verb.add_argument("topics", metavar="TOPIC", nargs="+")
    verb.add_argument("-p", "--partitions", type=int, help="new total number of partitions")
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
    parser.add_argument(
        "--if-exists", action="store_true", help="do nothing about topics that are not there"
    )


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
    return administering(verb, options)


def list_topics(options: Namespace) -> int:
    """Print names, one per line."""
    with admin_client(options) as admin:
        topics = [
            topic
            for topic in sorted(admin.describe_topics(), key=lambda topic: str(topic["name"]))
            if options.all or not topic["is_internal"]
        ]
    if wants_json(options):
        head = ["topic", "id", "partitions", "replicas", "internal"]
        show_rows(options, head, [summary(topic) for topic in topics])
    else:
        for topic in topics:
            print(topic["name"])
    return 0


def summary(topic: Mapping[str, Any]) -> list[object]:
    """A topic's name, id, partitions, replication factor, and whether it is internal."""
    partitions = topic["partitions"]
    return [
        topic["name"],
        as_kafka_writes_it(topic.get("topic_id")),
        len(partitions),
        max((len(row["replica_nodes"]) for row in partitions), default=0),
        topic["is_internal"],
    ]


def describe_topics(options: Namespace) -> int:
    """Print each topic's partitions and the configs that are not defaults."""
    code = 0
    with admin_client(options) as admin:
        described = admin.describe_topics(options.topics or None)
        for topic in sorted(described, key=lambda topic: str(topic["name"])):
            if topic["error_code"]:
                code = refusals([topic])
                continue
            if topic["is_internal"] and not (options.topics or options.under_replicated):
                continue
            partitions = sorted(topic["partitions"], key=lambda row: int(row["partition_index"]))
            if options.under_replicated:
                partitions = [row for row in partitions if is_under_replicated(row)]
                if not partitions:
                    continue
            name, count = topic["name"], len(topic["partitions"])
            number = as_kafka_writes_it(topic.get("topic_id"))
            changed: dict[str, str] = {}
            offsets: dict[int, tuple[int | None, int | None]] = {}
            # One answer is enough, because brokers may be dying.
            if not options.under_replicated:
                changed = _changed_configs(admin, name)
                offsets = _offsets(admin, name, partitions)
            header = ["partition", "leader", "replicas", "in sync"]
            if not options.under_replicated:
                header += ["first", "end"]
            rows = [
                [
                    row["partition_index"],
                    row["leader_id"],
                    row["replica_nodes"],
                    row["isr_nodes"],
                    *offsets.get(row["partition_index"], ()),
                ]
                for row in partitions
            ]
            if wants_json(options):
                show_rows(
                    options,
                    ["topic", "id", *header, "configs"],
                    [[name, number, *row, changed] for row in rows],
                )
            else:
                configs = " ".join(f"{key}={value}" for key, value in changed.items())
                title = f"{name}  {count} partitions  id {number}  {configs}".rstrip()
                show_rows(options, header, rows, title)
    return code


def _changed_configs(admin: Any, topic: str) -> dict[str, str]:
    from kafka.admin import ConfigResource, ConfigResourceType

    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    configs = admin.describe_configs([resource])["topic"].get(topic, {})
    return {key: config["value"] for key, config in sorted(configs.items())}


def _offsets(
    admin: Any, topic: str, partitions: Sequence[Mapping[str, Any]]
) -> dict[int, tuple[int | None, int | None]]:
    """The first and the end offset of each partition; None for one without a leader."""
    from kafka.admin import OffsetSpec
    from kafka.structs import TopicPartition

    led = [
        TopicPartition(topic, row["partition_index"]) for row in partitions if row["leader_id"] >= 0
    ]
    first = admin.list_partition_offsets(dict.fromkeys(led, OffsetSpec.EARLIEST))
    end = admin.list_partition_offsets(dict.fromkeys(led, OffsetSpec.LATEST))
    found: dict[int, tuple[int | None, int | None]] = {
        row["partition_index"]: (None, None) for row in partitions
    }
    found.update({tp.partition: (first[tp].offset, end[tp].offset) for tp in led if tp in end})
    return found


def is_under_replicated(partition: Mapping[str, Any]) -> bool:
    """Whether a partition, as Metadata describes it, has replicas that are not in sync."""
    return len(partition["isr_nodes"]) < len(partition["replica_nodes"])


def create_topics(options: Namespace) -> int:
    """Create topics; they can be used when this returns."""
    wanted = {
        "num_partitions": options.partitions,
        "replication_factor": options.replicas,
        "configs": dict(options.configs),
    }
    with admin_client(options) as admin:
        answer = admin.create_topics(dict.fromkeys(options.topics, wanted), raise_errors=False)
    passed_over = ErrorCode.TOPIC_ALREADY_EXISTS if options.if_not_exists else None
    return refusals(row for row in answer["topics"] if row["error_code"] != passed_over)


def alter_topics(options: Namespace) -> int:
    """Change configs, then add partitions."""
    from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType

    changes: dict[str, tuple[Any, str | None]] = {
        name: (AlterConfigOp.SET, value) for name, value in options.configs
    }
    changes |= dict.fromkeys(options.reset, (AlterConfigOp.DELETE, None))
    if not changes and options.partitions is None:
        raise CommandError("nothing to change: give -p, -c or --reset")
    resources = [
        ConfigResource(ConfigResourceType.TOPIC, topic, changes) for topic in options.topics
    ]
    code = 0
    with admin_client(options) as admin:
        if options.if_exists:
            there = {str(topic["name"]) for topic in admin.describe_topics()}
            resources = [each for each in resources if each.name in there]
            options.topics = [name for name in options.topics if name in there]
            if not options.topics:
                return 0
        if changes:
            answer = admin.alter_configs(resources, raise_on_unknown=False)
            for topic, said in answer["topic"].items():
                if said != "OK":
                    print(f"kwire: {topic}: {said}", file=sys.stderr)
                    code = 1
        if options.partitions is not None:
            counts = dict.fromkeys(options.topics, options.partitions)
            answer = admin.create_partitions(counts, raise_errors=False).to_dict()
            code = max(code, refusals(answer["results"]))
    return code


def delete_topics(options: Namespace) -> int:
    """Delete topics."""
    with admin_client(options) as admin:
        answer = admin.delete_topics(options.topics, raise_errors=False)
    passed_over = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if options.if_exists else None
    return refusals(row for row in answer["topics"] if row["error_code"] != passed_over)


def as_kafka_writes_it(topic_id: object) -> str:
    """A topic id as Kafka's tools and partition.metadata show it; a dash if there is none."""
    if topic_id is None:
        return "-"
    return base64.urlsafe_b64encode(UUID(str(topic_id)).bytes).decode().rstrip("=")
