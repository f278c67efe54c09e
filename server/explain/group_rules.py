"""Why a group waits, and why it lags: facts in, causes out.

Source: GroupMetadataManager.scala.
"""

from __future__ import annotations

from typing import Any

from .answers import Answer
from .facts import GroupFacts, GroupMember, GroupPartition
from .words import counted, duration, listed, open_since, text_of, transaction_details, when

#: A member with records to read that has not committed for this long is called stalled.
STALLED_MS = 60_000


def explain_group(facts: GroupFacts) -> list[Answer]:
    """The reason that a group waits, followed by each of its partitions, those with lag first."""
    answers = [the_group(facts)]
    if facts.problem is None:
        explain = the_share_partition if facts.kind == "share" else the_partition
        rows = [explain(facts, each) for each in facts.partitions]
        answers += sorted(rows, key=lambda row: row.cause == "caught_up")
    return answers


def name_of(member: GroupMember) -> str:
    """A member's name for users."""
    shown = member.client_id or member.member_id
    if member.instance_id is not None:
        shown = f"{shown} (instance {member.instance_id})"
    return f"{shown} at {member.host.removeprefix('/')}" if member.host else shown


def the_group(facts: GroupFacts) -> Answer:
    group, members = facts.group, facts.members
    word = "of generation" if facts.kind == "classic" else "in epoch"
    generation = f" {word} {facts.generation}" if facts.generation is not None else ""
    if facts.problem == "NO_GROUP":
        return of_group(facts, "no_group", f"There is no group {group}.")
    if facts.problem == "NOT_SERVED":
        said = f"Group {group} is stored, but groups of its type are not served now: {facts.problem_text}."
        return of_group(facts, "group_not_served", said)
    if facts.problem is not None:
        said = f"The coordinator of group {group} cannot be asked: {facts.problem_text}."
        return of_group(facts, "coordinator_unavailable", said)
    if facts.state == "Empty":
        said = f"Group {group} has no members, so nothing is read for it; its offsets are kept."
        return of_group(facts, "group_empty", said)
    if facts.state == "Dead":
        return of_group(facts, "group_dead", f"Group {group} is being removed.")
    if facts.state == "PreparingRebalance":
        waiting = members
        if facts.rejoined is not None:
            waiting = tuple(each for each in members if each.member_id not in facts.rejoined)
        names = listed([name_of(each) for each in waiting])
        longest = max((each.rebalance_timeout_ms or 0 for each in waiting), default=0)
        limit = f", for at most {duration(longest)}" if longest else ""
        if not waiting:
            said = f"Group {group} is rebalancing, and all {counted(len(members), 'member')} have joined; it is waiting for the end of group.initial.rebalance.delay.ms."
        elif facts.rejoined is None:
            said = f"Group {group} is rebalancing: it is waiting for each of its {counted(len(members), 'member')} ({names}) to rejoin{limit}. No member reads meanwhile."
        else:
            said = f"Group {group} is rebalancing: it is waiting for {names} to rejoin{limit}. No member reads meanwhile."
        return of_group(facts, "group_preparing_rebalance", said)
    if facts.state == "CompletingRebalance":
        leader = next((each for each in members if each.member_id == facts.leader), None)
        who = name_of(leader) if leader is not None else "its leader"
        said = f"Group {group} is rebalancing: all {counted(len(members), 'member')}{generation} have joined, and it is waiting for {who} to assign the partitions."
        return of_group(facts, "group_completing_rebalance", said)
    if facts.state == "Assigning":
        said = f"Group {group} is waiting for its coordinator to compute the assignment of epoch {facts.generation}."
        return of_group(facts, "group_assigning", said)
    if facts.state == "Reconciling":
        holding = [
            each
            for each in members
            if each.target is not None and set(each.partitions) - set(each.target)
        ]
        names = listed([name_of(each) for each in holding])
        said = f"Group {group} is moving partitions" + (
            f": it is waiting for {names} to give up "
            + listed(
                [
                    f"{topic}-{partition}"
                    for each in holding
                    for topic, partition in sorted(set(each.partitions) - set(each.target or ()))
                ]
            )
            + "."
            if holding
            else ": it is waiting for members to reach the newest epoch."
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
    lag = row.lag

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
        who = f"{name_of(member)} reads" if member else "no member reads"
        said = f"{name}: the group has never committed an offset. It has {counted(row.end - (row.log_start or 0), 'offset')}, which {who}."
        return answer(
            "never_committed", said, "A consumer starts there according to its auto.offset.reset."
        )
    if row.log_start is not None and row.committed < row.log_start:
        said = f"{name}: the group's offset {row.committed}{at} was deleted; the log begins at offset {row.log_start}."
        return answer(
            "offset_deleted",
            said,
            "A consumer continues according to its auto.offset.reset, and may skip or repeat records.",
        )
    if row.committed > row.end:
        said = f"{name}: the group's offset {row.committed}{at} is beyond the end of the log, {row.end}: the topic was created again, or has lost records."
        return answer("offset_beyond_end", said, "`kwire groups reset` sets another offset.")
    if lag == 0:
        return answer("caught_up", f"{name}: the group has read everything up to offset {row.end}.")
    assert lag is not None
    behind = (
        f"{name}: the group is {counted(lag, 'offset')} behind, at {row.committed} of {row.end}{at}"
    )
    if row.markers == lag:
        said = f"{behind}, but nothing is left to read: {'it is' if lag == 1 else 'they are'} {row.note}."
        return answer("lag_markers", said)
    if member is None:
        who = "the group has no members" if not facts.members else "no member has this partition"
        return answer("lag_unassigned", f"{behind}: {who}.")
    stable = row.end if row.last_stable is None else row.last_stable
    if row.committed >= stable:
        first = min(row.open_transactions, key=lambda each: each.first_offset, default=None)
        if first is None:
            return answer(
                "lag_transaction",
                f"{behind}: an open transaction holds back readers with read_committed.",
            )
        said = f"{behind}: the transaction of {text_of(first)} {open_since(first, facts.now_ms)}. Readers with read_committed wait for its end."
        return answer("lag_transaction", said, **transaction_details(first))
    if row.readable is False:
        said = f"{behind}, but nothing is left to read: transaction markers and aborted records also have offsets."
        return answer("lag_markers", said)
    if row.committed_ms is not None and facts.now_ms - row.committed_ms > STALLED_MS:
        said = f"{behind}: {name_of(member)} has not committed for {duration(facts.now_ms - row.committed_ms)}."
        return answer("lag_stalled", said)
    return answer(
        "lag_behind",
        f"{behind}: {name_of(member)} has not read them yet, or has not committed them.",
    )


def the_share_partition(facts: GroupFacts, row: GroupPartition) -> Answer:
    """The remaining records of a share group in a partition, without its locks, which are not reported. Source:
    KIP-932.
    """
    name = f"{row.topic}-{row.partition}"
    readers = [each for each in facts.members if (row.topic, row.partition) in each.partitions]
    who = listed([name_of(each) for each in readers])
    lag = row.lag

    def answer(cause: str, sentence: str, advice: str = "") -> Answer:
        details: dict[str, Any] = {
            "group": facts.group,
            "topic": row.topic,
            "partition": row.partition,
            "start_offset": row.committed if row.committed >= 0 else None,
            "end_offset": row.end,
            "lag": lag,
            "member_ids": [each.member_id for each in readers],
        }
        return Answer("partition", cause, sentence, details, advice=advice)

    if not row.leader or row.end is None:
        return answer(
            "partition_without_leader", f"{name} has no leader, so the group cannot read it."
        )
    if row.committed < 0:
        verb = "read" if len(readers) > 1 else "reads"
        said = f"{name}: the share group has not begun; {who or 'no member'} {verb} it."
        return answer(
            "share_not_begun",
            said,
            "At its first fetch, the group starts at the end of the log, or at the place that its config share.auto.offset.reset gives.",
        )
    if not lag:
        return answer(
            "caught_up", f"{name}: the group has acknowledged everything up to offset {row.end}."
        )
    verb = "is" if lag == 1 else "are"
    behind = f"{name}: {counted(lag, 'offset')} between {row.committed} and {row.end} {verb} not acknowledged"
    if not readers:
        nobody = "the group has no members" if not facts.members else "no member has this partition"
        return answer("lag_unassigned", f"{behind}: {nobody}.")
    have, them = "have" if len(readers) > 1 else "has", "it" if lag == 1 else "them"
    return answer(
        "share_unacknowledged",
        f"{behind}: {who} {have} {them} under a lock, or {have} not fetched {them} yet.",
        "A lock ends after share.record.lock.duration.ms; then the record is delivered again, up to share.delivery.count.limit times.",
    )
