"""kcat's side of the record exchange: a process a run of records when writing, one a partition when reading."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import exchange

# No generated key or value contains these.
KEY_END, MESSAGE_END = b"\x01\x02KEY\x02\x01", b"\x01\x02END\x02\x01"


def _escaped(delimiter: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in delimiter)


def _header_arguments(headers: exchange.Headers) -> list[str]:
    # A name without "=" is kcat's way to write a null value.
    pairs = (name if value is None else f"{name}={value.decode()}" for name, value in headers)
    return [part for pair in pairs for part in ("-H", pair)]


def _line(row: exchange.ExchangeRecord, null_mode: bool) -> bytes:
    value = row.value or b""
    if row.key is None and not null_mode:
        return value + MESSAGE_END
    return (row.key or b"") + KEY_END + value + MESSAGE_END


def produce(
    bootstrap: str,
    topic: str,
    partition: int,
    rows: Iterator[exchange.ExchangeRecord],
    codec: str,
) -> None:
    """Write rows in runs of equal headers."""
    for run in itertools.count():
        part = list(itertools.islice(rows, exchange.RUN_LENGTH))
        if not part:
            return
        null_mode = run % 2 == 1
        command = [
            *("kcat", "-P", "-b", bootstrap, "-t", topic, "-p", str(partition), "-z", codec),
            *("-X", "enable.idempotence=true", "-X", "topic.partitioner=consistent"),
            *("-K", _escaped(KEY_END), "-D", _escaped(MESSAGE_END)),
            *(["-Z"] if null_mode else []),
            *_header_arguments(part[0].headers),
        ]
        lines = b"".join(_line(row, null_mode) for row in part)
        subprocess.run(command, input=lines, check=True)


def _read_line(stream: IO[bytes]) -> bytes:
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise exchange.Difference(f"kcat ended within a record: {line!r}")
    return line


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size) if size > 0 else b""
    if len(data) < size:
        raise exchange.Difference(f"kcat ended within {size} bytes, after {data!r:.100}")
    return data


def _rendered(headers: exchange.Headers) -> bytes:
    pairs = (
        name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in headers
    )
    return b",".join(pairs)


def consume(bootstrap: str, topic: str, check: exchange.Check) -> None:
    """Read partition after partition; kcat prints headers as text, so their text is compared."""
    for partition in range(len(exchange.CODECS)):
        command = [
            *("kcat", "-C", "-b", bootstrap, "-t", topic, "-p", str(partition), "-e", "-q"),
            *("-o", "beginning", "-c", str(check.per_partition), "-X", "check.crcs=true"),
            *("-f", r"%o %T %K %S\n%k%s%h\n"),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as kcat:
            assert kcat.stdout is not None
            for index in range(check.per_partition):
                offset, timestamp_ms, key_size, value_size = map(
                    int, _read_line(kcat.stdout).split()
                )
                key = _read_exactly(kcat.stdout, key_size) if key_size >= 0 else None
                value = _read_exactly(kcat.stdout, value_size) if value_size >= 0 else None
                expected = exchange.record(check.profile, partition, index).headers
                want = _rendered(expected)
                have = _read_exactly(kcat.stdout, len(want) + 1)
                headers = expected if have == want + b"\n" else (("as printed", have),)
                check.record(partition, offset, timestamp_ms, key, value, headers)
    check.done()


def version() -> str:
    """Return kcat's and librdkafka's version."""
    text = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"Version (\S+) .*(librdkafka \S+)", text)
    return f"{found[1]} ({found[2]})" if found else "unknown"


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")  # header names are passed as arguments
    exchange.run("kcat", version(), produce, consume)
