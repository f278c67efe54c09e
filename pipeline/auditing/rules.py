"""What is wrong with one partition whatever place it is in; what only some places know is judged there."""

from __future__ import annotations

from argparse import Namespace

from ..durations import shown
from .facts import Facts
from .findings import Finding, note, wrong
from .measure import Rows


def judge_rows(facts: Facts, rows: Rows, place: int, options: Namespace) -> list[Finding]:
    """Offsets that come twice, and timestamps that go back."""
    findings = []
    if facts.duplicates:
        some = rows.anomalies(place, facts.where, "offset = before", 5)
        offsets = ", ".join(str(one.offset) for one in some)
        more = ", ..." if facts.duplicates > len(some) else ""
        text = f"{facts.duplicates} records have an offset that came before: {offsets}{more}"
        findings.append(wrong("duplicate", facts, text, some[0].offset))
    if facts.backwards:
        findings.append(_time_order(facts, rows, place, options))
    return findings


def _time_order(facts: Facts, rows: Rows, place: int, options: Namespace) -> Finding:
    worst = facts.worst_backwards_ms
    condition = f"before_ms - ms = {worst}"
    (first, *_) = rows.anomalies(place, facts.where, condition, 1)
    text = (
        f"{facts.backwards} records are older than the one before them, by up to {shown(worst)}"
        f" (offset {first.offset})"
    )
    # Producers' clocks and retries make such; the broker's own clock should not.
    if facts.append_time_rows == facts.rows:
        return wrong("time-order", facts, text + "; the broker gave these timestamps", first.offset)
    limit = options.time_order
    judge = wrong if limit is not None and worst > limit else note
    return judge("time-order", facts, text, first.offset)
