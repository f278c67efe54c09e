"""The options that all jobs share: which cluster, which topics, which Spark."""

from __future__ import annotations

import os
import re
import sys
from argparse import Action, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Collection, Mapping
from typing import Any

from .problems import Problem, WrongCall

#: What `add_cluster` adds, as a file of options names it.
CLUSTER = ("bootstrap-server", "client-property")
#: The same as they are typed, with the other names of the cluster's address.
CLUSTER_NAMES = ("-b", *(f"--{name}" for name in (*CLUSTER, "bootstrap-servers", "bootstrap")))


def key_value(text: str) -> tuple[str, str]:
    """`key=value` as a pair."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def with_ports(text: str) -> str:
    """Addresses, each with a port: Kafka's own, 9092, where none is given. Spark's client knows no default."""
    words = (word.strip() for word in text.split(","))
    return ",".join(
        word if not word or ":" in word.rpartition("]")[2] else f"{word}:9092" for word in words
    )


class _Named(Action):
    """Stores a value, and in `cluster_named_by` which option gave it."""

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, values)
        namespace.cluster_named_by = option_string


def check_no_cluster(options: Namespace, instead: str) -> None:
    """Raises WrongCall if a cluster is named beside the option that is read instead."""
    named = getattr(options, "cluster_named_by", None)
    if named is None and options.client_properties:
        named = "--client-property"
    if named is not None:
        raise WrongCall(
            f"{named} and {instead} exclude each other: with {instead} no broker is asked"
        )


def add_cluster(parser: ArgumentParser) -> None:
    """`--bootstrap-server` and client settings."""
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        "--bootstrap-servers",
        "--bootstrap",
        dest="bootstrap_server",
        metavar="HOST:PORT",
        action=_Named,
        type=with_ports,
        default=os.environ.get("KWIRE_BOOTSTRAP") or "localhost:9092",
        help="address of the cluster (default: $KWIRE_BOOTSTRAP, or else localhost:9092)",
    )
    parser.add_argument(
        "--client-property",
        dest="client_properties",
        metavar="KEY=VALUE",
        type=key_value,
        action="append",
        default=[],
        help="setting of the Kafka clients, such as security.protocol; repeatable",
    )


def add_topics(parser: ArgumentParser) -> None:
    """`--topics` and `--topics-pattern`."""
    parser.add_argument(
        "--topics",
        metavar="TOPIC[,TOPIC]",
        action="append",
        default=[],
        help="topic names, separated by commas; repeatable",
    )
    parser.add_argument(
        "--topics-pattern",
        metavar="REGEX",
        help="topics whose whole name matches this regular expression, including those created later",
    )


def positive(text: str) -> int:
    """A whole number above 0."""
    if not text.isdigit() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def add_reading(parser: ArgumentParser, *, most: int | None, go_on: str) -> None:
    """What a stream reads of a topic in a batch; `go_on` is what the job does without offsets that were deleted."""
    parser.add_argument(
        "--max-offsets-per-trigger",
        metavar="N",
        type=positive,
        default=most,
        help="maximum number of offsets to read in one batch"
        + ("" if most is None else " (default: %(default)s)"),
    )
    parser.add_argument(
        "--isolation-level",
        choices=("read_committed", "read_uncommitted"),
        default="read_committed",
        help="whether records of open and aborted transactions are left out (default: %(default)s)",
    )
    parser.add_argument(
        "--on-data-loss",
        choices=("fail", "go-on"),
        default="fail",
        help=f"if offsets were deleted before they were read: fail, or {go_on} (default: %(default)s)",
    )


def add_spark(parser: ArgumentParser) -> None:
    """`--master`, `--conf`, `--jars` and `--quiet`."""
    parser.add_argument(
        "--master",
        metavar="URL",
        help="Spark's master (default: the one given to spark-submit, or else $KWIRE_SPARK_MASTER, or else local[*])",
    )
    parser.add_argument(
        "--conf",
        metavar="KEY=VALUE",
        type=key_value,
        action="append",
        default=[],
        help="Spark setting; repeatable",
    )
    parser.add_argument(
        "--jars",
        metavar="DIR",
        help="folder with the jars of Spark's Kafka connector (default: $KWIRE_SPARK_JARS; if not set, Spark fetches them from Maven Central)",
    )
    parser.add_argument(
        "--spark-log",
        metavar="FILE",
        help="file for the log of Spark and Java; - for standard error (default: a file that is kept if the job fails)",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="do not show progress")


def topic_names(options: Namespace) -> list[str]:
    """The names given with `--topics`, without repetition."""
    words = (word.strip() for words in options.topics for word in words.split(","))
    return list(dict.fromkeys(word for word in words if word))


def check_topics(options: Namespace) -> None:
    """Raises WrongCall unless exactly one of `--topics` and `--topics-pattern` is given."""
    if bool(topic_names(options)) == bool(options.topics_pattern):
        raise WrongCall("say either --topics or --topics-pattern")
    if options.topics_pattern:
        try:
            re.compile(options.topics_pattern)
        except re.error as error:
            raise WrongCall(f"--topics-pattern {options.topics_pattern!r}: {error}") from error


def chosen_topics(options: Namespace, there: Mapping[str, int], where: str) -> dict[str, int]:
    """Those of the topics, with their partitions, that `--topics` or `--topics-pattern` select.

    Shape: `where` is said of a topic that does not exist, as "at HOST:PORT". Raises Problem for such a topic; a pattern may
    match nothing yet.
    """
    if options.topics_pattern:
        wanted = re.compile(options.topics_pattern)
        return {name: count for name, count in there.items() if wanted.fullmatch(name)}
    missing = [name for name in topic_names(options) if name not in there]
    if missing:
        raise Problem(f"there is no topic {', '.join(missing)} {where}")
    return {name: there[name] for name in topic_names(options)}


def say_if_none(options: Namespace, chosen: Collection[str], where: str) -> None:
    """Print that a pattern matches nothing yet, which may be intended or a mistake."""
    if not chosen:
        print(
            f"kwire pipeline: no topic {where} matches {options.topics_pattern!r} yet",
            file=sys.stderr,
            flush=True,
        )
