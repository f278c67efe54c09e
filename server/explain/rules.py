"""The rules of `kwire explain`: facts in, causes out.

The order of the rules is the order in which a record passes what can hide it. Each rule looks at the facts
and returns an answer, or None if it does not apply; the first answer counts.
Source: UnifiedLog, Partition.fetchOffsetForTimestamp, LogCleaner, GroupMetadataManager.scala,
TransactionCoordinator, KIP-98, KIP-664.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from .facts import (
    GroupFacts,
    GroupMember,
    GroupPartition,
    RecordFacts,
    Transaction,
    TransactionFacts,
)

#: A member that has not committed for so long, with records to read, is called stalled.
STALLED_MS = 60_000
#: How many names a sentence lists.
LISTED = 3

BOTH = ("read_uncommitted", "read_committed")
COMMITTED_READERS = ("read_committed",)


@dataclass(frozen=True, slots=True)
class Answer:
    """A cause, as a sentence and as data.

    Shape: `cause` is a key of CAUSES; `hidden_from` the isolation levels whose readers do not get the
    record; `details` can be written as JSON; `advice` is what one can do, or empty.
    """

    about: str
    cause: str
    sentence: str
    details: dict[str, Any] = field(default_factory=dict)
    hidden_from: tuple[str, ...] = ()
    advice: str = ""

    def as_json(self) -> dict[str, Any]:
        """The answer as a JSON object."""
        result: dict[str, Any] = {"about": self.about, "cause": self.cause}
        if self.about == "record":
            result["hidden_from"] = list(self.hidden_from)
        result["sentence"] = self.sentence
        if self.advice:
            result["advice"] = self.advice
        return result | self.details


#: Every cause, and when it holds. docs/explain.md and the tests have an example of each.
CAUSES = {
    # Records.
    "no_topic": "The cluster has no such topic.",
    "no_partition": "The topic has fewer partitions.",
    "not_authorized": "The user may not read the topic.",
    "no_leader": "No replica that may lead the partition is alive.",
    "never_written": "The log ends before the offset.",
    "deleted_by_delete_records": "The log begins after the offset, at a place where only DeleteRecords puts it.",
    "deleted_by_retention": "The log begins after the offset, and retention or DeleteRecords has removed whole segments.",
    "above_high_watermark": "Not every in-sync replica has the record yet.",
    "control_record": "The offset belongs to a marker of a transaction or of the log, which no consumer gets.",
    "compacted_away": "Compaction has removed the record, because a later one has its key.",
    "compacted_or_expired": "Compaction has removed the record, and its key is not known any more.",
    "missing": "The log has no record there, and the topic is not compacted.",
    "corrupt": "The batch is damaged; consumers stop before it.",
    "aborted": "The record's transaction was aborted.",
    "open_transaction": "The record's own transaction is not over.",
    "above_last_stable_offset": "The transaction of another producer, begun before the record, is not over.",
    "hanging_transaction": "A transaction that no coordinator knows is open before the record, and will never end.",
    "tombstone": "Consumers get the record; its value is null, so it deletes its key.",
    "visible": "Nothing hides the record.",
    # Groups.
    "no_group": "There is no such group.",
    "coordinator_unavailable": "The group's or transaction's coordinator does not answer.",
    "group_empty": "The group has no members.",
    "group_preparing_rebalance": "The group waits for members to join again.",
    "group_completing_rebalance": "The group waits for its leader to hand out partitions.",
    "group_assigning": "The coordinator works out who gets which partition (consumer protocol).",
    "group_reconciling": "Members have to give partitions up before others get them (consumer protocol).",
    "group_dead": "The group is being removed.",
    "group_stable": "Every member has its partitions.",
    "partition_without_leader": "The group cannot read a partition, because nobody leads it.",
    "offset_deleted": "The group's offset lies before the beginning of the log.",
    "offset_beyond_end": "The group's offset lies behind the end of the log.",
    "never_committed": "The group has no offset for the partition.",
    "lag_unassigned": "No member reads the partition.",
    "lag_transaction": "An open transaction keeps readers with read_committed from going on.",
    "lag_markers": "Nothing but markers and aborted records is left to read; the lag stays.",
    "lag_stalled": "The partition's member has not committed for a while.",
    "lag_behind": "The partition's member is behind.",
    "caught_up": "The group has read everything.",
    # Transactional ids.
    "no_transactional_id": "No coordinator knows the transactional id.",
    "transaction_empty": "The producer has begun no transaction.",
    "transaction_ongoing": "A transaction is open, within its timeout.",
    "transaction_overdue": "A transaction is open beyond its timeout, and the coordinator has not aborted it yet.",
    "transaction_ending": "The transaction is decided, but partitions lack the marker.",
    "transaction_complete": "The last transaction is over.",
    "transaction_dead": "The transactional id is being removed.",
}


# -- words -----------------------------------------------------------------------------------------


def when(time_ms: int | None) -> str:
    """A time in UTC, to the second."""
    if time_ms is None or time_ms < 0:
        return "an unknown time"
    return f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def duration(ms: float) -> str:
    """A length of time in the two largest units that it has."""
    ms = max(0, int(ms))
    if ms < 1000:
        return f"{ms} ms"
    parts = []
    left = ms // 1000
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def counted(number: int, thing: str) -> str:
    """A number with its noun, which takes an s."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def listed(names: Sequence[str]) -> str:
    """Some names in a row; the rest is counted."""
    shown, more = list(names[:LISTED]), len(names) - LISTED
    if more > 0:
        return f"{', '.join(shown)} and {more} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def text_of(transaction: Transaction) -> str:
    """Whose transaction it is."""
    producer = f"producer {transaction.producer_id} (epoch {transaction.producer_epoch})"
    if transaction.transactional_id is None:
        return producer
    return f"{producer}, transactional id {transaction.transactional_id},"


