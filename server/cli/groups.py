"""`kwire groups`: list, describe, reset and delete consumer groups and share groups."""

from __future__ import annotations

import csv
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kwire.errors import ErrorCode
from kwire.messages.delete_groups import DeleteGroupsRequest
from kwire.messages.list_groups import ListGroupsRequest

from ..client.asking import coordinator_if_any, ends_of, placed_of
from ..client.brokers import Brokers
from ..client.errors import Unavailable, Unreached, no_partition
from ..client.properties import UsageError
from ..client.requests import EARLIEST, GROUP, LATEST, metadata_of
from ..explain.facts import GroupFacts
from ..explain.live_groups import group_facts
from ..explain.words import counted
from .brokers import check, with_brokers
from .client import NO_EFFECT, CommandError, add_bootstrap, whole_number
from .group_offsets import GroupOffsetCommands, offsets_of
from .output import add_output, printable, show_rows, wants_json
from .reset_target import (
    Partition,
    duration_target,
    offset_target,
    read_plan,
    resolved,
    shift_target,
    target,
    time_target,
    topic_and_partitions,
)

#: The meaning of error codes of groups, for users.
SAID = {
    ErrorCode.NON_EMPTY_GROUP: "the group has members; stop them first",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members; stop them first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "a member reads this topic; stop it first",
}


