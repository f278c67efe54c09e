"""`kwire reassign`: move partitions to other brokers and log directories, with plans of kafka-reassign-partitions.sh.

Source: ReassignPartitionsCommand; KIP-455 (the API), KIP-73 (throttles), KIP-113 (log directories).
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kwire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kwire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kwire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

from ..client.asking import placed_of
from ..client.brokers import Brokers
from ..client.errors import Unavailable, no_partition, words_of
from ..client.properties import UsageError
from ..client.requests import metadata_of
from ..controller.assignment import UsableBroker, assign_replicas
from ..controller.refusal import ControllerRefusal
from .brokers import check, with_brokers
from .client import NO_EFFECT, CommandError, add_bootstrap, id_number, whole_number
from .configs import BROKER, DELETE, SET, TOPIC
from .output import add_output, show_rows

Partition = tuple[str, int]
Plan = dict[Partition, list[int]]
#: Broker -> partition -> the absolute path of its replica's target log directory.
LogDirs = dict[int, dict[Partition, str]]

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
#: In a plan: the broker chooses the log directory.
ANY = "any"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"


def add_arguments(parser: ArgumentParser) -> None:
    """The verbs of `kwire reassign` and their options."""
    add_bootstrap(parser)
    add_output(parser)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verb = verbs.add_parser("generate", help="print a plan that spreads topics over brokers")
    verb.add_argument("topics", metavar="TOPIC", nargs="*")
    verb.add_argument(
        "--topics-to-move-json-file",
        metavar="FILE",
        help="file with the topics, as for Apache Kafka's tool",
    )
    verb.add_argument(
        "--brokers",
        "--broker-list",
        dest="broker_ids",
        metavar="ID,ID",
        type=broker_ids,
        help="brokers to use (default: all)",
    )
    verb.add_argument(
        "-r",
        "--replicas",
        type=whole_number,
        metavar="N",
        help="number of replicas (default: unchanged)",
    )
    verb = verbs.add_parser(
        "execute", help="start the moves of a plan, and print the previous assignment"
    )
    _add_plan(verb)
    verb.add_argument(
        "--throttle",
        type=whole_number,
        metavar="BYTES",
        help="maximum bytes per second for each broker",
    )
    verb.add_argument(
        "--replica-alter-log-dirs-throttle",
        dest="log_dirs_throttle",
        type=whole_number,
        metavar="BYTES",
        help="maximum bytes per second that each broker copies between its log directories",
    )
    verb.add_argument("--timeout", metavar="MS", type=whole_number, help=NO_EFFECT)
    verb.add_argument(
        "--additional", action="store_true", help="start even if other partitions are being moved"
    )
    verb = verbs.add_parser(
        "verify",
        help="show the progress of a plan (exit status 1 until it is complete), and remove its throttles when it is",
    )
    _add_plan(verb)
    verb.add_argument("--preserve-throttles", action="store_true", help="leave throttles in place")
    verb = verbs.add_parser(
        "cancel", help="cancel moves, so that partitions return to their previous brokers"
    )
    _add_plan(verb)
    verb.add_argument("--all", action="store_true", help="cancel all moves in progress")
    verb.add_argument("--preserve-throttles", action="store_true", help="leave throttles in place")
    verbs.add_parser("list", help="list the partitions that are being moved")


def _add_plan(parser: ArgumentParser) -> None:
    parser.add_argument(
        "plan", metavar="PLAN", nargs="?", help="file with the plan; - for standard input"
    )
    parser.add_argument(
        "--reassignment-json-file", dest="plan_file", metavar="FILE", help="the same as PLAN"
    )


def broker_ids(text: str) -> list[int]:
    """Parse `1,2,3`. Errors: ArgumentTypeError."""
    try:
        return [id_number(part.strip()) for part in text.split(",")]
    except ArgumentTypeError:
        raise ArgumentTypeError(f"{text!r} is not a list of broker ids such as 1,2,3") from None


def run(options: Namespace) -> int:
    """Run the verb."""
    verb = {
        "generate": generate,
        "execute": execute,
        "verify": verify,
        "cancel": cancel,
        "list": list_moving,
    }[options.verb]
    return with_brokers(verb, options)


# -- plans, pure -----------------------------------------------------------------------------------


def plan_json(
    plan: Mapping[Partition, list[int]],
    log_dirs: Mapping[int, Mapping[Partition, str]] | None = None,
) -> str:
    """A plan in the format of kafka-reassign-partitions.sh; without `log_dirs`, it names none."""
    partitions = []
    for tp, replicas in sorted(plan.items()):
        row: dict[str, Any] = {"topic": tp[0], "partition": tp[1], "replicas": replicas}
        if log_dirs:
            row["log_dirs"] = [log_dirs.get(each, {}).get(tp, ANY) for each in replicas]
        partitions.append(row)
    return json.dumps({"version": 1, "partitions": partitions})


def parse_plan(text: str) -> Plan:
    """Read a plan. Errors: ValueError, which describes the problem."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("partitions"), list):
        raise ValueError('not a plan: {"version": 1, "partitions": [...]} is expected')
    plan: Plan = {}
    for number, row in enumerate(data["partitions"], 1):
        try:
            tp, replicas = (str(row["topic"]), int(row["partition"])), row["replicas"]
            plan_row = [int(each) for each in replicas]
        except (KeyError, TypeError, ValueError):
            raise ValueError(
                f"partition {number} of the list: topic, partition and replicas are expected"
            ) from None
        if tp in plan:
            raise ValueError(f"{tp[0]}-{tp[1]} is named twice")
        if not plan_row or len(set(plan_row)) < len(plan_row):
            raise ValueError(
                f"{tp[0]}-{tp[1]}: replicas {plan_row} are empty, or name a broker twice"
            )
        plan[tp] = plan_row
    if not plan:
        raise ValueError("the plan names no partition")
    return plan