def since(transaction: Transaction, now_ms: int) -> str:
    """Since when it is open, and until when it may be."""
    start, timeout = transaction.start_ms, transaction.timeout_ms
    if start is None or start < 0:
        if transaction.last_write_ms is not None and transaction.last_write_ms >= 0:
            return f"; its last record is of {when(transaction.last_write_ms)}"
        return ""
    said = f" since {when(start)} ({duration(now_ms - start)})"
    if timeout is not None:
        left = start + timeout - now_ms
        said += f"; its timeout of {duration(timeout)} " + (
            f"ends it in {duration(left)}" if left > 0 else f"was over {duration(-left)} ago"
        )
    return said


def transaction_details(transaction: Transaction) -> dict[str, Any]:
    """A transaction as JSON."""
    return {
        "transaction": {
            "transactional_id": transaction.transactional_id,
            "producer_id": transaction.producer_id,
            "producer_epoch": transaction.producer_epoch,
            "first_offset": transaction.first_offset,
            "state": transaction.state,
            "start_ms": transaction.start_ms,
            "timeout_ms": transaction.timeout_ms,
            "last_write_ms": transaction.last_write_ms,
            "hanging": transaction.hanging,
        }
    }


def abort_words(facts: RecordFacts, transaction: Transaction) -> str:
    return (
        f"kwire transactions abort --topic {facts.topic} --partition {facts.partition}"
        f" --start-offset {transaction.first_offset}"
    )


# -- records ---------------------------------------------------------------------------------------

PROBLEMS = {
    "NO_TOPIC": ("no_topic", "There is no topic {topic}."),
    "NO_PARTITION": (
        "no_partition",
        "Topic {topic} has no partition {partition}; its partitions are 0 to {last}.",
    ),
    "NOT_AUTHORIZED": ("not_authorized", "This user may not read topic {topic}."),
    "NO_LEADER": (
        "no_leader",
        "{name} has no leader, so nobody can read it: none of its replicas that may lead it ({replicas}) is alive.",
    ),
    "CORRUPT": (
        "corrupt",
        "The batch of {name} with offset {offset} is damaged ({text}); consumers stop before it.",
    ),
}


