"""`kwire explain`: why a consumer does not see a record, what a group waits for, what a transaction holds back."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from ..arguments import text
from ..client.properties import UsageError
from .client import add_bootstrap
from .output import printable

if TYPE_CHECKING:
    from ..client.brokers import Brokers
    from ..explain.answers import Answer

#: Causes that do not answer a name without --group or --transactional-id.
UNKNOWN = ("no_group", "no_transactional_id")


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `kwire explain`."""
    add_bootstrap(parser)
    parser.add_argument(
        "what",
        metavar="TOPIC PARTITION OFFSET | NAME",
        nargs="*",
        help="a record, or the name of a group or transactional id",
    )
    parser.add_argument(
        "-g", "--group", help="a consumer group: what it is waiting for, and where it lags"
    )
    parser.add_argument(
        "--transactional-id",
        metavar="ID",
        help="a transactional id: which records it is holding back",
    )
    parser.add_argument(
        "-k",
        "--key",
        metavar="TEXT",
        type=text,
        help="key of the record, to find the later record that made compaction remove it",
    )
    parser.add_argument(
        "--log-dir",
        metavar="DIR",
        action="append",
        default=[],
        help="read the files of a stopped broker instead of asking a running one; repeatable",
    )
    parser.add_argument(
        "--output",
        choices=("text", "json"),
        default="text",
        help="sentences (default), or one JSON object per line",
    )


def run(options: Namespace) -> int:
    """Explain."""
    try:
        check(options)
    except UsageError as error:
        print(f"kwire: {error}", file=sys.stderr)
        return 2
    if options.log_dir:
        return from_files(options)
    from .brokers import with_brokers

    return with_brokers(from_brokers, options)


def check(options: Namespace) -> None:
    """Errors: UsageError for invalid words."""
    words = options.what
    if len(words) not in (0, 1, 3):
        raise UsageError(
            "explain: give TOPIC PARTITION OFFSET, or the name of a group or transactional id"
        )
    if not words and options.group is None and options.transactional_id is None:
        raise UsageError(
            "explain: give TOPIC PARTITION OFFSET, a name, --group or --transactional-id"
        )
    if len(words) == 3:
        for word, what in zip(words[1:], ("PARTITION", "OFFSET"), strict=True):
            if not (word.isascii() and word.isdigit()):
                raise UsageError(f"{what} {word!r} is not a number of 0 or more")
    elif options.key is not None:
        raise UsageError("--key applies only to records; give TOPIC PARTITION OFFSET")


def now_ms() -> int:
    return int(time.time() * 1000)


def from_brokers(brokers: Brokers, options: Namespace) -> int:
    """Ask the cluster."""
    from ..explain.group_rules import explain_group
    from ..explain.live_groups import group_facts
    from ..explain.live_records import record_facts
    from ..explain.live_transactions import transaction_facts
    from ..explain.record_rules import explain_record
    from ..explain.transaction_rules import explain_transaction

    answers: list[Answer] = []
    words = options.what
    if len(words) == 3:
        key = None if options.key is None else options.key.encode()
        asking = record_facts(words[0], int(words[1]), int(words[2]), now_ms(), key)
        answers.append(explain_record(brokers.run(asking)))
    for name in groups(options):
        answers += explain_group(brokers.run(group_facts(name, now_ms())))
    for name in transactional_ids(options):
        answers.append(explain_transaction(brokers.run(transaction_facts(name, now_ms()))))
    return show(answers, options)


def from_files(options: Namespace) -> int:
    """Read log directories."""
    from kwire.errors import RecordError

    from ..explain import directory
    from ..explain.group_rules import explain_group
    from ..explain.record_rules import explain_record
    from ..explain.transaction_rules import explain_transaction
    from ..log.checkpoint import CorruptCheckpoint

    answers: list[Answer] = []
    words = options.what
    try:
        files = directory.LogFiles(options.log_dir)
        if len(words) == 3:
            key = None if options.key is None else options.key.encode()
            facts = directory.record_facts(
                files, words[0], int(words[1]), int(words[2]), now_ms(), key
            )
            answers.append(explain_record(facts))
        for name in groups(options):
            answers += explain_group(directory.group_facts(files, name, now_ms()))
        for name in transactional_ids(options):
            found = directory.transaction_facts(files, name, now_ms())
            answers.append(explain_transaction(found))
    except OSError as error:
        print(f"kwire: {error.filename or options.log_dir[0]}: {error.strerror}", file=sys.stderr)
        return 1
    except (CorruptCheckpoint, RecordError) as error:
        print(f"kwire: {error}", file=sys.stderr)
        return 1
    return show(answers, options)


def groups(options: Namespace) -> list[str]:
    """The groups to explain."""
    return (
        [options.group]
        if options.group is not None
        else options.what[:1] * (len(options.what) == 1)
    )


def transactional_ids(options: Namespace) -> list[str]:
    """The transactional ids to explain."""
    if options.transactional_id is not None:
        return [options.transactional_id]
    return list(options.what) if len(options.what) == 1 else []


def show(answers: list[Answer], options: Namespace) -> int:
    """Print answers; exit code 1 if there is no such thing."""
    known = [each for each in answers if each.cause not in UNKNOWN]
    if len(options.what) == 1 and known:
        answers = known
    for answer in answers:
        if options.output == "json":
            print(json.dumps(answer.as_json(), ensure_ascii=False))
            continue
        print(printable(answer.sentence))
        if answer.advice:
            print(f"  {printable(answer.advice)}")
    if len(options.what) == 1 and not known:
        print(
            "kwire: a topic is explained by record: kwire explain TOPIC PARTITION OFFSET",
            file=sys.stderr,
        )
    return 0 if known else 1
