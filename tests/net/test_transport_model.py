"""The socket transport with a simulated kernel, loop and threads, whose actions Hypothesis chooses.

There is no time here: a step is a call by the session, a readiness callback or a thread that
finishes. After each step it must be possible to continue, and at the end all bytes have been sent.
"""

from __future__ import annotations

from typing import NamedTuple

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
    Call,
    Kernel,
    Outcome,
    Part,
    PeerLeaves,
    Send,
    Surroundings,
    weighted,
)


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.small_bounds(monkeypatch)


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


Reaction = Send | Call | None
Step = Send | Writable | ThreadDone | Readable | Call | PeerLeaves


class Model(Surroundings):
    """The transport with its surroundings, and the invariants."""

    def __init__(self) -> None:
        super().__init__(Kernel())
        self.reaction: Reaction = None
        self.drained_due = False
        self.transport = SocketTransport(self.loop, self.kernel, self)  # type: ignore[arg-type]
        self.transport.start(self)  # type: ignore[arg-type]

    # -- the receiver

    def received(self, count: int) -> None:
        super().received(count)
        if count:
            self.react()

    def drained(self) -> None:
        super().drained()
        assert self.all_slices_closed
        assert self.loop.writer is None
        self.drained_due = False
        self.react()

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
        super().send(parts)
        if self.transport.unsent_bytes:
            self.drained_due = True  # from here on, a session may wait for it

    def readable(self, step: Readable) -> None:
        self.kernel.incoming += self.arrive(step.arrived)
        self.buffers = list(step.buffers)
        if self.loop.reader is not None:
            self.loop.reader()

    # -- what must hold

    def check(self) -> None:
        """Check the invariants after a step."""
        if not self.is_open():
            return
        loop, under_test = self.loop, self.transport
        if self.work is not None:
            assert loop.writer is None, "the loop would turn and turn while the thread reads"
        elif under_test.unsent_bytes or not self.all_slices_closed or self.drained_due:
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
    assert model.all_slices_closed
    model.transport.close()
    model.check()