def a_problem(facts: RecordFacts) -> Answer | None:
    if facts.problem is None:
        return None
    cause, form = PROBLEMS[facts.problem]
    sentence = form.format(
        topic=facts.topic,
        partition=facts.partition,
        offset=facts.offset,
        name=facts.name,
        last=(facts.partitions or 1) - 1,
        replicas=listed([str(each.broker) for each in facts.replicas]) or "unknown",
        text=facts.problem_text,
    )
    return of_record(facts, cause, sentence, BOTH)


def beyond_the_end(facts: RecordFacts) -> Answer | None:
    end = facts.high_watermark if facts.log_end is None else facts.log_end
    if facts.offset < end:
        return None
    if facts.log_end is None:
        # Without the end of the leader's log, what lies above the high watermark cannot be told from nothing.
        said = f"The committed records of {facts.name} end before offset {end}: offset {facts.offset} is not written, or not on every in-sync replica."
    elif end == 0:
        said = f"Nothing has ever been written to {facts.name}."
    else:
        said = f"Offset {facts.offset} of {facts.name} has not been written: the log ends before offset {end}."
    return of_record(facts, "never_written", said, BOTH)


def before_the_beginning(facts: RecordFacts) -> Answer | None:
    if facts.offset >= facts.log_start:
        return None
    policy = facts.cleanup_policy
    limited = (facts.retention_ms or 0) >= 0 or (facts.retention_bytes or -1) >= 0
    # Retention removes whole segments, and only where the policy has it.
    by_request = facts.start_inside or (
        policy is not None and ("delete" not in policy or not limited)
    )
    begins = f"{facts.name} begins at offset {facts.log_start}"
    if by_request:
        why = (
            "that is inside a batch or segment"
            if facts.start_inside
            else f"cleanup.policy={policy} has no retention"
            if policy and "delete" not in policy
            else "retention.ms and retention.bytes are unlimited"
        )
        said = f"Offset {facts.offset} was deleted by DeleteRecords: {begins}, and {why}."
        return of_record(facts, "deleted_by_delete_records", said, BOTH)
    limits = []
    if facts.retention_ms is not None and facts.retention_ms >= 0:
        limits.append(f"retention.ms={facts.retention_ms} ({duration(facts.retention_ms)})")
    if facts.retention_bytes is not None and facts.retention_bytes >= 0:
        limits.append(f"retention.bytes={facts.retention_bytes}")
    said = (
        f"Offset {facts.offset} was deleted by retention{f' ({listed(limits)})' if limits else ''}, or by DeleteRecords"
        f" at the end of a segment: {begins}."
    )
    return of_record(facts, "deleted_by_retention", said, BOTH)


def above_the_high_watermark(facts: RecordFacts) -> Answer | None:
    if facts.offset < facts.high_watermark:
        return None
    behind = [each for each in facts.replicas if each.in_sync and each.log_end is not None]
    behind = [each for each in behind if (each.log_end or 0) <= facts.offset]
    unknown = [each for each in facts.replicas if each.in_sync and each.log_end is None]
    said = (
        f"Offset {facts.offset} of {facts.name} is written but not committed: the high watermark is"
        f" {facts.high_watermark}."
    )
    if behind:
        copies = [f"{each.broker} (which ends before {each.log_end})" for each in behind]
        said += f" It waits for in-sync replica {listed(copies)}."
    elif not facts.replicas:
        said += " When the broker last wrote that down, not every in-sync replica had it."
    elif unknown:
        copies = [str(each.broker) for each in unknown]
        said += (
            f" It waits for an in-sync replica that does not say how far it is: {listed(copies)}."
        )
    else:
        said += " Every in-sync replica has it; the leader learns of that with their next fetch."
    advice = (
        "If the replica does not catch up within replica.lag.time.max.ms, it leaves the in-sync set and holds nothing back."
        if behind or unknown
        else ""
    )
    details = {"held_back_by": [each.broker for each in behind or unknown]}
    return of_record(facts, "above_high_watermark", said, BOTH, details, advice)


