"""The definitions of skipped records and of records read again without a reason, when a group's members are watched."""

from __future__ import annotations

import pytest

from ..support.group_members import Member, Place, check_reading

SENT = {Place("t", 0, offset): str(offset) for offset in range(4)}


def member(lines: str) -> Member:
    made = Member("m")
    for line in lines.strip().splitlines():
        made.note(*line.split())
    return made


def reading(*offsets: int, committed: int = 0) -> str:
    lines = ["assigned t 0", *(f"record t 0 {offset} {offset}" for offset in offsets)]
    return "\n".join([*lines, f"committed t 0 {committed}"] if committed else lines)


def test_member_that_commits_all_leaves_nothing_open() -> None:
    one = member(reading(0, 1, committed=2) + "\nrevoked t 0\nleft")
    two = member(reading(2, 3, committed=4))
    assert check_reading([one, two], SENT) == 0
    assert one.has_left
    assert not one.unsure + two.unsure


@pytest.mark.parametrize("end", ["revoked t 0", "lost t 0", "failed FENCED", "left"])
def test_what_is_not_known_to_be_committed_may_be_read_again_once(end: str) -> None:
    one = member(reading(0, 1, committed=1) + "\n" + end)
    assert one.unsure == [Place("t", 0, 1)]
    again = member(reading(1, 2, 3, committed=4))
    assert check_reading([one, again], SENT) == 1
    with pytest.raises(AssertionError, match="read again"):
        check_reading([one, again, member(reading(1, committed=2))], SENT)


def test_killed_member_may_have_been_about_to_commit() -> None:
    one = member(reading(0, 1, committed=1))
    one.end()
    assert check_reading([one, member(reading(1, 2, 3, committed=4))], SENT) == 1


def test_what_was_committed_must_not_be_read_again() -> None:
    one, two = member(reading(0, 1, committed=2)), member(reading(1, 2, 3, committed=4))
    one.end()
    with pytest.raises(AssertionError, match="read again"):
        check_reading([one, two], SENT)


def test_record_that_nobody_has_read_is_left_out() -> None:
    with pytest.raises(AssertionError, match="left out"):
        check_reading([member(reading(0, 1, 2, committed=3))], SENT)


def test_other_value_than_was_sent_is_noticed() -> None:
    one = member(reading(0, 1, 2, committed=3) + "\nrecord t 0 3 other")
    with pytest.raises(AssertionError):
        check_reading([one], SENT)


def test_step_over_records_and_records_of_others_are_noticed() -> None:
    for lines in (reading(0, 2), "record t 0 0 0"):
        with pytest.raises(AssertionError):
            check_reading([member(lines)], {})
