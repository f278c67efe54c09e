"""What is wrong with a partition, in any kind of place; `places.py` and `log_place.py` judge what only they know."""

from __future__ import annotations

from argparse import Namespace

from ..durations import shown
from .facts import PartitionFacts
from .findings import Finding, note, wrong


def judge_rows(facts: PartitionFacts, options: Namespace) -> list[Finding]:
    """Find offsets that occur twice and timestamps that go back."""
    findings = []
    if facts.duplicates:
        text = (
            f"{facts.duplicates} records have an offset that came before,"
            f" the first {facts.first_duplicate}"
        )
        findings.append(wrong("duplicate", facts, text, facts.first_duplicate))
    if facts.backwards:
        findings.append(_time_order(facts, options))
    return findings


def _time_order(facts: PartitionFacts, options: Namespace) -> Finding:
    worst, offset = facts.worst_backwards_ms, facts.worst_backwards_offset
    text = (
        f"{facts.backwards} records are older than the one before them, by up to {shown(worst)}"
        f" (offset {offset})"
    )
    # Producers' clocks and retries can cause this; the broker's own clock should not.
    if facts.append_time_rows == facts.rows:
        return wrong("time-order", facts, text + "; the broker gave these timestamps", offset)
    limit = options.time_order
    judge = wrong if limit is not None and worst > limit else note
    return judge("time-order", facts, text, offset)