def in_a_gap(facts: RecordFacts) -> Answer | None:
    if facts.stored is not None:
        return None
    first, last = facts.gap or (facts.offset, facts.offset)
    where = f"offset {first}" if first == last else f"offsets {first} to {last}"
    details = {"gap": [first, last]}
    if facts.later is not None:
        what = "a tombstone" if facts.later.is_tombstone else "a record"
        said = (
            f"Offset {facts.offset} of {facts.name} was compacted away: offset {facts.later.offset} has {what} with"
            " the same key."
        )
        return of_record(
            facts,
            "compacted_away",
            said,
            BOTH,
            details | {"later_offset": facts.later.offset},
        )
    if facts.cleanup_policy is not None and "compact" not in facts.cleanup_policy:
        said = (
            f"The log of {facts.name} has no record at {where}, although cleanup.policy={facts.cleanup_policy} does"
            " not compact; it may have been compacted under another policy."
        )
        return of_record(facts, "missing", said, BOTH, details)
    said = (
        f"Compaction has removed {where} of {facts.name}: a later record has the same key, or it was a tombstone"
        f"{after_delete_retention(facts)}, part of an aborted transaction, or a marker that nothing needs any more."
    )
    return of_record(
        facts,
        "compacted_or_expired",
        said,
        BOTH,
        details,
        "With --key, the later record with that key is looked for.",
    )


def after_delete_retention(facts: RecordFacts) -> str:
    if facts.delete_retention_ms is None:
        return ""
    return f" older than delete.retention.ms={facts.delete_retention_ms}"


def a_control_record(facts: RecordFacts) -> Answer | None:
    stored = facts.stored
    if stored is None or stored.control is None:
        return None
    said = f"Offset {facts.offset} of {facts.name} is no record but a control record, "
    if stored.control in ("COMMIT", "ABORT"):
        said += (
            f"the {stored.control} marker of a transaction of producer {stored.producer_id} (epoch"
            f" {stored.producer_epoch}), written {when(stored.timestamp_ms)}; consumers pass over it."
        )
    else:
        said += f"{stored.control}; consumers pass over it."
    return of_record(facts, "control_record", said, BOTH)


def aborted(facts: RecordFacts) -> Answer | None:
    stored = facts.stored
    if stored is None or not stored.transactional or stored.marker is None:
        return None
    if stored.marker.kind != "ABORT":
        return None
    marker = stored.marker
    where = (
        f"the ABORT marker is at offset {marker.offset}, written {when(marker.timestamp_ms)}"
        if marker.offset >= 0
        else "the ABORT marker is too far away to be looked for"
    )
    said = (
        f"Offset {facts.offset} of {facts.name} belongs to an aborted transaction of producer {stored.producer_id}"
        f" (epoch {stored.producer_epoch}): {where}. Readers with read_committed pass over it."
    )
    return of_record(facts, "aborted", said, COMMITTED_READERS)


def above_the_last_stable_offset(facts: RecordFacts) -> Answer | None:
    stored = facts.stored
    if stored is None or facts.offset < facts.last_stable:
        return None
    own = next(
        (
            each
            for each in facts.open_transactions
            if stored.transactional
            and stored.marker is None
            and each.producer_id == stored.producer_id
            and each.first_offset <= facts.offset
        ),
        None,
    )
    earliest = min(facts.open_transactions, key=lambda each: each.first_offset, default=None)
    stable = f"the last stable offset is {facts.last_stable}"
    if own is not None and own is earliest and not own.hanging:
        said = (
            f"Offset {facts.offset} of {facts.name} belongs to a transaction that is not over: that of {text_of(own)} is"
            f" open{since(own, facts.now_ms)}. Readers with read_committed wait for its end; {stable}."
        )
        return of_record(
            facts, "open_transaction", said, COMMITTED_READERS, transaction_details(own)
        )
    if earliest is None:
        said = (
            f"Offset {facts.offset} of {facts.name} is above the last stable offset {facts.last_stable}: a transaction"
            " that began there is open. The broker does not say whose."
        )
        return of_record(facts, "above_last_stable_offset", said, COMMITTED_READERS)
    if earliest.hanging:
        said = (
            f"Offset {facts.offset} of {facts.name} waits for a transaction that hangs: {text_of(earliest)} began it at"
            f" offset {earliest.first_offset}, and no coordinator knows of it{last_write(earliest)}. Readers with"
            f" read_committed never get further; {stable}."
        )
        return of_record(
            facts,
            "hanging_transaction",
            said,
            COMMITTED_READERS,
            transaction_details(earliest),
            f"To end it: {abort_words(facts, earliest)}",
        )
    said = (
        f"Offset {facts.offset} of {facts.name} is above the last stable offset {facts.last_stable}: the transaction of"
        f" {text_of(earliest)} began at offset {earliest.first_offset} and is open{since(earliest, facts.now_ms)}."
        " Readers with read_committed wait for its end."
    )
    return of_record(
        facts,
        "above_last_stable_offset",
        said,
        COMMITTED_READERS,
        transaction_details(earliest),
    )


