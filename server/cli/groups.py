"""`kwire groups`: list, describe, reset and delete consumer groups."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from datetime import datetime
from typing import Any

from .client import add_bootstrap, admin_client, administering, print_table


def add_arguments(parser: ArgumentParser) -> None:
    """The verbs of `kwire groups` and their options."""
    add_bootstrap(parser)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verbs.add_parser("list", help="groups and their states")
    verb = verbs.add_parser("describe", help="members, offsets and lag")
    verb.add_argument("groups", metavar="GROUP", nargs="+")
    verb = verbs.add_parser("reset", help="set the offsets of a group without members")
    verb.add_argument("group", metavar="GROUP")
    verb.add_argument(
        "-t",
        "--topic",
        action="append",
        help="(default: every topic for which the group has offsets); repeatable",
    )
    verb.add_argument(
        "--to",
        required=True,
        metavar="WHERE",
        type=reset_target,
        help="earliest, latest, an offset, or a time as 2025-01-31T12:00:00",
    )
    verb.add_argument("--dry-run", action="store_true", help="only show what would be set")
    verb = verbs.add_parser("delete", help="delete groups without members")
    verb.add_argument("groups", metavar="GROUP", nargs="+")


def run(options: Namespace) -> int:
    """Run the verb."""
    verb = {
        "list": list_groups,
        "describe": describe_groups,
        "reset": reset_group,
        "delete": delete_groups,
    }[options.verb]
    return administering(verb, options)


def list_groups(options: Namespace) -> int:
    """Print every group."""
    with admin_client(options) as admin:
        groups = sorted(admin.list_groups(), key=lambda group: str(group["group_id"]))
    print_table(
        ["group", "state", "protocol"],
        [
            [group["group_id"], group.get("group_state", ""), group["protocol_type"]]
            for group in groups
        ],
    )
    return 0


def describe_groups(options: Namespace) -> int:
    """Print offsets, lag and the reader of each partition."""
    from kafka.admin import OffsetSpec

    code = 0
    with admin_client(options) as admin:
        described = admin.describe_groups(options.groups)
        offsets = admin.list_group_offsets(dict.fromkeys(options.groups))
        for name in options.groups:
            group, committed = described[name], offsets[name]
            if group["group_state"] == "Dead" and not committed:
                print(f"kwire: {name}: no such group", file=sys.stderr)
                code = 1
                continue
            ends = (
                admin.list_partition_offsets(dict.fromkeys(committed, OffsetSpec.LATEST))
                if committed
                else {}
            )
            readers = readers_of(group["members"])
            print(f"{name}  {group['group_state']}  {len(group['members'])} members")
            rows = []
            for tp in sorted(set(committed) | set(readers)):
                offset = committed[tp].offset if tp in committed else None
                end = ends[tp].offset if tp in ends else None
                lag = end - offset if offset is not None and end is not None else "-"
                rows.append(
                    [tp.topic, tp.partition, shown(offset), shown(end), lag, readers.get(tp, "-")]
                )
            print_table(["topic", "partition", "offset", "end", "lag", "member"], rows)
    return code


def readers_of(members: list[dict[str, Any]]) -> dict[Any, str]:
    """Map each partition to the client id of its member."""
    from kafka.structs import TopicPartition

    readers = {}
    for member in members:
        assignment = member.get("member_assignment")
        if isinstance(assignment, dict):
            for topic in assignment.get("assigned_partitions", ()):
                for partition in topic["partitions"]:
                    readers[TopicPartition(topic["topic"], partition)] = str(member["client_id"])
    return readers


def reset_group(options: Namespace) -> int:
    """Set a group's offsets."""
    from kafka.structs import TopicPartition

    with admin_client(options) as admin:
        if options.topic:
            tps = [
                TopicPartition(topic["name"], partition["partition_index"])
                for topic in admin.describe_topics(options.topic)
                for partition in topic["partitions"]
            ]
        else:
            tps = list(admin.list_group_offsets({options.group: None})[options.group])
        if not tps:
            print(f"kwire: {options.group}: no topics to reset", file=sys.stderr)
            return 1
        target = target_offset(options.to)
        if options.dry_run:
            found = (
                dict.fromkeys(tps, target) if type(target) is int else resolve(admin, tps, target)
            )
            print_table(
                ["topic", "partition", "offset"],
                [[tp.topic, tp.partition, found[tp]] for tp in sorted(tps)],
            )
            return 0
        answer = admin.reset_group_offsets(options.group, dict.fromkeys(tps, target))
    code = 0
    rows = []
    for tp in sorted(answer):
        error = answer[tp]["error"]
        if getattr(error, "errno", 0):
            print(f"kwire: {tp.topic}-{tp.partition}: {error.__name__}", file=sys.stderr)
            code = 1
        else:
            rows.append([tp.topic, tp.partition, answer[tp]["offset"]])
    print_table(["topic", "partition", "offset"], rows)
    return code


def resolve(admin: Any, tps: list[Any], target: Any) -> dict[Any, int]:
    """The offsets that a reset would set."""
    found = admin.list_partition_offsets(dict.fromkeys(tps, target))
    return {tp: found[tp].offset for tp in tps}


def reset_target(text: str) -> str | int | datetime:
    """`earliest` or `latest`, an offset, or a time. Errors: ArgumentTypeError."""
    if text in ("earliest", "latest"):
        return text
    if text.isdigit():
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(
            f"{text!r} is neither earliest, latest, an offset nor a time"
        ) from None


def target_offset(target: str | int | datetime) -> Any:
    """The position as kafka-python takes it."""
    from kafka.admin import OffsetSpec, OffsetTimestamp

    if isinstance(target, datetime):
        return OffsetTimestamp(int(target.timestamp() * 1000))
    if isinstance(target, int):
        return target
    return OffsetSpec.EARLIEST if target == "earliest" else OffsetSpec.LATEST


def delete_groups(options: Namespace) -> int:
    """Delete groups with their offsets."""
    with admin_client(options) as admin:
        answer = admin.delete_groups(options.groups)
    code = 0
    for name, said in answer.items():
        if said != "OK":
            print(f"kwire: {name}: {said}", file=sys.stderr)
            code = 1
    return code


def shown(offset: int | None) -> str:
    """An offset, or a dash if there is none."""
    return "-" if offset is None or offset < 0 else str(offset)
