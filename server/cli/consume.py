"""`kwire consume`: print records."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from typing import Any

from .client import (
    BOOTSTRAP_TIMEOUT_MS,
    CommandError,
    Progress,
    add_bootstrap,
    reporting,
    whole_number,
)


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
        "-b",
        "--from-beginning",
        action="store_true",
        help="begin with the oldest record (with a group: where it has no offset yet)",
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
        choices=("value", "key-value", "json"),
        default="value",
        help="(default value)",
    )


def run(options: Namespace) -> int:
    """Print until stopped."""
    return reporting(consume, options)


def consume(options: Namespace) -> int:
    """Print records as they arrive."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        bootstrap_servers=options.bootstrap,
        client_id="kwire-cli",
        bootstrap_timeout_ms=BOOTSTRAP_TIMEOUT_MS,
        group_id=options.group,
        auto_offset_reset="earliest" if options.from_beginning else "latest",
        enable_auto_commit=False,
    )
    try:
        return follow(consumer, options)
    finally:
        consumer.close()


def follow(consumer: Any, options: Namespace) -> int:
    """Read from the position in the options; commit a group's offsets after printing."""
    remaining: dict[Any, int] = {}
    if options.group is not None:
        consumer.subscribe(options.topics)
    else:
        remaining = begin_everywhere(consumer, options)
    output = sys.stdout.buffer
    left = options.max
    quiet_since = time.monotonic()
    total = sum(remaining.values()) if options.exit and remaining else options.max
    with Progress("records", total, "rec") as progress:
        while left is None or left > 0:
            if options.exit and options.group is None and not any(remaining.values()):
                break
            batches = consumer.poll(timeout_ms=500, max_records=min(left or 500, 500))
            for tp, records in batches.items():
                for record in records:
                    output.write(format_record(record, options.format) + b"\n")
                if left is not None:
                    left -= len(records)
                remaining[tp] = max(0, remaining.get(tp, 0) - len(records))
                if records and consumer.position(tp) >= (consumer.highwater(tp) or 0):
                    remaining[tp] = 0
                progress.advance(len(records))
            output.flush()
            if batches:
                quiet_since = time.monotonic()
                if options.group is not None:
                    consumer.commit()
            elif options.exit and consumer.assignment() and time.monotonic() - quiet_since > 2:
                break
    return 0


def begin_everywhere(consumer: Any, options: Namespace) -> dict[Any, int]:
    """Assign every partition; returns how many offsets each has before its end."""
    from kafka.structs import TopicPartition

    tps = []
    for topic in options.topics:
        partitions = consumer.partitions_for_topic(topic)
        if not partitions:
            raise CommandError(f"{topic}: no such topic, or not authorized to see it")
        tps += [TopicPartition(topic, partition) for partition in sorted(partitions)]
    consumer.assign(tps)
    end = consumer.end_offsets(tps)
    if not options.from_beginning:
        consumer.seek_to_end(*tps)
        return dict.fromkeys(tps, 0)
    consumer.seek_to_beginning(*tps)
    first = consumer.beginning_offsets(tps)
    return {tp: end[tp] - first[tp] for tp in tps}


def format_record(record: Any, form: str) -> bytes:
    """One record as a line, without the line end."""
    if form == "json":
        entry = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": to_text(record.key),
            "value": to_text(record.value),
            "headers": {key: to_text(value) for key, value in record.headers},
        }
        return json.dumps(entry, ensure_ascii=False).encode()
    value: bytes = record.value if record.value is not None else b""
    if form == "key-value":
        return (record.key if record.key is not None else b"") + b"\t" + value
    return value


def to_text(data: bytes | None) -> str | None:
    """Bytes as text; bytes that are not UTF-8 are shown with escapes."""
    return None if data is None else data.decode("utf-8", "backslashreplace")
