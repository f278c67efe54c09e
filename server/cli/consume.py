"""`kwire consume`: print records."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..arguments import text
from ..client.errors import no_partition
from ..client.positions import StartPosition, resolve
from ..client.properties import UsageError
from ..client.requests import READ_COMMITTED, READ_UNCOMMITTED, Partition
from .client import (
    NO_EFFECT,
    CommandError,
    ProgressBar,
    add_bootstrap,
    arguments_of,
    id_number,
    pair,
    tell_idle,
    whole_number,
)
from .positions import position
from .record_format import FormatError, PrintForm, formatter, kafka_formatter

if TYPE_CHECKING:
    from ..client.brokers import Brokers
    from ..client.membership import GroupMembership
    from ..client.reader import Reader

BEGINNING, END = StartPosition(word="beginning"), StartPosition(word="end")
#: How long a poll waits; between polls, signals, heartbeats and --timeout-ms are handled.
POLL_S = 0.5
#: The time until unreadable partitions are reported, and until reading up to an end is given up.
TELL_S, GIVE_UP_S = 1.0, 60.0
#: Client properties with an effect here, by their use.
LIMITS = {
    "fetch_max_wait_ms": "max_wait_ms",
    "fetch_min_bytes": "min_bytes",
    "fetch_max_bytes": "max_bytes",
    "max_partition_fetch_bytes": "partition_bytes",
}
READER = {"client_rack": "rack", "request_timeout_ms": "request_timeout_ms"}
MEMBER = {
    "group_instance_id": "instance_id",
    "session_timeout_ms": "session_timeout_ms",
    "max_poll_interval_ms": "rebalance_timeout_ms",
}
MEMBERSHIP = {
    "heartbeat_interval_ms": "heartbeat_ms",
    "metadata_max_age_ms": "metadata_max_age_ms",
}
ISOLATION = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `kwire consume`."""
    add_bootstrap(parser, "--consumer-property")
    parser.add_argument("topics", metavar="TOPIC", nargs="+")
    parser.add_argument(
        "-g",
        "--group",
        help="consume as a member of this group, and commit offsets (default: read every partition, without a group)",
    )
    parser.add_argument(
        "-p",
        "--partition",
        type=id_number,
        action="append",
        metavar="N",
        help="only this partition; repeatable",
    )
    parser.add_argument(
        "-b",
        "--from-beginning",
        action="store_true",
        default=None,
        help="start at the oldest record (with a group: in partitions for which it has no offset yet); -e does the same",
    )
    parser.add_argument(
        "-o",
        "--offset",
        metavar="WHERE",
        type=position,
        help="where to start in each partition: beginning (default with -e), end (default without -e), an offset, -N (the last N records), or a time as"
        " @2025-01-31T12:00:00 (UTC, unless it ends with a zone such as +02:00), @-15m or @MILLISECONDS",
    )
    parser.add_argument(
        "--until",
        metavar="WHERE",
        type=position,
        help="stop before this place, given as for --offset",
    )
    parser.add_argument(
        "-n",
        "--max",
        "--max-messages",
        type=whole_number,
        metavar="N",
        help="stop after N records",
    )
    parser.add_argument(
        "-e", "--exit", action="store_true", help="stop at the end instead of waiting for more"
    )
    parser.add_argument(
        "-f",
        "--format",
        default="value",
        metavar="FORM",
        type=text,
        help="value (default), key-value, json, or kcat's format string: %%t topic, %%p partition, %%o offset,"
        " %%k key, %%s value, %%h headers, %%T timestamp, %%K %%S lengths, \\n line end",
    )
    parser.add_argument(
        "--property",
        "--formatter-property",
        metavar="KEY=VALUE",
        type=pair,
        action="append",
        default=[],
        help="as for kafka-console-consumer.sh, such as print.key=true; repeatable",
    )
    parser.add_argument("--skip-message-on-error", action="store_true", help=NO_EFFECT)
    parser.add_argument(
        "--timeout-ms",
        type=whole_number,
        metavar="MS",
        help="stop when no record has arrived for this long",
    )
    parser.add_argument(
        "--base64",
        action="store_true",
        help="in JSON, encode all bytes as base64, not only those that are not text",
    )
    parser.add_argument(
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        help="whether to show records of open and aborted transactions (default read_uncommitted)",
    )


def run(options: Namespace) -> int:
    """Print until stopped."""
    from .brokers import in_words

    return in_words(lambda: consume(options))


def consume(options: Namespace) -> int:
    """Print records as they arrive."""
    from .brokers import open_brokers

    form = check(options)
    brokers = open_brokers(options)
    reader = membership = None
    try:
        reader = open_reader(brokers, options)
        if options.group is not None:
            membership = open_membership(brokers, options)
        return follow(reader, membership, form, options)
    finally:
        if membership is not None:
            membership.leave()
        if reader is not None:
            reader.close()
        brokers.close()


def check(options: Namespace) -> PrintForm:
    """The form of the records. Errors: UsageError, also for options that contradict each other."""
    take_properties(options)
    try:
        form = (
            kafka_formatter(dict(options.property))
            if options.property
            else formatter(options.format, options.base64)
        )
    except FormatError as error:
        raise UsageError(f"--{'property' if options.property else 'format'}: {error}") from None
    if options.property and (options.format != "value" or options.base64):
        raise UsageError("--property and --format: give only one of them")
    if options.group == "":
        raise UsageError("--group: the name of a group is not empty")
    if options.group is not None:
        for name in ("partition", "offset", "until"):
            if getattr(options, name) is not None:
                raise UsageError(
                    f"--{name} and --group: a group reads all partitions from where it is;"
                    " `kwire groups reset` moves it"
                )
    if options.from_beginning and options.offset is not None:
        raise UsageError("--from-beginning and --offset: give only one of them")
    return form


