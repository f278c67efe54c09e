"""`kwire produce`: send lines as records."""

from __future__ import annotations

import io
import select
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from ..arguments import of_any_length, text
from ..client.errors import ClientError
from ..client.properties import UsageError
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
from .record_format import FormatError, from_json

if TYPE_CHECKING:
    from ..client.brokers import Brokers

#: The size of one read. Unit: bytes.
CHUNK = 256 * 1024


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `kwire produce`."""
    add_bootstrap(parser, "--producer-property")
    parser.set_defaults(optional_last="file")
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
        help="what each line contains: a value (default), or a JSON object as printed by `kwire consume -f json`",
    )
    parser.add_argument(
        "-K",
        "--key-separator",
        metavar="TEXT",
        type=separator,
        help=r"text between key and value in each line; \t is a tab",
    )
    parser.add_argument(
        "-k", "--key", metavar="TEXT", type=text, help="key for records without a key"
    )
    parser.add_argument(
        "-H",
        "--header",
        metavar="KEY=VALUE",
        type=pair,
        action="append",
        default=[],
        help="header for every record; repeatable",
    )
    parser.add_argument(
        "-Z", "--null", action="store_true", help="send an empty value as null (a tombstone)"
    )
    parser.add_argument(
        "--property",
        "--reader-property",
        metavar="KEY=VALUE",
        type=pair,
        action="append",
        default=[],
        help="as for kafka-console-producer.sh: parse.key=true, key.separator, null.marker; repeatable",
    )
    parser.add_argument("-p", "--partition", type=id_number, help="(default: by key)")
    parser.add_argument(
        "--same-partition",
        action="store_true",
        help="with JSON, send each record to the partition that it names",
    )
    parser.add_argument("-z", "--compression", choices=("gzip", "snappy", "lz4", "zstd"))
    parser.add_argument("--sync", action="store_true", help=NO_EFFECT)
    parser.add_argument("--timeout", metavar="MS", type=whole_number, help=NO_EFFECT)
    parser.add_argument(
        "--acks", "--request-required-acks", choices=("0", "1", "-1", "all"), help="(default all)"
    )


def run(options: Namespace) -> int:
    """Send every line, and wait until all are acknowledged."""
    from .brokers import in_words

    return in_words(lambda: produce(options))


@of_any_length
def separator(word: str) -> str:
    """The text between key and value."""
    return word.replace(r"\t", "\t")


class BadLine(CommandError):
    """A line that is not a valid record; the lines before it are sent."""


class LineRecord(NamedTuple):
    """A record to send. Shape: `length` is the line's length in bytes, including its end."""

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
    """Set options from the properties of Apache Kafka's tool. Errors: UsageError."""
    properties = dict(options.property)
    parse_key = properties.pop("parse.key", "false").lower() == "true"
    separator = properties.pop("key.separator", "\t")
    marker = properties.pop("null.marker", None)
    if properties:
        known = "parse.key, key.separator, null.marker"
        raise UsageError(f"--property {', '.join(properties)}: not one of {known}")
    if parse_key and options.key_separator is None:
        options.key_separator = separator
    options.null_marker = None if marker is None else marker.encode()


def send(options: Namespace, lines: IO[bytes], size: int | None) -> int:
    """Send lines; stops at the first one that is refused. Errors: CommandError."""
    from .brokers import open_brokers

    settings = sender_settings(options)
    brokers = open_brokers(options)
    try:
        return send_to(brokers, settings, options, lines, size)
    finally:
        brokers.close()


def sender_settings(options: Namespace) -> dict[str, Any]:
    """The arguments for a Sender from options and client properties. Errors: UsageError."""
    from kwire.records.compression import Codec

    arguments = arguments_of(options)
    if "transactional_id" in arguments:
        raise UsageError("transactional.id: kwire produce does not write in transactions")
    names = {
        "batch_size": "batch_bytes",
        "request_timeout_ms": "request_timeout_ms",
        "delivery_timeout_ms": "delivery_timeout_ms",
    }
    settings = {new: arguments[old] for old, new in names.items() if old in arguments}
    tell_idle(arguments, (*names, "acks", "compression_type"))
    compression = options.compression or arguments.get("compression_type") or "none"
    try:
        settings["codec"] = Codec[compression.upper()]
    except KeyError:
        known = ", ".join(each.config_name for each in Codec)
        raise UsageError(f"compression.type={compression} is not one of {known}") from None
    if options.acks is None:
        options.acks = arguments.get("acks", "all")
    settings["acks"] = -1 if options.acks == "all" else int(options.acks)
    return settings


