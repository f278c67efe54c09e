"""`kwire transactions`: list, describe and abort transactions, and find hanging ones (KIP-664)."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from typing import Any

from kwire.errors import ErrorCode
from kwire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kwire.messages.list_transactions import ListTransactionsRequest
from kwire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

from ..client.answers import partitions_of
from ..client.brokers import Brokers
from ..client.errors import Unavailable, no_partition
from ..client.properties import UsageError
from ..client.requests import metadata_of
from ..explain.facts import PendingTransaction
from ..explain.live_transactions import open_transactions, transaction_facts
from ..explain.transaction_rules import explain_transaction
from ..explain.words import when
from .brokers import check, with_brokers
from .client import CommandError, add_bootstrap, id_number, whole_number
from .output import add_output, printable, show_rows, wants_json

#: Apache Kafka's tool assumes this as the longest possible transaction (transaction.max.timeout.ms). Unit: minutes.
MAX_TIMEOUT_MIN = 15


def add_arguments(parser: ArgumentParser) -> None:
    """The verbs of `kwire transactions` and their options."""
    add_bootstrap(parser)
    add_output(parser)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verb = verbs.add_parser("list", help="list transactional ids and their states")
    verb.add_argument(
        "--state",
        action="append",
        default=[],
        help="only transactional ids in this state, such as Ongoing; repeatable",
    )
    verb.add_argument(
        "--duration-filter",
        metavar="MS",
        type=whole_number,
        help="only transactions that have been open for longer than this",
    )
    verb = verbs.add_parser(
        "describe", help="describe a transactional id and the records that it is holding back"
    )
    verb.add_argument("ids", metavar="ID", nargs="*")
    verb.add_argument("--transactional-id", metavar="ID", dest="named")
    verb = verbs.add_parser("describe-producers", help="describe the producers of a partition")
    _add_partition(verb)
    verb = verbs.add_parser("abort", help="end a hanging transaction of a partition")
    _add_partition(verb)
    verb.add_argument(
        "--start-offset",
        metavar="N",
        type=whole_number,
        help="offset at which the transaction starts",
    )
    verb.add_argument(
        "--producer-id",
        metavar="N",
        type=whole_number,
        help="instead of --start-offset: id of the transaction's producer",
    )
    verb = verbs.add_parser("find-hanging", help="find transactions that no coordinator knows")
    verb.add_argument("--topic", help="(default: every topic)")
    verb.add_argument("--partition", type=id_number, metavar="N", help="(default: all)")
    verb.add_argument(
        "--broker-id", type=id_number, metavar="N", help="only partitions that this broker leads"
    )
    verb.add_argument(
        "--max-transaction-timeout",
        type=whole_number,
        metavar="MINUTES",
        default=MAX_TIMEOUT_MIN,
        help=f"only transactions without a new record for this long (default {MAX_TIMEOUT_MIN})",
    )


def _add_partition(parser: ArgumentParser) -> None:
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partition", required=True, type=id_number, metavar="N")


def run(options: Namespace) -> int:
    """Run the verb."""
    verb = {
        "list": list_transactions,
        "describe": describe,
        "describe-producers": describe_producers,
        "abort": abort,
        "find-hanging": find_hanging,
    }[options.verb]
    return with_brokers(verb, options)


def now_ms() -> int:
    return int(time.time() * 1000)


def list_transactions(brokers: Brokers, options: Namespace) -> int:
    """Print the transactional ids that brokers coordinate."""
    rows: list[list[object]] = []
    for row in brokers.ask(metadata_of([])).brokers:
        request = ListTransactionsRequest(state_filters=options.state)
        if options.duration_filter is not None:
            request.duration_filter = options.duration_filter
        response = brokers.ask(request, row.node_id)
        if response.unknown_state_filters:
            raise UsageError(f"--state: no such state: {', '.join(response.unknown_state_filters)}")
        check(response.error_code)
        rows += [
            [each.transactional_id, row.node_id, each.producer_id, each.transaction_state]
            for each in response.transaction_states
        ]
    head = ["transactional id", "coordinator", "producer id", "state"]
    show_rows(options, head, sorted(rows, key=lambda each: str(each[0])))
    return 0


def describe(brokers: Brokers, options: Namespace) -> int:
    """Print transactional ids with their transactions."""
    names = options.ids + ([options.named] if options.named is not None else [])
    if not names:
        raise UsageError("no transactional id is named")
    rows, code = [], 0
    for name in names:
        facts = brokers.run(transaction_facts(name, now_ms()))
        if facts.problem is not None:
            print(f"kwire: {printable(explain_transaction(facts).sentence)}", file=sys.stderr)
            code = 1
            continue
        start = facts.start_ms
        rows.append(
            [
                name,
                facts.coordinator,
                facts.producer_id,
                facts.producer_epoch,
                facts.state,
                facts.timeout_ms,
                start if wants_json(options) or start is None else when(start),
                [f"{topic}-{partition}" for topic, partition in facts.partitions],
            ]
        )
    head = [
        "transactional id",
        "coordinator",
        "producer id",
        "epoch",
        "state",
        "timeout ms",
        "start ms" if wants_json(options) else "since",
        "partitions",
    ]
    if rows or not code:
        show_rows(options, head, rows)
    return code


def leader_of(brokers: Brokers, topic: str, partition: int) -> int:
    """The leader of a partition. Errors: CommandError."""
    row = brokers.ask(metadata_of([topic])).topics[0]
    check(row.error_code, None, topic)
    placed = partitions_of(row)
    if partition not in placed:
        raise no_partition(topic, partition, len(placed))
    if placed[partition].leader < 0:
        raise CommandError(f"{topic}-{partition}: no leader")
    return placed[partition].leader


def producers(brokers: Brokers, leader: int, topic: str, partition: int) -> list[Any]:
    """The producers that a partition's leader knows. Errors: CommandError."""
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=[partition])]
    )
    row = brokers.ask(request, leader).topics[0].partitions[0]
    check(row.error_code, row.error_message, f"{topic}-{partition}")
    found: list[Any] = row.active_producers
    return found


