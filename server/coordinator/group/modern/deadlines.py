"""The deadlines of members. Moving a deadline to a later time keeps its timer, which is set again when it fires."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...common.result import Result, Timer


class SetDeadline(NamedTuple):
    """The internal effect that sets a deadline in the given number of ms; None cancels it.

    Shape: `epoch` is that of a member that has to give up partitions; the deadline counts only while the member is in
    that epoch. `only_new` leaves a running deadline unchanged.
    """

    name: str
    group_id: str
    member_id: str
    in_ms: int | None
    epoch: int = -1
    only_new: bool = False


class Deadlines:
    """The deadlines of one shard, by (name, group, member)."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], tuple[int, int, int]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def set(self, wanted: SetDeadline, now_ms: int, out: Result[Any]) -> None:
        """Set or cancel a deadline."""
        key = wanted.name, wanted.group_id, wanted.member_id
        known = self._known.get(key)
        if wanted.in_ms is None:
            if known is not None:
                del self._known[key]
                out.cancel(wanted.name, key[1:])
            return
        if known is not None and wanted.only_new:
            return
        at_ms = now_ms + wanted.in_ms
        if known is not None and known[1] <= at_ms:
            self._known[key] = at_ms, known[1], wanted.epoch
            return
        self._known[key] = at_ms, at_ms, wanted.epoch
        out.timers.append(Timer(wanted.name, key[1:], at_ms))

    def fired(self, timer: Timer, now_ms: int, out: Result[Any]) -> int | None:
        """Return the epoch of a deadline that is due; None if it no longer exists or is not due yet."""
        group_id, member_id = timer.key
        key = timer.op_name, group_id, member_id
        known = self._known.pop(key, None)
        if known is None:
            return None
        at_ms, _, epoch = known
        if now_ms < at_ms:
            self._known[key] = at_ms, at_ms, epoch
            out.timers.append(Timer(timer.op_name, timer.key, at_ms))
            return None
        return epoch

    def postpone(self, name: str, group_id: str, member_id: str, at_ms: int) -> None:
        """Move a running deadline to a later time; do nothing if none is running."""
        key = name, group_id, member_id
        known = self._known.get(key)
        if known is not None:
            self._known[key] = max(known[0], at_ms), known[1], known[2]

    def shift(self, delta_ms: int) -> None:
        """Move all deadlines, because the clock was set."""
        self._known = {
            key: (at_ms + delta_ms, timer_ms + delta_ms, epoch)
            for key, (at_ms, timer_ms, epoch) in self._known.items()
        }

    def clear(self) -> None:
        """Drop all deadlines; their timers then have no effect."""
        self._known.clear()