def last_write(transaction: Transaction) -> str:
    if transaction.last_write_ms is None or transaction.last_write_ms < 0:
        return ""
    return f"; its last record is of {when(transaction.last_write_ms)}"


def seen(facts: RecordFacts) -> Answer:
    stored = facts.stored
    assert stored is not None
    about = f"Offset {facts.offset} of {facts.name}"
    if stored.transactional and stored.marker is not None and stored.marker.offset >= 0:
        committed = f"its transaction was committed at offset {stored.marker.offset}"
    elif stored.transactional:
        committed = "its transaction was committed"
    else:
        committed = ""
    if stored.is_tombstone:
        said = f"{about} is visible, as a tombstone: its value is null, which deletes its key{f'; {committed}' if committed else ''}."
        if facts.cleanup_policy is not None and "compact" in facts.cleanup_policy:
            said += f" Compaction removes it{after_delete_retention(facts).replace(' older than', ' after')}."
        return of_record(facts, "tombstone", said)
    said = f"{about} is visible to every consumer{f': {committed}' if committed else ''}; its timestamp is {when(stored.timestamp_ms)}."
    return of_record(
        facts,
        "visible",
        said,
        advice="A consumer that does not get it is at another offset; `kwire explain --group GROUP` says where.",
    )


RECORD_RULES: tuple[Callable[[RecordFacts], Answer | None], ...] = (
    a_problem,
    beyond_the_end,
    before_the_beginning,
    above_the_high_watermark,
    in_a_gap,
    a_control_record,
    aborted,
    above_the_last_stable_offset,
)


def explain_record(facts: RecordFacts) -> Answer:
    """Why consumers do not get what is at an offset, or that they do."""
    for rule in RECORD_RULES:
        answer = rule(facts)
        if answer is not None:
            return answer
    return seen(facts)


def of_record(
    facts: RecordFacts,
    cause: str,
    sentence: str,
    hidden_from: tuple[str, ...] = (),
    details: dict[str, Any] | None = None,
    advice: str = "",
) -> Answer:
    """An answer with what is known of the offset."""
    known: dict[str, Any] = {
        "topic": facts.topic,
        "partition": facts.partition,
        "offset": facts.offset,
    }
    if facts.problem not in ("NO_TOPIC", "NO_PARTITION", "NOT_AUTHORIZED", "NO_LEADER"):
        known |= {
            "leader": facts.leader,
            "log_start_offset": facts.log_start,
            "last_stable_offset": facts.last_stable,
            "high_watermark": facts.high_watermark,
            "log_end_offset": facts.log_end,
        }
    stored = facts.stored
    if stored is not None:
        known["record"] = {
            "timestamp_ms": stored.timestamp_ms,
            "producer_id": stored.producer_id,
            "producer_epoch": stored.producer_epoch,
            "transactional": stored.transactional,
            "control": stored.control,
            "key_size": stored.key_size,
            "value_size": stored.value_size,
        }
        if stored.marker is not None:
            known["marker"] = {
                "kind": stored.marker.kind,
                "offset": stored.marker.offset,
                "timestamp_ms": stored.marker.timestamp_ms,
            }
    return Answer("record", cause, sentence, known | (details or {}), hidden_from, advice)


