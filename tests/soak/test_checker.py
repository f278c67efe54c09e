"""The checks of a recorded history: a correct one passes, and each planted fault is found.

`history.jsonl.gz` is a run with 8 kills of `python -m tests.soak`, all clients, sorted by time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .checker import CHECKS, Expectations, Line, check, read_lines
from .harness import EXPECTATIONS
from .planted import FAULTS, planted


@pytest.fixture(scope="module")
def recorded() -> list[Line]:
    return list(read_lines([Path(__file__).with_name("history.jsonl.gz")]))


def test_recorded_history_passes_and_has_all_there_is_to_check(recorded: list[Line]) -> None:
    verdict = check(recorded, EXPECTATIONS)
    assert verdict.findings == {}
    for name in ("kills", "transactions ok", "transactions fail", "transactions info"):
        assert verdict.counts[name] > 0
    assert {line["process"].partition("-")[0] for line in recorded} == {
        *("committed", "idempotent", "java", "last", "mixer", "nemesis", "plain"),
        *("transactor", "transformer", "uncommitted"),
    }


@pytest.mark.parametrize(
    ("fault", "name"), FAULTS, ids=lambda value: getattr(value, "__name__", value)
)
def test_planted_fault_is_found(
    recorded: list[Line], fault: Callable[[list[Line]], None], name: str
) -> None:
    assert name in check(planted(recorded, fault), EXPECTATIONS).findings


def test_every_check_has_a_planted_fault() -> None:
    assert {name for _, name in FAULTS} == set(CHECKS)


def line(
    number: int, process: str, op: str, kind: str, value: list[object], **more: object
) -> Line:
    return {
        "time": number,
        "process": process,
        "op": op,
        "type": kind,
        "value": value,
        **more,
    }


def sent(number: int, kind: str, offset: int | None, **more: object) -> list[Line]:
    value = [["send", "t-0", f"v{number}", offset]]
    op = "txn" if "txn" in more else "send"
    return [
        line(number, f"p{number}", op, "invoke", value, **more),
        line(number + 1, f"p{number}", op, kind, value, **more),
    ]


def polled(number: int, records: list[tuple[int, str]], **more: object) -> Line:
    return line(number, "reader", "poll", "ok", [["poll", "t-0", records]], **more)


def found(*lines: Line | list[Line], expectations: Expectations | None = None) -> set[str]:
    flat = [each for entry in lines for each in (entry if isinstance(entry, list) else [entry])]
    return set(check(flat, expectations or Expectations()).findings)


def test_send_of_unknown_outcome_may_be_absent() -> None:
    assert found(sent(1, "info", None), sent(3, "ok", 0), polled(9, [(0, "v3")])) == set()


def test_send_of_unknown_outcome_may_be_present() -> None:
    assert (
        found(sent(1, "info", None), sent(3, "ok", 1), polled(9, [(0, "v1"), (1, "v3")])) == set()
    )


def test_send_that_never_completed_may_be_present() -> None:
    unfinished = sent(1, "ok", None)[:1]
    assert found(unfinished, sent(3, "ok", 1), polled(9, [(0, "v1"), (1, "v3")])) == set()


def test_acknowledged_part_of_an_unknown_send_may_not_be_absent() -> None:
    assert "lost write" in found(sent(1, "info", 0), sent(3, "ok", 1), polled(9, [(1, "v3")]))


COMMITTED = {"isolation": "read_committed"}


def test_unknown_transaction_that_nobody_read_counts_as_aborted() -> None:
    unknown = sent(1, "info", 0, txn="a", ending=1, **COMMITTED)
    assert found(unknown, sent(3, "ok", 2), polled(9, [(2, "v3")], **COMMITTED)) == set()


def test_unknown_transaction_that_was_read_counts_as_committed() -> None:
    unknown = sent(1, "info", 0, txn="a", ending=1, **COMMITTED)
    read = polled(9, [(0, "v1"), (2, "v3")], **COMMITTED)
    passing_over = line(9, "other", "poll", "ok", [["poll", "t-0", [[2, "v3"]]]], **COMMITTED)
    assert found(unknown, sent(3, "ok", 2), read) == set()
    opening = line(8, "other", "assign", "ok", [["at", "t-0", 0]])
    assert found(unknown, sent(3, "ok", 2), read, opening, passing_over) == {"poll skip"}


def test_aborted_record_is_read_uncommitted_without_complaint() -> None:
    aborted = sent(1, "fail", 0, txn="a")
    uncommitted = {"isolation": "read_uncommitted"}
    assert found(aborted, polled(9, [(0, "v1")], **uncommitted)) == set()
    assert found(aborted, polled(9, [(0, "v1")], **COMMITTED)) == {"aborted read"}


def test_marker_written_again_after_a_kill_is_no_hole() -> None:
    transaction = sent(1, "ok", 0, txn="a", ending=1)
    kill = line(2, "nemesis", "kill", "ok", [])
    read = polled(20, [(0, "v1"), (3, "v9")])
    assert found(transaction, sent(9, "ok", 3), read) == {"sparse offsets"}
    assert found(transaction, kill, sent(9, "ok", 3), read) == set()


def test_marker_written_again_while_leaders_move_is_no_hole() -> None:
    transaction = sent(1, "ok", 0, txn="a", ending=1)
    read = polled(20, [(0, "v1"), (3, "v9")])
    move = line(15, "nemesis", "move", "ok", [], invoked=0)
    assert found(transaction, move, sent(9, "ok", 3), read) == set()
    later = line(15, "nemesis", "move", "ok", [], invoked=14)
    assert found(transaction, sent(9, "ok", 3, txn="a", ending=9), later, read) == {
        "sparse offsets"
    }


def test_value_again_is_no_fault_without_idempotence() -> None:
    lines = [*sent(1, "ok", 0), polled(9, [(0, "v1"), (1, "v1")])]
    assert found(lines) == {"one value at two offsets", "duplicate"}
    assert found(lines, expectations=Expectations(at_least_once=frozenset({"t"}))) == set()


def test_write_cycle_is_counted_and_no_fault() -> None:
    def transaction(name: str, zero: int, one: int) -> list[Line]:
        value = [["send", "t-0", f"{name}0", zero], ["send", "t-1", f"{name}1", one]]
        return [
            line(1, name, "txn", "invoke", value, txn=name),
            line(9, name, "txn", "ok", value, txn=name, ending=8),
        ]

    lines = [*transaction("a", 0, 1), *transaction("b", 1, 0)]
    verdict = check(lines, Expectations())
    assert "cycle" not in verdict.findings
    assert verdict.counts["write cycles (allowed)"] == 1


def test_process_that_does_two_things_at_once_is_refused() -> None:
    twice = line(1, "p", "send", "invoke", [])
    with pytest.raises(ValueError, match="invokes send twice"):
        check([twice, twice], Expectations())
