"""`explain.md`: what `kwire explain` says, derived from its rules and their examples."""

from __future__ import annotations

from collections.abc import Iterable

from server.explain.answers import CAUSES, Answer
from server.explain.group_rules import explain_group
from server.explain.record_rules import explain_record
from server.explain.transaction_rules import explain_transaction
from tests.explain import examples

INTRO = """# Why is my record invisible?

```console
$ kwire explain orders 0 17             # a record: topic, partition, offset
$ kwire explain --group billing         # a group: what it waits for, and where it lags
$ kwire explain --transactional-id t-1  # a transactional id: what it holds back
$ kwire explain billing                 # whichever of the two has this name
```

The answer is a sentence. `--output json` gives a JSON object instead, one per line: `cause` is a name from the tables below,
`hidden_from` the isolation levels whose readers do not get the record, and the rest are the facts behind the sentence. The
exit status is 1 if there is no such group or transactional id, or if nobody answers; finding a cause is a success.

**Live**, brokers are asked in Apache Kafka's protocol, so the command works against Apache Kafka too (tested with 3.9.2).
It needs DESCRIBE and READ on the topic and DESCRIBE on groups and transactional ids. How far each replica is comes from
ListOffsets as a debugging client; whose transaction is open from DescribeProducers, ListTransactions and
DescribeTransactions; a group's generation and the time of its commits from the topic `__consumer_offsets`, if the user may read
it. A search for a marker, a later record or a group's commits reads at most 64 MiB. Share groups can only be explained live; a
partition of theirs has a cause that begins with `share_`, or `partition_without_leader`, `lag_unassigned` or `caught_up`.

**From files**, with `--log-dir DIR` for each log directory of a stopped broker, kwire's or Apache Kafka's. Nothing is changed.
Files do not tell configs, so DeleteRecords can be told from retention only where the log begins inside a segment, and they do not
tell which replica lacks a record above the high watermark. Of groups of the newer types, only committed offsets are read.

When compaction has removed a record, its key is gone with it. The later record that replaced it is found if a follower still
has the record, if the file that was compacted still waits for its deletion (`--log-dir`), or if `--key` gives the key.
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
            INTRO,
            "The order of the tables is that of the rules: the first that applies is the answer.",
            *table("Records", record),
            *table("Groups", group),
            *table("Partitions of a group", partition),
            *table("Transactional ids", transaction),
        ]
    )


def table(title: str, answers: Iterable[Answer]) -> list[str]:
    """The causes of one kind, each with an example of its sentence."""
    rows = [f"| `{each.cause}` | {CAUSES[each.cause]} | {each.sentence} |" for each in answers]
    return ["", f"## {title}", "", "| cause | when | example |", "| --- | --- | --- |", *rows]
