"""`kwire produce`: send lines as records."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from .client import (
    CommandError,
    Progress,
    add_bootstrap,
    connection,
    key_value,
    reporting,
    whole_number,
)
from .client_properties import UsageError
from .record_format import FormatError, from_json

#: How many sends may be unconfirmed; more would only use memory.
IN_FLIGHT = 10_000
#: The longest wait for acknowledgements.
DELIVERY_TIMEOUT_MS = 30_000


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `kwire produce`."""
    add_bootstrap(parser)
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="file with the lines to send (default: standard input)",
    )
    parser.add_argument(
        "-f",
        "--format",
        choices=("value", "json"),
        default="value",
        help="what a line is: a value (default), or a JSON object as `kwire consume -f json` prints it",
    )
    parser.add_argument(
        "-K", "--key-separator", metavar="TEXT", help="separates key and value in a line"
    )
    parser.add_argument(
        "-k", "--key", metavar="TEXT", help="key of every record that has none of its own"
    )
    parser.add_argument(
        "-H",
        "--header",
        metavar="KEY=VALUE",
        type=key_value,
        action="append",
        default=[],
        help="header of every record; repeatable",
    )
    parser.add_argument(
        "-Z", "--null", action="store_true", help="send an empty value as null, a tombstone"
    )
    parser.add_argument(
        "--property",
        metavar="KEY=VALUE",
        type=key_value,
        action="append",
        default=[],
        help="as for kafka-console-producer.sh: parse.key=true, key.separator, null.marker; repeatable",
    )
    parser.add_argument("-p", "--partition", type=whole_number, help="(default: by key)")
    parser.add_argument(
        "--same-partition",
        action="store_true",
        help="with JSON, send each record to the partition that it names",
    )
    parser.add_argument("-z", "--compression", choices=("gzip", "snappy", "lz4", "zstd"))
    parser.add_argument("--acks", choices=("0", "1", "all"), default="all", help="(default all)")


def run(options: Namespace) -> int:
    """Send every line, and wait until all are acknowledged."""
    return reporting(produce, options)


class Line(NamedTuple):
    """A record to send. Shape: `length` is that of the line in bytes, with its end."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None
    timestamp: int | None
    length: int


def produce(options: Namespace) -> int:
    """Send the lines of a file or of standard input."""
    take_properties(options)
    if options.format == "json" and options.key_separator is not None:
        raise UsageError("--key-separator and --format json: a JSON line names its key")
    if options.same_partition and (options.format != "json" or options.partition is not None):
        raise UsageError("--same-partition needs --format json, and no --partition")
    if options.file is None:
        return send(options, sys.stdin.buffer, None)
    path = Path(options.file)
    try:
        with path.open("rb") as lines:
            return send(options, lines, path.stat().st_size)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def take_properties(options: Namespace) -> None:
    """Set options as the properties of Apache Kafka's tool say. Errors: UsageError."""
    properties = dict(options.property)
    parse_key = properties.pop("parse.key", "false").lower() == "true"
    separator = properties.pop("key.separator", "\t")
    marker = properties.pop("null.marker", None)
    if properties:
        known = "parse.key, key.separator, null.marker"
        raise UsageError(f"--property {', '.join(properties)}: none of {known}")
    if parse_key and options.key_separator is None:
        options.key_separator = separator
    options.null_marker = None if marker is None else marker.encode()


def send(options: Namespace, lines: IO[bytes], size: int | None) -> int:
    """Send lines; the first that is refused ends this. Errors: CommandError, KafkaError."""
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    producer = KafkaProducer(
        **{
            "delivery_timeout_ms": DELIVERY_TIMEOUT_MS,
            "request_timeout_ms": DELIVERY_TIMEOUT_MS // 2,
            "max_block_ms": DELIVERY_TIMEOUT_MS,
            "linger_ms": 5,
            **connection(options, KafkaProducer),
            "acks": options.acks if options.acks == "all" else int(options.acks),
            **({"compression_type": options.compression} if options.compression else {}),
        }
    )
    pending: list[Any] = []
    written = 0
    typed = size is None and sys.stdin.isatty()
    try:
        with Progress(
            f"to {options.topic}", size, "B", bytes_too=True, shown=not typed
        ) as progress:
            for line in records(lines, options):
                try:
                    future = producer.send(
                        options.topic,
                        line.value,
                        line.key,
                        line.headers,
                        line.partition,
                        line.timestamp,
                    )
                except ValueError as error:  # refused by kafka-python itself: names, partitions
                    raise CommandError(f"{options.topic}: {error}") from None
                pending.append(future)
                if len(pending) >= IN_FLIGHT:
                    written += settle(pending)
                progress.advance(line.length)
            settle(pending)
    except (CommandError, KafkaError):
        written += acknowledged(producer, pending)
        if written and options.acks != "0":
            said = "1 record was" if written == 1 else f"{written} records were"
            print(f"kwire: {said} written before this:", file=sys.stderr)
        raise
    finally:
        end(producer)
    return 0


def settle(pending: list[Any]) -> int:
    """Wait for all sends, and return how many there were. Errors: KafkaError of the first that failed."""
    for future in pending:
        future.get(timeout=DELIVERY_TIMEOUT_MS / 1000 + 5)
    count = len(pending)
    pending.clear()
    return count


def acknowledged(producer: Any, pending: list[Any]) -> int:
    """Wait for what is on its way, for a short time, and count what was acknowledged."""
    from kafka.errors import KafkaError

    try:
        producer.flush(timeout=2)
    except KafkaError:
        pass
    return sum(future.succeeded() for future in pending)


def end(producer: Any) -> None:
    """Close without waiting for a dead broker, as kafka-python itself would, for ever."""
    from kafka.errors import KafkaError

    try:
        producer.close(timeout=2)
    except KafkaError:
        producer._closed = True  # otherwise its __del__ tries again and logs an error


def records(lines: IO[bytes], options: Namespace) -> Iterator[Line]:
    """The records of lines. Errors: CommandError, which names the line."""
    headers: list[tuple[str, bytes | None]] = [
        (key, value.encode()) for key, value in options.header
    ]
    default_key = None if options.key is None else options.key.encode()
    if options.format == "json":
        for number, text in enumerate(lines, 1):
            if not text.strip():
                continue
            try:
                read = from_json(text)
            except FormatError as error:
                raise CommandError(f"line {number}: {error}") from None
            yield Line(
                default_key if read.key is None else read.key,
                None if options.null and not read.value else read.value,
                read.headers + headers,
                read.partition if options.same_partition else options.partition,
                read.timestamp,
                len(text),
            )
        return
    separator = options.key_separator.encode() if options.key_separator else None
    for key, value, length in split_lines(lines, separator):
        marker = options.null_marker
        yield Line(
            default_key if key is None else None if marker is not None and key == marker else key,
            None if (options.null and not value) or value == marker else value,
            headers,
            options.partition,
            None,
            length,
        )


def split_lines(
    lines: IO[bytes], separator: bytes | None
) -> Iterator[tuple[bytes | None, bytes, int]]:
    """Key, value and length of each line; a line without the separator has no key."""
    for line in lines:
        value = line.removesuffix(b"\n").removesuffix(b"\r")
        key: bytes | None = None
        if separator is not None and separator in value:
            key, _, value = value.partition(separator)
        yield key, value, len(line)
