"""`kwire consume`: print records."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from typing import Any

from .client import (
    CommandError,
    Progress,
    add_bootstrap,
    connection,
    key_value,
    no_partition,
    reporting,
    whole_number,
)
from .client_properties import UsageError
from .positions import Position, position, resolve
from .record_format import FormatError, formatter, kafka_formatter

BEGINNING, END = Position(word="beginning"), Position(word="end")


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `kwire consume`."""
    add_bootstrap(parser)
    parser.add_argument("topics", metavar="TOPIC", nargs="+")
    parser.add_argument(
        "-g",
        "--group",
        help="consume as a member of this group and commit (default: every partition, no group)",
    )
    parser.add_argument(
        "-p",
        "--partition",
        type=whole_number,
        action="append",
        metavar="N",
        help="only this partition; repeatable",
    )
    parser.add_argument(
        "-b",
        "--from-beginning",
        action="store_true",
        help="begin with the oldest record (with a group: where it has no offset yet)",
    )
    parser.add_argument(
        "-o",
        "--offset",
        metavar="WHERE",
        type=position,
        help="begin in each partition at: beginning, end (default), an offset, -N (the last N), or a time as"
        " @2025-01-31T12:00:00, @-15m or @MILLISECONDS",
    )
    parser.add_argument(
        "--until",
        metavar="WHERE",
        type=position,
        help="stop before this place, given in the same way",
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
        help="value (default), key-value, json, or kcat's format string: %%t topic, %%p partition, %%o offset,"
        " %%k key, %%s value, %%h headers, %%T timestamp, %%K %%S lengths, \\n line end",
    )
    parser.add_argument(
        "--property",
        metavar="KEY=VALUE",
        type=key_value,
        action="append",
        default=[],
        help="as for kafka-console-consumer.sh, such as print.key=true; repeatable",
    )
    parser.add_argument(
        "--timeout-ms",
        type=whole_number,
        metavar="MS",
        help="stop when no record has come for so long",
    )
    parser.add_argument(
        "--base64",
        action="store_true",
        help="in JSON, give all bytes as base64, not only what is no text",
    )
    parser.add_argument(
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        help="whether records of open and aborted transactions are shown (default read_uncommitted)",
    )


def run(options: Namespace) -> int:
    """Print until stopped."""
    return reporting(consume, options)


def consume(options: Namespace) -> int:
    """Print records as they arrive."""
    from kafka import KafkaConsumer

    check(options)
    consumer = KafkaConsumer(
        **{
            **connection(options, KafkaConsumer),
            "group_id": options.group,
            "auto_offset_reset": "earliest" if options.from_beginning else "latest",
            "enable_auto_commit": False,
            **({"isolation_level": options.isolation_level} if options.isolation_level else {}),
        }
    )
    try:
        if options.group is not None:
            consumer.subscribe(options.topics)
            return follow(consumer, options, {})
        return follow(consumer, options, begin(consumer, options))
    finally:
        consumer.close()


def check(options: Namespace) -> None:
    """Errors: UsageError for options that contradict each other, and for a form that does not exist."""
    try:
        options.formatter = (
            kafka_formatter(dict(options.property))
            if options.property
            else formatter(options.format, options.base64)
        )
    except FormatError as error:
        raise UsageError(f"--{'property' if options.property else 'format'}: {error}") from None
    if options.property and (options.format != "value" or options.base64):
        raise UsageError("--property and --format: give only one of them")
    if options.group is not None:
        for name in ("partition", "offset", "until"):
            if getattr(options, name) is not None:
                raise UsageError(
                    f"--{name} and --group: a group reads all partitions from where it is;"
                    " `kwire groups reset` moves it"
                )
    if options.from_beginning and options.offset is not None:
        raise UsageError("--from-beginning and --offset: give only one of them")


def begin(consumer: Any, options: Namespace) -> dict[Any, int | None]:
    """Assign partitions and seek; returns where each ends, None if it goes on for ever."""
    tps = partitions(consumer, options)
    consumer.assign(tps)
    where = BEGINNING if options.from_beginning else options.offset or END
    start = resolve(consumer, tps, where)
    for tp in tps:
        consumer.seek(tp, start[tp])
    stop: dict[Any, int | None] = dict.fromkeys(tps)
    if options.until is not None and (options.exit or options.until.offset is None):
        stop |= resolve(consumer, tps, options.until)
    elif options.until is not None:  # an offset may be one that will be written
        stop |= dict.fromkeys(tps, options.until.offset)
    elif options.exit:
        stop |= consumer.end_offsets(tps)
    return stop


def partitions(consumer: Any, options: Namespace) -> list[Any]:
    """The partitions to read. Errors: CommandError for those that do not exist."""
    from kafka.structs import TopicPartition

    tps = []
    for topic in options.topics:
        found = consumer.partitions_for_topic(topic)
        if not found:
            raise CommandError(f"{topic}: no such topic, or not authorized to see it")
        for partition in options.partition or ():
            if partition not in found:
                raise no_partition(topic, partition, len(found))
        tps += [TopicPartition(topic, each) for each in options.partition or sorted(found)]
    return tps


def follow(consumer: Any, options: Namespace, stop: dict[Any, int | None]) -> int:
    """Print from the consumer's positions up to `stop`; commit a group's offsets after printing."""
    output = sys.stdout.buffer
    left = options.max
    quiet_since = time.monotonic()
    ends = {tp: end for tp, end in stop.items() if end is not None}
    total = sum(max(0, end - consumer.position(tp)) for tp, end in ends.items())
    with Progress("records", total or left, "rec", shown=not sys.stdout.isatty()) as progress:
        while left is None or left > 0:
            for tp in [tp for tp, end in ends.items() if consumer.position(tp) >= end]:
                del ends[tp]
                consumer.pause(tp)
            if stop and not ends and None not in stop.values():
                break
            batches = consumer.poll(
                timeout_ms=min(500, options.timeout_ms or 500), max_records=min(left or 500, 500)
            )
            for tp, records in batches.items():
                end = ends.get(tp)
                if end is not None:
                    records = [record for record in records if record.offset < end]
                for record in records:
                    output.write(options.formatter(record))
                if left is not None:
                    left -= len(records)
                progress.advance(len(records))
            output.flush()
            if options.group is not None:
                if batches:
                    consumer.commit()
                elif options.exit and at_end(consumer):
                    break
            if batches:
                quiet_since = time.monotonic()
            elif (
                options.timeout_ms is not None
                and (time.monotonic() - quiet_since) * 1000 >= options.timeout_ms
            ):
                break
    return 0


def at_end(consumer: Any) -> bool:
    """Whether a member of a group has partitions, and has read all that is in them."""
    assigned = consumer.assignment()
    if not assigned:  # joining a group can take seconds
        return False
    return all(consumer.position(tp) >= end for tp, end in consumer.end_offsets(assigned).items())