# -- groups ----------------------------------------------------------------------------------------


def explain_group(facts: GroupFacts) -> list[Answer]:
    """What a group waits for, then each of its partitions, those with lag first."""
    answers = [the_group(facts)]
    if facts.problem is None:
        rows = [the_partition(facts, each) for each in facts.partitions]
        answers += sorted(rows, key=lambda row: row.cause == "caught_up")
    return answers


def name_of(member: GroupMember) -> str:
    """A member as a person knows it."""
    shown = member.client_id or member.member_id
    if member.instance_id is not None:
        shown = f"{shown} (instance {member.instance_id})"
    return f"{shown} at {member.host.removeprefix('/')}" if member.host else shown


def the_group(facts: GroupFacts) -> Answer:
    group, members = facts.group, facts.members
    generation = f" of generation {facts.generation}" if facts.generation is not None else ""
    if facts.problem == "NO_GROUP":
        return of_group(facts, "no_group", f"There is no group {group}.")
    if facts.problem is not None:
        said = f"The coordinator of group {group} does not answer: {facts.problem_text}."
        return of_group(facts, "coordinator_unavailable", said)
    if facts.state == "Empty":
        said = f"Group {group} has no members, so nobody reads for it; its offsets are kept."
        return of_group(facts, "group_empty", said)
    if facts.state == "Dead":
        return of_group(facts, "group_dead", f"Group {group} is being removed.")
    if facts.state == "PreparingRebalance":
        waiting = members
        if facts.rejoined is not None:
            waiting = tuple(each for each in members if each.member_id not in facts.rejoined)
        names = listed([name_of(each) for each in waiting])
        longest = max((each.rebalance_timeout_ms or 0 for each in waiting), default=0)
        limit = f", at most {duration(longest)}" if longest else ""
        if not waiting:
            said = f"Group {group} is rebalancing, and all {counted(len(members), 'member')} have joined; it waits for group.initial.rebalance.delay.ms."
        elif facts.rejoined is None:
            said = f"Group {group} is rebalancing: it waits until each of its {counted(len(members), 'member')} ({names}) has joined again{limit}. Nobody reads meanwhile."
        else:
            said = f"Group {group} is rebalancing: it waits for {names} to join again{limit}. Nobody reads meanwhile."
        return of_group(facts, "group_preparing_rebalance", said)
    if facts.state == "CompletingRebalance":
        leader = next((each for each in members if each.member_id == facts.leader), None)
        who = name_of(leader) if leader is not None else "its leader"
        said = f"Group {group} is rebalancing: all {counted(len(members), 'member')}{generation} have joined, and it waits for {who} to hand out the partitions."
        return of_group(facts, "group_completing_rebalance", said)
    if facts.state == "Assigning":
        said = f"Group {group} waits for its coordinator to work out the assignment of epoch {facts.generation}."
        return of_group(facts, "group_assigning", said)
    if facts.state == "Reconciling":
        holding = [
            each
            for each in members
            if each.target is not None and set(each.partitions) - set(each.target)
        ]
        names = listed([name_of(each) for each in holding])
        said = f"Group {group} is moving partitions" + (
            f": it waits for {names} to give up "
            + listed(
                [
                    f"{topic}-{partition}"
                    for each in holding
                    for topic, partition in sorted(set(each.partitions) - set(each.target or ()))
                ]
            )
            + "."
            if holding
            else ": it waits for members to take up the newest epoch."
        )
        return of_group(facts, "group_reconciling", said)
    idle = [each for each in members if not each.partitions]
    said = f"Group {group} is stable: {counted(len(members), 'member')}{generation}."
    if idle:
        said += f" {listed([name_of(each) for each in idle])} {'has' if len(idle) == 1 else 'have'} no partition."
    return of_group(facts, "group_stable", said)


