"""A simulated kernel, loop, files and threads for the socket transports, controlled by a test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st

from server.net import platform, transport
from server.net.transport import SocketTransport

# Small enough that a few bytes reach each limit.
COPY_SLICE_BYTES = 4
GATHER_BYTES = 16
CHUNK_BYTES = 16
TURN_BYTES = 32
IOV_MAX = 4

FD = 7
PLENTY = 10**6

#: The result of a call into the kernel: the most bytes that it takes or returns, or an error.
Outcome = int | type[OSError]


def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the transport use these files, with limits that a few bytes reach."""
    monkeypatch.setattr(transport, "COPY_SLICE_BYTES", COPY_SLICE_BYTES)
    monkeypatch.setattr(transport, "GATHER_BYTES", GATHER_BYTES)
    monkeypatch.setattr(transport, "CHUNK_BYTES", CHUNK_BYTES)
    monkeypatch.setattr(transport, "TURN_BYTES", TURN_BYTES)
    monkeypatch.setattr(platform, "IOV_MAX", IOV_MAX)
    for name in ("send_file", "is_cached", "read_cached", "fault_in"):
        monkeypatch.setattr(platform, name, of_files(name))


def of_files(name: str) -> Callable[..., Any]:
    """A function of `platform`, replaced by that of the current test's files."""

    def call(*args: Any) -> Any:
        return getattr(Files.now, name)(*args)

    return call


class Slice:
    """A stored slice, which is its file's only content."""

    def __init__(self, files: Files, data: bytes) -> None:
        self.position = 1000
        self.data = data
        self.closed = False
        self.read_by_thread = False
        self._fd = 100 + len(files.slices)
        files.slices[self._fd] = self

    def __len__(self) -> int:
        return len(self.data)

    def fileno(self) -> int:
        assert not self.closed, "its descriptor may be another file's by now"
        return self._fd

    def read(self) -> bytes:
        return self.data

    def close(self) -> None:
        assert not self.closed, "closed twice"
        assert not self.read_by_thread, "closed while a thread reads it"
        self.closed = True


class Files:
    """Files and the page cache, in place of `platform`."""

    now: Files

    def __init__(self, kernel: Kernel) -> None:
        Files.now = self
        self._kernel = kernel
        self.slices: dict[int, Slice] = {}
        self.cached: list[bool] = []  # the answers, in turn; without any nothing is in the cache
        self._looked_at: dict[int, int] = {}  # up to where a slice was found or put in the cache

    def _cut(self, fd: int, position: int, count: int) -> bytes:
        part = self.slices[fd]
        assert not part.closed
        start = position - part.position
        assert 0 <= start <= start + count <= len(part), "beyond the slice"
        return part.data[start : start + count]

    def _is_cached(self) -> bool:
        if not self.cached:
            return False
        self.cached.append(self.cached.pop(0))
        return self.cached[-1]

    def send_file(self, sock_fd: int, fd: int, position: int, count: int) -> int:
        assert sock_fd == FD and count > 0
        assert position + count <= self._looked_at.get(fd, 0), "the loop may wait for the disk"
        return self._kernel.take(self._cut(fd, position, count))

    def is_cached(self, fd: int, position: int, count: int) -> bool:
        assert self._cut(fd, position, count)
        if not self._is_cached():
            return False
        self._looked_at[fd] = position + count
        return True

    def read_cached(self, fd: int, position: int, count: int) -> bytearray | None:
        data = self._cut(fd, position, count)
        return bytearray(data) if self._is_cached() else None

    def fault_in(self, fd: int, position: int, count: int) -> None:
        assert self._cut(fd, position, count)
        self._looked_at[fd] = position + count


