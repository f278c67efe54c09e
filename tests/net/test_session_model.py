"""Sessions with the real transport and frame memory, over a simulated kernel driven by Hypothesis.

Input arrives in arbitrary pieces, memory for frames is short, replies come immediately or later in any order, and peers
may not read. After each step, every wait must have something that ends it, and at the end each request must have its
reply.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.connection import Part, RequestReceived, response_frame
from server.net import frame_memory, session
from server.net.connection_info import ConnectionInfo
from server.net.dispatcher import Later
from server.net.frame_memory import FrameMemory
from server.net.limits import NetLimits
from server.net.log_limit import LineLimiter
from server.net.output_memory import OutputMemory
from server.net.rotation import Rotation
from server.net.session import (
    ENDS,
    WAITS_FOR_OVERLAPPING,
    WAITS_FOR_READER,
    WAITS_FOR_REPLY,
    WAITS_FOR_TURN,
    Session,
)
from server.net.transport import SocketTransport
from tests.net import kernel
from tests.net.echo import request
from tests.net.kernel import PLENTY, Kernel, Loop, Outcome, weighted
from tests.support.clock import ManualClock

#: A fraction of a broker's minimum memory, and of everything that depends on it.
SCALE = 128
LIMITS = NetLimits(
    request_max_bytes=8000, max_overlapping=2, max_unsent_bytes=64, max_batch=3, idle_ms=1
)
CONNECTIONS = 3
#: Where the bodies of `request` begin.
BODY_AT = 14


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.small_bounds(monkeypatch)
    for name in ("SCRATCH_BYTES", "SHORT_SCRATCH_BYTES", "GROWING_BYTES", "POOLED_BYTES"):
        monkeypatch.setattr(frame_memory, name, getattr(frame_memory, name) // 1024)
    for name in ("SMALLEST_READ_BYTES", "RESUME_BYTES"):
        monkeypatch.setattr(frame_memory, name, getattr(frame_memory, name) // SCALE)
    monkeypatch.setattr(session, "CORK_BYTES", 40)


def small_memory(now_ms: int) -> FrameMemory:
    memory = FrameMemory(1024 * 1024, now_ms=now_ms)
    for tier in memory.tiers:
        tier.share //= SCALE
    memory.small.max_frame_bytes //= SCALE
    memory.tiny.max_frame_bytes = 40
    return memory


class Request(NamedTuple):
    """A request, and its reply.

    Shape: `reply` are the sizes of the parts; None is no reply. `when` is the time of the reply: "at once" where it may
    be answered from its frame, "now", "later" with nothing else in between, "overlapping", or "done", a future that
    already has its result.
    """

    body_size: int
    reply: tuple[int, ...] | None
    when: str

    def frame(self, number: int) -> list[bytes]:
        """The reply."""
        if self.reply is None:
            return []
        body: list[Part] = [bytes((number + i) % 251 for i in range(size)) for size in self.reply]
        return response_frame(number, False, body)


class Connection:
    """One connection, its peer, and the handlers of the peer's requests."""

    def __init__(
        self,
        requests: list[Request],
        memory: FrameMemory,
        output: OutputMemory,
        rotation: Rotation,
        clock: ManualClock,
    ) -> None:
        self.requests = requests
        self.seen = 0
        self.later: dict[int, asyncio.Future[None]] = {}
        self.kernel = Kernel()
        self.closed_by_us = False
        self.loop = Loop()
        self.left = bytearray()  # the peer's unsent data
        self.replies = b""
        for number, each in enumerate(requests):
            self.left += request(number, bytes(each.body_size))
            self.replies += b"".join(each.frame(number))
        self.session = Session(
            SocketTransport(self.loop, self.kernel, None),  # type: ignore[arg-type]
            ConnectionInfo("127.0.0.1:9092-127.0.0.1:50000-1", client_port=50000),
            self,
            memory,
            LIMITS,
            clock,
            LineLimiter(logging.getLogger("server.net"), clock.monotonic_ms),
            lambda session: None,
            output=output,
            rotation=rotation,
        )
        self.session.transport.start(self.session)

    def at_once(self, frame: memoryview, connection: ConnectionInfo) -> Sequence[Part] | None:
        number = int.from_bytes(frame[4:8], "big")
        asked = self.requests[number]
        if asked.when != "at once":
            return None
        assert number == self.seen, "out of order"
        self.seen += 1
        assert len(frame) - BODY_AT == asked.body_size
        return asked.frame(number)

    def dispatch(
        self, request: RequestReceived, connection: ConnectionInfo
    ) -> Sequence[Part] | Later[Any]:
        number = request.correlation_id
        assert number == self.seen, "out of order"
        self.seen += 1
        asked = self.requests[number]
        assert len(request.frame) - request.body_offset == asked.body_size
        assert not self.alone_is_pending()
        assert asked.when != "at once" or self.session.pending > 1
        if asked.when in ("now", "at once"):
            return asked.frame(number)
        future = asyncio.get_running_loop().create_future()
        if asked.when == "done":
            future.set_result(None)
        else:
            self.later[number] = future
        overlap = asked.when == "overlapping"
        gone = lambda: self.later.pop(number, None)  # noqa: E731
        return Later(number, future, None, gone, overlap)  # type: ignore[arg-type]

    def complete(self, later: Later[Any], future: asyncio.Future[Any]) -> Sequence[Part]:
        return self.requests[later.ctx].frame(later.ctx)  # type: ignore[index,arg-type]

    def alone_is_pending(self) -> bool:
        return any(self.requests[number].when == "later" for number in self.later)

    # -- steps

    def arrive(self, count: int) -> None:
        self.kernel.incoming += self.left[:count]
        del self.left[:count]

    def readable(self, outcomes: list[Outcome]) -> None:
        if self.loop.reader is not None and (self.kernel.incoming or self.kernel.peer_gone):
            self.kernel.calls, self.kernel.outcomes = 0, list(outcomes)
            self.loop.reader()

    def writable(self, outcomes: list[Outcome]) -> None:
        if self.loop.writer is not None:
            self.kernel.calls, self.kernel.outcomes = 0, list(outcomes)
            self.loop.writer()

    def resolve(self, which: int) -> None:
        if self.later:
            number = sorted(self.later)[which % len(self.later)]
            self.later.pop(number).set_result(None)

    def can_go_on(self) -> bool:
        reads = self.loop.reader is not None and self.kernel.incoming
        return bool(self.left or self.later or reads or self.loop.writer is not None)

    # -- what must hold

    def check(self) -> None:
        """Check that the event that it waits for will occur, and that it reads if it does not wait."""
        session = self.session
        assert self.replies.startswith(self.kernel.sent)
        if session.closed:
            assert self.kernel.peer_gone or self.closed_by_us
            assert self.loop.reader is None and self.loop.writer is None
            return
        waits = session._waits
        assert bool(waits & WAITS_FOR_REPLY) == self.alone_is_pending()
        assert not session._left, "all has been taken up, and it does not end"
        many = session.pending >= LIMITS.max_overlapping
        assert bool(waits & WAITS_FOR_OVERLAPPING) == many
        assert self.later or not session.pending
        if waits & WAITS_FOR_READER:
            assert self.loop.writer is not None
        else:
            assert session.transport.unsent_bytes <= LIMITS.max_unsent_bytes
        assert not waits & (WAITS_FOR_TURN | ENDS)
        frames = session._connection.frames
        if not waits:
            whole = 4 <= frames.held_bytes >= frames.announced_bytes
            assert not whole, "a request has arrived and nobody takes it up"
            if self.loop.reader is None:
                assert isinstance(frames._block, frame_memory.FrameBlock)
                assert frames._block.paused, "it does not read"


