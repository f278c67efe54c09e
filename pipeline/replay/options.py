"""The options of replay, and what their values mean."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Iterator

from kwire.server.times import unix_ms

from ..offsets import Offsets
from ..options import add_cluster, add_spark, add_topics
from ..problems import WrongCall
from ..tables.options import add_tables, without_iceberg


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options for the source, its range, the target and the speed."""
    add_cluster(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--archive", metavar="DIR", help="an archive written by `kwire pipeline archive`"
    )
    source.add_argument(
        "--segments",
        metavar="DIR[,DIR]",
        help="log folders of a kwire or Apache Kafka broker; only committed records are replayed",
    )
    add_topics(parser)
    parser.add_argument(
        "--to",
        metavar="TOPIC|SOURCE=TARGET",
        action="append",
        required=True,
        help="topic to write to, or one for each source topic, separated by commas or repeated; the topics must exist",
    )
    parser.add_argument(
        "--into-source",
        action="store_true",
        help="allow writing to the topic that the records come from, which then contains them twice",
    )
    parser.add_argument(
        "--keep-partitions",
        action="store_true",
        help="write each record to the partition it was in (default: choose the partition by key, as producers do)",
    )
    parser.add_argument(
        "--from-offset",
        metavar="JSON",
        type=offsets,
        default={},
        help='first offset, such as {"orders": {"0": 1200}}; other partitions start at their first offset',
    )
    parser.add_argument(
        "--to-offset",
        metavar="JSON",
        type=offsets,
        default={},
        help="offset after the last one to replay, in the same form",
    )
    parser.add_argument(
        "--from-time",
        metavar="TIME",
        type=time_ms,
        help="oldest timestamp, in ISO 8601 (UTC if it has no zone) or ms since 1970",
    )
    parser.add_argument(
        "--to-time",
        metavar="TIME",
        type=time_ms,
        help="leave out records with this timestamp or a later one",
    )
    parser.add_argument(
        "--rate",
        metavar="N",
        type=positive(float),
        help="maximum number of records per second, for all partitions together",
    )
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="name of this replay; a replay with a known name continues where it stopped, so replaying once more to"
        " the same topic needs another name (default: derived from the options)",
    )
    parser.add_argument(
        "--transaction-records",
        metavar="N",
        type=positive(int),
        default=20_000,
        help="approximate maximum number of records in a transaction (default: %(default)s)",
    )
    parser.add_argument(
        "--patience",
        metavar="SECONDS",
        type=positive(float),
        default=120.0,
        help="how long to try without success before giving up (default: %(default)s)",
    )
    add_tables(parser, "instead of the archive's manifests, read its table", several=False)
    add_spark(parser)


def without_effect(options: Namespace) -> Iterator[tuple[str, str]]:
    """Options that have no effect in combination with others, each with the reason."""
    yield from without_iceberg(options)


def check_range(options: Namespace) -> None:
    """Raises WrongCall for a range that ends where it begins or earlier: it would count as replayed without a record."""
    start, end = options.from_time, options.to_time
    if start is not None and end is not None and end <= start:
        raise WrongCall("--to-time is not after --from-time, so there is nothing to replay")
    for place, end in sorted(options.to_offset.items()):
        if end <= options.from_offset.get(place, 0):
            topic, partition = place
            raise WrongCall(
                f"--to-offset {end} of {topic}-{partition} is not after"
                f" {options.from_offset.get(place, 0)}, where it begins, so there is nothing to replay"
            )


def positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    """An option type: a number above 0."""

    def convert(text: str) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = 0
        if not 0 < number < float("inf"):
            raise ArgumentTypeError(f"{text!r} is not a number above 0")
        return number

    return convert


def offsets(text: str) -> Offsets:
    """`{"orders": {"0": 1200}}`, as Spark's kafka source takes offsets."""
    try:
        return {
            (str(topic), int(number)): int(offset)
            for topic, numbers in json.loads(text).items()
            for number, offset in numbers.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise ArgumentTypeError(
            f'{text!r} does not have the form {{"topic": {{"0": 1200}}}}'
        ) from None


def time_ms(text: str) -> int:
    """`2026-05-01T12:00`, `2026-05-01T14:00+02:00` or milliseconds since 1970."""
    if text.lstrip("-").isdigit():
        return int(text)
    try:
        moment: int = unix_ms(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is neither ISO 8601 nor milliseconds") from None
    return moment


def targets(words: Iterable[str]) -> tuple[str | None, dict[str, str]]:
    """The topic for everything not mapped, and source -> target. Raises WrongCall for two targets of one source."""
    everything: str | None = None
    mapped: dict[str, str] = {}
    for word in (part.strip() for text in words for part in text.split(",")):
        source, equals, target = word.partition("=")
        if not word or (equals and not (source and target)):
            raise WrongCall(f"--to {word!r} is neither TOPIC nor SOURCE=TARGET")
        if equals:
            if mapped.setdefault(source, target) != target:
                raise WrongCall(
                    f"--to gives two targets for {source}: {mapped[source]} and {target}"
                )
        elif everything is not None:
            raise WrongCall(f"--to gives two topics for everything: {everything} and {word}")
        else:
            everything = word
    return everything, mapped