def describe_producers(brokers: Brokers, options: Namespace) -> int:
    """Print the producers of a partition."""
    leader = leader_of(brokers, options.topic, options.partition)
    rows = [
        [
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.last_sequence,
            each.last_timestamp if wants_json(options) else when(each.last_timestamp),
            each.current_txn_start_offset if each.current_txn_start_offset >= 0 else None,
        ]
        for each in producers(brokers, leader, options.topic, options.partition)
    ]
    head = [
        "producer id",
        "epoch",
        "coordinator epoch",
        "last sequence",
        "last timestamp",
        "transaction start offset",
    ]
    show_rows(options, head, rows)
    return 0


def abort(brokers: Brokers, options: Namespace) -> int:
    """Write an abort marker for a transaction of a partition. Source: TransactionsCommand.AbortTransactionCommand."""
    topic, partition = options.topic, options.partition
    if (options.start_offset is None) is (options.producer_id is None):
        raise UsageError("abort: name the transaction by --start-offset or by --producer-id")
    leader = leader_of(brokers, topic, partition)
    name = f"{topic}-{partition}"
    for each in producers(brokers, leader, topic, partition):
        if each.current_txn_start_offset < 0:
            continue
        if options.producer_id in (None, each.producer_id) and options.start_offset in (
            None,
            each.current_txn_start_offset,
        ):
            break
    else:
        raise CommandError(f"{name}: no such transaction is open")
    marker = WritableTxnMarker(
        producer_id=each.producer_id,
        producer_epoch=each.producer_epoch,
        # -1 is for transactions that began before there was a coordinator.
        coordinator_epoch=max(each.coordinator_epoch, 0),
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
    )
    response = brokers.ask(WriteTxnMarkersRequest(markers=[marker]), leader, 1)
    row = response.markers[0].topics[0].partitions[0]
    said = {
        ErrorCode.TRANSACTION_COORDINATOR_FENCED: "the coordinator has a newer epoch, and the transaction is not hanging"
    }.get(row.error_code)
    check(row.error_code, said, name)
    return 0


def find_hanging(brokers: Brokers, options: Namespace) -> int:
    """Print open transactions of partitions that no coordinator knows."""
    if options.partition is not None and options.topic is None:
        raise UsageError("--partition needs --topic")
    request = metadata_of(None if options.topic is None else [options.topic])
    oldest = now_ms() - options.max_transaction_timeout * 60_000
    rows = []
    for topic in brokers.ask(request).topics:
        if options.topic is not None:
            check(topic.error_code, None, options.topic)
        for number, placed in sorted(partitions_of(topic).items()):
            if options.partition not in (None, number) or placed.leader < 0:
                continue
            if options.broker_id not in (None, placed.leader):
                continue
            for found in hanging(brokers, placed.leader, topic.name, number, oldest):
                last = found.last_write_ms or -1
                rows.append(
                    [
                        topic.name,
                        number,
                        found.producer_id,
                        found.producer_epoch,
                        found.first_offset,
                        last if wants_json(options) else when(last),
                    ]
                )
    head = ["topic", "partition", "producer id", "epoch", "start offset", "last timestamp"]
    if rows or wants_json(options):
        show_rows(options, head, rows)
    else:
        print("kwire: no hanging transactions", file=sys.stderr)
    return 0


def hanging(
    brokers: Brokers, leader: int, topic: str, partition: int, oldest: int
) -> list[PendingTransaction]:
    """The hanging transactions of a partition, without a record since `oldest`."""
    try:
        found = brokers.run(open_transactions(leader, topic, partition))
    except Unavailable as error:
        print(f"kwire: {topic}-{partition}: {error}", file=sys.stderr)
        return []
    return [each for each in found if each.hanging and (each.last_write_ms or -1) <= oldest]