def blocked(block: frame_memory.FrameBlock) -> bool:
    return block.owner is not None and block.owner.blocked


class Broker:
    """All connections, and the memory that they share."""

    def __init__(self, streams: list[list[Request]]) -> None:
        self.clock = ManualClock()
        self.memory = small_memory(self.clock.monotonic_ms())
        self.output = OutputMemory(100_000, self.clock.monotonic_ms)
        rotation = Rotation()
        self.connections = [
            Connection(each, self.memory, self.output, rotation, self.clock) for each in streams
        ]

    def take(self, step: Step) -> None:
        connection = self.connections[step.connection % len(self.connections)]
        if isinstance(step, Arrive):
            connection.arrive(step.size)
            connection.readable(step.outcomes)
        elif isinstance(step, Readable):
            connection.readable(step.outcomes)
        elif isinstance(step, Writable):
            connection.writable(step.outcomes)
        elif isinstance(step, Complete):
            connection.resolve(step.which)
        elif isinstance(step, Leave):
            connection.kernel.peer_gone = True
        else:
            connection.closed_by_us = True
            connection.session.close("", None)

    async def go_on(self) -> None:
        """Run the callbacks of the next turn of the loop, then let the clock tick."""
        for _ in range(10):
            await asyncio.sleep(0)
        self.check()
        for tier in self.memory.tiers:
            # Woken by a release of memory, not by a timer.
            oldest = next(iter(tier.incomplete.values()), None)
            assert oldest is None or blocked(oldest) or not oldest.paused
            assert not tier.paused or self.memory._room(tier) < frame_memory.RESUME_BYTES
        self.memory.tick(self.clock.monotonic_ms())
        self.check()
        for tier in self.memory.tiers:
            reads = [block for block in tier.incomplete.values() if not blocked(block)]
            assert not reads or not reads[0].paused, "nobody's frame goes on"

    def check(self) -> None:
        for connection in self.connections:
            connection.check()
        for tier in self.memory.tiers:
            assert tier.paused == sum(block.paused for block in tier.incomplete.values())

    async def run_out(self) -> None:
        """Let peers send and read everything, and check that each request gets its reply."""
        for _ in range(1000):
            for each in self.connections:
                each.arrive(500)
                each.readable([PLENTY])
                each.resolve(0)
                each.writable([PLENTY])
            await self.go_on()
            if not any(each.can_go_on() for each in self.connections):
                return
        raise AssertionError("it goes on for ever")


