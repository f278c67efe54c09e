"""Filters of a query that the source can use, from Spark 4.1 on: rules without Spark.

A filter is known by the name of its class in `pyspark.sql.datasource`, which Spark 4.0 does not have.

| column | what is saved |
| --- | --- |
| `topic`, `partition` | other partitions are not planned |
| `offset` | only the range is planned |
| `timestamp`, from a time on | planning begins at the first record that is not older, by the time index; later batches whose newest record is older are not decoded. Spark filters again, because times need not rise |
| `key`, equal to one or several | nothing is skipped: every batch is read and decoded, and only matching records are passed to Java |
| `codec`, with `rows=batches` | other batches make no row |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

#: Spark adds not-null filters for the columns of its comparisons.
_NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_EQUAL = ("EqualTo", "EqualNullSafe", "In")


@dataclass(frozen=True)
class Pushed:
    """The common properties of the requested rows; None stands for anything."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start: int | None = None
    """The first offset, inclusive."""
    end: int | None = None
    """The offset after the last one."""
    since_ms: int | None = None
    """Records with an older timestamp are not asked for."""
    keys: frozenset[bytes] | None = None
    codecs: frozenset[str] | None = None


def take(filters: Iterable[Any], rows: str) -> tuple[Pushed, list[Any]]:
    """What the filters, of which all must hold, allow to save; and those that Spark still has to apply."""
    pushed, left = Pushed(), []
    for one in filters:
        taken, is_exact = _take(pushed, one, rows)
        if taken is not None:
            pushed = taken
        if taken is None or not is_exact:
            left.append(one)
    return pushed, left


def _take(pushed: Pushed, one: Any, rows: str) -> tuple[Pushed | None, bool]:
    kind = type(one).__name__
    path: tuple[str, ...] = getattr(one, "attribute", ())
    if len(path) != 1:
        return None, False
    if kind == "IsNotNull" and path[0] in _NEVER_NULL:
        return pushed, True
    if not hasattr(one, "value"):
        return None, False
    name, value = path[0], one.value
    if kind in _EQUAL:
        return _equal(pushed, name, value if kind == "In" else (value,), rows), True
    if rows == "records" and name == "offset" and _is_whole(value):
        return _range(pushed, kind, value), True
    if rows == "records" and name == "timestamp" and kind in ("GreaterThan", "GreaterThanOrEqual"):
        return _since(pushed, value), False
    return None, False


def _equal(pushed: Pushed, name: str, values: Iterable[Any], rows: str) -> Pushed | None:
    wanted = list(values)
    if name == "topic" and all(isinstance(value, str) for value in wanted):
        return replace(pushed, topics=_both(pushed.topics, wanted))
    if name == "partition" and all(map(_is_whole, wanted)):
        return replace(pushed, partitions=_both(pushed.partitions, wanted))
    if rows == "batches":
        if name == "codec" and all(isinstance(value, str) for value in wanted):
            return replace(pushed, codecs=_both(pushed.codecs, wanted))
        return None
    if name == "offset" and all(map(_is_whole, wanted)) and len(wanted) == 1:
        lower = _range(pushed, "GreaterThanOrEqual", wanted[0])
        return None if lower is None else _range(lower, "LessThanOrEqual", wanted[0])
    if name == "key" and all(isinstance(value, bytes | bytearray) for value in wanted):
        return replace(pushed, keys=_both(pushed.keys, map(bytes, wanted)))
    return None


def _both(known: frozenset[Any] | None, wanted: Iterable[Any]) -> frozenset[Any]:
    found = frozenset(wanted)
    return found if known is None else known & found


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _range(pushed: Pushed, kind: str, value: int) -> Pushed | None:
    if kind in ("GreaterThan", "GreaterThanOrEqual"):
        first = value + (kind == "GreaterThan")
        return replace(pushed, start=first if pushed.start is None else max(first, pushed.start))
    if kind in ("LessThan", "LessThanOrEqual"):
        end = value + (kind == "LessThanOrEqual")
        return replace(pushed, end=end if pushed.end is None else min(end, pushed.end))
    return None


def _since(pushed: Pushed, value: object) -> Pushed | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    # Rounded down: Spark drops the surplus rows.
    since = int(value.timestamp() * 1000 // 1)
    return replace(
        pushed, since_ms=since if pushed.since_ms is None else max(since, pushed.since_ms)
    )
