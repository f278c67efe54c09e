"""The options that all jobs share: which cluster, which topics, which Spark."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace

from .problems import WrongCall


def key_value(text: str) -> tuple[str, str]:
    """`key=value` as a pair."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def add_cluster(parser: ArgumentParser) -> None:
    """`--bootstrap-server` and client settings."""
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        "--bootstrap-servers",
        "--bootstrap",
        dest="bootstrap_server",
        metavar="HOST:PORT",
        default="localhost:9092",
        help="address of the cluster (default: %(default)s)",
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


def add_spark(parser: ArgumentParser) -> None:
    """`--master`, `--conf`, `--jars` and `--quiet`."""
    parser.add_argument(
        "--master",
        metavar="URL",
        help="Spark's master (default: the one given to spark-submit, else $KWIRE_SPARK_MASTER, else local[*])",
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
        help="folder with the jars of Spark's kafka connector (default: $KWIRE_SPARK_JARS, else fetched from Maven Central)",
    )
    parser.add_argument(
        "--spark-log",
        metavar="FILE",
        help="where Spark's and Java's own messages go; - for standard error (default: a file that is kept if the job fails)",
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
