"""Facts of each cause; docs/explain.md shows the answers of the rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from server.explain.facts import (
    GroupFacts,
    GroupMember,
    GroupPartition,
    LaterRecord,
    Marker,
    PendingTransaction,
    RecordFacts,
    Replica,
    StoredRecord,
    TransactionFacts,
)

NOW = 1_795_420_000_000  # 2026-11-23 07:46:40 UTC

DATA = StoredRecord(NOW - 5000, key_size=3, value_size=10)
IN_TRANSACTION = replace(DATA, producer_id=7, producer_epoch=2, transactional=True)
OPEN = PendingTransaction(
    7,
    2,
    15,
    NOW - 30_000,
    transactional_id="billing",
    state="Ongoing",
    start_ms=NOW - 40_000,
    timeout_ms=60_000,
)
HANGING = PendingTransaction(9, 0, 12, NOW - 7_200_000, hanging=True)
REPLICAS = (Replica(1, 30, True), Replica(2, 20, True), Replica(3, 12, False))


def record(offset: int, **known: Any) -> RecordFacts:
    """Facts of an offset in a log from 10 to 30, committed up to 25."""
    common: dict[str, Any] = {
        "leader": 1,
        "log_start": 10,
        "high_watermark": 25,
        "last_stable": 25,
        "log_end": 30,
        "cleanup_policy": "delete",
        "retention_ms": 604_800_000,
        "retention_bytes": -1,
        "delete_retention_ms": 86_400_000,
    }
    return RecordFacts("orders", 0, offset, NOW, **common | known)


def group(state: str = "Stable", *rows: GroupPartition, **known: Any) -> GroupFacts:
    """Facts of a group with two members; the first has two partitions."""
    members = (
        GroupMember("a-1", "app-a", "/10.0.0.5", None, (("orders", 0), ("orders", 1))),
        GroupMember("b-1", "app-b", "/10.0.0.6", rebalance_timeout_ms=300_000),
    )
    common: dict[str, Any] = {"generation": 4, "members": members, "coordinator": 1}
    return GroupFacts("billing", NOW, state=state, partitions=rows, **common | known)


def read(committed: int, **known: Any) -> GroupPartition:
    """A partition from 10 to 30 that the first member reads."""
    common: dict[str, Any] = {
        "committed_ms": NOW - 2000,
        "log_start": 10,
        "end": 30,
        "last_stable": 30,
    }
    return GroupPartition("orders", 0, committed, **common | known)


def transaction(state: str, **known: Any) -> TransactionFacts:
    common: dict[str, Any] = {
        "producer_id": 7,
        "producer_epoch": 2,
        "start_ms": NOW - 40_000,
        "timeout_ms": 60_000,
        "coordinator": 1,
        "partitions": (("orders", 0),),
    }
    return TransactionFacts("billing", NOW, state=state, **common | known)


RECORDS: dict[str, RecordFacts] = {
    "no_topic": record(17, problem="NO_TOPIC"),
    "no_partition": record(17, problem="NO_PARTITION", partitions=3),
    "not_authorized": record(17, problem="NOT_AUTHORIZED"),
    "no_leader": record(17, problem="NO_LEADER", replicas=REPLICAS[:2]),
    "never_written": record(40),
    "deleted_by_delete_records": record(5, start_inside=True),
    "deleted_by_retention": record(5),
    "above_high_watermark": record(27, replicas=REPLICAS),
    "control_record": record(17, stored=replace(IN_TRANSACTION, control="COMMIT")),
    "compacted_away": record(
        17, cleanup_policy="compact", gap=(15, 19), later=LaterRecord(22, is_tombstone=False)
    ),
    "compacted_or_expired": record(17, cleanup_policy="compact", gap=(15, 19)),
    "missing": record(17, gap=(17, 17)),
    "corrupt": record(17, problem="CORRUPT", problem_text="its CRC is wrong"),
    "aborted": record(17, stored=replace(IN_TRANSACTION, marker=Marker(21, "ABORT", NOW - 4000))),
    "open_transaction": record(
        17, stored=IN_TRANSACTION, last_stable=15, open_transactions=(OPEN,)
    ),
    "above_last_stable_offset": record(17, stored=DATA, last_stable=15, open_transactions=(OPEN,)),
    "hanging_transaction": record(
        17, stored=DATA, last_stable=12, open_transactions=(OPEN, HANGING)
    ),
    "tombstone": record(17, cleanup_policy="compact", stored=replace(DATA, value_size=-1)),
    "visible": record(17, stored=DATA),
}

GROUPS: dict[str, GroupFacts] = {
    "no_group": group(problem="NO_GROUP"),
    "coordinator_unavailable": group(
        problem="UNAVAILABLE", problem_text="coordinator not available"
    ),
    "group_not_served": group(
        problem="NOT_SERVED",
        problem_text="their feature is switched off (group.version, share.version)",
    ),
    "group_empty": group("Empty", members=()),
    "group_preparing_rebalance": group("PreparingRebalance", rejoined=frozenset({"a-1"})),
    "group_completing_rebalance": group("CompletingRebalance", leader="a-1"),
    "group_assigning": group("Assigning", kind="consumer"),
    "group_reconciling": group(
        "Reconciling",
        kind="consumer",
        members=(
            GroupMember(
                "a-1",
                "app-a",
                "/10.0.0.5",
                partitions=(("orders", 0), ("orders", 1)),
                epoch=4,
                target=(("orders", 0),),
            ),
        ),
    ),
    "group_dead": group("Dead"),
    "group_stable": group(),
}

PARTITIONS: dict[str, GroupPartition] = {
    "partition_without_leader": read(20, leader=False),
    "offset_deleted": read(5),
    "offset_beyond_end": read(50),
    "never_committed": read(-1, committed_ms=None),
    "lag_unassigned": replace(read(20), partition=2),
    "lag_transaction": read(20, last_stable=15, open_transactions=(OPEN,)),
    "lag_markers": read(29, readable=False),
    "lag_stalled": read(20, committed_ms=NOW - 600_000, readable=True),
    "lag_behind": read(20, readable=True),
    "caught_up": read(30),
}

#: Of a share group.
SHARED: dict[str, GroupPartition] = {
    "share_not_begun": read(-1, committed_ms=None),
    "share_unacknowledged": read(20, committed_ms=None, unacknowledged=7),
}

TRANSACTIONS: dict[str, TransactionFacts] = {
    "no_transactional_id": transaction("Empty", problem="NO_TRANSACTIONAL_ID"),
    "transaction_empty": transaction("Empty", partitions=(), start_ms=None),
    "transaction_ongoing": transaction("Ongoing", holds_back=(("orders", 0, 15, 10),)),
    "transaction_overdue": transaction("Ongoing", start_ms=NOW - 90_000),
    "transaction_ending": transaction("PrepareCommit", without_leader=(("orders", 0),)),
    "transaction_complete": transaction("CompleteAbort", partitions=()),
    "transaction_dead": transaction("Dead", partitions=()),
}
