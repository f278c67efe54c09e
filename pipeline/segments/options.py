"""The options of `kwire-log`, with the names and meanings of those of Spark's kafka source where it has them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import SegmentError

EARLIEST = -2
LATEST = -1

#: Offset of each named partition, by (topic, partition); the others have the default.
Named = dict[tuple[str, int], int]

_NAMES = {
    name.lower(): name
    for name in (
        "path",
        "paths",
        "topics",
        "subscribe",
        "subscribePattern",
        "assign",
        "startingOffsets",
        "endingOffsets",
        "startingTimestamp",
        "endingTimestamp",
        "startingOffsetsByTimestamp",
        "endingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "group",
        "maxOffsetsPerTrigger",
        "pushFilters",
        "bytesPerPartition",
        "isolation",
        "corrupt",
        "failOnDataLoss",
        "includeHeaders",
        "includeControl",
        "checkCrc",
        "rows",
    )
}


#: The prefix of options of the Kafka client.
_CLIENT = "kafka."
_ROWS = ("rows", "records", "batches")
#: Bytes that keep a task busy long enough for its start not to matter. For batches only headers are read.
_BYTES_PER_PARTITION = {"records": "256m", "batches": "2g"}


@dataclass(frozen=True)
class Bound:
    """Where to start or end: an offset or a timestamp, for all partitions or for each."""

    offset: int = EARLIEST
    timestamp_ms: int | None = None
    named: tuple[tuple[tuple[str, int], int], ...] = ()
    """Offsets (or timestamps if `by_time`) of single partitions."""
    by_time: bool = False


@dataclass(frozen=True)
class Options:
    """All options of a source."""

    paths: tuple[str, ...]
    topics: tuple[str, ...] | None
    pattern: str | None
    partitions: tuple[tuple[str, int], ...] | None
    start: Bound
    end: Bound
    no_match_is_latest: bool
    max_offsets_per_trigger: int | None
    bytes_per_partition: int
    read_committed: bool
    corrupt: str
    fail_on_data_loss: bool
    include_headers: bool
    include_control: bool
    check_crc: bool
    rows: str
    push_filters: bool = False
    """Whether to let Spark push filters down, which it must be able to."""
    group: str | None = None
    """Consumer group that shows a stream's progress."""
    client: tuple[tuple[str, str], ...] = ()
    """Settings of the client that commits to the group, from options named `kafka.*`."""

    def wants(self) -> Callable[[str], bool]:
        """Return a function that says whether a topic is selected."""
        if self.pattern is not None:
            expression = re.compile(self.pattern)
            return lambda topic: expression.fullmatch(topic) is not None
        if self.partitions is not None:
            assigned = {topic for topic, _ in self.partitions}
            return assigned.__contains__
        if self.topics is not None:
            return frozenset(self.topics).__contains__
        return lambda topic: not topic.startswith("__")