def add_arguments(parser: ArgumentParser) -> None:
    """The verbs of `kwire groups` and their options."""
    add_bootstrap(parser)
    add_output(parser)
    parser.add_argument(
        "--timeout", "--timeout-ms", metavar="MS", type=whole_number, help=NO_EFFECT
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verb = verbs.add_parser("list", help="list groups and their states")
    verb.add_argument(
        "--state",
        nargs="?",
        const="",
        metavar="STATES",
        help="only groups in these states, such as Stable,Empty",
    )
    verb.add_argument(
        "--type",
        nargs="?",
        const="",
        metavar="TYPES",
        help="only groups of these types: classic, consumer, share",
    )
    verb = verbs.add_parser("describe", help="show members, offsets and lag")
    _add_groups(verb)
    verb.add_argument("--verbose", action="store_true", help=NO_EFFECT)
    what = verb.add_mutually_exclusive_group()
    what.add_argument("--members", action="store_true", help="show a row for each member")
    what.add_argument("--state", action="store_true", help="show a row for each group")
    what.add_argument(
        "--offsets", action="store_true", help="show a row for each partition (default)"
    )
    verb = verbs.add_parser(
        "reset", aliases=["reset-offsets"], help="set the offsets of a group without members"
    )
    _add_reset(verb)
    verb = verbs.add_parser(
        "validate-regex",
        help="check a regular expression for subscriptions, as consumers of the newer protocol have them (exit status 1 if"
        " it is invalid); needs no broker",
    )
    verb.add_argument("regex", metavar="REGEX")
    verb = verbs.add_parser("delete", help="delete groups without members")
    _add_groups(verb)
    verb = verbs.add_parser(
        "delete-offsets", help="delete the offsets of topics that no member reads"
    )
    verb.add_argument("group", metavar="GROUP")
    verb.add_argument(
        "-t",
        "--topic",
        type=topic_and_partitions,
        action="append",
        required=True,
        metavar="TOPIC[:0,1]",
        help="repeatable",
    )


def _add_groups(parser: ArgumentParser) -> None:
    parser.add_argument("groups", metavar="GROUP", nargs="*")
    parser.add_argument("--all-groups", action="store_true", help="all groups")


def _add_reset(verb: ArgumentParser) -> None:
    _add_groups(verb)
    verb.add_argument(
        "-t",
        "--topic",
        type=topic_and_partitions,
        action="append",
        metavar="TOPIC[:0,1]",
        help="(default: every topic for which the group has offsets); repeatable",
    )
    verb.add_argument(
        "--all-topics", action="store_true", help="every topic for which the group has offsets"
    )
    to = verb.add_mutually_exclusive_group(required=True)
    to.add_argument(
        "--to",
        metavar="WHERE",
        type=target,
        help="earliest, latest, current, an offset, or a time such as 2025-01-31T12:00:00, which is UTC unless it ends with a zone"
        " such as +02:00",
    )
    for word in ("earliest", "latest", "current"):
        to.add_argument(
            f"--to-{word}", dest="to", action="store_const", const=target(word), help=f"--to {word}"
        )
    to.add_argument("--to-offset", dest="to", type=offset_target, metavar="N", help="--to N")
    to.add_argument(
        "--to-datetime",
        dest="to",
        type=time_target,
        metavar="TIME",
        help="--to TIME; UTC unless it ends with a zone",
    )
    to.add_argument(
        "--shift-by",
        dest="to",
        type=shift_target,
        metavar="N",
        help="move forward by N offsets, or back if N is negative",
    )
    to.add_argument(
        "--by-duration",
        dest="to",
        type=duration_target,
        metavar="DURATION",
        help="move to the records written this long ago: PT1H30M or 90m",
    )
    to.add_argument(
        "--from-file",
        metavar="FILE",
        help="file with lines of topic,partition,offset, as printed by --export",
    )
    verb.add_argument(
        "--dry-run", action="store_true", help="show the new offsets without setting them"
    )
    verb.add_argument(
        "--export",
        action="store_true",
        help="print the new offsets as topic,partition,offset without setting them",
    )
    verb.add_argument("--execute", action="store_true", help="set the new offsets (default)")


def run(options: Namespace) -> int:
    """Run the verb."""
    if options.verb == "validate-regex":
        return validate(options.regex)
    verb = {
        "list": list_groups,
        "describe": describe_groups,
        "reset": reset_groups,
        "reset-offsets": reset_groups,
        "delete": delete_groups,
        "delete-offsets": delete_offsets,
    }[options.verb]
    return with_brokers(verb, options)


def validate(regex: str) -> int:
    """Say whether a regular expression is valid, in the words of kafka-consumer-groups.sh."""
    from ..coordinator.common.pattern import InvalidPattern, Pattern

    try:
        Pattern(regex)
    except InvalidPattern as error:
        why = str(error).removesuffix(f" in {regex!r}")
        print(f"The regular expression `{printable(regex)}` is invalid: {printable(why)}.")
        return 1
    print(f"The regular expression `{printable(regex)}` is valid.")
    return 0


def words_for(error_code: int) -> str | None:
    """The meaning of an error here; None for the usual text."""
    return SAID.get(ErrorCode(error_code)) if error_code in SAID else None


def refused(name: str, error_code: int) -> int:
    """Report the error of one row; returns the resulting exit code."""
    if not error_code:
        return 0
    try:
        check(error_code, words_for(error_code), name)
    except CommandError as error:
        print(f"kwire: {error}", file=sys.stderr)
    return 1


def all_groups(brokers: Brokers) -> list[Any]:
    """Every group of the cluster. Errors: CommandError, Unavailable."""
    nodes = brokers.ask(metadata_of([])).brokers
    found = []
    for row in nodes:
        response = brokers.ask(ListGroupsRequest(), row.node_id)
        check(response.error_code)
        found += response.groups
    return sorted(found, key=lambda group: str(group.group_id))


def named(brokers: Brokers, options: Namespace) -> list[str]:
    """The selected groups. Errors: UsageError if there are none."""
    if options.all_groups:
        return [group.group_id for group in all_groups(brokers)]
    if not options.groups:
        raise UsageError("no group is named: give GROUP or --all-groups")
    names: list[str] = options.groups
    return names


def words_in(given: str | None) -> set[str]:
    """Words separated by commas, in lower case."""
    return {word.strip().lower() for word in (given or "").split(",") if word.strip()}


def list_groups(brokers: Brokers, options: Namespace) -> int:
    """Print every group."""
    states, types = words_in(options.state), words_in(options.type)
    rows = [
        [group.group_id, group.group_state, group.protocol_type, group.group_type.lower()]
        for group in all_groups(brokers)
        if (not states or group.group_state.lower() in states)
        and (not types or group.group_type.lower() in types)
    ]
    show_rows(options, ["group", "state", "protocol", "type"], rows)
    return 0


def describe_groups(brokers: Brokers, options: Namespace) -> int:
    """Print groups: their partitions with lag, their members, or their states."""
    code = 0
    states = []
    separate = False
    for name in named(brokers, options):
        facts = brokers.run(group_facts(name, int(time.time() * 1000), stored=False))
        if facts.problem is not None:
            said = "no such group" if facts.problem == "NO_GROUP" else facts.problem_text
            print(f"kwire: {printable(name)}: {said}", file=sys.stderr)
            code = 1
        elif options.state:
            states.append(
                [
                    name,
                    facts.state,
                    facts.kind,
                    facts.assignor,
                    facts.generation,
                    facts.coordinator,
                    len(facts.members),
                ]
            )
        else:
            if separate and not wants_json(options):
                print()
            separate = True
            show = show_members if options.members else show_partitions
            show(options, facts)
    if options.state:
        head = ["group", "state", "type", "assignor", "epoch", "coordinator", "members"]
        show_rows(options, head, states)
    return code


def title_of(facts: GroupFacts) -> str:
    return f"{facts.group}  {facts.state}  {counted(len(facts.members), 'member')}"


def show_partitions(options: Namespace, facts: GroupFacts) -> None:
    """A row for each partition that the group reads, has read, or subscribes to."""
    readers: dict[Partition, list[str]] = {}
    for member in facts.members:
        for tp in member.partitions:
            readers.setdefault(tp, []).append(member.client_id)
    rows = []
    for row in facts.partitions:
        committed = row.committed if row.committed >= 0 else None
        # Without an offset, all records of the partition are still to be read. A share group may skip them.
        lag = row.lag
        if committed is None and row.log_start is not None and facts.kind != "share":
            lag = None if row.end is None else row.end - row.log_start
        read_by = ",".join(readers.get((row.topic, row.partition), ())) or None
        rows.append([row.topic, row.partition, committed, row.end, lag, read_by, row.note])
    head = ["topic", "partition", "offset", "end", "lag", "member", "note"]
    if not wants_json(options) and not any(row[-1] for row in rows):
        head, rows = head[:-1], [row[:-1] for row in rows]
    if wants_json(options):
        show_rows(options, ["group", *head], [[facts.group, *row] for row in rows])
    else:
        if facts.kind == "share":
            head[2] = "start"  # records before it are done; later ones may be, too
        show_rows(options, head, rows, title_of(facts))


def show_members(options: Namespace, facts: GroupFacts) -> None:
    """A row for each member."""
    head = ["group", "member", "client", "host", "instance", "epoch", "partitions"]
    rows = [
        [
            facts.group,
            member.member_id,
            member.client_id,
            member.host.removeprefix("/"),
            member.instance_id,
            member.epoch,
            [f"{topic}-{partition}" for topic, partition in member.partitions],
        ]
        for member in facts.members
    ]
    show_rows(options, head, rows, title_of(facts))


# -- offsets ---------------------------------------------------------------------------------------


def reset_groups(brokers: Brokers, options: Namespace) -> int:
    """Set the offsets of groups."""
    return max([reset_group(brokers, options, name) for name in named(brokers, options)], default=0)


def reset_group(brokers: Brokers, options: Namespace, group: str) -> int:
    """Set a group's offsets, or show what would be set."""
    offsets = offsets_of(brokers, group)
    plan = plan_of(brokers, options, offsets)
    if not plan:
        print(f"kwire: {printable(group)}: no topics to reset", file=sys.stderr)
        return 1
    if options.export:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([topic, partition, offset] for (topic, partition), offset in plan.items())
        return 0
    errors = {} if options.dry_run else offsets.store(plan)
    code, rows = 0, []
    told: set[int] = set()
    for tp, offset in plan.items():
        error = errors.get(tp, 0)
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NON_EMPTY_GROUP):
            # The same for all partitions: the group has members.
            code = 1 if error in told else refused(group, error)
            told.add(error)
        elif error:
            code = refused(f"{tp[0]}-{tp[1]}", error)
        else:
            rows.append([*tp, offset])
    if rows:
        head = ["topic", "partition", "offset"]
        if wants_json(options):
            show_rows(options, ["group", *head], [[group, *row] for row in rows])
        else:
            show_rows(options, head, rows)
    if options.dry_run:
        print(f"kwire: {printable(group)}: nothing is set: this is a dry run", file=sys.stderr)
    return code