def of_group(facts: GroupFacts, cause: str, sentence: str) -> Answer:
    details: dict[str, Any] = {"group": facts.group}
    if facts.problem is None:
        details |= {
            "state": facts.state,
            "type": facts.kind,
            "generation": facts.generation,
            "coordinator": facts.coordinator,
            "members": [
                {
                    "member_id": each.member_id,
                    "client_id": each.client_id,
                    "host": each.host,
                    "instance_id": each.instance_id,
                    "partitions": [f"{topic}-{partition}" for topic, partition in each.partitions],
                }
                for each in facts.members
            ],
        }
    return Answer("group", cause, sentence, details)


def the_partition(facts: GroupFacts, row: GroupPartition) -> Answer:
    """Why a group lags in a partition, or that it does not."""
    name = f"{row.topic}-{row.partition}"
    member = next(
        (each for each in facts.members if (row.topic, row.partition) in each.partitions), None
    )
    at = f" (committed {when(row.committed_ms)})" if row.committed_ms is not None else ""
    lag = None if row.end is None or row.committed < 0 else max(0, row.end - row.committed)

    def answer(cause: str, sentence: str, advice: str = "", **more: Any) -> Answer:
        details: dict[str, Any] = {
            "group": facts.group,
            "topic": row.topic,
            "partition": row.partition,
            "committed_offset": row.committed if row.committed >= 0 else None,
            "committed_ms": row.committed_ms,
            "end_offset": row.end,
            "last_stable_offset": row.last_stable,
            "lag": lag,
            "member_id": None if member is None else member.member_id,
        }
        return Answer("partition", cause, sentence, details | more, advice=advice)

    if not row.leader or row.end is None:
        return answer(
            "partition_without_leader", f"{name} has no leader, so the group cannot read it."
        )
    if row.committed < 0:
        who = f"{name_of(member)} reads it" if member else "no member reads it"
        said = f"{name}: the group has never committed an offset, and {who}; it has {counted(row.end - (row.log_start or 0), 'offset')}."
        return answer(
            "never_committed", said, "A consumer begins there as its auto.offset.reset says."
        )
    if row.log_start is not None and row.committed < row.log_start:
        said = f"{name}: the group's offset {row.committed}{at} was deleted; the log begins at offset {row.log_start}."
        return answer(
            "offset_deleted",
            said,
            "A consumer goes on as its auto.offset.reset says, and may skip or repeat records.",
        )
    if row.committed > row.end:
        said = f"{name}: the group's offset {row.committed}{at} is behind the end of the log, {row.end}: the topic was made anew, or lost records."
        return answer("offset_beyond_end", said, "`kwire groups reset` sets it anew.")
    if lag == 0:
        return answer("caught_up", f"{name}: the group has read everything up to offset {row.end}.")
    assert lag is not None
    behind = (
        f"{name}: the group is {counted(lag, 'offset')} behind, at {row.committed} of {row.end}{at}"
    )
    if member is None:
        who = "the group has no members" if not facts.members else "no member has this partition"
        return answer("lag_unassigned", f"{behind}: {who}.")
    stable = row.end if row.last_stable is None else row.last_stable
    if row.committed >= stable:
        first = min(row.open_transactions, key=lambda each: each.first_offset, default=None)
        if first is None:
            return answer(
                "lag_transaction",
                f"{behind}: an open transaction holds readers with read_committed back.",
            )
        said = f"{behind}: the transaction of {text_of(first)} is open{since(first, facts.now_ms)}, and readers with read_committed wait for its end."
        return answer("lag_transaction", said, **transaction_details(first))
    if row.readable is False:
        said = f"{behind}, but nothing is left to read: markers of transactions and aborted records take offsets, too."
        return answer("lag_markers", said)
    if row.committed_ms is not None and facts.now_ms - row.committed_ms > STALLED_MS:
        said = f"{behind}: {name_of(member)} has not committed for {duration(facts.now_ms - row.committed_ms)}."
        return answer("lag_stalled", said)
    return answer(
        "lag_behind", f"{behind}: {name_of(member)} has not read or not committed them yet."
    )


