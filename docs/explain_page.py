"""`explain.md`: the answers of `kwire explain`, derived from its rules and their examples."""

from __future__ import annotations

from collections.abc import Iterable

from server.explain.answers import CAUSES, Answer
from server.explain.group_rules import explain_group
from server.explain.record_rules import explain_record
from server.explain.transaction_rules import explain_transaction
from tests.explain import examples

INTRO = """# Why is my record invisible?

`kwire explain` tells you why a consumer does not see a record, what a group is waiting for, and what a transaction is holding
back.

```console
$ kwire explain orders 0 17             # a record: topic, partition, offset
$ kwire explain --group billing         # a group: what it is waiting for, and where it lags
$ kwire explain --transactional-id t-1  # a transactional id: what it is holding back
$ kwire explain billing                 # the group or transactional id with this name
```

The answer is a sentence. With `--output json`, it is a JSON object, one per line: `cause` is a name from the tables below,
`hidden_from` has the isolation levels at which readers do not get the record, and the other fields are the facts behind the
sentence. The exit status is 1 if the group or transactional id does not exist, or if no broker answers. It is 0 if a cause is
found.

## From brokers

By default, the command asks brokers in Apache Kafka's protocol, so it works with Apache Kafka too (tested with 3.9.2). It needs
DESCRIBE and READ on the topic, and DESCRIBE on groups and transactional ids. The facts come from these sources:

| fact | source |
| --- | --- |
| the position of each replica | ListOffsets, as a debugging client |
| the owner of an open transaction | DescribeProducers, ListTransactions and DescribeTransactions |
| a group's generation, and the time of its commits | the topic `__consumer_offsets`, if the user may read it |

A search for a marker, a later record or a group's commits reads at most 64 MiB. Share groups can only be explained from brokers.
The cause for one of their partitions begins with `share_`, or is `partition_without_leader`, `lag_unassigned` or `caught_up`.

## From files

With `--log-dir DIR` for each log directory, the command reads the files of a stopped kwire or Apache Kafka broker, without
changing them. Files do not contain configs, so DeleteRecords can be distinguished from retention only if the log begins inside a
segment. They also do not show which replica lacks a record above the high watermark. For groups of the newer types, only
committed offsets are read.

## Compacted topics

When compaction removes a record, its key is gone too. The later record that replaced it can be found only if a follower still has
the record, if the compacted file has not been deleted yet (`--log-dir`), or if you give the key with `--key`.

## Causes

The first rule that applies gives the answer. The tables list the rules in order.
"""


def explain_page() -> str:
    """The page."""
    record = [explain_record(facts) for facts in examples.RECORDS.values()]
    group = [explain_group(facts)[0] for facts in examples.GROUPS.values()]
    partition = [
        explain_group(examples.group("Stable", row))[1] for row in examples.PARTITIONS.values()
    ]
    partition += [
        explain_group(examples.group("Stable", row, kind="share"))[1]
        for row in examples.SHARED.values()
    ]
    transaction = [explain_transaction(facts) for facts in examples.TRANSACTIONS.values()]
    return "\n".join(
        [
            INTRO.rstrip("\n"),
            *table("Records", record),
            *table("Groups", group),
            *table("Partitions of a group", partition),
            *table("Transactional ids", transaction),
        ]
    )


def table(title: str, answers: Iterable[Answer]) -> list[str]:
    """The causes of one kind, each with an example of its sentence."""
    rows = [f"| `{each.cause}` | {CAUSES[each.cause]} | {each.sentence} |" for each in answers]
    return ["", f"### {title}", "", "| cause | when | example |", "| --- | --- | --- |", *rows]