def plan_of(
    brokers: Brokers, options: Namespace, offsets: GroupOffsetCommands
) -> dict[Partition, int]:
    """The offset for each partition. Errors: UsageError, CommandError, Unavailable."""
    if options.from_file is not None:
        try:
            with Path(options.from_file).open(encoding="utf-8", newline="") as lines:
                wanted = read_plan(lines)
        except (OSError, ValueError) as error:
            said = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"{options.from_file}: {said}") from None
        return dict(sorted(wanted.items()))
    committed = offsets.stored()
    tps = chosen(brokers, options.topic, committed)
    leaders = leaders_of(brokers, tps)

    def at(time_ms: int) -> dict[Partition, int]:
        return offsets_at(brokers, leaders, time_ms)

    starts, ends = at(EARLIEST), at(LATEST)
    return resolved(options.to, tps, committed, starts, ends, at, int(time.time() * 1000))


def chosen(
    brokers: Brokers,
    topics: list[tuple[str, list[int] | None]] | None,
    committed: Iterable[Partition],
) -> list[Partition]:
    """The partitions to reset. Errors: CommandError for nonexistent ones."""
    if not topics:
        return sorted(committed)
    response = brokers.ask(metadata_of([name for name, _ in topics]))
    there = {}
    for row in response.topics:
        check(row.error_code, None, row.name)
        there[row.name] = sorted(part.partition_index for part in row.partitions)
    tps = []
    for name, numbers in topics:
        for number in there[name] if numbers is None else numbers:
            if number not in there[name]:
                raise no_partition(name, number, len(there[name]))
            tps.append((name, number))
    return sorted(tps)