# -- transactional ids -----------------------------------------------------------------------------


def explain_transaction(facts: TransactionFacts) -> Answer:
    """What a transactional id is doing, and what it holds back."""
    name = facts.transactional_id
    producer = f"producer {facts.producer_id}, epoch {facts.producer_epoch}"

    def answer(cause: str, sentence: str, advice: str = "") -> Answer:
        details: dict[str, Any] = {"transactional_id": name}
        if facts.problem is None:
            details |= {
                "state": facts.state,
                "producer_id": facts.producer_id,
                "producer_epoch": facts.producer_epoch,
                "start_ms": facts.start_ms,
                "timeout_ms": facts.timeout_ms,
                "coordinator": facts.coordinator,
                "partitions": [f"{topic}-{partition}" for topic, partition in facts.partitions],
                "holds_back": [
                    {"topic": topic, "partition": partition, "first_offset": first, "records": held}
                    for topic, partition, first, held in facts.holds_back
                ],
            }
        return Answer("transaction", cause, sentence, details, advice=advice)

    if facts.problem == "NO_TRANSACTIONAL_ID":
        said = f"No coordinator knows the transactional id {name}: it was never used, or has expired (transactional.id.expiration.ms)."
        return answer("no_transactional_id", said)
    if facts.problem is not None:
        said = f"The coordinator of transactional id {name} does not answer: {facts.problem_text}."
        return answer("coordinator_unavailable", said)
    state = facts.state
    if state in ("CompleteCommit", "CompleteAbort"):
        how = "committed" if state == "CompleteCommit" else "aborted"
        said = f"The last transaction of {name} ({producer}) was {how}; it holds nothing back."
        return answer("transaction_complete", said)
    if state in ("PrepareCommit", "PrepareAbort"):
        how = "commit" if state == "PrepareCommit" else "abort"
        left = [f"{topic}-{partition}" for topic, partition in facts.partitions]
        said = f"The transaction of {name} ({producer}) is to {how}, but {counted(len(left), 'partition')} may lack the marker: {listed(left)}."
        if facts.without_leader:
            lost = [f"{topic}-{partition}" for topic, partition in facts.without_leader]
            said += f" {listed(lost)} {'has' if len(lost) == 1 else 'have'} no leader to write it."
        return answer("transaction_ending", said)
    if state in ("Dead", "PrepareEpochFence"):
        what = (
            "is being removed"
            if state == "Dead"
            else "is being taken over by a new producer, which fences the old one"
        )
        return answer("transaction_dead", f"The transactional id {name} ({producer}) {what}.")
    if state != "Ongoing":
        said = (
            f"The producer of {name} ({producer}) has begun no transaction; it holds nothing back."
        )
        return answer("transaction_empty", said)
    open_for = facts.now_ms - (facts.start_ms or facts.now_ms)
    held = [
        f"{counted(count, 'offset')} of {topic}-{partition} from {first} on"
        for topic, partition, first, count in facts.holds_back
    ]
    said = f"The transaction of {name} ({producer}) is open since {when(facts.start_ms)} ({duration(open_for)})"
    timeout = facts.timeout_ms
    overdue = timeout is not None and facts.start_ms is not None and open_for > timeout
    if timeout is not None:
        said += (
            f"; its timeout of {duration(timeout)} was over {duration(open_for - timeout)} ago"
            if overdue
            else f"; its timeout of {duration(timeout)} ends it in {duration(timeout - open_for)}"
        )
    said += (
        f". Readers with read_committed wait for it: {listed(held)}."
        if held
        else f". It has {counted(len(facts.partitions), 'partition')}."
        if facts.partitions
        else ". It has written to no partition yet."
    )
    if overdue:
        return answer(
            "transaction_overdue",
            said,
            "The coordinator looks for such transactions every transaction.abort.timed.out.transaction.cleanup.interval.ms.",
        )
    return answer("transaction_ongoing", said)