class Kernel:
    """The socket, and the other end of it."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []  # of calls, in turn; without any it would block
        self.calls = 0  # of one step
        self.sent = bytearray()
        self.incoming = bytearray()
        self.peer_gone = False
        self.is_shut = False
        self.closed = False

    def _next(self) -> int:
        self.calls += 1
        assert self.calls < 1000, "the loop never gets its turn"
        if not self.outcomes:
            raise BlockingIOError
        self.outcomes.append(outcome := self.outcomes.pop(0))
        if isinstance(outcome, int):
            return outcome
        raise outcome

    def take(self, data: bytes) -> int:
        assert not self.closed
        count = min(self._next(), len(data))
        self.sent += data[:count]
        return count

    # -- the socket

    def fileno(self) -> int:
        return FD

    def send(self, data: bytes) -> int:
        return self.take(data)

    def sendmsg(self, parts: Sequence[Any], ancillary: object = (), flags: int = 0) -> int:
        assert len(parts) <= IOV_MAX
        return self.take(b"".join(parts))

    def recv_into(self, buffer: memoryview) -> int:
        assert not self.closed
        count = min(self._next(), len(buffer), len(self.incoming))
        if not count and not self.peer_gone:
            raise BlockingIOError
        buffer[:count] = self.incoming[:count]
        del self.incoming[:count]
        return count

    def recv(self, size: int, flags: int) -> bytes:
        if not self.incoming and not self.peer_gone:
            raise BlockingIOError
        return bytes(self.incoming[:size])

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        return bytes(size)

    def shutdown(self, how: int) -> None:
        assert not self.closed and not self.is_shut
        self.is_shut = True

    def close(self) -> None:
        assert not self.closed and self.is_shut
        self.closed = True


class Loop:
    """The registered callbacks, and those of the next turn."""

    def __init__(self) -> None:
        self.reader: Callable[[], None] | None = None
        self.writer: Callable[[], None] | None = None
        self.soon: list[Callable[[], None]] = []

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        assert fd == FD
        self.reader = callback

    def remove_reader(self, fd: int) -> None:
        self.reader = None

    def add_writer(self, fd: int, callback: Callable[[], None]) -> None:
        self.writer = callback

    def remove_writer(self, fd: int) -> None:
        self.writer = None

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)


class Work:
    """The work given to a thread, and its future."""

    def __init__(self, part: Slice, run: Callable[[], Any]) -> None:
        self._part = part
        self._run = run
        self._result: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Work], None]] = []
        part.read_by_thread = True

    def add_done_callback(self, callback: Callable[[Work], None]) -> None:
        self._callbacks.append(callback)

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> Any:
        return self._result

    def finish(self, error: BaseException | None) -> None:
        self._result = self._run()
        self._part.read_by_thread = False
        self._error = error
        for callback in self._callbacks:
            callback(self)


class Part(NamedTuple):
    """A piece of a reply that a step sends."""

    size: int
    stored: bool = False


class Send(NamedTuple):
    parts: list[Part]
    outcomes: list[Outcome]
    cached: list[bool]


class Call(NamedTuple):
    method: str


class PeerLeaves(NamedTuple):
    pass


class Surroundings:
    """A transport's loop, threads and receiver, its input and output, and the invariants of all transports.

    Shape: the bytes of either direction count up, so that each position has its value.
    """

    transport: SocketTransport

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.files = Files(kernel)
        self.loop = Loop()
        self.work: Work | None = None
        self.sent = bytearray()  # the data passed to the transport
        self.arrived = 0
        self.read = bytearray()
        self.reading = True  # as requested by the receiver
        self.buffers: list[int | None] = []
        self.buffer = bytearray()
        self.closing = False
        self.losses: list[OSError | None] = []

    def in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        assert self.work is None, "two threads for one connection"
        self.work = Work(self.files.slices[args[0]], lambda: function(*args))
        return self.work

    def finish_work(self, error: type[Exception] | None = None) -> None:
        work, self.work = self.work, None
        if work is not None:
            work.finish(None if error is None else error())

    # -- the receiver

    def get_buffer(self) -> memoryview | None:
        assert not self.transport.closed
        size = self.buffers.pop(0) if self.buffers else None
        if size is None:
            self.reading = False
        self.buffer = bytearray(size or 0)
        return None if size is None else memoryview(self.buffer)

    def received(self, count: int) -> None:
        assert not self.transport.closed
        self.read += self.buffer[:count]
        self.buffer.clear()  # fails while the transport keeps a view of it

    def drained(self) -> None:
        assert not self.transport.closed and not self.closing
        assert self.kernel.sent == self.sent and self.transport.unsent_bytes == 0

    def lost(self, error: OSError | None) -> None:
        assert self.transport.closed
        if error is None:
            assert self.closing or self.kernel.peer_gone
        else:
            assert not isinstance(error, BlockingIOError | InterruptedError)
        self.losses.append(error)

    # -- steps

    def send(self, parts: list[Part]) -> None:
        made: list[bytes | Slice] = []
        for size, stored in parts:
            data = counting(len(self.sent), size)
            made.append(Slice(self.files, data) if stored else data)
            if not self.transport.closed:
                self.sent += data
        self.transport.send(made)

    def call(self, method: str) -> None:
        self.reading = method == "resume_reading"
        self.closing = self.closing or method == "close_when_sent"
        getattr(self.transport, method)()

    def arrive(self, size: int) -> bytes:
        """The next bytes of the peer."""
        self.arrived += size
        return counting(self.arrived - size, size)

    # -- what must hold

    @property
    def all_slices_closed(self) -> bool:
        return all(part.closed for part in self.files.slices.values())

    def is_open(self) -> bool:
        """Check the invariants after each step, and return whether the transport is open."""
        kernel, loop, under_test = self.kernel, self.loop, self.transport
        assert self.sent.startswith(kernel.sent)
        assert self.read == counting(0, len(self.read))
        assert len(self.losses) <= 1
        assert kernel.closed == under_test.closed
        if under_test.closed:
            assert loop.reader is None and loop.writer is None
            assert under_test.unsent_bytes == 0
            slices = self.files.slices.values()
            assert all(part.closed or part.read_by_thread for part in slices)
            return False
        assert not self.losses
        assert under_test.unsent_bytes == len(self.sent) - len(kernel.sent)
        return True


def counting(start: int, size: int) -> bytes:
    """Bytes whose values show their position in a stream."""
    return bytes((start + i) % 251 for i in range(size))


def weighted(*choices: tuple[int, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """One of the strategies, drawn in proportion to its weight; `one_of` draws all equally."""
    return st.sampled_from([each for weight, each in choices for _ in range(weight)]).flatmap(
        lambda chosen: chosen
    )
