"""The record exchange: every client writes the same generated records, every client checks all of them.

One topic a writer, one partition a codec. Record i of a partition is a pure function of (profile,
partition, i), so a reader needs no file: it generates what it must find and compares each field.
A client's folder holds `client.py`, which calls `run(produce, consume, version)`:

    client.py produce BOOTSTRAP TOPIC COUNT             COUNT records in all, split over the codecs
    client.py consume BOOTSTRAP TOPIC COUNT WRITER      exit status 1 at the first difference

The profile is the writer's name, because not every client can write every record: kafka-python
refuses headers without value, it and aiokafka refuse a record without key and value, kcat takes
headers and the meaning of "empty" once a process and cannot set timestamps.

The timestamps lie in the past: the topic needs retention.ms=-1.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_TIMESTAMP_MS = 1_700_000_000_000
RUN_LENGTH = 500  # records between two changes of headers in the profile `runs`
IDLE_S = 15.0  # a reader gives up after this time without records

Headers = Sequence[tuple[str, bytes | None]]


class ExchangeRecord(NamedTuple):
    """The expected record after the round trip; timestamp_ms is None if the writer cannot set it."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None


_RANDOM_BYTES = random.Random(20240229).randbytes(1 << 18)  # does not shrink
_TEXT_BYTES = b"the quick brown fox jumps over the lazy dog; " * 6000  # shrinks well
_HEADER_SETS: tuple[Headers, ...] = (
    (),
    (("trace", b"abc-123"),),
    (("same", b"1"), ("same", b"2"), ("same", b"1")),
    (("null", None), ("empty", b"")),
    (("unicode-\u00e4\u20ac\U0001f600", b"v"), ("long", b"x" * 300), ("null", None)),
)


def _mix(partition: int, index: int) -> int:
    """Return 64 well-mixed bits of a record's identity (SplitMix64's finisher)."""
    bits = (partition * 0x9E3779B97F4A7C15 + index * 0xD1B54A32D192ED03 + 1) & 0xFFFFFFFFFFFFFFFF
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return bits ^ (bits >> 31)


def _piece(bits: int, size: int) -> bytes:
    source = _TEXT_BYTES if bits & 1 else _RANDOM_BYTES
    start = (bits >> 1) % (len(source) - size)
    return source[start : start + size]


def _value(bits: int) -> bytes | None:
    choice = bits % 1000
    if choice < 40:
        return None
    if choice < 80:
        return b""
    if choice < 900:
        return _piece(bits >> 10, 1 + (bits >> 44) % 300)
    if choice < 999:
        return _piece(bits >> 10, 300 + (bits >> 44) % 4000)
    return _piece(bits >> 10, 50_000 + (bits >> 44) % 100_000)


def _key(bits: int) -> bytes | None:
    choice = bits % 10
    if choice < 2:
        return None
    if choice < 3:
        return b""
    return _piece(bits >> 8, 1 + (bits >> 40) % 40)


def record(profile: str, partition: int, index: int) -> ExchangeRecord:
    """Return record number index of a partition."""
    bits = _mix(partition, index)
    value, key = _value(bits), _key(bits >> 7)
    if profile != "kcat":
        headers = _HEADER_SETS[bits % 5] if bits % 3 == 0 else ()
        if profile == "kafka-python":
            headers = tuple((name, text or b"") for name, text in headers)
        if profile in ("aiokafka", "kafka-python") and key is None:
            value = value or b""
        return ExchangeRecord(key, value, headers, FIRST_TIMESTAMP_MS + index * 7 + bits % 5)
    run = index // RUN_LENGTH
    if run % 2:  # `kcat -Z`: nothing is null
        return ExchangeRecord(key or None, value or None, _HEADER_SETS[run % 5], None)
    if not value:  # an empty line without a key is skipped by kcat
        key, value = key or b"", b""
    return ExchangeRecord(key, value, _HEADER_SETS[run % 5], None)


def records(profile: str, partition: int, count: int) -> Iterator[ExchangeRecord]:
    """Yield the first count records of a partition."""
    for index in range(count):
        yield record(profile, partition, index)


class Difference(Exception):
    """A received record differs from the written one."""


class Check:
    """Compares a reader's records with the expected ones, partition by partition."""

    def __init__(self, profile: str, total: int) -> None:
        self.profile = profile
        self.per_partition = per_codec(total)
        self.next_offset = [0] * len(CODECS)
        self.left = self.per_partition * len(CODECS)
        self.last_progress_s = time.monotonic()

    def record(
        self,
        partition: int,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> None:
        """Check one record. Errors: Difference names partition, offset and field."""
        expected_offset = self.next_offset[partition]
        where = f"partition {partition} ({CODECS[partition]}) offset {offset}"
        if offset != expected_offset:
            raise Difference(f"{where}: expected offset {expected_offset}")
        expected = record(self.profile, partition, offset)
        got = ExchangeRecord(key, value, tuple(headers), timestamp_ms)
        for name, want, have in zip(ExchangeRecord._fields, expected, got, strict=True):
            if name == "timestamp_ms" and want is None:
                continue
            if want != have:
                raise Difference(f"{where}: {name} is {have!r:.200}, expected {want!r:.200}")
        self.next_offset[partition] = offset + 1
        self.left -= 1
        self.last_progress_s = time.monotonic()

    def done(self) -> bool:
        """Tell whether all records have arrived. Errors: Difference after IDLE_S without one."""
        if self.left and time.monotonic() - self.last_progress_s > IDLE_S:
            raise Difference(f"{self.left} records did not come; reached {self.next_offset}")
        return self.left == 0


def per_codec(total: int) -> int:
    """Return how many records of a total go to each codec."""
    return total // len(CODECS)


Produce = Callable[[str, str, int, Iterator[ExchangeRecord], str], None]
Consume = Callable[[str, str, Check], None]


def run(name: str, version: str, produce: Produce, consume: Consume) -> None:
    """Run a client's side: its command line, its writer and its reader.

    Shape: produce(bootstrap, topic, partition, records, codec) returns when all are acknowledged;
    consume(bootstrap, topic, check) reads all partitions from offset 0 until check.done().
    """
    verb, bootstrap, topic, total = sys.argv[1:5]
    begin = time.monotonic()
    if verb == "produce":
        for partition, codec in enumerate(CODECS):
            rows = records(name, partition, per_codec(int(total)))
            produce(bootstrap, topic, partition, rows, codec)
    else:
        check = Check(sys.argv[5], int(total))
        try:
            consume(bootstrap, topic, check)
        except Difference as difference:
            sys.exit(f"{topic} read by {name} {version}: {difference}")
    seconds = round(time.monotonic() - begin, 2)
    print(
        json.dumps(
            {"verb": verb, "topic": topic, "client": name, "version": version, "seconds": seconds}
        )
    )
