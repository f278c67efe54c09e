"""Answers of `kwire explain`: a cause, as a sentence and as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """A cause, as a sentence and as data.

    Shape: `cause` is a key of CAUSES; `hidden_from` are the isolation levels whose readers do not get the record;
    `details` can be written as JSON; `advice` is what the user can do, or empty.
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


#: Every cause, and its condition. docs/explain.md and the tests have an example of each.
CAUSES = {
    # Records.
    "no_topic": "The cluster has no such topic.",
    "no_partition": "The topic does not have this partition.",
    "not_authorized": "The user may not read the topic.",
    "no_leader": "No replica that may lead the partition is alive.",
    "never_written": "The log ends before the offset.",
    "deleted_by_delete_records": "The log begins after the offset, at a place where only DeleteRecords can make it begin.",
    "deleted_by_retention": "The log begins after the offset, and retention or DeleteRecords has removed whole segments.",
    "above_high_watermark": "Not every in-sync replica has the record yet.",
    "control_record": "The offset belongs to a marker of a transaction or of the log; consumers do not get markers.",
    "compacted_away": "Compaction has removed the record, because a later one has its key.",
    "compacted_or_expired": "Compaction has removed the record, and its key is no longer known.",
    "missing": "The log has no record at this offset, and the topic is not compacted.",
    "corrupt": "The batch is damaged; consumers stop before it.",
    "aborted": "The record's transaction was aborted.",
    "open_transaction": "The record's own transaction is still open.",
    "above_last_stable_offset": "A transaction of another producer, which began before the record, is still open.",
    "hanging_transaction": "A transaction that began before the record is open and will never end, because no coordinator knows it.",
    "tombstone": "Consumers get the record; its value is null, so it deletes its key.",
    "visible": "Nothing hides the record.",
    # Groups.
    "no_group": "The group does not exist.",
    "coordinator_unavailable": "The group's or transaction's coordinator does not answer, or refuses to.",
    "group_not_served": "The coordinator stores the group, but does not serve groups of its type (consumer or share).",
    "group_empty": "The group has no members.",
    "group_preparing_rebalance": "The group is waiting for members to rejoin.",
    "group_completing_rebalance": "The group is waiting for its leader to assign partitions.",
    "group_assigning": "The coordinator is computing the assignment (consumer protocol).",
    "group_reconciling": "Members have to give up partitions before others get them (consumer protocol).",
    "group_dead": "The group is being removed.",
    "group_stable": "Every member has its partitions.",
    "partition_without_leader": "The group cannot read the partition, because it has no leader.",
    "offset_deleted": "The group's offset is before the beginning of the log.",
    "offset_beyond_end": "The group's offset is beyond the end of the log.",
    "never_committed": "The group has no committed offset for the partition.",
    "lag_unassigned": "No member reads the partition.",
    "lag_transaction": "An open transaction blocks readers with read_committed.",
    "lag_markers": "Only markers and aborted records are left; the lag remains although there is nothing to read.",
    "lag_stalled": "The partition's member has not committed for a while.",
    "lag_behind": "The partition's member is behind.",
    "share_not_begun": "The share group has no start offset for the partition.",
    "share_unacknowledged": "Members of the share group have not acknowledged all records.",
    "caught_up": "The group has read everything.",
    # Transactional ids.
    "no_transactional_id": "No coordinator knows the transactional id.",
    "transaction_empty": "The producer has not begun a transaction.",
    "transaction_ongoing": "A transaction is open, within its timeout.",
    "transaction_overdue": "A transaction is open beyond its timeout, and the coordinator has not aborted it yet.",
    "transaction_ending": "The outcome of the transaction is decided, but some partitions lack its marker.",
    "transaction_complete": "The last transaction is over.",
    "transaction_dead": "The transactional id is being removed.",
}
