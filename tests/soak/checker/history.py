"""What clients did and saw, as recorded by them: one JSON object per line.

| field | meaning | | --- | --- | | `time` | monotonic clock of the machine, nanoseconds | |
`process` | the client; it has one operation under way at a time | | `op` | `send`, `txn`, `poll`,
`commit`, `assign`, `revoke`, `end`, `kill`, `move` (of leaders, with no kill), `start`; of members of
share groups `acquire`, `settle` | | `type` |
`invoke`, then `ok`, `fail` (it certainly did not happen) or `info` (nobody knows) | | `value` |
what it consists of: `["send", tp, value, offset or null]`, `["poll", tp, [[offset, value], ...]]`,
`["at", tp, offset]`, `["got", tp, [[offset, delivery count, value], ...]]`,
`["settle", tp, [[offset, acknowledge type], ...]]` | | `txn` | the transactional id | | `ending` | when the commit of the
transaction was asked for; absent when it never was | | `group`, `isolation` | of the consumer whose
records or offsets these are | | `invoked` | begin of an operation that has no `invoke` line of its
own (polls have none) |

A partition `tp` is named as its folder: topic, hyphen, number. In `commit` and `txn` an `at` is the
offset a group commits, in `assign` where reading goes on (-1: where the group left off), in `end`
the end of the partition.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Line = dict[str, Any]
Outcome = Literal["ok", "fail", "info"]

READ_COMMITTED = "read_committed"


@dataclass(slots=True, eq=False)
class Operation:
    """One operation from its invocation to its outcome.

    Unit: times in nanoseconds. An operation that never completed is `info` and has no end.
    """

    index: int
    process: str
    name: str
    outcome: Outcome
    invoked: int
    completed: float
    sends: list[tuple[str, str, int | None]] = field(default_factory=list)
    polls: list[tuple[str, list[tuple[int, str]]]] = field(default_factory=list)
    offsets: dict[str, int] = field(default_factory=dict)
    acquired: list[tuple[str, list[tuple[int, int, str]]]] = field(default_factory=list)
    settled: list[tuple[str, list[tuple[int, int]]]] = field(default_factory=list)
    transactional_id: str | None = None
    ending: int | None = None
    group: str | None = None
    isolation: str | None = None

    def sent(self) -> dict[str, list[tuple[str, int | None]]]:
        """Return value and offset of the records sent to each partition, in the order of sending."""
        by_partition: dict[str, list[tuple[str, int | None]]] = {}
        for tp, value, offset in self.sends:
            by_partition.setdefault(tp, []).append((value, offset))
        return by_partition

    def polled(self) -> dict[str, list[tuple[int, str]]]:
        """Return offset and value of the records read from each partition, in the order of reading."""
        by_partition: dict[str, list[tuple[int, str]]] = {}
        for tp, records in self.polls:
            by_partition.setdefault(tp, []).extend(records)
        return by_partition

    def __str__(self) -> str:
        """Name the operation as a finding does."""
        return f"{self.name} {self.index} of {self.process} ({self.outcome})"


def operations(lines: Iterable[Line]) -> list[Operation]:
    """Return the operations in the order of their completion, followed by those that never completed.

    Errors: ValueError for a process that begins an operation while another is in progress.
    """
    pending: dict[str, Line] = {}
    found: list[Operation] = []
    for line in sorted(lines, key=lambda line: int(line["time"])):
        process = line["process"]
        if line["type"] == "invoke":
            if process in pending:
                raise ValueError(f"{process} invokes {line['op']} twice at {line['time']}")
            pending[process] = line
            continue
        invocation = pending.get(process)
        if invocation is not None and invocation["op"] == line["op"]:
            del pending[process]
        else:  # polls and rebalances have no separate line for the invocation
            invocation = line
        invoked = line.get("invoked", invocation["time"])
        found.append(_operation(len(found), line, invoked, line["time"], line["type"]))
    for line in pending.values():
        found.append(_operation(len(found), line, line["time"], float("inf"), "info"))
    return found


def _operation(
    index: int, line: Line, invoked: int, completed: float, outcome: Outcome
) -> Operation:
    operation = Operation(
        index=index,
        process=line["process"],
        name=line["op"],
        outcome=outcome,
        invoked=invoked,
        completed=completed,
        transactional_id=line.get("txn"),
        ending=line.get("ending"),
        group=line.get("group"),
        isolation=line.get("isolation"),
    )
    for kind, tp, *rest in line.get("value", ()):
        name = sys.intern(tp)
        if kind == "send":
            operation.sends.append((name, sys.intern(rest[0]), rest[1]))
        elif kind == "poll":
            records = [(offset, sys.intern(value)) for offset, value in rest[0]]
            operation.polls.append((name, records))
        elif kind == "at":
            operation.offsets[name] = rest[0]
        elif kind == "got":
            rows = [(offset, count, sys.intern(value)) for offset, count, value in rest[0]]
            operation.acquired.append((name, rows))
        elif kind == "settle":
            operation.settled.append((name, [(offset, kind) for offset, kind in rest[0]]))
        else:
            raise ValueError(f"unknown part {kind!r} in {line}")
    return operation


def read_lines(paths: Iterable[Path]) -> Iterator[Line]:
    """Yield the lines of files written by clients, compressed where the name ends in .gz."""
    for path in paths:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            for text in file:
                yield json.loads(text)
