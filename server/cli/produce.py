"""`kwire produce`: send lines as records."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from .client import (
    BOOTSTRAP_TIMEOUT_MS,
    CommandError,
    Progress,
    add_bootstrap,
    key_value,
    reporting,
    whole_number,
)

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
        "-K", "--key-separator", metavar="TEXT", help="separates key and value in a line"
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
    parser.add_argument("-p", "--partition", type=whole_number, help="(default: by key)")
    parser.add_argument("-z", "--compression", choices=("gzip", "snappy", "lz4", "zstd"))
    parser.add_argument("--acks", choices=("0", "1", "all"), default="all", help="(default all)")


def run(options: Namespace) -> int:
    """Send every line, and wait until all are acknowledged."""
    return reporting(produce, options)


def produce(options: Namespace) -> int:
    """Send the lines of a file or of standard input."""
    headers = [(key, value.encode()) for key, value in options.header]
    if options.file is None:
        return send(options, sys.stdin.buffer, None, headers)
    path = Path(options.file)
    try:
        with path.open("rb") as lines:
            return send(options, lines, path.stat().st_size, headers)
    except OSError as error:
        print(f"kwire: {path}: {error.strerror}", file=sys.stderr)
        return 2


def send(
    options: Namespace, lines: IO[bytes], size: int | None, headers: list[tuple[str, bytes]]
) -> int:
    """Send lines; the first refusal ends this with exit code 1."""
    from kafka import KafkaProducer

    acks: Any = options.acks if options.acks == "all" else int(options.acks)
    producer = KafkaProducer(
        bootstrap_servers=options.bootstrap,
        client_id="kwire-cli",
        bootstrap_timeout_ms=BOOTSTRAP_TIMEOUT_MS,
        delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
        request_timeout_ms=DELIVERY_TIMEOUT_MS // 2,
        max_block_ms=DELIVERY_TIMEOUT_MS,
        acks=acks,
        compression_type=options.compression,
        linger_ms=5,
    )
    pending: list[Any] = []
    separator = options.key_separator.encode() if options.key_separator else None
    try:
        with Progress(f"to {options.topic}", size, "B", bytes_too=True) as progress:
            for key, value, length in split_lines(lines, separator):
                try:
                    future = producer.send(options.topic, value, key, headers, options.partition)
                except ValueError as error:  # refused by kafka-python itself: names, partitions
                    raise CommandError(f"{options.topic}: {error}") from None
                pending.append(future)
                if len(pending) >= IN_FLIGHT:
                    settle(pending)
                progress.advance(length)
            settle(pending)
    finally:
        end(producer)
    return 0


def settle(pending: list[Any]) -> None:
    """Wait for all sends. Errors: KafkaError of the first that failed."""
    for future in pending:
        future.get(timeout=DELIVERY_TIMEOUT_MS / 1000 + 5)
    pending.clear()


def end(producer: Any) -> None:
    """Close without waiting for a dead broker, as kafka-python itself would, for ever."""
    from kafka.errors import KafkaError

    try:
        producer.close(timeout=2)
    except KafkaError:
        producer._closed = True  # otherwise its __del__ tries again and logs an error


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
