"""`kwire topics`: list, describe, create, change and delete topics."""

from __future__ import annotations

import base64
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from .client import (
    CommandError,
    add_bootstrap,
    admin_client,
    administering,
    key_value,
    print_table,
    refusals,
)


def add_arguments(parser: ArgumentParser) -> None:
    """The verbs of `kwire topics` and their options."""
    add_bootstrap(parser)
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
    verb = verbs.add_parser("delete", help="delete topics and their records")
    verb.add_argument("topics", metavar="TOPIC", nargs="+")


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
        for topic in sorted(admin.describe_topics(), key=lambda topic: str(topic["name"])):
            if options.all or not topic["is_internal"]:
                print(topic["name"])
    return 0


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
            changed, offsets = "", {}
            # One answer is enough, because brokers may be dying.
            if not options.under_replicated:
                changed = _changed_configs(admin, name)
                offsets = _offsets(admin, name, partitions)
            print(f"{name}  {count} partitions  id {number}  {changed}".rstrip())
            header = ["partition", "leader", "replicas", "in sync"]
            rows = []
            for row in partitions:
                partition = row["partition_index"]
                replicas, isr = (
                    ",".join(map(str, row[key])) for key in ("replica_nodes", "isr_nodes")
                )
                rows.append(
                    [partition, row["leader_id"], replicas, isr, *offsets.get(partition, ())]
                )
            print_table(header if options.under_replicated else [*header, "first", "end"], rows)
    return code


def _changed_configs(admin: Any, topic: str) -> str:
    from kafka.admin import ConfigResource, ConfigResourceType

    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    configs = admin.describe_configs([resource])["topic"].get(topic, {})
    return " ".join(f"{key}={config['value']}" for key, config in sorted(configs.items()))


def _offsets(
    admin: Any, topic: str, partitions: Sequence[Mapping[str, Any]]
) -> dict[int, tuple[object, object]]:
    """The first and the end offset of each partition; dashes for one without a leader."""
    from kafka.admin import OffsetSpec
    from kafka.structs import TopicPartition

    led = [
        TopicPartition(topic, row["partition_index"]) for row in partitions if row["leader_id"] >= 0
    ]
    first = admin.list_partition_offsets(dict.fromkeys(led, OffsetSpec.EARLIEST))
    end = admin.list_partition_offsets(dict.fromkeys(led, OffsetSpec.LATEST))
    found: dict[int, tuple[object, object]] = {
        row["partition_index"]: ("-", "-") for row in partitions
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
    return refusals(answer["topics"])


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
    return refusals(answer["topics"])


def as_kafka_writes_it(topic_id: object) -> str:
    """A topic id as Kafka's tools and partition.metadata show it; a dash if there is none."""
    if topic_id is None:
        return "-"
    return base64.urlsafe_b64encode(UUID(str(topic_id)).bytes).decode().rstrip("=")
