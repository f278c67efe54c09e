"""The socket transport with a simulated kernel, loop and threads, whose actions Hypothesis chooses.

There is no time here: a step is a call by the session, a readiness callback or a thread that
finishes. After each step it must be possible to continue, and at the end all bytes have been sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.net.transport import SocketTransport
from tests.net import kernel
from tests.net.kernel import (
    COPY_SLICE_BYTES,
    GATHER_BYTES,
    PLENTY,
    TURN_BYTES,
    Files,
    Kernel,
    Loop,
    Outcome,
    Slice,
    Work,
    weighted,
)


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.small_bounds(monkeypatch)


class Part(NamedTuple):
    """A piece of a reply that a step sends."""

    size: int
    stored: bool = False


class Send(NamedTuple):
    parts: list[Part]
    outcomes: list[Outcome]
    cached: list[bool]


class Writable(NamedTuple):
    outcomes: list[Outcome]
    cached: list[bool]
    reaction: Call | Send | None


class ThreadDone(NamedTuple):
    error: type[Exception] | None
    outcomes: list[Outcome]
    cached: list[bool]
    reaction: Call | Send | None


class Readable(NamedTuple):
    arrived: int
    buffers: list[int | None]
    outcomes: list[Outcome]
    reaction: Call | Send | None


class Call(NamedTuple):
    method: str


class PeerLeaves(NamedTuple):
    pass


Reaction = Send | Call | None
Step = Send | Writable | ThreadDone | Readable | Call | PeerLeaves


class Model:
    """The transport with its surroundings, its input, and the invariants."""

    def __init__(self) -> None:
        self.kernel = Kernel()
        self.files = Files(self.kernel)
        self.loop = Loop()
        self.work: Work | None = None
        self.sent = bytearray()  # what the transport was given
        self.arrived = 0
        self.read = bytearray()
        self.reading = True  # as the receiver has asked for
        self.buffers: list[int | None] = []
        self.buffer = bytearray()
        self.refused = False
        self.reaction: Reaction = None
        self.drained_due = False
        self.closing = False
        self.losses: list[OSError | None] = []
        self.transport = SocketTransport(self.loop, self.kernel, self)  # type: ignore[arg-type]
        self.transport.start(self)

    def in_thread(self, function: Callable[..., None], *args: Any) -> Any:
        assert self.work is None, "two threads for one connection"
        self.work = Work(self.files.slices[args[0]], lambda: function(*args))
        return self.work

    # -- the receiver

    def get_buffer(self) -> memoryview | None:
        assert not self.transport.closed
        size = self.buffers.pop(0) if self.buffers else None
        self.refused = size is None
        self.buffer = bytearray(size or 0)
        return None if size is None else memoryview(self.buffer)

    def received(self, count: int) -> None:
        assert not self.transport.closed
        self.read += self.buffer[:count]
        self.buffer.clear()  # fails while the transport keeps a view of it
        if count:
            self.react()

    def drained(self) -> None:
        assert not self.transport.closed and not self.closing
        assert self.kernel.sent == self.sent and self.transport.unsent_bytes == 0
        assert all(part.closed for part in self.files.slices.values())
        assert self.loop.writer is None
        self.drained_due = False
        self.react()

    def lost(self, error: OSError | None) -> None:
        assert self.transport.closed
        if error is None:
            assert self.closing or self.kernel.peer_gone
        else:
            assert not isinstance(error, BlockingIOError | InterruptedError)
        self.losses.append(error)

    def react(self) -> None:
        reaction, self.reaction = self.reaction, None
        if reaction is not None:
            self.take(reaction)

    # -- steps

    def take(self, step: Step) -> None:
        """Take one step, if it is possible now."""
        self.kernel.calls = 0
        if isinstance(step, Send):
            self.kernel.outcomes, self.files.cached = list(step.outcomes), list(step.cached)
            self.send(step.parts)
        elif isinstance(step, Call):
            self.call(step.method)
        elif isinstance(step, PeerLeaves):
            self.kernel.peer_gone = True
        else:
            self.kernel.outcomes, self.reaction = list(step.outcomes), step.reaction
            if isinstance(step, Readable):
                self.readable(step)
            else:
                self.files.cached = list(step.cached)
                if isinstance(step, ThreadDone):
                    self.finish_work(step.error)
                elif self.loop.writer is not None:
                    self.loop.writer()
            self.reaction = None

    def send(self, parts: list[Part]) -> None:
        made: list[bytes | Slice] = []
        for size, stored in parts:
            data = bytes((len(self.sent) + i) % 251 for i in range(size))
            made.append(Slice(self.files, data) if stored else data)
            if not self.transport.closed:
                self.sent += data
        self.transport.send(made)
        if self.transport.unsent_bytes:
            self.drained_due = True  # from here on, a session may wait for it

    def call(self, method: str) -> None:
        self.reading = method == "resume_reading" or (self.reading and method == "send")
        self.closing = self.closing or method == "close_when_sent"
        getattr(self.transport, method)()

    def readable(self, step: Readable) -> None:
        self.kernel.incoming += bytes((self.arrived + i) % 251 for i in range(step.arrived))
        self.arrived += step.arrived
        self.buffers, self.refused = list(step.buffers), False
        if self.loop.reader is not None:
            self.loop.reader()
            if self.refused:
                self.reading = False

    def finish_work(self, error: type[Exception] | None) -> None:
        work, self.work = self.work, None
        if work is not None:
            work.finish(None if error is None else error())

    # -- what must hold

    def check(self) -> None:
        """Check the invariants after a step."""
        kernel, loop, under_test = self.kernel, self.loop, self.transport
        assert self.sent.startswith(kernel.sent)
        assert self.read == bytes(i % 251 for i in range(len(self.read)))
        assert len(self.losses) <= 1
        assert kernel.closed == under_test.closed
        slices = self.files.slices.values()
        if under_test.closed:
            assert loop.reader is None and loop.writer is None
            assert under_test.unsent_bytes == 0
            assert all(part.closed or part.read_by_thread for part in slices)
            return
        assert not self.losses
        assert under_test.unsent_bytes == len(self.sent) - len(kernel.sent)
        waits = under_test.unsent_bytes or any(not part.closed for part in slices)
        if self.work is not None:
            assert loop.writer is None, "the loop would turn and turn while the thread reads"
        elif waits or self.drained_due:
            assert loop.writer is not None, "it stands still"
        assert (loop.reader is not None) == (self.reading and not self.closing)

    def run_out(self) -> None:
        """Let the kernel accept everything and the threads read everything from now on."""
        turns = 0
        while self.work is not None or self.loop.writer is not None:
            if self.work is not None:
                self.take(ThreadDone(None, [PLENTY], [], None))
            else:
                self.take(Writable([PLENTY], [], None))
            self.check()
            turns += 1
            assert turns < 1000, "it goes on for ever"


sizes = st.sampled_from([GATHER_BYTES, 0, 1, COPY_SLICE_BYTES, 5, TURN_BYTES, 50])
small = st.lists(st.builds(Part, st.sampled_from([5, 0, 3])), min_size=1, max_size=3)
parts = small | st.lists(st.builds(Part, sizes, st.booleans()), max_size=6)
taken: list[Outcome] = [PLENTY, 1, 3, GATHER_BYTES, BlockingIOError, InterruptedError]
outcomes = st.lists(st.sampled_from([PLENTY, *taken, *taken, *taken, OSError]), max_size=6)
cached = st.lists(st.booleans(), max_size=4)
sends = st.builds(Send, parts, outcomes, cached)
ways_to_end = st.sampled_from(["close", "close_when_sent"]).map(Call)
calls = st.sampled_from(["pause_reading", "resume_reading"]).map(Call)
reactions = st.none() | sends | calls | ways_to_end
writables = st.builds(Writable, outcomes, cached, reactions)
errors = st.sampled_from([None, None, None, None, None, OSError])
threads = st.builds(ThreadDone, errors, outcomes, cached, reactions)
buffers = st.lists(st.sampled_from([16, 16, 1, None]), max_size=6)
readables = st.builds(Readable, st.integers(0, 40), buffers, outcomes, reactions)
steps = weighted(
    (6, sends), (5, writables), (5, threads), (2, readables), (2, calls), (1, st.just(PeerLeaves()))
)


@settings(max_examples=400)
@given(st.lists(steps, max_size=16), st.none() | ways_to_end, st.lists(steps, max_size=2))
def test_whatever_kernel_and_threads_do_all_that_was_sent_comes_out(
    steps: list[Step], end: Call | None, rest: list[Step]
) -> None:
    model = Model()
    model.check()
    for step in (*steps, end, *rest):
        if step is not None:
            model.take(step)
            model.check()
    model.run_out()
    if not model.transport.closed:
        assert model.kernel.sent == model.sent
        assert not model.drained_due
        model.take(Send([Part(3), Part(50, stored=True)], [PLENTY], []))
        model.run_out()
        assert model.kernel.sent == model.sent
    assert all(part.closed for part in model.files.slices.values())
    model.transport.close()
    model.check()