def parse_log_dirs(text: str) -> LogDirs:
    """The log directories in a plan that `parse_plan` has accepted. Errors: ValueError."""
    found: LogDirs = {}
    for row in json.loads(text)["partitions"]:
        tp, replicas = (str(row["topic"]), int(row["partition"])), row["replicas"]
        paths = row.get("log_dirs") or [ANY] * len(replicas)
        if (
            not isinstance(paths, list)
            or len(paths) != len(replicas)
            or not all(isinstance(path, str) for path in paths)
        ):
            raise ValueError(f"{tp[0]}-{tp[1]}: log_dirs has to name one for each replica")
        for broker, path in zip(map(int, replicas), paths, strict=True):
            if path == ANY:
                continue
            if not path.startswith("/"):
                raise ValueError(f"{tp[0]}-{tp[1]}: {path!r} is not an absolute path")
            found.setdefault(broker, {})[tp] = path
    return found


class Answered(NamedTuple):
    """A broker's answer about a replica's log directory; there is no message if the broker itself gave the error."""

    error_code: int
    error_message: str | None


class WantedPlan(NamedTuple):
    """The content of a plan."""

    replicas: Plan
    log_dirs: LogDirs


def throttled_replicas(
    now: Mapping[Partition, list[int]], plan: Mapping[Partition, list[int]]
) -> dict[str, tuple[str, str]]:
    """By topic, the values of the two configs that list throttled replicas: of leaders, then of followers.

    Shape: leaders are all replicas from which others copy, followers are those that are added.
    """
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for (topic, number), replicas in sorted(plan.items()):
        before = now[topic, number]
        added = [each for each in replicas if each not in before]
        leaders.setdefault(topic, []).extend(f"{number}:{each}" for each in before)
        followers.setdefault(topic, []).extend(f"{number}:{each}" for each in added)
    return {topic: (",".join(leaders[topic]), ",".join(followers[topic])) for topic in leaders}


