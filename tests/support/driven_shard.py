"""Drives the shard of a coordinator step by step, with a log of bytes, a clock, timers, and the answers by token."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any

from kwire.errors import ErrorCode
from server.coordinator.common.result import Result, Timer
from tests.support.clock import ManualClock

Stored = tuple[bytes, bytes | None]


class DrivenShard(ABC):
    """A shard, and a replacement for the runtime.

    Writes are committed immediately, unless `hold` is set: then `commit()` or `fail(error)` ends them one after
    another. Shape: a subclass has `new_shard`, `replay` and, if the log's entries are not single records, `entries`.
    """

    #: Whether a request that has timed out is answered once more when its write ends; the runtime ignores that.
    may_answer_again = False

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log: list[Any] = []
        self.in_flight: list[tuple[list[Any], Any]] = []
        self.hold = False
        #: The client that sends the requests.
        self.account: Hashable = "127.0.0.1"
        self.last_token = 0
        self.answers: dict[int, Any] = {}
        self.timers: dict[tuple[str, tuple[str, ...]], Timer] = {}
        self.effects: list[Any] = []
        self.restart()

    @abstractmethod
    def new_shard(self) -> Any:
        """A shard without a log."""

    @abstractmethod
    def replay(self, shard: Any, entry: Any, position: int) -> None:
        """Replay an entry of the log."""

    def entries(self, stored: list[Stored], result: Result) -> list[Any]:
        """The entries of the log that hold the encoded records of a result."""
        return stored

    def encode(self, record: Any) -> Stored:
        return self.shard.encode(record)

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    def token(self) -> int:
        self.last_token += 1
        return self.last_token

    def apply(self, result: Result) -> None:
        for token, value in result.replies:
            assert self.may_answer_again or token not in self.answers, f"{token} answered twice"
            self.answers[token] = value
        for name in result.cancelled:
            self.timers.pop(name, None)
        for timer in result.timers:
            self.timers[timer.op_name, timer.key] = timer
        if result.ticket is not None:
            stored = [self.encode(record) for record in result.records]
            if result.on_appended is not None:
                result.on_appended(sum(len(key) + len(value or b"") for key, value in stored))
            self.in_flight.append((self.entries(stored, result), result.ticket))
            if not self.hold:
                self.commit()
        self.effects += result.effects

    def commit(self) -> None:
        """Commit the first pending write: replay what was stored, and continue."""
        entries, ticket = self.in_flight.pop(0)
        self.store(entries)
        self.apply(self.shard.completed(ticket, ErrorCode.NONE, self.now))

    def store(self, entries: list[Any]) -> None:
        for entry in entries:
            self.log.append(entry)
            self.replay(self.shard, entry, len(self.log))

    def fail(self, error: ErrorCode) -> None:
        """Let the first pending write fail."""
        _, ticket = self.in_flight.pop(0)
        self.apply(self.shard.completed(ticket, error, self.now))

    def advance(self, ms: int) -> None:
        """Advance time, firing due timers in order."""
        end = self.now + ms
        while True:
            due = min(self.timers.values(), key=lambda t: t.at_ms, default=None)
            if due is None or due.at_ms > end:
                break
            self.fire(due)
        self.clock.advance(end - self.now)

    def fire(self, timer: Timer) -> None:
        """Fire a timer at its time, or now if that has passed."""
        del self.timers[timer.op_name, timer.key]
        self.clock.advance(max(0, timer.at_ms - self.now))
        self.apply(self.shard.fire(timer, self.now))

    def reload(self) -> Any:
        """Return the state of a new coordinator that loaded the committed log."""
        shard = self.new_shard()
        for position, entry in enumerate(self.log, 1):
            self.replay(shard, entry, position)
        self.reloaded = shard.loaded(self.now)
        return shard

    def restart(self) -> None:
        """Continue as a coordinator that has just loaded the log; waiting requests are lost."""
        self.timers.clear()
        self.in_flight.clear()
        self.shard = self.reload()
        self.apply(self.reloaded)
