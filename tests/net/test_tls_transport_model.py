"""The TLS transport with a simulated OpenSSL, loop and threads, whose actions Hypothesis chooses.

As in test_transport_model.py, there is no time: a step is a call by the session, a readiness callback, a callback of
the loop's next turn, or a thread that finishes. OpenSSL may take or return a part of a record, and may need to write in
order to read, or to read in order to write.
"""

from __future__ import annotations

import ssl
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from server.net import platform, tls_transport
from server.net.tls_transport import Handshakes, Records, TlsTransport
from tests.net.kernel import (
    PLENTY,
    Call,
    Files,
    Kernel,
    Outcome,
    Part,
    PeerLeaves,
    Send,
    Surroundings,
    weighted,
)

RECORD_BYTES = 8


class OpenSsl(Kernel):
    """The socket, OpenSSL and the other end of the connection.

    Shape: `incoming` is in the kernel, in records; `decrypted` is what OpenSSL holds of one record.
    """

    def __init__(self) -> None:
        super().__init__()
        self.decrypted = bytearray()
        self.records: list[bytes] = []
        self.wants_read = False  # in order to send
        self.refused: bytes | None = None  # data that could not be sent, and has to be sent next

    def do_handshake(self) -> None:
        return

    def unwrap(self) -> None:
        raise ssl.SSLWantReadError

    def pending(self) -> int:
        return len(self.decrypted)

    def read(self, size: int, buffer: memoryview) -> int:
        assert not self.closed and size == len(buffer) > 0
        if not self.decrypted:
            outcome = self._outcome()
            if not self.records:
                if self.peer_gone:
                    return 0
                raise ssl.SSLWantReadError
            assert outcome
            self.decrypted += self.records.pop(0)
        count = min(size, len(self.decrypted))
        buffer[:count] = self.decrypted[:count]
        del self.decrypted[:count]
        return count

    def send(self, data: Any) -> int:
        assert not self.closed and len(data), "OpenSSL refuses to send nothing"
        if self.refused is not None:
            assert bytes(data[: len(self.refused)]) == self.refused, "bad write retry"
        self.refused = bytes(data[:RECORD_BYTES])
        self.wants_read = False
        try:
            outcome = self._outcome()
        except ssl.SSLWantReadError:
            self.wants_read = True
            raise
        count = min(outcome, len(data), RECORD_BYTES)
        self.refused = None
        self.sent += data[:count]
        return count

    def _outcome(self) -> int:
        self.calls += 1
        assert self.calls < 1000, "the loop never gets its turn"
        if not self.outcomes:
            raise ssl.SSLWantWriteError if self.refused is not None else ssl.SSLWantReadError
        self.outcomes.append(outcome := self.outcomes.pop(0))
        if isinstance(outcome, int):
            return outcome
        raise outcome


class Done:
    """The future of a handshake that is complete."""

    def done(self) -> bool:
        return True


class Writable(NamedTuple):
    outcomes: list[Outcome]
    cached: list[bool]


class ThreadDone(NamedTuple):
    outcomes: list[Outcome]


class Readable(NamedTuple):
    arrived: list[int]
    buffers: list[int | None]
    outcomes: list[Outcome]
    pauses: bool = False


Step = Send | Writable | ThreadDone | Readable | Call | PeerLeaves