def take_properties(options: Namespace) -> None:
    """Set options that are not given from the client properties. Errors: UsageError."""
    arguments = arguments_of(options)
    tell_idle(
        arguments,
        (
            *LIMITS,
            *READER,
            *MEMBER,
            *MEMBERSHIP,
            "isolation_level",
            "group_id",
            "auto_offset_reset",
        ),
    )
    if options.group is None:
        options.group = arguments.get("group_id")
    reset = arguments.get("auto_offset_reset")
    if options.from_beginning is None and options.offset is None and reset is not None:
        options.from_beginning = reset == "earliest"
    level = options.isolation_level or arguments.get("isolation_level", "read_uncommitted")
    if level not in ISOLATION:
        raise UsageError(f"isolation.level={level} is not one of {', '.join(ISOLATION)}")
    options.isolation_level = level


def chosen(arguments: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Arguments under the names used here."""
    return {new: arguments[old] for old, new in names.items() if old in arguments}


def open_reader(brokers: Brokers, options: Namespace) -> Reader:
    """A reader of the topics. Errors: CommandError, Unavailable."""
    from ..client.reader import Reader
    from ..client.requests import Limits

    arguments = arguments_of(options)
    return Reader(
        brokers,
        options.topics,
        isolation=ISOLATION[options.isolation_level],
        limits=Limits(**chosen(arguments, LIMITS)),
        **chosen(arguments, READER),
    )


def open_membership(brokers: Brokers, options: Namespace) -> GroupMembership:
    """A member of the group, which has not joined yet."""
    from ..client.member import MemberRequests
    from ..client.membership import GroupMembership

    arguments = arguments_of(options)
    member = MemberRequests(options.group, options.topics, **chosen(arguments, MEMBER))
    return GroupMembership(brokers, member, **chosen(arguments, MEMBERSHIP))


def first_position(options: Namespace) -> StartPosition:
    """The start if no offset is known: with an end, only the beginning leaves something to read."""
    from_beginning = options.exit if options.from_beginning is None else options.from_beginning
    return BEGINNING if from_beginning else END


def begin(reader: Reader, options: Namespace) -> None:
    """Read partitions from the position in the options."""
    tps = partitions(reader, options)
    where = options.offset or first_position(options)
    start = resolve(reader.leaders.offsets_at, tps, where)
    ends: dict[Partition, int] = {}
    if options.until is not None and (options.exit or options.until.offset is None):
        ends = resolve(reader.leaders.offsets_at, tps, options.until)
    elif options.until is not None:  # the offset may not have been written yet
        ends = dict.fromkeys(tps, options.until.offset)
    elif options.exit:
        ends = resolve(reader.leaders.offsets_at, tps, END)
    reader.read(start, ends)


def partitions(reader: Reader, options: Namespace) -> list[Partition]:
    """The partitions to read. Errors: CommandError for nonexistent ones."""
    tps = []
    for topic in dict.fromkeys(options.topics):
        found = reader.leaders.partitions(topic)
        for number in options.partition or ():
            if number not in found:
                raise no_partition(topic, number, len(found))
        tps += [(topic, number) for number in options.partition or found]
    return tps


def join(reader: Reader, membership: GroupMembership, options: Namespace) -> None:
    """Join the group, and continue from its position."""
    tps, start = membership.join()
    new = [tp for tp in tps if tp not in start]
    where = first_position(options)
    start = {**start, **resolve(reader.leaders.offsets_at, new, where)}
    reader.read(start, resolve(reader.leaders.offsets_at, tps, END) if options.exit else {})


def follow(
    reader: Reader, membership: GroupMembership | None, form: PrintForm, options: Namespace
) -> int:
    """Print records; commit a group's offsets after printing."""
    from .printing import StandardOutput, text_of

    idle = None if membership is None else membership.keep_alive
    output = StandardOutput(sys.stdout.buffer, idle)
    left = options.max
    bounded = options.exit or options.until is not None
    wait_s = POLL_S if options.timeout_ms is None else min(POLL_S, options.timeout_ms / 1000)
    if membership is None:
        begin(reader, options)
    told = False
    quiet_since = time.monotonic()
    total = reader.left or left
    with ProgressBar("records", total, "rec", shown=not sys.stdout.isatty()) as progress:
        while left is None or left > 0:
            if membership is not None:
                membership.keep_alive()
                if not membership.is_in:
                    join(reader, membership, options)
            if bounded and reader.is_done:
                break
            chunks = reader.poll(wait_s)
            for chunk in chunks:
                if left == 0:
                    break
                printed = text_of(chunk, form, left)
                output.write(printed.text)
                if left is not None:
                    left -= printed.records
                progress.advance(printed.records)
                if printed.records:
                    quiet_since = time.monotonic()
                if membership is not None:
                    membership.commit({chunk.partition: printed.next_offset})
            now = time.monotonic()
            if options.timeout_ms is not None and (now - quiet_since) * 1000 >= options.timeout_ms:
                break
            told = tell_trouble(reader.trouble, now, told, bounded)
    return 0


def tell_trouble(trouble: tuple[float, str] | None, now: float, told: bool, bounded: bool) -> bool:
    """Report unreadable partitions; returns whether that was reported. Errors: CommandError if reading has an end and
    takes too long.
    """
    if trouble is None:
        return False
    since, said = trouble
    if bounded and now - since > GIVE_UP_S:
        raise CommandError(said)
    if not told and now - since > TELL_S:
        print(f"kwire: {said}; still trying", file=sys.stderr)
        return True
    return told