# -- what the cluster says -------------------------------------------------------------------------


def read_plan(options: Namespace) -> WantedPlan:
    """The plan that the options name. Errors: UsageError."""
    name = options.plan if options.plan is not None else options.plan_file
    if name is None:
        raise UsageError(f"{options.verb}: name the file of the plan")
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        return WantedPlan(parse_plan(text), parse_log_dirs(text))
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{name}: {said}") from None


def replicas_of(brokers: Brokers, tps: Iterable[Partition]) -> Plan:
    """The replicas of partitions. Errors: CommandError for nonexistent partitions."""
    tps = list(tps)
    placed = brokers.run(placed_of({topic for topic, _ in tps}))
    result: Plan = {}
    for topic, number in tps:
        if topic not in placed:
            raise CommandError(f"{topic}: {words_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}")
        if number not in placed[topic]:
            raise no_partition(topic, number, len(placed[topic]))
        result[topic, number] = list(placed[topic][number].replicas)
    return result


def moving(brokers: Brokers) -> dict[Partition, Any]:
    """The ongoing moves, by partition. Errors: CommandError, Unavailable."""
    response = brokers.ask_controller(ListPartitionReassignmentsRequest())
    check(response.error_code, response.error_message)
    return {
        (topic.name, row.partition_index): row
        for topic in response.topics
        for row in topic.partitions
    }


def list_moving(brokers: Brokers, options: Namespace) -> int:
    """Print the ongoing moves."""
    rows = [
        [*tp, row.replicas, row.adding_replicas, row.removing_replicas]
        for tp, row in sorted(moving(brokers).items())
    ]
    show_rows(options, ["topic", "partition", "replicas", "adding", "removing"], rows)
    return 0


def generate(brokers: Brokers, options: Namespace) -> int:
    """Print a plan."""
    names = list(options.topics)
    if options.topics_to_move_json_file is not None:
        try:
            data = json.loads(Path(options.topics_to_move_json_file).read_text(encoding="utf-8"))
            names += [row["topic"] for row in data["topics"]]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            said = getattr(error, "strerror", None) or 'not {"topics": [{"topic": NAME}]}'
            raise UsageError(f"{options.topics_to_move_json_file}: {said}") from None
    if not names:
        raise UsageError("generate: name the topics to move")
    brokers.learn_nodes()
    chosen = options.broker_ids or sorted(brokers.nodes)
    for each in chosen:
        if each not in brokers.nodes:
            known = ", ".join(map(str, sorted(brokers.nodes)))
            raise CommandError(f"broker {each} is not in the cluster (brokers: {known})")
    places = [UsableBroker(each, brokers.nodes[each].rack) for each in chosen]
    response = brokers.ask(metadata_of(names))
    plan: Plan = {}
    for topic in sorted(response.topics, key=lambda row: str(row.name)):
        check(topic.error_code, None, topic.name)
        replicas = options.replicas or max(len(row.replica_nodes) for row in topic.partitions)
        assigned = assign_replicas(places, len(topic.partitions), replicas)
        if isinstance(assigned, ControllerRefusal):
            raise CommandError(f"{topic.name}: {assigned.message}")
        plan |= {(topic.name, number): list(row) for number, row in assigned.items()}
    print(plan_json(plan))
    return 0


