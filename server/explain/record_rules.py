"""Why a consumer does not see a record: facts in, a cause out.

The order of the rules is the order of the obstacles on a record's way. Each rule checks the facts and returns an
answer, or None if it does not apply; the first answer counts.
Source: UnifiedLog, Partition.fetchOffsetForTimestamp, LogCleaner, KIP-98, KIP-664.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .answers import Answer
from .facts import PendingTransaction, RecordFacts
from .words import duration, listed, open_since, text_of, transaction_details, when

BOTH = ("read_uncommitted", "read_committed")
COMMITTED_READERS = ("read_committed",)

PROBLEMS = {
    "NO_TOPIC": ("no_topic", "There is no topic {topic}."),
    "NO_PARTITION": (
        "no_partition",
        "Topic {topic} has no partition {partition}; {there}.",
    ),
    "NOT_AUTHORIZED": ("not_authorized", "This user may not read topic {topic}."),
    "NO_LEADER": (
        "no_leader",
        "{name} has no leader and cannot be read: none of the replicas that may lead it ({replicas}) is alive.",
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
        there="its only partition is 0"
        if facts.partitions == 1
        else f"its partitions are 0 to {(facts.partitions or 1) - 1}",
        replicas=listed([str(each.broker) for each in facts.replicas]) or "unknown",
        text=facts.problem_text,
    )
    return of_record(facts, cause, sentence, BOTH)


def beyond_the_end(facts: RecordFacts) -> Answer | None:
    end = facts.high_watermark if facts.log_end is None else facts.log_end
    if facts.offset < end:
        return None
    if facts.log_end is None:
        # Without the end of the leader's log, records above the high watermark cannot be distinguished from none.
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
    # Retention removes whole segments, and only if the policy includes it.
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
        copies = [f"{each.broker} (whose log ends before offset {each.log_end})" for each in behind]
        said += f" It waits for in-sync replica {listed(copies)}."
    elif not facts.replicas:
        said += " When the broker last stored the high watermark, not every in-sync replica had the record."
    elif unknown:
        copies = [str(each.broker) for each in unknown]
        said += (
            f" It waits for an in-sync replica that does not report its position: {listed(copies)}."
        )
    else:
        said += " Every in-sync replica has it; the leader learns this from their next fetch."
    advice = (
        "If the replica does not catch up within replica.lag.time.max.ms, it leaves the in-sync set and no longer holds the record back."
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
            " not compact; the log may have been compacted under an earlier policy."
        )
        return of_record(facts, "missing", said, BOTH, details)
    said = (
        f"Compaction has removed {where} of {facts.name}: a later record has the same key, or the record was a tombstone"
        f"{after_delete_retention(facts)}, part of an aborted transaction, or a marker that is no longer needed."
    )
    return of_record(
        facts,
        "compacted_or_expired",
        said,
        BOTH,
        details,
        "With --key, the command looks for the later record with that key.",
    )


def after_delete_retention(facts: RecordFacts) -> str:
    if facts.delete_retention_ms is None:
        return ""
    return f" older than delete.retention.ms={facts.delete_retention_ms}"


def a_control_record(facts: RecordFacts) -> Answer | None:
    stored = facts.stored
    if stored is None or stored.control is None:
        return None
    said = f"Offset {facts.offset} of {facts.name} is not a data record but a control record: "
    if stored.control in ("COMMIT", "ABORT"):
        said += (
            f"the {stored.control} marker of a transaction of producer {stored.producer_id} (epoch"
            f" {stored.producer_epoch}), written {when(stored.timestamp_ms)}. Consumers skip it."
        )
    else:
        said += f"{stored.control}. Consumers skip it."
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
        else "the ABORT marker is too far away to be found"
    )
    said = (
        f"Offset {facts.offset} of {facts.name} belongs to an aborted transaction of producer {stored.producer_id}"
        f" (epoch {stored.producer_epoch}): {where}. Readers with read_committed skip it."
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
            f"Offset {facts.offset} of {facts.name} belongs to an open transaction. The transaction of"
            f" {text_of(own)} {open_since(own, facts.now_ms)}. Readers with read_committed wait for its end; {stable}."
        )
        return of_record(
            facts, "open_transaction", said, COMMITTED_READERS, transaction_details(own)
        )
    if earliest is None:
        said = (
            f"Offset {facts.offset} of {facts.name} is above the last stable offset {facts.last_stable}: a transaction"
            " that began there is open. The broker does not report whose it is."
        )
        return of_record(facts, "above_last_stable_offset", said, COMMITTED_READERS)
    if earliest.hanging:
        said = (
            f"Offset {facts.offset} of {facts.name} waits for a hanging transaction: {text_of(earliest)} began it at"
            f" offset {earliest.first_offset}, and no coordinator knows it{last_write(earliest)}. Readers with"
            f" read_committed cannot read further; {stable}."
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
        f" {text_of(earliest)} began at offset {earliest.first_offset} and {open_since(earliest, facts.now_ms)}."
        " Readers with read_committed wait for its end."
    )
    return of_record(
        facts,
        "above_last_stable_offset",
        said,
        COMMITTED_READERS,
        transaction_details(earliest),
    )


def last_write(transaction: PendingTransaction) -> str:
    if transaction.last_write_ms is None or transaction.last_write_ms < 0:
        return ""
    return f"; its last record was written {when(transaction.last_write_ms)}"


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
        advice="A consumer that does not get it is at another offset; `kwire explain --group GROUP` shows which.",
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
    """Why consumers do not get the record at an offset, or that they do."""
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
    """An answer with the known facts about the offset."""
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


def abort_words(facts: RecordFacts, transaction: PendingTransaction) -> str:
    return (
        f"kwire transactions abort --topic {facts.topic} --partition {facts.partition}"
        f" --start-offset {transaction.first_offset}"
    )
