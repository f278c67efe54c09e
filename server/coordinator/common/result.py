"""The result of a coordinator machine's operation: records, replies, timers, effects.

An operation may change soft state (which requests wait, when a member last sent a heartbeat). The state in the internal
topic changes only in `replay`, after the records are committed. A token identifies each request, so a machine can
answer immediately or later, and can also answer other requests than the current one, without references to the event
loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from ...cause import CAUSE

T = TypeVar("T")


class Timer(NamedTuple):
    """Call the operation `op_name` with `key` at `at_ms`; an operation like all others.

    Shape: a timer replaces the one with the same op_name and key. Cancelling it saves only memory: an
    operation that finds nothing due does nothing.
    Unit: at_ms in the machine's time, the `now_ms` of its operations.
    """

    op_name: str
    key: tuple[str, ...]
    at_ms: int


Reply = tuple[int, Any]
"""The token of a request, and its answer; a plain tuple, since every request has one."""


class Result(Generic[T]):
    """The actions that follow one operation, whose own request is answered with a T.

    Shape: `replies` are sent immediately. `records` form one batch. When it is committed, the runtime replays the
    records and calls `completed(ticket, NONE, now_ms)` on the machine, whose result holds the replies that waited for
    the batch. If the batch fails, the runtime calls `completed(ticket, error, now_ms)` without a replay. `producer` is
    the (id, epoch) of a transactional batch; `owner` is the client that the batch is written for; `on_appended`, if set, is called with its bytes.
    `effects` are actions outside this log, and come last; the machine and its coordinator agree on their type.
    """

    __slots__ = (
        "cancelled",
        "effects",
        "on_appended",
        "owner",
        "producer",
        "records",
        "replies",
        "ticket",
        "timers",
    )

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.ticket: Any = None
        self.owner: object = None
        self.on_appended: Callable[[int], object] | None = None
        self.producer: tuple[int, int] | None = None
        self.replies: list[Reply] = []
        self.timers: list[Timer] = []
        self.cancelled: list[tuple[str, tuple[str, ...]]] = []
        self.effects: list[Any] = []

    def reply(self, token: int | None, value: T) -> None:
        """Answer a request; a token of None means that no request waits.

        Shape: to answer other requests than the operation's own, perhaps with other types, use a `Result[Any]`.
        """
        if token is not None:
            self.replies.append((token, value))

    def cancel(self, op_name: str, key: tuple[str, ...]) -> None:
        """Forget a timer, unless this result sets it again."""
        self.cancelled.append((op_name, key))

    def write(
        self, records: list[Any], ticket: Any, producer: tuple[int, int] | None = None
    ) -> None:
        """Request that records be appended as one batch.

        Errors: RuntimeError if this operation has already written, since one operation is one batch.
        """
        if self.ticket is not None:
            raise RuntimeError(f"{ticket} after {self.ticket} in one operation")
        self.records = records
        self.ticket = ticket
        self.owner = CAUSE.get()
        self.producer = producer

    def __repr__(self) -> str:
        return (
            f"Result(records={self.records!r}, ticket={self.ticket!r}, "
            f"replies={self.replies!r}, timers={self.timers!r}, effects={self.effects!r})"
        )
