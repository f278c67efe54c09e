"""The work of a query on directories, without Spark: options, plan, tasks."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from kwire.pipeline.segments import plan, tasks
from kwire.pipeline.segments.columns import RECORD_COLUMNS
from kwire.pipeline.segments.options import parse
from kwire.pipeline.segments.slices import OffsetSlice


def slices(path: Path, **options: str) -> list[OffsetSlice]:
    """The slices that the tasks of a batch query receive."""
    parsed = parse({"path": str(path), **options})
    logs = plan.find(parsed)
    found = plan.between(logs, plan.starts(logs, parsed), plan.ends(logs, parsed), parsed)
    again: list[OffsetSlice] = pickle.loads(pickle.dumps(found))
    return again


def read(
    path: Path, *columns: str, cut: list[OffsetSlice] | None = None, **options: str
) -> list[dict[str, Any]]:
    """The rows of a batch query, or those of some slices of it."""
    parsed = parse({"path": str(path), **options})
    return [
        row
        for piece in (slices(path, **options) if cut is None else cut)
        for arrow in tasks.read(piece, parsed, columns or tuple(RECORD_COLUMNS))
        for row in arrow.to_pylist()
    ]


def offsets(path: Path, **options: str) -> list[int]:
    """The offsets of the rows."""
    return [row["offset"] for row in read(path, "offset", "value", **options)]