class Model(Surroundings):
    """The transport with its surroundings, and the invariants."""

    def __init__(self) -> None:
        self.openssl = OpenSsl()
        super().__init__(self.openssl)
        self.pauses = False
        self.transport = self.tls = TlsTransport(
            self.loop, self.openssl, self, Handshakes(), Records()
        )  # type: ignore[arg-type]
        self.tls._secured = Done()  # type: ignore[assignment]
        self.tls.start(self)

    # -- the receiver

    def received(self, count: int) -> None:
        super().received(count)
        if self.pauses:
            self.reading = self.pauses = False
            self.transport.pause_reading()

    def secured(self, principal: str) -> None:
        raise AssertionError

    # -- steps

    def take(self, step: Step) -> None:
        openssl, loop = self.openssl, self.loop
        openssl.calls = 0
        if isinstance(step, Call):
            self.call(step.method)
        elif isinstance(step, PeerLeaves):
            openssl.peer_gone = True
        else:
            openssl.outcomes = list(step.outcomes)
            if isinstance(step, Send):
                self.files.cached = list(step.cached)
                self.send(step.parts)
            elif isinstance(step, Readable):
                self.readable(step)
            elif isinstance(step, ThreadDone):
                self.finish_work()
            else:
                self.files.cached = list(step.cached)
                if loop.writer is not None:
                    loop.writer()
        openssl.outcomes = [PLENTY]
        while loop.soon and not self.transport.closed:
            openssl.calls = 0
            loop.soon.pop(0)()

    def readable(self, step: Readable) -> None:
        if not self.openssl.peer_gone:
            self.openssl.records += map(self.arrive, step.arrived)
        self.buffers, self.pauses = list(step.buffers), step.pauses
        if self.loop.reader is not None:
            self.loop.reader()

    # -- what must hold

    def check(self) -> None:
        """Check the invariants after a step."""
        if not self.is_open():
            return
        openssl, loop, under_test = self.openssl, self.loop, self.tls
        if openssl.wants_read and not under_test._read_wants_write:
            assert loop.writer is None, (
                "the loop would turn and turn until there is something to read"
            )
        if self.work is not None:
            waits_to_write = under_test._read_wants_write
            assert loop.writer is None or waits_to_write, "the loop would turn and turn"
        elif under_test.unsent_bytes or not self.all_slices_closed:
            waits_to_read = under_test._flush_wants_read and loop.reader is not None
            assert loop.writer is not None or waits_to_read, "it stands still"
        if self.reading and not self.closing:
            assert loop.reader is not None, "it hears of nothing"
            assert not openssl.decrypted, "nobody tells of what OpenSSL holds"

    def run_out(self) -> None:
        """Let everything be accepted and returned from now on."""
        for _ in range(1000):
            if self.work is not None:
                self.take(ThreadDone([PLENTY]))
            elif self.loop.writer is not None:
                self.take(Writable([PLENTY], []))
            elif self.tls._flush_wants_read and self.loop.reader is not None:
                self.take(Readable([], [16] * 50, [PLENTY]))
            else:
                return
            self.check()
        raise AssertionError("it goes on for ever")


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_transport, "RECORD_BYTES", RECORD_BYTES)
    monkeypatch.setattr(tls_transport, "SLICE_BYTES", 20)
    monkeypatch.setattr(tls_transport, "READ_TURN_BYTES", 40)
    monkeypatch.setattr(tls_transport, "TURN_RECORDS", 3)
    monkeypatch.setattr("server.net.transport.TURN_BYTES", 32)
    monkeypatch.setattr(platform, "read_cached", lambda *place: Files.now.read_cached(*place))
    monkeypatch.setattr(platform, "read_file", lambda *place: bytearray(Files.now._cut(*place)))


errors: list[Outcome] = [ssl.SSLWantWriteError, ssl.SSLWantReadError]
outcomes = st.lists(st.sampled_from([PLENTY, PLENTY, PLENTY, 1, 3, *errors, OSError]), max_size=6)
out = st.lists(st.sampled_from([PLENTY, PLENTY, 1, 3, *errors]), max_size=6)
sizes = st.sampled_from([0, 1, 5, 8, 20, 50])
parts = st.lists(st.builds(Part, sizes, st.booleans()), min_size=1, max_size=5)
cached = st.lists(st.booleans(), max_size=4)
buffers = st.lists(st.sampled_from([16, 16, 3, 1, None]), max_size=8)
steps = weighted(
    (5, st.builds(Send, parts, outcomes, cached)),
    (4, st.builds(Writable, out, cached)),
    (4, st.builds(ThreadDone, out)),
    (5, st.builds(Readable, st.lists(st.integers(1, 20), max_size=3), buffers, out, st.booleans())),
    (2, st.sampled_from(["pause_reading", "resume_reading"]).map(Call)),
    (1, st.just(PeerLeaves())),
)
ends = st.none() | st.sampled_from(["close", "close_when_sent"]).map(Call)


@settings(max_examples=300)
@example([Readable([20], [3], [PLENTY], pauses=True), Call("resume_reading")], None)
@example([Send([Part(5)], [ssl.SSLWantReadError], [])], None)
@example(  # OpenSSL needs to read more than once for sent data, while the receiver reads nothing
    [
        Send([Part(1)], [ssl.SSLWantReadError], []),
        Call("pause_reading"),
        Readable([], [], [ssl.SSLWantReadError]),
    ],
    None,
)
@given(st.lists(steps, max_size=16), ends)
def test_whatever_openssl_and_threads_do_all_that_was_sent_comes_out(
    steps: list[Step], end: Call | None
) -> None:
    model = Model()
    for step in (*steps, end):
        if step is not None:
            model.take(step)
            model.check()
    model.run_out()
    if not model.transport.closed:
        assert model.openssl.sent == model.sent
    assert model.all_slices_closed
    model.transport.close()
    model.check()
