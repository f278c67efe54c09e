"""All checks over one history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from . import groups, order, records, shares, transactions
from .analysis import Analysis, Expectations, analyse, topic_of
from .history import Line

CHECKS: Mapping[str, Callable[[Analysis], Iterator[str]]] = {
    "lost write": records.lost_writes,
    "unseen": records.unseen,
    "two values at one offset": records.two_values,
    "one value at two offsets": records.two_offsets,
    "duplicate": records.duplicates,
    "phantom": records.phantoms,
    "failed write": records.failed_writes,
    "aborted read": records.aborted_reads,
    "dirty read": records.dirty_reads,
    "precommitted read": records.precommitted_reads,
    "sparse offsets": records.sparse_offsets,
    "end offsets": records.end_offsets,
    "poll skip": order.poll_skips,
    "nonmonotonic poll": order.nonmonotonic_polls,
    "internal poll skip": order.internal_poll_skips,
    "internal nonmonotonic poll": order.internal_nonmonotonic_polls,
    "send skip": order.send_skips,
    "nonmonotonic send": order.nonmonotonic_sends,
    "internal send skip": order.internal_send_skips,
    "internal nonmonotonic send": order.internal_nonmonotonic_sends,
    "cycle": transactions.cycles,
    "processed twice": transactions.processed_twice,
    "not processed": transactions.not_processed,
    "group rewind": groups.group_rewinds,
    "group skip": groups.group_skips,
    "group hole": groups.group_holes,
    "share repeat": shares.share_repeats,
    "share loss": shares.share_losses,
    "share count": shares.share_counts,
}

SHOWN = 20


@dataclass(frozen=True, slots=True)
class Verdict:
    """The findings of the checks, and how much they checked."""

    findings: Mapping[str, list[str]]
    counts: Mapping[str, int]

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def __str__(self) -> str:
        """All findings, one per line."""
        lines = [f"{name}: {count}" for name, count in self.counts.items()]
        lines.append(f"{len(CHECKS) - len(self.findings)} of {len(CHECKS)} checks found nothing")
        for check, found in self.findings.items():
            lines.append(f"FOUND {check}:")
            lines += [f"  {text}" for text in found]
        return "\n".join(lines)


def check(lines: Iterable[Line], expectations: Expectations) -> Verdict:
    """Return the verdict on a history; only the first findings of each kind are kept."""
    analysis = analyse(lines, expectations)
    findings = {}
    for name, find in CHECKS.items():
        found = list(islice(find(analysis), SHOWN))
        if found:
            findings[name] = found
    return Verdict(findings, counted(analysis))


def counted(analysis: Analysis) -> dict[str, int]:
    """Return the number of checked items of each kind."""
    counts: Counter[str] = Counter()
    for operation in analysis.operations:
        if operation.name == "txn":
            counts[f"transactions {operation.outcome}"] += 1
        elif operation.name == "settle":
            for _, rows in operation.settled:
                counts[f"share acknowledgements {operation.outcome}"] += len(rows)
        elif operation.name in ("send", "commit"):
            counts[f"{operation.name}s {operation.outcome}"] += 1
        elif operation.name in ("kill", "assign"):
            counts[f"{operation.name}s"] += 1
        for tp, _, _ in analysis.acknowledged(operation):
            counts[f"records acknowledged in {topic_of(tp)}"] += 1
        counts["records shared"] += sum(len(found) for _, found in operation.acquired)
        counts["records polled"] += sum(len(found) for _, found in operation.polls)
    counts["partitions"] = len(analysis.logs)
    counts["write cycles (allowed)"] = transactions.write_cycles(analysis)
    return dict(sorted(counts.items()))