def leaders_of(brokers: Brokers, tps: Iterable[Partition]) -> dict[int, list[Partition]]:
    """Partitions by their leader. Errors: CommandError for a partition without a leader."""
    placed = brokers.run(placed_of({topic for topic, _ in tps}))
    leaders: dict[int, list[Partition]] = {}
    for topic, number in tps:
        leader = placed[topic][number].leader if number in placed.get(topic, {}) else -1
        if leader < 0:
            raise CommandError(f"{topic}-{number}: no leader")
        leaders.setdefault(leader, []).append((topic, number))
    return leaders


def offsets_at(
    brokers: Brokers, leaders: dict[int, list[Partition]], time_ms: int
) -> dict[Partition, int]:
    """The first offset at or after a time; partitions without such an offset are omitted.

    Errors: CommandError for a partition whose leader refuses the lookup.
    """
    found: dict[Partition, int] = {}
    for broker, tps in leaders.items():
        found |= brokers.run(ends_of(broker, tps, at=time_ms))
        for topic, number in tps:
            if (topic, number) not in found:
                raise CommandError(f"{topic}-{number}: its leader does not return its offsets")
    return {tp: offset for tp, offset in found.items() if offset >= 0}


def coordinator(brokers: Brokers, group: str) -> int | None:
    """The coordinator of a group; None if there has never been a group. Errors: CommandError, which names the group."""
    try:
        return brokers.run(coordinator_if_any(GROUP, group))
    except Unavailable as error:
        if isinstance(error, Unreached):
            raise
        raise CommandError(f"{group}: {error}") from None


def delete_groups(brokers: Brokers, options: Namespace) -> int:
    """Delete groups and their offsets."""
    code = 0
    for name in named(brokers, options):
        broker = coordinator(brokers, name)
        if broker is None:
            code = refused(name, ErrorCode.GROUP_ID_NOT_FOUND)
            continue
        response = brokers.ask(DeleteGroupsRequest(groups_names=[name]), broker)
        code = max(code, refused(name, response.results[0].error_code))
    return code


def delete_offsets(brokers: Brokers, options: Namespace) -> int:
    """Remove a group's offsets. Errors: UsageError for single partitions of a share group."""
    group = options.group
    if coordinator(brokers, group) is None:
        return refused(group, ErrorCode.GROUP_ID_NOT_FOUND)
    offsets = offsets_of(brokers, group)
    if not offsets.by_partition and any(numbers is not None for _, numbers in options.topic):
        raise UsageError(
            f"{group} is a share group; its offsets can only be deleted for whole topics"
        )
    errors = offsets.forget(chosen(brokers, options.topic, ()))
    return max([refused(name, error) for name, error in errors.items()], default=0)
