"""Faults planted in a history: each changes what clients saw to what a broken broker would have shown."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from .checker import Line

Record = tuple[int, str]
Part = list[Any]


def sends(lines: list[Line], topic: str, outcome: str = "ok") -> Iterator[tuple[Line, Part]]:
    """Yield each send with an offset to a topic, and the line it is part of."""
    for line in lines:
        if line["type"] == outcome:
            for part in line["value"]:
                if part[0] == "send" and part[3] is not None and part[1].startswith(f"{topic}-"):
                    yield line, part


def polls(lines: list[Line], process: str = "") -> Iterator[tuple[Line, Part]]:
    """Yield each part that was polled, and the line it is part of."""
    for line in lines:
        if line["process"].startswith(process):
            for part in line["value"]:
                if part[0] == "poll":
                    yield line, part


def polls_in_stretches(lines: list[Line], process: str) -> Iterator[tuple[Part, Part]]:
    """Yield two successive polls of a partition by one process, with no rebalance between."""
    last: dict[tuple[str, str], Part] = {}
    for line in lines:
        if not line["process"].startswith(process):
            continue
        for part in line["value"]:
            key = line["process"], part[1]
            if part[0] == "at" and line["op"] in ("assign", "revoke"):
                last.pop(key, None)
            elif part[0] == "poll":
                if key in last:
                    yield last[key], part
                last[key] = part


def resumptions(lines: list[Line], process: str) -> Iterator[Part]:
    """Yield the first poll after an assignment, if the group had made progress and continued reading."""
    assigned: set[tuple[str, str]] = set()
    for line in lines:
        for part in line["value"]:
            key = line["process"], part[1]
            if line["op"] == "assign" and part[2] < 0:
                assigned.add(key)
            elif part[0] == "poll" and key in assigned:
                assigned.discard(key)
                if line["process"].startswith(process) and part[2][0][0] > 20 and len(part[2]) > 1:
                    yield part


def rewritten(lines: list[Line], tp: str, change: Callable[[Record], list[Record]]) -> None:
    """Replace every record of a partition in all acknowledgements and polls."""
    for line in lines:
        for part in line["value"]:
            if part[1] != tp:
                continue
            if part[0] == "send" and part[3] is not None:
                part[3] = change((part[3], part[2]))[-1][0]
            elif part[0] == "poll":
                part[2] = [list(new) for old in part[2] for new in change((old[0], old[1]))]


def shifted(lines: list[Line], tp: str, since: int, ghost: str | None = None) -> None:
    """Leave an offset free before a record, or put a value there that was never sent."""

    def change(record: Record) -> list[Record]:
        offset, value = record
        between = [(since, ghost)] if ghost is not None and offset == since else []
        return [*between, (offset + (offset >= since), value)]

    rewritten(lines, tp, change)
    for line in lines:
        for part in line["value"]:
            if part[0] == "at" and part[1] == tp and part[2] > since:
                part[2] += 1


def unread(lines: list[Line], tp: str, value: str, process: str = "") -> None:
    """Take a record from all polls, or from those of some processes."""
    for _, part in polls(lines, process):
        if part[1] == tp:
            part[2] = [record for record in part[2] if record[1] != value]
    for line in lines:
        line["value"] = [part for part in line["value"] if part[0] != "poll" or part[2]]


def exchanged(lines: list[Line], one: Part, other: Part) -> None:
    """Swap the offsets of two sends to a partition, for all clients."""
    places = {one[2]: other[3], other[2]: one[3]}
    values = {other[3]: one[2], one[3]: other[2]}
    tp = one[1]
    for line in lines:
        for part in line["value"]:
            if part[1] == tp and part[0] == "send" and part[2] in places:
                part[3] = places[part[2]]
            elif part[1] == tp and part[0] == "poll":
                part[2] = [[offset, values.get(offset, value)] for offset, value in part[2]]


def _middle(found: Iterator[Any]) -> Any:
    everything = list(found)
    return everything[len(everything) // 2]


def lost_write(lines: list[Line]) -> None:
    _, part = _middle(sends(lines, "once"))
    unread(lines, part[1], part[2])


def lost_write_of_a_transaction(lines: list[Line]) -> None:
    _, part = _middle(sends(lines, "transactions"))
    unread(lines, part[1], part[2])


def half_a_transaction(lines: list[Line]) -> None:
    """A transaction with an unknown outcome; one of its records is read as committed and another is not."""
    line, part = _middle(
        (line, part)
        for line, part in sends(lines, "transactions")
        if len(line["value"]) > 1 and part is line["value"][0]
    )
    line["type"] = "info"
    unread(lines, part[1], part[2])


def unseen(lines: list[Line]) -> None:
    _, last = max(sends(lines, "once"), key=lambda found: (found[1][1], found[1][3]))
    unread(lines, last[1], last[2])


def two_values(lines: list[Line]) -> None:
    _, part = _middle(polls(lines, "committed"))
    part[2][0][1] = "committed.other"


def two_offsets(lines: list[Line]) -> None:
    _, part = _middle(sends(lines, "once"))
    part[3] += 1000


def duplicate(lines: list[Line]) -> None:
    """Plant a retried batch that was appended again."""
    before, part = _middle(polls_in_stretches(lines, "last-read_committed"))
    part[2].append([part[2][-1][0] + 1, before[2][0][1]])


def phantom(lines: list[Line]) -> None:
    _, part = _middle(polls(lines, "last-read_uncommitted"))
    part[2][-1][1] = "nobody.1"


def failed_write(lines: list[Line]) -> None:
    line, _ = _middle(sends(lines, "once"))
    line["type"] = "fail"
    for part in line["value"]:
        part[3] = None


def aborted_read(lines: list[Line]) -> None:
    line, _ = _middle(sends(lines, "transactions"))
    line["type"] = "fail"


def dirty_read(lines: list[Line]) -> None:
    line, _ = _middle(sends(lines, "transactions"))
    line["ending"] = lines[-1]["time"] + 1


def precommitted_read(lines: list[Line]) -> None:
    line, part = _middle(sends(lines, "mixed"))
    line["value"].append(["poll", part[1], [[part[3], part[2]]]])


def sparse_offsets(lines: list[Line]) -> None:
    _, part = _middle(sends(lines, "once"))
    shifted(lines, part[1], part[3])


def one_marker_too_many(lines: list[Line]) -> None:
    """A hole between two records of one batch of a transaction cannot be a marker."""
    _, part = _middle(
        (line, part)
        for line, part in sends(lines, "transactions")
        if any(p[0] == "send" and p[1] == part[1] and p[3] == part[3] - 1 for p in line["value"])
    )
    shifted(lines, part[1], part[3])
    for line in lines:  # there are no kills that could explain it
        if line["op"] == "kill":
            line["op"] = "start"


def end_offsets(lines: list[Line]) -> None:
    """A transaction that cannot be ended holds the last stable offset back."""
    line = next(x for x in lines if x["op"] == "end" and x["isolation"] == "read_committed")
    line["value"][0][2] -= 1


def poll_skip(lines: list[Line]) -> None:
    _, part = _middle(polls_in_stretches(lines, "mixer"))
    part[2] = part[2][1:] or [[part[2][0][0] + 50, part[2][0][1]]]


def nonmonotonic_poll(lines: list[Line]) -> None:
    before, part = _middle(polls_in_stretches(lines, "committed"))
    part[2].insert(0, before[2][-1])


def internal_poll_skip(lines: list[Line]) -> None:
    _, part = _middle((line, part) for line, part in polls(lines, "last") if len(part[2]) > 2)
    del part[2][1]


def internal_nonmonotonic_poll(lines: list[Line]) -> None:
    _, part = _middle((line, part) for line, part in polls(lines, "last") if len(part[2]) > 2)
    part[2][1], part[2][2] = part[2][2], part[2][1]


def send_skip(lines: list[Line]) -> None:
    line, part = _middle(sends(lines, "java"))
    first = next(p for p in line["value"] if p[1] == part[1])
    shifted(lines, first[1], first[3], ghost="nobody.1")


def internal_send_skip(lines: list[Line]) -> None:
    line, part = _middle(sends(lines, "java"))
    last = [p for p in line["value"] if p[1] == part[1]][-1]
    shifted(lines, last[1], last[3], ghost="nobody.1")


def nonmonotonic_send(lines: list[Line]) -> None:
    mine = [(x, p) for x, p in sends(lines, "once") if x["process"] == "idempotent-0"]
    line, one = mine[len(mine) // 2]
    other = next(p for x, p in mine if x["time"] > line["time"] and p[1] == one[1])
    exchanged(lines, one, other)


def internal_nonmonotonic_send(lines: list[Line]) -> None:
    for line, one in sends(lines, "transactions"):
        others = [p for p in line["value"] if p[1] == one[1] and p[0] == "send" and p is not one]
        if others:
            exchanged(lines, one, others[0])
            return


def cycle(lines: list[Line]) -> None:
    """The first of two transactions reads a record of the second, which has read a record of the first."""
    wrote = {part[2]: (line, part) for line, part in sends(lines, "mixed")}
    for line, part in polls(lines, "mixer"):
        mine = [p for p in line["value"] if p[0] == "send"]
        writer = next((wrote[v] for _, v in part[2] if v in wrote), None)
        if line["type"] == "ok" and mine and writer and writer[0]["process"] != line["process"]:
            writer[0]["value"].append(["poll", mine[0][1], [[mine[0][3], mine[0][2]]]])
            return
    raise AssertionError("no transaction reads another one")


def processed_twice(lines: list[Line]) -> None:
    """The offsets of a transaction were not committed though its records were."""
    line, one = _middle(sends(lines, "made"))
    _, other = next((x, p) for x, p in sends(lines, "made") if x is not line and p[1] == one[1])
    old, new = one[2], f"{one[2].partition('<')[0]}<{other[2].partition('<')[2]}"
    for renamed in lines:
        for part in renamed["value"]:
            if part[0] == "send" and part[2] == old:
                part[2] = new
            elif part[0] == "poll":
                part[2] = [[offset, new if v == old else v] for offset, v in part[2]]


def group_rewind(lines: list[Line]) -> None:
    part = next(resumptions(lines, "committed"))
    known = {(p[1], offset): value for _, p in polls(lines, "last") for offset, value in p[2]}
    before = max(o for tp, o in known if tp == part[1] and o < part[2][0][0] - 3)
    part[2].insert(0, [before, known[part[1], before]])


def group_skip(lines: list[Line]) -> None:
    part = next(resumptions(lines, "committed"))
    del part[2][0]


def group_hole(lines: list[Line]) -> None:
    _, part = _middle(sends(lines, "once"))
    unread(lines, part[1], part[2], "uncommitted")


def shared(lines: list[Line], kind: str, op: str, part: list[Any]) -> None:
    """Add the actions of a member of a share group, after all others."""
    time = int(lines[-1]["time"])
    lines.append(
        {
            **{"time": time + 10, "invoked": time + 5, "process": "share", "op": op},
            **{"type": kind, "value": [part], "group": "share"},
        }
    )


def first_records(lines: list[Line]) -> list[tuple[int, str]]:
    """Offset and value of the first records of a partition."""
    return sorted((p[3], p[2]) for _, p in sends(lines, "once") if p[1] == "once-0")[:3]


def share_repeat(lines: list[Line]) -> None:
    offset, value = first_records(lines)[0]
    shared(lines, "ok", "acquire", ["got", "once-0", [[offset, 1, value]]])
    shared(lines, "ok", "settle", ["settle", "once-0", [[offset, 1]]])
    shared(lines, "ok", "acquire", ["got", "once-0", [[offset, 2, value]]])


def share_loss(lines: list[Line]) -> None:
    (offset, value), _, (other, other_value) = first_records(lines)
    rows = [[offset, 1, value], [other, 1, other_value]]
    shared(lines, "ok", "acquire", ["got", "once-0", rows])


def share_count_too_high(lines: list[Line]) -> None:
    offset, value = first_records(lines)[0]
    shared(lines, "ok", "acquire", ["got", "once-0", [[offset, 2, value]]])


def share_count_too_low(lines: list[Line]) -> None:
    offset, value = first_records(lines)[0]
    shared(lines, "ok", "acquire", ["got", "once-0", [[offset, 1, value]]])
    shared(lines, "ok", "settle", ["settle", "once-0", [[offset, 2]]])
    shared(lines, "ok", "acquire", ["got", "once-0", [[offset, 1, value]]])


#: Which check must find what.
FAULTS: list[tuple[Callable[[list[Line]], None], str]] = [
    (lost_write, "lost write"),
    (lost_write_of_a_transaction, "lost write"),
    (half_a_transaction, "lost write"),
    (unseen, "unseen"),
    (two_values, "two values at one offset"),
    (two_offsets, "one value at two offsets"),
    (duplicate, "duplicate"),
    (phantom, "phantom"),
    (failed_write, "failed write"),
    (aborted_read, "aborted read"),
    (dirty_read, "dirty read"),
    (precommitted_read, "precommitted read"),
    (sparse_offsets, "sparse offsets"),
    (one_marker_too_many, "sparse offsets"),
    (end_offsets, "end offsets"),
    (poll_skip, "poll skip"),
    (nonmonotonic_poll, "nonmonotonic poll"),
    (internal_poll_skip, "internal poll skip"),
    (internal_nonmonotonic_poll, "internal nonmonotonic poll"),
    (send_skip, "send skip"),
    (nonmonotonic_send, "nonmonotonic send"),
    (internal_send_skip, "internal send skip"),
    (internal_nonmonotonic_send, "internal nonmonotonic send"),
    (cycle, "cycle"),
    (processed_twice, "processed twice"),
    (processed_twice, "not processed"),
    (group_rewind, "group rewind"),
    (group_skip, "group skip"),
    (group_hole, "group hole"),
    (share_repeat, "share repeat"),
    (share_loss, "share loss"),
    (share_count_too_high, "share count"),
    (share_count_too_low, "share count"),
]


def planted(lines: list[Line], fault: Callable[[list[Line]], None]) -> list[Line]:
    """Return a copy of the history with a fault."""
    broken = copy.deepcopy(lines)
    fault(broken)
    return broken