class Arrive(NamedTuple):
    connection: int
    size: int
    outcomes: list[Outcome]


class Readable(NamedTuple):
    connection: int
    outcomes: list[Outcome]


class Writable(NamedTuple):
    connection: int
    outcomes: list[Outcome]


class Complete(NamedTuple):
    connection: int
    which: int


class Leave(NamedTuple):
    connection: int


class Close(NamedTuple):
    connection: int


Step = Arrive | Readable | Writable | Complete | Leave | Close

numbers = st.integers(0, CONNECTIONS - 1)
taken: list[Outcome] = [PLENTY, PLENTY, 1, 7, 300, BlockingIOError]
outcomes = st.lists(st.sampled_from(taken), max_size=5)
replies = st.sampled_from([(70,), (100, 30), (150,), (), (10,), (30, 0), (20, 100, 0), None])
requests = st.builds(
    Request,
    st.sampled_from([10, 0, 4500, 10, 10, 700]),
    replies,
    st.sampled_from(["at once", "later", "overlapping", "at once", "now", "done"]),
)
#: Small ones, most of which need only their frame.
usual = st.builds(
    Request,
    st.sampled_from([10, 0, 60]),
    st.sampled_from([(10,), (30,), None]),
    st.sampled_from(["at once"] * 8 + ["now", "overlapping"]),
)
streams = st.lists(
    st.one_of(
        st.lists(requests, min_size=4, max_size=12), st.lists(usual, min_size=8, max_size=24)
    ),
    min_size=1,
    max_size=CONNECTIONS,
)
steps = weighted(
    (8, st.builds(Arrive, numbers, st.sampled_from([3000, 1, 3, 60, 200, 5000]), outcomes)),
    (2, st.builds(Readable, numbers, outcomes)),
    (4, st.builds(Writable, numbers, outcomes)),
    (4, st.builds(Complete, numbers, st.integers(0, 3))),
    (1, st.builds(Leave, numbers) | st.builds(Close, numbers)),
)


@settings(max_examples=150)
@given(streams, st.lists(steps, max_size=25))
def test_however_requests_and_replies_come_none_is_left_waiting(
    streams: list[list[Request]], steps: list[Step]
) -> None:
    async def run() -> None:
        broker = Broker(streams)
        for step in steps:
            broker.take(step)
            await broker.go_on()
        await broker.run_out()
        assert broker.output.used == 0
        for connection in broker.connections:
            if not connection.session.closed:
                assert connection.seen == len(connection.requests)
                assert connection.kernel.sent == connection.replies
                assert connection.session.pending == 0
            connection.session.close("", None)
        assert broker.memory.used == 0
        assert not broker.memory.waiting

    asyncio.run(run())
