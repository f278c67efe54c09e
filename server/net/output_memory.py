"""The memory of all answers that wait for a reader: bounded, and reclaimed from clients that do not read.

Counted are the bytes that the kernel has not accepted, and replies that wait behind an earlier one. Stored slices are
sent from the file and cost nothing, and a body that is sent to many connections (`SharedBytes`) counts once.

Above half of the bound, a connection with unread answers accepts no further request. Above the bound, the readers that
hold most and have not read for longest (bytes x time) are closed until a quarter is free again. A reader that has read
something within the last second is closed only above twice the bound, so that a single answer may be larger than the
bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

#: A reader that has read something within this time counts as reading, however slowly.
GRACE_MS = 1000
#: The interval after which readers are checked again when none can be closed.
AGAIN_MS = 100


class SharedBytes(bytes):
    """An encoded body that is kept and sent to many connections."""


class TransportOutput(Protocol):
    """The part of a transport that shows how far its peer has read."""

    unsent_bytes: int
    #: The bytes that the kernel has accepted since the connection was made, except those accepted immediately.
    taken_bytes: int

    @property
    def unsent_memory(self) -> int:
        """The memory of output that the kernel has not accepted; stored slices cost none."""
        ...


class OutputReader(Protocol):
    """A connection whose peer has answers to read."""

    transport: Any

    @property
    def held_up_bytes(self) -> int:
        """Replies that are ready, but wait for an earlier one."""
        ...

    def evict(self, reason: str) -> None:
        """Close the connection: others need its memory, or it takes too long."""
        ...


class Holding:
    """The memory that one reader holds, and since when it has read nothing.

    Shape: `shared` has the shared bodies among its unread answers, as (body, first position, end position); positions
    count the bytes of the connection's output as `taken_bytes` does.
    """

    __slots__ = ("bytes", "shared", "since_ms", "taken")

    def __init__(self, taken: int, now_ms: int) -> None:
        self.bytes = 0
        self.shared: list[tuple[SharedBytes, int, int]] = []
        self.since_ms = now_ms
        self.taken = taken


class OutputMemory:
    """The unread answers of all connections of a broker; it does no I/O.

    Unit: bytes. `limit_bytes` is `kwire.queued.max.response.bytes`.
    """

    def __init__(self, limit_bytes: int, now_ms: Callable[[], int]) -> None:
        self.limit_bytes = limit_bytes
        self.used = 0
        #: The most that was used at any time.
        self.peak = 0
        self._now_ms = now_ms
        self._looked_ms = now_ms() - AGAIN_MS
        self._readers: dict[OutputReader, Holding] = {}
        self._bodies: Counter[int] = Counter()  # how many readers wait for a shared body, by its id

    @property
    def pressed(self) -> bool:
        """Whether a connection with unread answers should be given no more of them."""
        return self.used * 2 > self.limit_bytes

    def hold(self, reader: OutputReader, parts: Sequence[Any] = ()) -> int:
        """Update the memory that a reader holds after `parts` were sent to it, and return it.

        Shape: above the bound, this reader or others are closed before it returns.
        """
        holding = self._readers.get(reader)
        if holding is None:
            holding = Holding(reader.transport.taken_bytes, self._now_ms())
            self._readers[reader] = holding
        if any(type(part) is SharedBytes for part in parts):
            self._share(reader.transport, holding, parts)
        self._count(reader, holding)
        if not holding.bytes and not holding.shared:
            del self._readers[reader]
            return 0
        self.tick()
        if self.used > self.peak:
            self.peak = self.used
        return weight(holding)

    def tick(self) -> None:
        """Close readers if too much is held; called now and then, since time makes them worse."""
        if self.used > self.limit_bytes:
            now_ms = self._now_ms()
            if now_ms - self._looked_ms >= AGAIN_MS or self.used > 2 * self.limit_bytes:
                self._looked_ms = now_ms
                self._relieve(now_ms)

    def release(self, reader: OutputReader) -> None:
        """Stop counting a reader that has read everything or is gone."""
        holding = self._readers.pop(reader, None)
        if holding is not None:
            self.used -= holding.bytes
            for body, _, _ in holding.shared:
                self._let_go(body)

    def _share(self, output: TransportOutput, holding: Holding, parts: Sequence[Any]) -> None:
        end = output.taken_bytes + output.unsent_bytes
        for part in reversed(parts):
            if type(part) is SharedBytes and end > output.taken_bytes:
                holding.shared.append((part, end - len(part), end))
                self._bodies[id(part)] += 1
                if self._bodies[id(part)] == 1:
                    self.used += len(part)
            end -= len(part)

    def _let_go(self, body: SharedBytes) -> None:
        self._bodies[id(body)] -= 1
        if not self._bodies[id(body)]:
            del self._bodies[id(body)]
            self.used -= len(body)

    def _count(self, reader: OutputReader, holding: Holding) -> None:
        """Bring a reader's count up to date, and note whether it has read since."""
        output = reader.transport
        taken = output.taken_bytes
        if taken != holding.taken:
            holding.taken = taken
            holding.since_ms = self._now_ms()
        held = output.unsent_memory + reader.held_up_bytes
        if holding.shared:
            waiting = [each for each in holding.shared if each[2] > taken]
            for body, _, end in holding.shared:
                if end <= taken:
                    self._let_go(body)
            holding.shared = waiting
            held -= sum(end - max(first, taken) for _, first, end in waiting)
        self.used += held - holding.bytes
        holding.bytes = held

    def _relieve(self, now_ms: int) -> None:
        """Count everything again, and close the worst readers if it is still too much."""
        for reader, holding in self._readers.items():
            self._count(reader, holding)
        if self.used <= self.limit_bytes:
            return
        latest_ms = now_ms if self.used > 2 * self.limit_bytes else now_ms - GRACE_MS
        worst = sorted(
            (each for each in self._readers.items() if each[1].since_ms <= latest_ms),
            key=lambda each: weight(each[1]) * (now_ms - each[1].since_ms + 1),
        )
        closing: list[tuple[OutputReader, str]] = []
        while worst and self.used > self.limit_bytes * 3 // 4:
            reader, holding = worst.pop()
            closing.append(
                (
                    reader,
                    f"it has {weight(holding)} bytes of answers to read and has read none of them"
                    f" for {now_ms - holding.since_ms} ms, and all unread answers together exceed"
                    f" kwire.queued.max.response.bytes={self.limit_bytes}",
                )
            )
            self.release(reader)
        for reader, reason in closing:
            reader.evict(reason)


def weight(holding: Holding) -> int:
    """The memory that a reader keeps in use, alone or with others."""
    return holding.bytes + sum(len(body) for body, _, _ in holding.shared)
