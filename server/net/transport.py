"""Reads and writes the bytes of one socket, on the loop's readiness callbacks.

asyncio's own transports join buffers before they send and cannot send files without waiting for an empty
buffer, so this is a non-blocking socket on `add_reader` and `add_writer`: `recv_into` straight into the
receiver's buffer, `sendmsg` of all small pieces at once, `sendfile` for stored slices.

Order of output: one queue of buffers and file slices. What can be sent is sent at once, without a writer
callback; a slice that is not in the page cache is read by a thread first, since sendfile would wait for
the disk and every connection with it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

from . import platform

if TYPE_CHECKING:
    from kwire.framing import SharedBlock

P = ParamSpec("P")
T = TypeVar("T")

#: Below this, copying a slice into the reply costs less than a sendfile of its own.
COPY_SLICE_BYTES = 32 * 1024
#: The amount that one connection may send before others get their turn.
TURN_BYTES = 2 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
GATHER_BYTES = 256 * 1024
READS_IN_TURN = 4
#: The memory of a queued buffer besides its bytes.
BUFFER_OVERHEAD = 64

#: The number of bytes of an invalid stream that are logged, as in Kafka. The bytes that follow may be a password.
SHOWN_BYTES = 4
#: The number of waiting stored slices that are checked for removed files.
SLICES_SEEN = 100
BUFFERS = (bytes, memoryview, bytearray)


class StoredSlice(Protocol):
    """Contiguous bytes of an open file."""

    position: int

    def __len__(self) -> int: ...
    def fileno(self) -> int: ...
    def read(self) -> bytes: ...
    def close(self) -> None: ...


class Threads(Protocol):
    """The part of the executor that a transport needs."""

    def in_thread(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]: ...


class Receiver(Protocol):
    """The receiver of the bytes that a transport reads."""

    def get_buffer(self) -> memoryview | None:
        """The buffer for the next bytes; None to stop reading until `resume_reading`."""
        ...

    def received(self, count: int) -> None:
        """Bytes are in the buffer; the transport keeps no view of it."""
        ...

    def drained(self) -> None:
        """All output has been taken by the kernel."""
        ...

    def secured(self, principal: str) -> None:
        """The peer has proved its identity, or chosen not to (TLS); called before any bytes are received."""
        ...

    def lost(self, error: OSError | None) -> None:
        """The connection is gone; called once.

        Shape: `error` is None after the peer's end of stream, or if the connection is reset while it is read.
        """
        ...


class AtOnceReceiver(Receiver, Protocol):
    """A receiver that may process bytes in place, in a block that other connections also use."""

    def shared_block(self) -> SharedBlock | None:
        """A block whose view the next bytes may go into, followed by `received_at_once`; None to use `get_buffer`."""
        ...

    def received_at_once(self, block: SharedBlock, count: int) -> None:
        """Bytes are at the beginning of the shared block; as `received`."""
        ...


class TlsError(OSError):
    """TLS with a peer failed; the message says why, for the log."""


class Transport(Protocol):
    """A stream of bytes with a peer."""

    #: Bytes given to `send` that the kernel has not accepted.
    unsent_bytes: int
    #: Bytes that the kernel has taken of those which it did not take at once.
    taken_bytes: int

    @property
    def unsent_memory(self) -> int:
        """The memory of what the kernel has not taken; stored slices cost none."""
        ...

    def holds_removed_file(self) -> bool:
        """Whether the peer has yet to read from a file that was removed, and whose room on the disk it holds."""
        ...

    def start(self, receiver: Receiver) -> None: ...
    def send(self, parts: Sequence[Any]) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def close_when_sent(self) -> None: ...


class SocketTransport:
    """A connected, non-blocking TCP socket."""

    __slots__ = (
        "_cached_end",
        "_closing",
        "_executor",
        "_faulting",
        "_fd",
        "_loop",
        "_queue",
        "_reading",
        "_receiver",
        "_session",
        "_slice_bytes",
        "_slice_sent",
        "_sock",
        "_writing",
        "closed",
        "taken_bytes",
        "unsent_bytes",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, executor: Threads
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._executor = executor
        self._receiver: Receiver | None = None
        self._session: AtOnceReceiver | None = None  # the same, if it is one
        self._queue: list[Any] = []  # a deque would take 600 bytes of each idle connection
        self._slice_bytes = 0  # bytes in the queue that are in files
        self._slice_sent = 0  # bytes sent of the slice at the head of the queue
        self._cached_end = 0  # the position up to which that slice is known to be in the page cache
        self._faulting = False
        self._reading = False
        self._writing = False
        self._closing = False
        self.closed = False
        self.taken_bytes = 0
        self.unsent_bytes = 0

    @property
    def unsent_memory(self) -> int:
        """The memory of what the kernel has not taken; stored slices cost none."""
        return self.unsent_bytes - self._slice_bytes + BUFFER_OVERHEAD * len(self._queue)

    def holds_removed_file(self) -> bool:
        """As Transport says; looks at what is sent next."""
        slices = (part for part in self._queue if not isinstance(part, BUFFERS))
        return any(os.fstat(part.fileno()).st_nlink == 0 for part in islice(slices, SLICES_SEEN))

    def start(self, receiver: Receiver) -> None:
        """Begin to read."""
        self._receiver = receiver
        if hasattr(receiver, "received_at_once"):
            self._session = cast("AtOnceReceiver", receiver)
        self.resume_reading()

    # -- in

    def pause_reading(self) -> None:
        """Leave what arrives in the kernel."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        """Resume reading."""
        if not self._reading and not self.closed and not self._closing:
            self._reading = True
            self._loop.add_reader(self._fd, self._readable)

    def _readable(self) -> None:
        receiver = self._receiver
        assert receiver is not None
        session = self._session
        if session is not None and not self._queue:
            block = session.shared_block()
            if block is not None:
                try:
                    count = self._sock.recv_into(block.view)
                except (BlockingIOError, InterruptedError):
                    return
                except OSError as error:
                    self._cut_off(error)
                    return
                if count:
                    session.received_at_once(block, count)
                else:
                    self._lost(None)
                return
        for _ in range(READS_IN_TURN):
            buffer = receiver.get_buffer()
            if buffer is None:
                if self.closed:
                    return
                if self.peer_closed():
                    self._lost(None)
                else:
                    self.pause_reading()
                return
            size = len(buffer)
            try:
                count = self._sock.recv_into(buffer)
            except (BlockingIOError, InterruptedError):
                buffer.release()
                receiver.received(0)
                return
            except OSError as error:
                buffer.release()
                self._cut_off(error)
                return
            buffer.release()
            if count == 0:
                self._lost(None)
                return
            receiver.received(count)
            if count < size or not self._reading:
                return

    def peer_closed(self) -> bool:
        """Return whether the peer has ended the stream with nothing left to read."""
        try:
            return not self._sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True

    # -- out

    def send(self, parts: Sequence[Any]) -> None:
        """Send buffers and stored slices in order; queue what the kernel does not accept now.

        Shape: buffers must not change afterwards; slices are closed once sent.
        """
        if self.closed:
            close_slices(parts)
            return
        size = slices = 0
        plain = len(parts) <= platform.IOV_MAX
        for part in parts:
            size += len(part)
            if not isinstance(part, BUFFERS):
                plain = False
                slices += len(part)
        queue = self._queue
        if queue:
            queue.extend(parts)
            self.unsent_bytes += size
            self._slice_bytes += slices
        elif plain and size <= GATHER_BYTES:
            try:
                sock = self._sock
                sent = sock.send(parts[0]) if len(parts) == 1 else sock.sendmsg(parts)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._lost(error)
                return
            if sent != size:
                queue.extend(parts)
                self.unsent_bytes = size - sent
                self._drop_sent(sent, len(parts))
                self._want_write()
        else:
            queue.extend(parts)
            self.unsent_bytes = size
            self._slice_bytes = slices
            self._flush()

    def _writable(self) -> None:
        self._flush(waited=True)
        # Not `unsent_bytes`: a turn may end before an empty part, and later output would be stuck behind it.
        if not self._queue and not self.closed:
            if self._writing:
                self._writing = False
                self._loop.remove_writer(self._fd)
            if self._closing:
                self._lost(None)
            elif self._receiver is not None:
                self._receiver.drained()

    def _want_write(self) -> None:
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self._fd, self._writable)

    def _flush(self, *, waited: bool = False) -> None:
        """Send until the queue is empty, the kernel accepts no more, or this connection's turn is over.

        Shape: if the peer was `waited` for, a partially sent slice usually means that there is no room.
        """
        if self._faulting:
            return
        turn = TURN_BYTES
        queue = self._queue
        is_full = False
        try:
            while queue and turn > 0:
                head = queue[0]
                if isinstance(head, BUFFERS):
                    sent = self._send_buffers()
                elif self._copy_slice(head, 0):
                    continue
                else:
                    sent = self._send_slice(head)
                    if sent < 0:
                        self._stop_writing()
                        return
                    is_full = waited and self._slice_sent > 0 and sent < CHUNK_BYTES
                turn -= sent
                self.unsent_bytes -= sent
                self.taken_bytes += sent
                if is_full:
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._lost(error)
            return
        if queue:
            self._want_write()

    def _stop_writing(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)

    def _send_buffers(self) -> int:
        """Send everything before the next large slice in one call."""
        queue = self._queue
        gathered = number = flags = 0
        for part in queue:
            if not isinstance(part, BUFFERS) and not self._copy_slice(part, number):
                flags = platform.MSG_MORE
                break
            gathered += len(part)
            number += 1
            if gathered >= GATHER_BYTES or number == platform.IOV_MAX:
                break
        sent = self._sock.sendmsg(queue[:number], (), flags)
        self._drop_sent(sent, number)
        return sent

    def _drop_sent(self, sent: int, number: int) -> None:
        """Remove the bytes that were sent from the front of the queue."""
        queue = self._queue
        left = sent
        whole = 0
        while whole < number and left >= len(queue[whole]):  # empty parts go as well
            left -= len(queue[whole])
            whole += 1
        del queue[:whole]
        if left:
            queue[0] = memoryview(queue[0])[left:]

    def _copy_slice(self, part: StoredSlice, number: int) -> bool:
        """Replace a small cached slice in the queue with its bytes; return whether that was possible."""
        start = 0 if number else self._slice_sent
        left = len(part) - start
        if left > COPY_SLICE_BYTES:
            return False
        data = platform.read_cached(part.fileno(), part.position + start, left)
        if data is None:
            return False
        self._queue[number] = data
        self._slice_bytes -= left
        if not number:
            self._slice_sent = self._cached_end = 0
        part.close()
        return True

    def _send_slice(self, head: StoredSlice) -> int:
        """Send from the slice's file; -1 if a thread has to read it first."""
        fd = head.fileno()
        position = head.position + self._slice_sent
        left = len(head) - self._slice_sent
        count = min(left, CHUNK_BYTES)
        if left == 0:
            sent = 0
        else:
            if position >= self._cached_end:
                if not platform.is_cached(fd, position, count):
                    self._fault(head, platform.fault_in, count)
                    return -1
                self._cached_end = position + count
            sent = platform.send_file(
                self._fd, fd, position, min(left, self._cached_end - position)
            )
            if sent == 0:
                raise OSError(f"stored slice ends {left} bytes before it should")
        self._slice_sent += sent
        self._slice_bytes -= sent
        if sent == left:
            del self._queue[0]
            self._slice_sent = self._cached_end = 0
            head.close()
        return sent

    def _fault(self, head: StoredSlice, read: Callable[[int, int, int], Any], count: int) -> None:
        """Have a thread read data that is not in the page cache, then continue sending.

        Shape: `read` takes a descriptor, a position and a number of bytes; its result goes to `_faulted`.
        """
        self._faulting = True
        position = head.position + self._slice_sent

        def done(future: asyncio.Future[Any]) -> None:
            # `head` is held here so that its descriptor stays open while the thread reads.
            self._faulting = False
            error = future.exception()
            if self.closed:
                head.close()
            elif isinstance(error, OSError):
                self._lost(error)
            else:
                self._faulted(position + count, future.result())
                self._writable()

        reading = self._executor.in_thread(read, head.fileno(), position, count)
        reading.add_done_callback(done)

    def _faulted(self, end: int, data: Any) -> None:
        """The slice at the head of the queue has been read up to this position."""
        # Not checked again: if the pages have already been evicted, sendfile waits for the disk.
        self._cached_end = end

    # -- end

    def close_when_sent(self) -> None:
        """Stop reading, and close when all output has been sent."""
        self._closing = True
        self.pause_reading()
        if not self._queue:
            self._lost(None)

    def close(self) -> None:
        """Close now; unsent data is dropped."""
        if self.closed:
            return
        self.closed = True
        self.pause_reading()
        self._stop_writing()
        platform.close(self._sock)
        queue, self._queue = self._queue, []
        # A slice that a thread is reading is closed when it has been read.
        close_slices(queue[1:] if self._faulting else queue)
        self.unsent_bytes = self._slice_bytes = 0
        self._receiver = self._session = (
            None  # else each would keep the other until a collection of garbage
        )

    def _cut_off(self, error: OSError) -> None:
        """Reading failed; a reset is what peers do that leave replies unread, and thus an end."""
        self._lost(None if isinstance(error, ConnectionResetError) else error)

    def _lost(self, error: OSError | None) -> None:
        if self.closed:
            return
        receiver = self._receiver
        self.close()
        if receiver is not None:
            receiver.lost(error)


def close_slices(parts: Any) -> None:
    """Close the stored slices among parts that will not be sent."""
    for part in parts:
        if not isinstance(part, BUFFERS):
            part.close()
