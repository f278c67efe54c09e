"""The outcome of an audit, as a table for a terminal and as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from ..counting import count
from .compare import ContentComparison
from .facts import PartitionFacts
from .findings import Finding

#: The number of findings of each kind that are shown on a terminal; the files have all of them.
SHOWN = 20


@dataclass(slots=True)
class Report:
    """Everything the audit found."""

    places: list[tuple[str, str]]
    partitions: list[PartitionFacts]
    comparisons: list[ContentComparison]
    findings: list[Finding]
    began: float
    seconds: float

    @property
    def is_wrong(self) -> bool:
        """Whether anything is wrong."""
        return any(finding.is_wrong for finding in self.findings)

    @property
    def verdict(self) -> str:
        """The outcome in one line."""
        faults = sum(finding.is_wrong for finding in self.findings)
        records = sum(facts.rows for facts in self.partitions)
        what = f"{records:,} records in {count(len(self.partitions), 'partition')}"
        if self.comparisons:
            what += f", {count(len(self.comparisons), 'comparison')}"
        if faults:
            return f"{count(faults, 'fault')} found: {what}"
        return f"nothing is wrong: {what}"


def why(facts: PartitionFacts) -> str:
    """The reasons why offsets are missing."""
    return ", ".join(f"{number:,} {reason}" for reason, number in sorted(facts.explained.items()))


def print_report(report: Report, out: TextIO) -> None:
    """Write tables of partitions and comparisons, then the findings, then the verdict."""
    for place, kind in report.places:
        rows = [facts for facts in report.partitions if facts.place == place]
        out.write(f"\n{kind} {place}\n")
        head = ("partition", "records", "offsets", "gaps", "explained", "double", "content")
        table = [
            (
                f"{facts.topic}-{facts.partition}",
                f"{facts.rows:,}",
                f"{facts.range.start}..{facts.range.end - 1}"
                if not facts.range.is_empty
                else "none",
                f"{facts.unexplained_count:,}",
                why(facts) or "-",
                f"{facts.duplicates:,}",
                str(facts.ordered),
            )
            for facts in rows
        ]
        _print_table(head, table, out, right=(1, 3, 5))
    if report.comparisons:
        out.write("\ncompared\n")
        compared = [
            (
                one.first,
                one.second,
                f"by {one.by}" + (f" {one.range}" if one.range else ""),
                f"{one.rows[0]:,} / {one.rows[1]:,}",
                "equal" if one.equal else "DIFFERENT",
            )
            for one in report.comparisons
        ]
        _print_table(("first", "second", "how", "records", "outcome"), compared, out, right=(3,))
    _print_findings(report, out)
    out.write(f"\n{report.verdict}, {report.seconds:.0f} s\n")


def _print_findings(report: Report, out: TextIO) -> None:
    for is_wrong, title in ((True, "wrong"), (False, "to know")):
        own = [finding for finding in report.findings if finding.is_wrong is is_wrong]
        if not own:
            continue
        out.write(f"\n{title}\n")
        for finding in own[:SHOWN]:
            where = f"{finding.topic}-{finding.partition} in {finding.place}"
            out.write(f"  {finding.kind:<12} {where}: {finding.text}\n")
        if len(own) > SHOWN:
            out.write(f"  and {len(own) - SHOWN} more\n")


def _print_table(
    head: tuple[str, ...], rows: Sequence[tuple[str, ...]], out: TextIO, right: tuple[int, ...]
) -> None:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        cells = [
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        out.write(("  " + "  ".join(cells)).rstrip() + "\n")


def as_tree(report: Report) -> dict[str, Any]:
    """The report as a tree for JSON; times are ISO 8601, timestamps milliseconds since 1970."""
    return {
        "format": 1,
        "began": datetime.fromtimestamp(report.began, UTC).isoformat(timespec="seconds"),
        "seconds": round(report.seconds, 1),
        "wrong": report.is_wrong,
        "verdict": report.verdict,
        "places": [{"name": name, "kind": kind} for name, kind in report.places],
        "partitions": [_facts_tree(facts) for facts in report.partitions],
        "comparisons": [asdict(comparison) for comparison in report.comparisons],
        "findings": [asdict(finding) for finding in report.findings],
    }


def _facts_tree(facts: PartitionFacts) -> dict[str, Any]:
    tree = asdict(facts)
    del tree["stretches"]
    for name in ("content", "ordered", "placed"):
        tree[name] = str(getattr(facts, name))
    tree["range"] = {"start": facts.range.start, "end": facts.range.end}
    if facts.common is not None:
        tree["common"] = {"start": facts.common.start, "end": facts.common.end}
    tree["unexplained"] = [[span.first, span.last] for span in facts.unexplained]
    tree["batch_bytes"] = {str(1 << bits): n for bits, n in sorted(facts.batch_bytes.items())}
    return tree


def write_json(report: Report, path: Path) -> None:
    """Write the report as JSON; the file appears in full or not at all."""
    write_whole(path, json.dumps(as_tree(report), indent=1))


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is never visible half written. Errors: OSError."""
    made = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    made.write_text(text, encoding="utf-8")
    made.replace(path)