def parse(given: Mapping[str, str]) -> Options:
    """Parse the options. Errors: SegmentError, with the option's name."""
    options: dict[str, str] = {}
    for name, text in given.items():
        known = _NAMES.get(name.lower())
        if known is not None:
            options[known] = text
        elif not name.lower().startswith(_CLIENT):
            raise SegmentError(
                f"kwire-log has no option {name}; its options are {', '.join(sorted(_NAMES.values()))}"
            )
    chosen = [n for n in ("topics", "subscribe", "subscribePattern", "assign") if n in options]
    if len(chosen) > 1:
        raise SegmentError(f"give only one of {', '.join(chosen)}")
    names = options.get("topics", options.get("subscribe"))
    pattern = options.get("subscribePattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise SegmentError(f"subscribePattern {pattern!r}: {error}") from error
    client = tuple(
        (name[len(_CLIENT) :], text)
        for name, text in given.items()
        if name.lower().startswith(_CLIENT)
    )
    if "group" in options and "bootstrap.servers" not in dict(client):
        raise SegmentError("group needs kafka.bootstrap.servers, the cluster that has the group")
    limit = options.get("maxOffsetsPerTrigger")
    rows = _choice(options, *_ROWS)
    return Options(
        paths=_paths(options),
        topics=None if names is None else tuple(n.strip() for n in names.split(",") if n.strip()),
        pattern=pattern,
        partitions=_assign(options.get("assign")),
        start=_bound(options, "starting", EARLIEST),
        end=_bound(options, "ending", LATEST),
        no_match_is_latest=_choice(options, "startingOffsetsByTimestampStrategy", "error", "latest")
        == "latest",
        max_offsets_per_trigger=None if limit is None else _positive("maxOffsetsPerTrigger", limit),
        bytes_per_partition=_size(options.get("bytesPerPartition", _BYTES_PER_PARTITION[rows])),
        read_committed=_choice(options, "isolation", "read_uncommitted", "read_committed")
        == "read_committed",
        corrupt=_choice(options, "corrupt", "fail", "skip"),
        fail_on_data_loss=_flag(options, "failOnDataLoss", True),
        include_headers=_flag(options, "includeHeaders", False),
        include_control=_flag(options, "includeControl", False),
        check_crc=_flag(options, "checkCrc", False),
        rows=rows,
        push_filters=_flag(options, "pushFilters", False),
        group=options.get("group"),
        client=client,
    )


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    if "paths" in options:
        return tuple(json.loads(options["paths"]))
    if "path" not in options:
        raise SegmentError("kwire-log needs a path: a log directory, or a pattern for some")
    return (options["path"],)


def _choice(options: Mapping[str, str], name: str, *choices: str) -> str:
    """The value of an option with fixed choices; the first one is the default."""
    text = options.get(name, choices[0]).strip().lower()
    if text not in choices:
        raise SegmentError(f"{name} must be {' or '.join(choices)}, not {options[name]!r}")
    return text


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    return _choice({name: options.get(name, str(default))}, name, "false", "true") == "true"


def _positive(name: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number <= 0:
        raise SegmentError(f"{name} must be a positive number, not {text!r}")
    return number


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d+)([kmg]?)b?", text.strip().lower())
    size = int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2]] if found else 0
    if size <= 0:
        raise SegmentError(f"bytesPerPartition must be a size such as 128m, not {text!r}")
    return size


def _assign(text: str | None) -> tuple[tuple[str, int], ...] | None:
    if text is None:
        return None
    tree = _json("assign", text)
    try:
        return tuple((topic, int(number)) for topic, numbers in tree.items() for number in numbers)
    except (TypeError, ValueError) as error:
        raise SegmentError(
            f'assign must be JSON such as {{"topic":[0,1]}}, not {text!r}'
        ) from error


def _json(name: str, text: str) -> dict[str, Any]:
    try:
        tree = json.loads(text)
    except json.JSONDecodeError as error:
        raise SegmentError(f"{name} is not JSON: {error}") from error
    if not isinstance(tree, dict):
        raise SegmentError(f"{name} must be a JSON object by topic, not {text!r}")
    return tree


def _named(name: str, text: str) -> tuple[tuple[tuple[str, int], int], ...]:
    try:
        return tuple(
            ((topic, int(partition)), int(number))
            for topic, numbers in _json(name, text).items()
            for partition, number in numbers.items()
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise SegmentError(
            f'{name} must be JSON such as {{"topic":{{"0":23}}}}, not {text!r}'
        ) from error


def _bound(options: Mapping[str, str], side: str, default: int) -> Bound:
    """As in Spark's kafka source, a timestamp for all takes precedence over timestamps by partition, and these over offsets."""
    time = options.get(f"{side}Timestamp")
    if time is not None:
        try:
            return Bound(timestamp_ms=int(time))
        except ValueError as error:
            raise SegmentError(
                f"{side}Timestamp must be milliseconds since 1970, not {time!r}"
            ) from error
    by_time = options.get(f"{side}OffsetsByTimestamp")
    if by_time is not None:
        return Bound(default, named=_named(f"{side}OffsetsByTimestamp", by_time), by_time=True)
    text = options.get(f"{side}Offsets")
    if text is None:
        return Bound(default)
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        if side == "ending" and word == "earliest":
            raise SegmentError("endingOffsets cannot be earliest")
        return Bound(EARLIEST if word == "earliest" else LATEST)
    return Bound(default, named=_named(f"{side}Offsets", text))
