"""The target of a reset of a group's offsets: the modes of kafka-consumer-groups.sh. Pure."""

from __future__ import annotations

import csv
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from .client import whole_number
from .positions import SECONDS, time_of

WORDS = ("earliest", "latest", "current")
DURATION = re.compile(
    r"P(?:([0-9]+)D)?(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+(?:\.[0-9]+)?)S)?)?"
)
Partition = tuple[str, int]


class ResetTarget(NamedTuple):
    """A position in every partition. Exactly one field is set.

    Shape: `word` is earliest, latest or current. Unit: `ago_ms` milliseconds before now, `time_ms` Unix time.
    """

    word: str | None = None
    offset: int | None = None
    shift: int | None = None
    time_ms: int | None = None
    ago_ms: int | None = None


def target(text: str) -> ResetTarget:
    """Parse a word, an offset or a time, with or without @. Errors: ArgumentTypeError."""
    if text in WORDS:
        return ResetTarget(word=text)
    if re.fullmatch("[0-9]+", text):
        return ResetTarget(offset=whole_number(text))
    try:
        return time_target(text.removeprefix("@"))
    except ArgumentTypeError:
        raise ArgumentTypeError(
            f"{text!r} is neither earliest, latest, current, an offset nor a time"
        ) from None


def time_target(text: str) -> ResetTarget:
    """Parse an ISO time, in UTC unless it has a zone, or milliseconds since 1970. Errors: ArgumentTypeError."""
    return ResetTarget(time_ms=time_of(text))


def offset_target(text: str) -> ResetTarget:
    """Parse an offset. Errors: ArgumentTypeError."""
    if not re.fullmatch("[0-9]+", text):
        raise ArgumentTypeError(f"{text!r} is not an offset")
    return ResetTarget(offset=whole_number(text))


def shift_target(text: str) -> ResetTarget:
    """Parse a number of offsets to move forward, or backward if negative. Errors: ArgumentTypeError."""
    if not re.fullmatch("[+-]?[0-9]+", text):
        raise ArgumentTypeError(f"{text!r} is not a number of offsets such as -10")
    number = whole_number(text.lstrip("+-"))
    return ResetTarget(shift=-number if text.startswith("-") else number)


def duration_target(text: str) -> ResetTarget:
    """Parse a duration before now: PT1H30M (ISO 8601), or 90m. Errors: ArgumentTypeError."""
    short = re.fullmatch("([0-9]+)([smhd])", text)
    if short:
        return ResetTarget(ago_ms=whole_number(short[1]) * SECONDS[short[2]] * 1000)
    found = DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ArgumentTypeError(f"{text!r} is neither a duration such as PT1H30M nor 90m")
    seconds = sum(
        float(part or 0) * size
        for part, size in zip(found.groups(), (86400, 3600, 60, 1), strict=True)
    )
    return ResetTarget(ago_ms=int(seconds * 1000))


def resolved(
    where: ResetTarget,
    tps: Iterable[Partition],
    committed: Mapping[Partition, int],
    starts: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    at_time: Callable[[int], Mapping[Partition, int]],
    now_ms: int,
) -> dict[Partition, int]:
    """The offset of a target in each partition, within the partition's range.

    Shape: `at_time` returns, for a Unix time in ms, the first offset at or after it by partition; if there is none, the
    end is used. A partition without a commit is omitted if the target is relative to the commit.
    """
    time_ms = where.time_ms if where.ago_ms is None else max(now_ms - where.ago_ms, 0)
    found = {} if time_ms is None else at_time(time_ms)
    result = {}
    for tp in tps:
        start, end = starts[tp], ends[tp]
        if where.word == "earliest":
            to = start
        elif where.word == "latest":
            to = end
        elif where.word == "current":
            to = committed.get(tp, end)
        elif where.offset is not None:
            to = where.offset
        elif where.shift is not None:
            if tp not in committed:
                continue
            to = committed[tp] + where.shift
        else:
            to = found.get(tp, end)
        result[tp] = min(max(to, start), end)
    return result


def topic_and_partitions(text: str) -> tuple[str, list[int] | None]:
    """Parse `TOPIC` or `TOPIC:0,1`; None for all partitions. Errors: ArgumentTypeError."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    if not topic or not re.fullmatch("[0-9]+(,[0-9]+)*", numbers):
        raise ArgumentTypeError(f"{text!r} is neither TOPIC nor TOPIC:0,1")
    return topic, [int(number) for number in numbers.split(",")]


def read_plan(lines: Iterable[str]) -> dict[Partition, int]:
    """Read `topic,partition,offset` lines in the format of --export. Errors: ValueError, which names the line."""
    plan = {}
    for number, row in enumerate(csv.reader(lines), 1):
        if not row:
            continue
        try:
            topic, partition, offset = (part.strip() for part in row)
            plan[topic, int(partition)] = int(offset)
        except ValueError:
            raise ValueError(f"line {number}: not topic,partition,offset") from None
    return plan
