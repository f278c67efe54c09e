"""The state of a transactional id, and the records that it blocks: facts in, a cause out.

Source: TransactionCoordinator; KIP-98.
"""

from __future__ import annotations

from typing import Any

from .answers import Answer
from .facts import TransactionFacts
from .words import counted, duration, listed, when


def explain_transaction(facts: TransactionFacts) -> Answer:
    """The state of a transactional id, and the records that it blocks."""
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
        said = f"The coordinator of transactional id {name} cannot be asked: {facts.problem_text}."
        return answer("coordinator_unavailable", said)
    state = facts.state
    if state in ("CompleteCommit", "CompleteAbort"):
        how = "committed" if state == "CompleteCommit" else "aborted"
        said = f"The last transaction of {name} ({producer}) was {how}; it holds no records back."
        return answer("transaction_complete", said)
    if state in ("PrepareCommit", "PrepareAbort"):
        how = "committed" if state == "PrepareCommit" else "aborted"
        left = [f"{topic}-{partition}" for topic, partition in facts.partitions]
        said = f"The transaction of {name} ({producer}) will be {how}, but {counted(len(left), 'partition')} may lack the marker: {listed(left)}."
        if facts.without_leader:
            lost = [f"{topic}-{partition}" for topic, partition in facts.without_leader]
            said += f" {listed(lost)} {'has' if len(lost) == 1 else 'have'} no leader that could write it."
        return answer("transaction_ending", said)
    if state in ("Dead", "PrepareEpochFence"):
        what = (
            "is being removed"
            if state == "Dead"
            else "is being taken over by a new producer, which fences the old one"
        )
        return answer("transaction_dead", f"The transactional id {name} ({producer}) {what}.")
    if state != "Ongoing":
        said = f"The producer of {name} ({producer}) has not begun a transaction; it holds no records back."
        return answer("transaction_empty", said)
    open_for = facts.now_ms - (facts.start_ms or facts.now_ms)
    held = [
        f"{counted(count, 'offset')} of {topic}-{partition} from {first} on"
        for topic, partition, first, count in facts.holds_back
    ]
    said = f"The transaction of {name} ({producer}) has been open since {when(facts.start_ms)} ({duration(open_for)})"
    timeout = facts.timeout_ms
    overdue = timeout is not None and facts.start_ms is not None and open_for > timeout
    if timeout is not None:
        said += (
            f"; its timeout of {duration(timeout)} expired {duration(open_for - timeout)} ago"
            if overdue
            else f"; its timeout of {duration(timeout)} ends it in {duration(timeout - open_for)}"
        )
    said += (
        f". It holds back readers with read_committed: {listed(held)}."
        if held
        else f". It has {counted(len(facts.partitions), 'partition')}."
        if facts.partitions
        else ". It has written to no partition yet."
    )
    if overdue:
        return answer(
            "transaction_overdue",
            said,
            "The coordinator looks for expired transactions every transaction.abort.timed.out.transaction.cleanup.interval.ms.",
        )
    return answer("transaction_ongoing", said)