def reassign(
    brokers: Brokers, plan: Mapping[Partition, list[int] | None]
) -> list[tuple[Partition, Any]]:
    """Start or, with None, cancel moves; returns the rows of the answer."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, number), replicas in sorted(plan.items()):
        topics.setdefault(topic, []).append(
            ReassignablePartition(partition_index=number, replicas=replicas)
        )
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=rows) for topic, rows in topics.items()]
    )
    response = brokers.ask_controller(request)
    check(response.error_code, response.error_message)
    return [
        ((topic.name, row.partition_index), row)
        for topic in response.responses
        for row in topic.partitions
    ]


def refused(rows: Iterable[tuple[Partition, Any]]) -> int:
    """Report each refusal; returns the exit code."""
    code = 0
    for (topic, number), row in rows:
        try:
            check(row.error_code, row.error_message, f"{topic}-{number}")
        except CommandError as error:
            print(f"kwire: {error}", file=sys.stderr)
            code = 1
    return code


def execute(brokers: Brokers, options: Namespace) -> int:
    """Start the moves of a plan."""
    plan, log_dirs = read_plan(options)
    before = replicas_of(brokers, plan)
    others = sorted(moving(brokers))
    if others and not options.additional:
        raise CommandError(
            f"{len(others)} partitions are being moved already, such as {others[0][0]}-{others[0][1]};"
            " --additional adds to them"
        )
    if options.throttle is not None:
        involved = {each for tp in plan for each in (*before[tp], *plan[tp])}
        rate = str(options.throttle)
        set_configs(
            brokers,
            {
                (BROKER, str(each)): {LEADER_RATE: rate, FOLLOWER_RATE: rate}
                for each in sorted(involved)
            },
        )
        set_configs(
            brokers,
            {
                (TOPIC, topic): {LEADER_REPLICAS: leaders, FOLLOWER_REPLICAS: followers}
                for topic, (leaders, followers) in throttled_replicas(before, plan).items()
            },
        )
    if options.log_dirs_throttle is not None:
        rates = {LOG_DIRS_RATE: str(options.log_dirs_throttle)}
        set_configs(brokers, {(BROKER, str(each)): rates for each in sorted(log_dirs)})
    print(plan_json(before, directories_of(brokers, log_dirs, before)))
    print("kwire: the line above is a plan that restores the previous replicas", file=sys.stderr)
    # First, so that added replicas are created in their target directories.
    code = refused(
        (tp, row)
        for broker, wanted in sorted(log_dirs.items())
        for tp, row in alter_log_dirs(brokers, broker, wanted)
        if broker in before[tp] or row.error_code != ErrorCode.REPLICA_NOT_AVAILABLE
    )
    return refused(reassign(brokers, plan)) or code


def alter_log_dirs(
    brokers: Brokers, broker: int, wanted: Mapping[Partition, str]
) -> list[tuple[Partition, Answered]]:
    """Make a broker move replicas to other log directories; returns the rows of the answer."""
    dirs: dict[str, dict[str, list[int]]] = {}
    for (topic, number), path in sorted(wanted.items()):
        dirs.setdefault(path, {}).setdefault(topic, []).append(number)
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=topic, partitions=numbers)
                    for topic, numbers in topics.items()
                ],
            )
            for path, topics in dirs.items()
        ]
    )
    rows = []
    for topic in brokers.ask(request, broker).results:
        for row in topic.partitions:
            tp = (topic.topic_name, row.partition_index)
            said = None
            if row.error_code == ErrorCode.LOG_DIR_NOT_FOUND:
                said = f"broker {broker} has no log directory {wanted.get(tp)}"
            rows.append((tp, Answered(row.error_code, said)))
    return rows


def directories_of(brokers: Brokers, log_dirs: LogDirs, before: Plan) -> LogDirs:
    """The current directories of the replicas that the plan moves between directories, for the way back."""
    found: LogDirs = {}
    for broker, wanted in sorted(log_dirs.items()):
        mine = [tp for tp in wanted if broker in before[tp]]
        for (tp, path), is_future in directory_states(brokers, broker, mine).items():
            if not is_future:
                found.setdefault(broker, {})[tp] = path
    return found


def directory_states(
    brokers: Brokers, broker: int, tps: Iterable[Partition]
) -> dict[tuple[Partition, str], bool]:
    """The log directories with replicas of partitions on a broker, and whether these are unfinished copies."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(tps):
        topics.setdefault(topic, []).append(number)
    if not topics:
        return {}
    request = DescribeLogDirsRequest(
        topics=[
            DescribableLogDirTopic(topic=topic, partitions=numbers)
            for topic, numbers in topics.items()
        ]
    )
    return {
        ((topic.name, row.partition_index), result.log_dir): row.is_future_key
        for result in brokers.ask(request, broker).results
        for topic in result.topics
        for row in topic.partitions
    }


