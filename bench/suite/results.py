"""The results: one flat list of rows, kept as JSON, from which the pages can be written again at any time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple


class Spread(NamedTuple):
    """Median, minimum and maximum of the rounds."""

    middle: float
    low: float
    high: float
    rounds: int


@dataclass
class Results:
    """Rows `{kind, case, subject, round, figures}` or, in place of figures, `failed` with the reason.

    Shape: machine and form are the page's description of the run; notes list what was skipped, with the reason.
    """

    form: str = "short"
    machine: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    path: Path | None = None

    def add(
        self, kind: str, case: str, subject: str, number: int, figures: dict[str, float]
    ) -> None:
        """Keep one measurement, also on disk."""
        self._keep(kind, case, subject, number, "figures", figures)

    def add_failure(self, kind: str, case: str, subject: str, number: int, reason: str) -> None:
        """Record that a measurement failed."""
        self._keep(kind, case, subject, number, "failed", reason)

    def _keep(self, kind: str, case: str, subject: str, number: int, key: str, what: Any) -> None:
        row = {"kind": kind, "case": case, "subject": subject, "round": number, key: what}
        self.rows.append(row)
        self.save()

    def save(self) -> None:
        """Write the file, if one was given."""
        if self.path is None:
            return
        head = {"form": self.form, "machine": self.machine, "notes": self.notes}
        rows = ",\n".join("  " + json.dumps(row) for row in self.rows)
        text = json.dumps(head, indent=1).removesuffix("\n}") + f',\n "rows": [\n{rows}\n]}}\n'
        partial = self.path.with_suffix(".partial")
        partial.write_text(text)
        partial.replace(self.path)

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read the file that save() wrote."""
        return cls(**json.loads(path.read_text()))

    def cases(self, kind: str) -> list[str]:
        """The cases of a kind, in the order in which they were measured."""
        return list(dict.fromkeys(row["case"] for row in self.rows if row["kind"] == kind))

    def values(self, kind: str, case: str, subject: str, figure: str) -> list[float]:
        """One figure in every round that has it."""
        return [
            row["figures"][figure]
            for row in self.rows
            if (row["kind"], row["case"], row["subject"]) == (kind, case, subject)
            and figure in row.get("figures", ())
        ]

    def spread(self, kind: str, case: str, subject: str, figure: str) -> Spread | None:
        """Median and range over the rounds; None if there are no values."""
        found = self.values(kind, case, subject, figure)
        return Spread(median(found), min(found), max(found), len(found)) if found else None

    def middle(self, kind: str, case: str, subject: str, figure: str) -> float | None:
        """The median over the rounds."""
        found = self.spread(kind, case, subject, figure)
        return None if found is None else found.middle

    def ratio(
        self,
        kind: str,
        case: str,
        subject: str,
        others: Iterable[str],
        figure: str,
        best: Any = min,
    ) -> float | None:
        """A subject's median relative to the best median of others (min if less is better, else max)."""
        own = self.middle(kind, case, subject, figure)
        theirs = [self.middle(kind, case, other, figure) for other in others]
        known = [one for one in theirs if one is not None]
        if own is None or not known or not best(known):
            return None
        return own / float(best(known))

    def with_instead(self, subject: str, other: str) -> Results:
        """The same results without `other`, whose name `subject` gets."""
        rows = [
            {**row, "subject": other} if row["subject"] == subject else row
            for row in self.rows
            if row["subject"] != other
        ]
        return replace(self, rows=rows, path=None)

    def figures_of(self, kind: str) -> list[str]:
        """The names of the figures of a kind."""
        rows = [row.get("figures", {}) for row in self.rows if row["kind"] == kind]
        return list(dict.fromkeys(name for row in rows for name in row))
