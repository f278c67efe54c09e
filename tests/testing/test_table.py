"""Every argument of a fault and every verb of a clock has a test with a stock client that shows its effect: which one, and that it is there."""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from kwire.api import ApiKey, request_class
from kwire.schema import schema_of
from kwire.testing import Clock, Cluster, DiskFault, Fault, Helpers
from kwire.testing.handlers import GROUPS, TRANSACTIONAL_IDS
from kwire.testing.words import FENCE

HERE = Path(__file__).parent
#: Each test is that of a file here, test_faults unless it is named.
FAULTS = {
    "api": "error_of_a_request_reaches_the_client_and_nothing_is_applied",
    "version": "test_fault_apis:client_goes_back_to_older_versions_when_api_versions_is_refused",
    "topic": "test_fault_apis:error_of_one_topics_metadata_leaves_the_others",
    "partition": "error_of_one_partition_leaves_the_others",
    "group": "error_of_a_group_leaves_other_groups",
    "transactional_id": "test_fault_apis:error_of_one_transactional_id_fails_its_transaction_and_no_other",
    "client_id": "rules_match_by_client_version_connection_and_transactional_id",
    "connection": "rule_for_one_connection_leaves_other_connections",
    "broker": "test_cluster_faults:rule_for_one_broker_of_a_cluster",
    "from_broker": "test_cluster_faults:follower_that_is_kept_waiting_leaves_the_replicas_in_sync_in_time",
    "nth": "retriable_error_of_the_second_request_is_retried_by_the_client",
    "times": "consumer_reads_again_what_came_in_an_answer_that_was_cut",
    "probability": "probability_with_a_seed_is_repeated",
    "seed": "probability_with_a_seed_is_repeated",
    "after": "rule_begins_after_a_time_and_ends_by_itself",
    "error": "test_fault_apis:error_of_an_api_reaches_the_admin_client",
    "delay": "delay_counts_in_the_brokers_time",
    "slowdown": "test_cluster_faults:answer_that_takes_four_times_as_long",
    "no_answer": "missing_answer_ends_with_the_clients_own_timeout",
    "close": "closed_connection_before_and_after_apply",
    "reset": "reset_after_apply_leaves_what_was_sent",
    "cut": "consumer_reads_again_what_came_in_an_answer_that_was_cut",
    "throttle": "throttled_fetch_makes_the_consumer_pause",
    "stale_metadata": "stale_metadata_hides_what_is_new",
    "clock_jump": "clock_jumps_in_the_middle_of_a_request",
    "after_apply": "error_after_apply_reaches_the_client_and_the_record_is_there",
}
DISK_FAULTS = {
    "operation": "disk_that_cannot_be_read_is_an_error_of_the_fetch",
    "path": "slow_fsync_delays_the_answer_of_what_waits_for_it_only",
    "error": "full_disk_is_a_storage_error_to_the_client",
    "delay": "disk_that_cannot_be_flushed_or_written_slowly",
    # In the class that faults of requests have too.
    **{name: FAULTS[name] for name in ("nth", "times", "probability", "seed", "after")},
}
CLOCK = {
    "freeze": "test_clock:frozen_time_stands_still_and_fetches_go_on",
    "freeze(fetch_waits)": "test_clock:fetch_waits_in_the_brokers_time_on_request",
    "resume": "test_clock:time_runs_on_from_where_it_was_advanced_to",
    "advance": "test_clock:session_timeout_removes_a_member",
    "advance(keep_members)": "test_clock:members_are_kept_through_a_day",
    "jump": "test_clock:jump_sets_the_wall_clock_and_ends_no_session",
}
#: Processes that the clock drives; see docs/testing.md.
DRIVEN = {
    "sessions": "test_clock_against_kafka:session_that_ends",
    "rebalances": "test_clock:member_that_does_not_join_in_time_loses_its_place",
    "retention": "test_clock_against_kafka:week_of_retention",
    "rolling of segments": "test_clock:segment_is_rolled_after_its_time",
    "compaction": "test_clock:compaction_comes_after_its_lag",
    "timeouts of transactions": "test_clock_against_kafka:timeout_of_a_transaction",
    "expiry of transactional ids": "test_clock:transactional_id_expires_and_its_producer_is_told",
    "expiry of producer ids": "test_clock:producer_id_is_forgotten_after_a_day",
    "expiry of committed offsets": "test_clock:offsets_expire_after_their_retention",
    "delegation tokens": "test_secure:delegation_token_ends_in_the_brokers_time",
    "quotas": "test_clock:quota_is_measured_in_the_brokers_time",
}
VERBS = {
    "kill": "test_cluster:acknowledged_records_survive_the_death_of_the_leader",
    "move_leader": "test_cluster_faults:producer_follows_a_leader_that_was_moved",
    "move_coordinator": "test_cluster_faults:consumer_goes_on_at_a_coordinator_that_was_moved",
    "expire_session": "test_cluster_faults:broker_whose_session_expires_registers_again_and_producers_go_on",
}
FENCED = {
    "transactional_id": "test_cluster_faults:producer_that_is_fenced_cannot_commit",
    "group": "test_cluster_faults:members_that_are_fenced_join_again",
}


@pytest.mark.parametrize("table", [FAULTS, DISK_FAULTS, CLOCK, DRIVEN, VERBS, FENCED])
def test_test_of_each_verb_is_there(table: dict[str, str]) -> None:
    missing = []
    for name, test in table.items():
        file, _, function = test.rpartition(":")
        if f"test_{function}" not in functions_of(file or "test_faults"):
            missing.append((name, test))
    assert missing == []


def functions_of(file: str) -> set[str]:
    """The names of the functions of a file of tests."""
    tree = ast.parse((HERE / f"{file}.py").read_text())
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}


def test_tables_have_all_arguments_and_verbs() -> None:
    assert set(FAULTS) == {each.name for each in fields(Fault) if each.init}
    assert set(DISK_FAULTS) == {each.name for each in fields(DiskFault) if each.init}
    verbs = {name for name in vars(Clock) if not name.startswith("_")} - {"is_frozen", "now_ms"}
    assert {name.partition("(")[0] for name in CLOCK} == verbs
    assert set(FENCED) == set(FENCE)
    assert all(hasattr(Cluster, name) for name in VERBS) and hasattr(Helpers, "fence")


def test_every_field_that_names_a_group_or_a_transactional_id_is_looked_at() -> None:
    found = set()
    for key in ApiKey:
        with suppress(KeyError, ImportError):
            found |= names_of(request_class(key))
    assert found - {"transactional_id_pattern"} == {*GROUPS, *TRANSACTIONAL_IDS}


#: Fields that hold names of groups, or transactional ids.
NAMES = re.compile(r"(^|_)group_ids?$|^groups_names$|transactional_ids?|^groups$")


def names_of(declared: Any) -> set[str]:
    """Such fields of a message, and of the structs in it."""
    found = set()
    for each in schema_of(declared).fields:
        inner = getattr(each.type, "element", each.type)
        if hasattr(inner, "__kwire__"):
            found |= names_of(inner)
        elif NAMES.search(each.name):
            found.add(each.name)
    return found