def elsewhere(brokers: Brokers, log_dirs: LogDirs) -> dict[Partition, str]:
    """The partitions with a replica that is not in its log directory yet: `moving`, or `not begun`."""
    found: dict[Partition, str] = {}
    for broker, wanted in sorted(log_dirs.items()):
        states = directory_states(brokers, broker, wanted)
        for tp, path in wanted.items():
            is_future = states.get((tp, path))
            if is_future is None:
                found[tp] = "not begun"
            elif is_future:
                found.setdefault(tp, "moving")
    return found


def verify(brokers: Brokers, options: Namespace) -> int:
    """Print the progress of a plan."""
    plan, log_dirs = read_plan(options)
    ongoing = moving(brokers)
    now = replicas_of(brokers, plan)
    left = elsewhere(brokers, log_dirs)
    rows: list[list[object]] = []
    for tp, wanted in sorted(plan.items()):
        if tp in ongoing:
            state = "moving"
        elif now[tp] == wanted:
            state = left.get(tp, "done")
        else:
            state = "not begun"
        rows.append([*tp, state, now[tp], wanted])
    show_rows(options, ["topic", "partition", "state", "replicas", "wanted"], rows)
    if not ongoing and not left and not options.preserve_throttles:
        end_throttles(brokers, {topic for topic, _ in plan})
    return 0 if all(row[2] == "done" for row in rows) else 1


def cancel(brokers: Brokers, options: Namespace) -> int:
    """Cancel reassignments, so that partitions keep their previous replicas."""
    ongoing = moving(brokers)
    if options.all:
        tps = sorted(ongoing)
    else:
        tps = [tp for tp in sorted(read_plan(options).replicas) if tp in ongoing]
    if not tps:
        print("kwire: none of these partitions is being moved", file=sys.stderr)
        return 0
    code = refused(
        (tp, row)
        for tp, row in reassign(brokers, dict.fromkeys(tps))
        if row.error_code != ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    )
    if not options.preserve_throttles and len(tps) == len(ongoing):
        end_throttles(brokers, {topic for topic, _ in tps})
    return code


def end_throttles(brokers: Brokers, topics: Iterable[str]) -> None:
    """Remove throttles of topics and of all brokers. Errors: CommandError, Unavailable."""
    brokers.learn_nodes()
    rates: dict[str, str | None] = dict.fromkeys((LEADER_RATE, FOLLOWER_RATE, LOG_DIRS_RATE))
    names: dict[str, str | None] = {LEADER_REPLICAS: None, FOLLOWER_REPLICAS: None}
    set_configs(brokers, {(BROKER, str(each)): rates for each in sorted(brokers.nodes)})
    set_configs(brokers, {(TOPIC, topic): names for topic in sorted(topics)})


def set_configs(
    brokers: Brokers, configs: Mapping[tuple[int, str], Mapping[str, str | None]]
) -> None:
    """Set configs, or delete them where the value is None. Errors: CommandError, Unavailable."""
    for (kind, name), values in configs.items():
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        AlterableConfig(
                            name=key, config_operation=DELETE if value is None else SET, value=value
                        )
                        for key, value in values.items()
                    ],
                )
            ],
            validate_only=False,
        )
        try:
            row = brokers.ask(request, int(name) if kind == BROKER else None).responses[0]
        except Unavailable as error:
            raise CommandError(f"throttle: {error}") from None
        check(row.error_code, row.error_message, f"throttle of {name}")