def send_to(
    brokers: Brokers,
    settings: dict[str, Any],
    options: Namespace,
    lines: IO[bytes],
    size: int | None,
) -> int:
    """Send lines over connections."""
    from ..client.batches import Outgoing
    from ..client.sender import Sender

    plain = is_plain(options)
    sender = Sender(brokers, options.topic, plain=plain, **settings)
    typed = size is None and sys.stdin.isatty()
    try:
        if options.partition is not None:
            sender.check_partition(options.partition)
        with ProgressBar(
            f"to {options.topic}", size, "B", bytes_too=True, shown=not typed
        ) as progress:
            chunks = whole_lines(lines, sender.flush)
            if plain:
                for chunk in chunks:
                    sender.add_values(values_of(chunk), len(chunk), options.partition)
                    progress.advance(len(chunk))
            else:
                split = (line for chunk in chunks for line in io.BytesIO(chunk))
                for line in records(split, options):
                    record = Outgoing(line.key, line.value, line.headers, line.timestamp)
                    sender.add(record, line.partition)
                    progress.advance(line.length)
        sender.flush()
    except ClientError as error:
        if isinstance(error, BadLine):
            sender.flush()
        sender.settle_quietly()
        written = sender.acknowledged
        if written and options.acks != "0":
            said = "1 record was" if written == 1 else f"{written} records were"
            print(f"kwire: {said} written before this:", file=sys.stderr)
        raise
    return 0


def is_plain(options: Namespace) -> bool:
    """Whether a line is the value of a record, without a key or other parts."""
    return (
        options.format == "value"
        and not options.key_separator
        and options.key is None
        and not options.header
        and not options.null
        and options.null_marker is None
    )


def whole_lines(lines: IO[bytes], idle: Callable[[], None]) -> Iterator[bytes]:
    """The input, in pieces that end with a line; `idle` is called before waiting for more."""
    left = b""
    while True:
        if not is_ready(lines):
            idle()
        # A file is read in whole pieces, a pipe or terminal as far as data is available.
        chunk = getattr(lines, "read1", lines.read)(CHUNK)
        if not chunk:
            break
        end = chunk.rfind(b"\n") + 1
        if end:
            yield left + chunk[:end]
            left = chunk[end:]
        else:
            left += chunk
    if left:
        yield left


def is_ready(lines: IO[bytes]) -> bool:
    """Whether a read would not block; True for objects that are not files of the system."""
    try:
        return bool(select.select([lines], [], [], 0)[0])
    except (OSError, ValueError):
        return True


def values_of(chunk: bytes) -> list[bytes]:
    """The lines of a piece, without line ends."""
    values = chunk.split(b"\n")
    if not values[-1]:
        values.pop()
    if b"\r" in chunk:
        values = [value.removesuffix(b"\r") for value in values]
    return values


def records(lines: Iterable[bytes], options: Namespace) -> Iterator[LineRecord]:
    """The records of lines. Errors: BadLine."""
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
                raise BadLine(f"line {number}: {error}") from None
            yield LineRecord(
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
        yield LineRecord(
            default_key if key is None else None if marker is not None and key == marker else key,
            None if (options.null and not value) or value == marker else value,
            headers,
            options.partition,
            None,
            length,
        )


def split_lines(
    lines: Iterable[bytes], separator: bytes | None
) -> Iterator[tuple[bytes | None, bytes, int]]:
    """Key, value and length of each line; a line without the separator has no key."""
    for line in lines:
        value = line.removesuffix(b"\n").removesuffix(b"\r")
        key: bytes | None = None
        if separator is not None and separator in value:
            key, _, value = value.partition(separator)
        yield key, value, len(line)
