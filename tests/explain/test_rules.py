"""Each cause follows from its facts, and from no others that are close to them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from server.explain.answers import CAUSES
from server.explain.facts import GroupMember, LaterRecord, Marker, PendingTransaction, Replica
from server.explain.group_rules import explain_group
from server.explain.record_rules import explain_record
from server.explain.transaction_rules import explain_transaction
from server.explain.words import duration, listed

from .examples import (
    DATA,
    GROUPS,
    HANGING,
    IN_TRANSACTION,
    NOW,
    OPEN,
    PARTITIONS,
    RECORDS,
    SHARED,
    TRANSACTIONS,
    group,
    read,
    record,
    transaction,
)

BOTH = ("read_uncommitted", "read_committed")
#: Readers that do not get a record, by cause; in other cases all get it.
HIDDEN = {
    **dict.fromkeys(("aborted", "open_transaction", "above_last_stable_offset"), BOTH[1:]),
    "hanging_transaction": BOTH[1:],
    "tombstone": (),
    "visible": (),
}


def test_every_cause_has_an_example() -> None:
    assert sorted([*RECORDS, *GROUPS, *PARTITIONS, *SHARED, *TRANSACTIONS]) == sorted(CAUSES)


@pytest.mark.parametrize("cause", RECORDS)
def test_facts_of_a_record_give_its_cause(cause: str) -> None:
    answer = explain_record(RECORDS[cause])
    assert (answer.cause, answer.hidden_from) == (cause, HIDDEN.get(cause, BOTH))
    assert json.loads(json.dumps(answer.as_json()))["offset"] == RECORDS[cause].offset


@pytest.mark.parametrize("cause", GROUPS)
def test_facts_of_a_group_give_its_cause(cause: str) -> None:
    (answer,) = explain_group(GROUPS[cause])
    assert answer.cause == cause
    assert json.loads(json.dumps(answer.as_json()))["group"] == "billing"


@pytest.mark.parametrize("cause", PARTITIONS)
def test_facts_of_a_groups_partition_give_its_cause(cause: str) -> None:
    _, answer = explain_group(group("Stable", PARTITIONS[cause]))
    assert answer.cause == cause
    assert json.loads(json.dumps(answer.as_json()))["topic"] == "orders"


@pytest.mark.parametrize("cause", SHARED)
def test_facts_of_a_share_groups_partition_give_its_cause(cause: str) -> None:
    _, answer = explain_group(group("Stable", SHARED[cause], kind="share"))
    assert answer.cause == cause
    assert json.loads(json.dumps(answer.as_json()))["member_ids"] == ["a-1"]


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"unacknowledged": 0}, "caught_up"),
        ({"committed": 30, "unacknowledged": None}, "caught_up"),
        ({"leader": False}, "partition_without_leader"),
        ({"partition": 2}, "lag_unassigned"),
    ],
)
def test_close_facts_of_a_share_group_give_another_cause(
    changed: dict[str, Any], cause: str
) -> None:
    row = replace(SHARED["share_unacknowledged"], **changed)
    _, answer = explain_group(group("Stable", row, kind="share"))
    assert answer.cause == cause


def test_readers_of_a_share_partition_are_many_or_one() -> None:
    begun = replace(SHARED["share_unacknowledged"], unacknowledged=1)
    members = tuple(
        GroupMember(name, name, "", partitions=(("orders", 0),)) for name in ("one", "two")
    )
    answers = {}
    for count in (1, 2):
        facts = group("Stable", begun, SHARED["share_not_begun"], kind="share")
        _, *rows = explain_group(replace(facts, members=members[:count]))
        answers[count] = [row.sentence for row in rows]
    behind = "orders-0: 1 offset between 20 and 30 is not acknowledged"
    assert answers[1] == [
        f"{behind}: one has it under a lock, or has not fetched it yet.",
        "orders-0: the share group has not begun; one reads it.",
    ]
    assert answers[2] == [
        f"{behind}: one and two have it under a lock, or have not fetched it yet.",
        "orders-0: the share group has not begun; one and two read it.",
    ]


@pytest.mark.parametrize("cause", TRANSACTIONS)
def test_facts_of_a_transactional_id_give_its_cause(cause: str) -> None:
    answer = explain_transaction(TRANSACTIONS[cause])
    assert answer.cause == cause
    assert json.loads(json.dumps(answer.as_json()))["transactional_id"] == "billing"


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"offset": 30}, "never_written"),
        ({"offset": 29}, "above_high_watermark"),
        ({"offset": 25}, "above_high_watermark"),
        ({"offset": 24}, "visible"),
        ({"offset": 10}, "visible"),
        ({"offset": 9}, "deleted_by_retention"),
        ({"offset": 25, "log_end": None}, "never_written"),
    ],
)
def test_bounds_belong_to_what_they_begin(changed: dict[str, Any], cause: str) -> None:
    assert explain_record(replace(RECORDS["visible"], **changed)).cause == cause


@pytest.mark.parametrize(
    ("configs", "cause"),
    [
        ({}, "deleted_by_retention"),
        ({"cleanup_policy": None, "retention_ms": None}, "deleted_by_retention"),
        ({"cleanup_policy": "compact,delete"}, "deleted_by_retention"),
        ({"cleanup_policy": "compact"}, "deleted_by_delete_records"),
        ({"retention_ms": -1}, "deleted_by_delete_records"),
        ({"retention_ms": -1, "retention_bytes": 1000}, "deleted_by_retention"),
        ({"start_inside": True}, "deleted_by_delete_records"),
    ],
)
def test_retention_deletes_only_where_the_policy_has_it(
    configs: dict[str, Any], cause: str
) -> None:
    assert explain_record(record(5, **configs)).cause == cause


def test_replicas_that_hold_a_record_back_are_in_sync_and_lack_it() -> None:
    answer = explain_record(RECORDS["above_high_watermark"])
    assert answer.details["held_back_by"] == [2]  # 3 is not in sync
    silent = replace(
        RECORDS["above_high_watermark"],
        replicas=(Replica(1, 30, True), Replica(2, None, True)),
    )
    assert explain_record(silent).details["held_back_by"] == [2]
    have_it = replace(RECORDS["above_high_watermark"], replicas=(Replica(1, 30, True),))
    assert explain_record(have_it).details["held_back_by"] == []


def test_transaction_that_was_committed_hides_nothing() -> None:
    committed = replace(IN_TRANSACTION, marker=Marker(21, "COMMIT", NOW))
    answer = explain_record(record(17, stored=committed))
    assert answer.cause == "visible"
    assert "committed at offset 21" in answer.sentence


def test_aborted_record_above_the_last_stable_offset_is_aborted() -> None:
    aborted = replace(IN_TRANSACTION, marker=Marker(21, "ABORT", NOW))
    facts = record(17, stored=aborted, last_stable=12, open_transactions=(HANGING,))
    assert explain_record(facts).cause == "aborted"


def test_record_of_an_open_transaction_behind_another_waits_for_the_first() -> None:
    first = PendingTransaction(
        8, 0, 12, transactional_id="older", start_ms=NOW - 5000, timeout_ms=10_000
    )
    facts = record(17, stored=IN_TRANSACTION, last_stable=12, open_transactions=(OPEN, first))
    answer = explain_record(facts)
    assert answer.cause == "above_last_stable_offset"
    assert answer.details["transaction"]["transactional_id"] == "older"


def test_hanging_transaction_comes_with_the_command_that_ends_it() -> None:
    answer = explain_record(RECORDS["hanging_transaction"])
    assert answer.advice.endswith(
        "kwire transactions abort --topic orders --partition 0 --start-offset 12"
    )


def test_last_stable_offset_without_known_transaction_is_still_told() -> None:
    answer = explain_record(record(17, stored=DATA, last_stable=15))
    assert (answer.cause, answer.hidden_from) == ("above_last_stable_offset", BOTH[1:])


def test_record_that_gave_way_to_a_tombstone_names_it() -> None:
    facts = record(17, gap=(17, 17), later=LaterRecord(22, is_tombstone=True))
    assert "offset 22 has a tombstone" in explain_record(facts).sentence


def test_partitions_with_lag_come_first() -> None:
    answers = explain_group(group("Stable", read(30), replace(read(20), partition=1)))
    assert [answer.cause for answer in answers] == ["group_stable", "lag_behind", "caught_up"]


def test_member_without_partitions_is_named() -> None:
    assert "app-b at 10.0.0.6 has no partition" in explain_group(group())[0].sentence


def test_transaction_beyond_its_timeout_is_overdue() -> None:
    at = {"start_ms": NOW - 60_000}
    assert explain_transaction(transaction("Ongoing", **at)).cause == "transaction_ongoing"
    at = {"start_ms": NOW - 60_001}
    assert explain_transaction(transaction("Ongoing", **at)).cause == "transaction_overdue"


def test_times_and_lists_are_short() -> None:
    assert [duration(ms) for ms in (-1, 999, 1000, 3_661_000, 90_000_000)] == [
        "0 ms",
        "999 ms",
        "1 s",
        "1 h 1 min",
        "1 d 1 h",
    ]
    assert [listed(list("abcde")[:count]) for count in (0, 1, 2, 3, 5)] == [
        "",
        "a",
        "a and b",
        "a, b and c",
        "a, b, c and 2 more",
    ]
